//! The files of a worker's kubelet: its configuration, the credential of its first start, and its unit.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::cri::CgroupDriver;
use super::load_balancer::CA;
use super::machine::{KUBELET_KUBECONFIG, KUBELET_STATE, KubeletProgram, LB};
use super::systemd::{KUBELET_UNIT, UNITS};
use crate::files::NewFile;
use crate::names::BootstrapToken;
use crate::yaml;

/// The kubeconfig with the bootstrap token. The join removes it when kubelet has a certificate.
pub(super) const BOOTSTRAP: &str = "etc/kubernetes/bootstrap-kubelet.conf";

const CONFIGURATION: &str = "var/lib/kubelet/config.yaml";

/// The folder of static pods, which kubelet's configuration of kubeadm names.
pub(super) const STATIC_PODS: &str = "etc/kubernetes/manifests";

/// The folder of volume plugins, which kubelet makes.
pub(super) const VOLUME_PLUGINS: &str = "usr/libexec/kubernetes/kubelet-plugins/volume/exec";

/// The folders of pods' logs, which kubelet makes.
pub(super) const LOGS: [&str; 2] = ["var/log/pods", "var/log/containers"];

/// Places where the package of kubelet puts its unit.
const PACKAGED: [&str; 3] = ["usr/lib/systemd/system", "lib/systemd/system", "usr/local/lib/systemd/system"];

/// Most minor releases that kubelet may be older than its API server (Kubernetes' version skew policy).
const OLDER_MINORS_MAX: u32 = 3;

/// This kubelet does not fit the cluster or the container runtime.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KubeletError {
    #[error(
        "kubelet {kubelet} is newer than the API server {api_server}, which Kubernetes does not support; install kubelet {api_server}"
    )]
    Newer {
        /// The version of this machine's kubelet.
        kubelet: String,
        /// The version of the API server.
        api_server: String,
    },
    #[error(
        "kubelet {kubelet} is more than {OLDER_MINORS_MAX} minor releases older than the API server {api_server}; install kubelet {api_server}"
    )]
    TooOld {
        /// The version of this machine's kubelet.
        kubelet: String,
        /// The version of the API server.
        api_server: String,
    },
    #[error("{0:?} is no version of Kubernetes")]
    NoVersion(String),
    #[error("the ConfigMap kube-system/kubelet-config has no KubeletConfiguration")]
    NoConfiguration,
    #[error(
        "the cluster's kubelets use the cgroup driver {cluster:?} (ConfigMap kube-system/kubelet-config), and this machine's container runtime \
         uses {runtime:?}; set it in the runtime (containerd: SystemdCgroup in /etc/containerd/config.toml), and restart that"
    )]
    CgroupDriver {
        /// The driver of the cluster's kubelets.
        cluster: String,
        /// The driver of the runtime.
        runtime: &'static str,
    },
}

/// Refuses a kubelet that is newer than the API server, or too old for it.
pub(super) fn check_skew(kubelet: &str, api_server: &str) -> Result<(), KubeletError> {
    let (ours, theirs) = (minor(kubelet)?, minor(api_server)?);
    let (kubelet, api_server) = (kubelet.to_owned(), api_server.to_owned());
    if ours > theirs {
        Err(KubeletError::Newer { kubelet, api_server })
    } else if (ours.0, ours.1 + OLDER_MINORS_MAX) < theirs {
        Err(KubeletError::TooOld { kubelet, api_server })
    } else {
        Ok(())
    }
}

/// The major and the minor of `v1.36.3`.
fn minor(version: &str) -> Result<(u32, u32), KubeletError> {
    let mut parts = version.trim_start_matches('v').split('.').map(|part| part.parse().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => Ok((major, minor)),
        _ => Err(KubeletError::NoVersion(version.to_owned())),
    }
}

/// The cluster's configuration of kubelets, for this machine.
#[derive(Debug)]
pub(super) struct KubeletConfiguration(Map<String, Value>);

