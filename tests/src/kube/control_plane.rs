//! The command lines of etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

use crate::process::Invocation;

use super::ClusterOptions;
use super::assets::{Assets, NodeAssets};
use super::files::{self, Files};

/// The addresses of Services, as kubeadm has them.
const SERVICE_RANGE: &str = "10.96.0.0/16";

/// The etcd of all records but those of [`EVENTS_ETCD`], if there is one.
pub(super) const ETCD: &str = "etcd";

/// An etcd for events alone, as large clusters have it.
pub(super) const EVENTS_ETCD: &str = "etcd-events";

/// etcd on a Unix socket: it needs no port, and nobody but the owner of the folder reaches it.
pub(super) fn etcd(assets: &Assets, options: &ClusterOptions, files: &Files, name: &str) -> Invocation {
    let endpoint = endpoint(files, name);
    let peer = format!("unix://{}", files.path(&format!("{name}-peer.sock")).display());
    let flags = [
        "--name=edge".to_owned(),
        format!("--data-dir={}", files.path(name).display()),
        // The data lives as long as the test does: nothing is gained by waiting for a disk.
        "--unsafe-no-fsync".to_owned(),
        format!("--listen-client-urls={endpoint}"),
        format!("--advertise-client-urls={endpoint}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=edge={peer}"),
        "--log-level=warn".to_owned(),
    ];
    Invocation::of(&assets.etcd).arguments(flags).in_network_namespace(options.network_namespace.clone())
}

/// kube-apiserver as kubeadm configures it, as far as these clusters need it.
pub(super) fn apiserver(assets: &Assets, options: &ClusterOptions, port: u16, files: &Files) -> Invocation {
    let path = |name: &str| files.path(name).display().to_string();
    // Where no controller makes the ServiceAccount `default` of a namespace, this plugin would refuse all
    // pods.
    let without = if options.has_controllers { "" } else { "ServiceAccount" };
    let flags = [
        ("etcd-servers", endpoint(files, ETCD)),
        ("bind-address", options.address.to_string()),
        ("secure-port", port.to_string()),
        ("advertise-address", options.advertise.to_string()),
        ("service-cluster-ip-range", SERVICE_RANGE.to_owned()),
        ("tls-cert-file", path(files::SERVER_CERTIFICATE)),
        ("tls-private-key-file", path(files::SERVER_KEY)),
        ("client-ca-file", path(files::CA)),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("allow-privileged", "true".to_owned()),
        ("disable-admission-plugins", without.to_owned()),
        ("kubelet-client-certificate", path(files::KUBELET_CLIENT_CERTIFICATE)),
        ("kubelet-client-key", path(files::KUBELET_CLIENT_KEY)),
        ("kubelet-preferred-address-types", "InternalIP".to_owned()),
        ("service-account-issuer", "https://kubernetes.default.svc.cluster.local".to_owned()),
        ("service-account-key-file", path(files::ACCOUNT_PUBLIC_KEY)),
        ("service-account-signing-key-file", path(files::ACCOUNT_KEY)),
        ("requestheader-client-ca-file", path(files::FRONT_PROXY_CA)),
        ("requestheader-allowed-names", files::FRONT_PROXY_NAME.to_owned()),
        ("requestheader-username-headers", "X-Remote-User".to_owned()),
        ("requestheader-group-headers", "X-Remote-Group".to_owned()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned()),
        ("proxy-client-cert-file", path(files::FRONT_PROXY_CERTIFICATE)),
        ("proxy-client-key-file", path(files::FRONT_PROXY_KEY)),
        ("audit-policy-file", path(files::AUDIT_POLICY)),
        ("audit-log-path", path(files::AUDIT_LOG)),
        ("feature-gates", options.feature_gates.join(",")),
        // A Service's pods, where there are some, are reached without kube-proxy.
        ("enable-aggregator-routing", options.has_controllers.to_string()),
    ];
    let egress = options
        .egress_selector
        .iter()
        .map(|file| ("egress-selector-config-file", file.display().to_string()));
    let events = options
        .has_events_etcd
        .then(|| ("etcd-servers-overrides", format!("/events#{}", endpoint(files, EVENTS_ETCD))));
    let flags =
        flags.into_iter().chain(egress).chain(events).map(|(name, value)| format!("--{name}={value}"));
    let flags = flags.chain(options.apiserver_flags.iter().map(|flag| (*flag).to_owned()));
    Invocation::of(&assets.apiserver).arguments(flags).in_network_namespace(options.network_namespace.clone())
}

/// kube-controller-manager as a cluster-admin, with all its controllers, and listening nowhere.
pub(super) fn controller_manager(assets: &NodeAssets, options: &ClusterOptions, files: &Files) -> Invocation {
    let path = |name: &str| files.path(name).display().to_string();
    let flags = [
        ("kubeconfig", path(files::ADMIN_KUBECONFIG)),
        ("service-account-private-key-file", path(files::ACCOUNT_KEY)),
        ("root-ca-file", path(files::CA)),
        // For the certificates of kubelets that join.
        ("cluster-signing-cert-file", path(files::CA)),
        ("cluster-signing-key-file", path(files::CA_KEY)),
        ("leader-elect", "false".to_owned()),
        // As kubeadm has them: those that sign cluster-info for tokens, and remove old tokens, are off otherwise.
        ("controllers", "*,bootstrapsigner,tokencleaner".to_owned()),
        ("secure-port", "0".to_owned()),
    ];
    let flags = flags.into_iter().map(|(name, value)| format!("--{name}={value}"));
    Invocation::of(&assets.controller_manager)
        .arguments(flags)
        .in_network_namespace(options.network_namespace.clone())
}

/// The command line of kube-scheduler, with the same options.
pub(super) fn scheduler(assets: &NodeAssets, options: &ClusterOptions, files: &Files) -> Invocation {
    let kubeconfig = format!("--kubeconfig={}", files.path(files::ADMIN_KUBECONFIG).display());
    Invocation::of(&assets.scheduler)
        .arguments([kubeconfig, "--leader-elect=false".to_owned(), "--secure-port=0".to_owned()])
        .in_network_namespace(options.network_namespace.clone())
}

fn endpoint(files: &Files, name: &str) -> String {
    format!("unix://{}", files.path(&format!("{name}.sock")).display())
}