impl KubeletConfiguration {
    /// Reads it as the ConfigMap has it, and sets what is this machine's own: the CA's file, the runtime's socket and DNS servers.
    ///
    /// # Errors
    /// [`KubeletError::NoConfiguration`]
    pub(super) fn new(text: &str, socket: &Path, resolver: Option<&str>) -> Result<Self, KubeletError> {
        let parsed: Option<Value> = serde_saphyr::from_str(text).ok();
        let Some(Value::Object(mut config)) = parsed else { return Err(KubeletError::NoConfiguration) };
        if config.get("kind") != Some(&json!("KubeletConfiguration")) {
            return Err(KubeletError::NoConfiguration);
        }
        let mut set = |key: &str, value: Value| drop(config.insert(key.to_owned(), value));
        set("containerRuntimeEndpoint", json!(format!("unix://{}", socket.display())));
        set("rotateCertificates", json!(true));
        if let Some(resolver) = resolver {
            set("resolvConf", json!(resolver));
        }
        let authentication = config.entry("authentication").or_insert_with(|| json!({}));
        authentication["x509"] = json!({ "clientCAFile": format!("/{CA}") });
        Ok(Self(config))
    }

    /// Returns true if kubelet starts on a machine with swap.
    pub(super) fn takes_swap(&self) -> bool {
        self.0.get("failSwapOn") == Some(&json!(false))
    }

    /// Refuses a runtime that makes control groups in another way.
    ///
    /// # Errors
    /// [`KubeletError::CgroupDriver`]
    pub(super) fn check_driver(&self, runtime: CgroupDriver) -> Result<(), KubeletError> {
        match self.0.get("cgroupDriver").and_then(Value::as_str) {
            Some(cluster) if cluster != runtime.name() => {
                Err(KubeletError::CgroupDriver { cluster: cluster.to_owned(), runtime: runtime.name() })
            }
            // kubelet asks the runtime itself.
            _ => Ok(()),
        }
    }

    fn text(self) -> String {
        let document = yaml::document(&Value::Object(self.0)).unwrap_or_default();
        format!(
            "# Written by tombolo node join, from the cluster's ConfigMap kube-system/kubelet-config.\n{document}\n"
        )
    }
}

/// kubelet of one machine, before its files are written.
pub(super) struct Kubelet<'a> {
    pub(super) root: &'a Path,
    pub(super) program: KubeletProgram,
    pub(super) name: String,
    pub(super) address: Option<IpAddr>,
    pub(super) configuration: KubeletConfiguration,
}

impl Kubelet<'_> {
    /// The files of kubelet, with this token for its first start.
    pub(super) fn files(self, token: &BootstrapToken) -> Vec<NewFile> {
        let root = self.root.to_owned();
        let units = root.join(UNITS);
        let mut flags = vec![
            format!("--bootstrap-kubeconfig=/{BOOTSTRAP}"),
            format!("--kubeconfig=/{KUBELET_KUBECONFIG}"),
            format!("--config=/{CONFIGURATION}"),
            format!("--root-dir=/{KUBELET_STATE}"),
            format!("--hostname-override={}", self.name),
        ];
        flags.extend(self.address.map(|address| format!("--node-ip={address}")));
        let start = format!("{} {} $KUBELET_EXTRA_ARGS", self.program.path, flags.join(" "));
        let mut files = vec![
            NewFile::private(root.join(BOOTSTRAP), bootstrap(token)),
            NewFile::public(root.join(CONFIGURATION), self.configuration.text()),
            NewFile::public(units.join("kubelet.service.d/20-tombolo.conf"), drop_in(&start)),
        ];
        if !has_packaged_unit(&root) {
            files.push(NewFile::public(units.join(KUBELET_UNIT), UNIT));
        }
        files
    }
}

/// The unit for a machine whose kubelet came without one. The drop-in has the command.
const UNIT: &str = "# Written by tombolo node join.\n[Unit]\nDescription=kubelet\nStartLimitIntervalSec=0\n\n[Service]\nRestart=always\n\
                    RestartSec=1s\n\n[Install]\nWantedBy=multi-user.target\n";

/// kubelet's part of the unit, also of one that a package brings.
fn drop_in(start: &str) -> String {
    format!(
        "# Written by tombolo node join. kubelet reaches the cluster by node-lb.\n[Unit]\nWants=node-lb.service\nAfter=node-lb.service\n\n\
         [Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=\nExecStart={start}\n"
    )
}

fn has_packaged_unit(root: &Path) -> bool {
    PACKAGED.iter().any(|folder| root.join(folder).join(KUBELET_UNIT).exists())
}

/// The kubeconfig of kubelet's first start. kubelet copies the server and the CA's path into its own kubeconfig.
fn bootstrap(token: &BootstrapToken) -> String {
    const NAME: &str = "bootstrap";
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": NAME, "cluster": { "server": format!("https://{LB}"), "certificate-authority": format!("/{CA}") } }],
        "users": [{ "name": NAME, "user": { "token": token.text() } }],
        "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": NAME } }],
        "current-context": NAME,
    });
    yaml::document(&kubeconfig).unwrap_or_default() + "\n"
}

/// The paths that kubelet and its pods will write, and that a reset has to take away: files, and folders with all that is in them.
pub(super) fn later(root: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let folders = LOGS.iter().chain([&KUBELET_STATE]).map(|folder| root.join(folder)).collect();
    (vec![root.join(KUBELET_KUBECONFIG)], folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelet_is_at_most_three_minors_older_and_never_newer() {
        for (kubelet, api_server) in [
            ("v1.36.3", "v1.36.0"),
            ("v1.33.9", "v1.36.3"),
            ("v1.36.3", "v1.36.3+k3s1"),
            ("v1.30.0", "v1.31.2-eks-1"),
        ] {
            assert_eq!(check_skew(kubelet, api_server), Ok(()), "{kubelet} {api_server}");
        }
        assert!(matches!(check_skew("v1.37.0", "v1.36.9"), Err(KubeletError::Newer { .. })));
        assert!(matches!(check_skew("v1.32.9", "v1.36.0"), Err(KubeletError::TooOld { .. })));
        assert!(matches!(check_skew("devel", "v1.36.0"), Err(KubeletError::NoVersion(_))));
    }

    #[test]
    fn the_clusters_configuration_keeps_its_keys_and_gets_the_machines_own() {
        let text = "kind: KubeletConfiguration\nclusterDNS: [10.96.0.10]\ncgroupDriver: systemd\nauthentication:\n  anonymous: {enabled: false}\n  \
                    x509: {clientCAFile: /other/ca.crt}\n";
        let config = KubeletConfiguration::new(text, Path::new("/run/x.sock"), None).unwrap();
        assert!(!config.takes_swap());
        assert_eq!(config.check_driver(CgroupDriver::Systemd), Ok(()));
        assert!(matches!(
            config.check_driver(CgroupDriver::Cgroupfs),
            Err(KubeletError::CgroupDriver { .. })
        ));
        let written: Value = serde_saphyr::from_str(&config.text()).unwrap();
        let expected = json!({
            "kind": "KubeletConfiguration", "clusterDNS": ["10.96.0.10"], "cgroupDriver": "systemd", "rotateCertificates": true,
            "containerRuntimeEndpoint": "unix:///run/x.sock",
            "authentication": { "anonymous": { "enabled": false }, "x509": { "clientCAFile": "/etc/kubernetes/pki/ca.crt" } },
        });
        assert_eq!(written, expected);
        for bad in ["", "[]", "kind: Other"] {
            let refused = KubeletConfiguration::new(bad, Path::new("/run/x.sock"), None);
            assert_eq!(refused.map(|_| ()), Err(KubeletError::NoConfiguration), "{bad}");
        }
    }
}
