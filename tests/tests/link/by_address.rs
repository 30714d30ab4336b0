//! Two sites whose control planes have one address, each reached by its own admin.conf.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::binaries::binary;
use tests::kube::audit::AuditEvent;
use tests::kube::kubectl::Kubectl;
use tests::kube::{ClusterOptions, EdgeCluster};
use tests::lab::{Lab, Site, Uplink, trial};
use tests::process::{Invocation, Process};
use tests::rig::policy::may_dial;
use tests::rig::{Agent, ApiServer, GROUP, Rig};

/// The address of both control planes.
const CONTROL_PLANE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 10));
const PORT: u16 = 6443;

/// The number of times that each cluster is asked in turn.
const TURNS: usize = 10;

/// Two clusters have the same address.
#[test]
fn an_admin_conf_with_only_a_proxy_reaches_its_own_cluster() {
    trial("an_admin_conf_reaches_its_own_cluster", async |lab| {
        let rig = lab.rig("").await;
        let edges = [
            ByAddressEdge::start(lab, &rig, "edge-a").await,
            ByAddressEdge::start(lab, &rig, "edge-b").await,
        ];
        rig.put_policy(&[may_dial("admins", ("client-certificate", GROUP), &["edge-a", "edge-b"])]).await;
        rig.caller("alice", &[GROUP]).await;
        let proxies = [LocalProxy::start(&rig, &edges[0]).await, LocalProxy::start(&rig, &edges[1]).await];

        let mut uids = Vec::new();
        for edge in &edges {
            uids.push(uid(edge.cluster.admin()).await);
        }
        assert_ne!(uids[0], uids[1]);
        for turn in 0..TURNS {
            for (proxy, expected) in proxies.iter().zip(&uids) {
                assert_eq!(uid(proxy.kubectl(&edges[0].cluster)).await, *expected, "turn {turn}");
            }
        }
        // What kubectl writes and watches, by a type that one of the two clusters has.
        let kubectl = proxies[0].kubectl(&edges[0].cluster);
        let crd = rig.write("islands.yaml", include_str!("../../fixtures/islands.yaml"));
        kubectl.stdout(&["apply", "-f", crd.to_str().unwrap()]).await;
        kubectl
            .stdout(&["wait", "--for=condition=Established", "crd/islands.tombolo.test", "--timeout=60s"])
            .await;
        assert!(kubectl.stdout(&["api-resources"]).await.contains("islands"));
        let others = proxies[1].kubectl(&edges[1].cluster);
        assert!(!others.stdout(&["api-resources"]).await.contains("islands"));

        // The cluster has seen its own administrator, and nothing of the caller at the gateway.
        let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
        let admin = edges[0].cluster.admin().stdout(&whoami).await;
        assert_eq!(kubectl.stdout(&whoami).await, admin);
        let events = edges[0].cluster.audit().unwrap();
        let made =
            |event: &&AuditEvent| event.verb == "create" && event.request_uri.contains("customresource");
        let made = events.iter().find(made).expect("the CRD was made");
        assert_eq!((&made.user.username, &made.impersonated_user), (&admin, &None));
        assert!(!events.iter().any(|event| event.user.username == "alice"));
    });
}

/// A site with a control plane at [`CONTROL_PLANE`], and an agent.
pub(super) struct ByAddressEdge {
    name: &'static str,
    pub(super) site: Site,
    pub(super) cluster: EdgeCluster,
    _agent: Agent,
}

/// `tombolo proxy` for one cluster, or for a network.
pub(super) struct LocalProxy {
    _process: Process,
    kubeconfig: PathBuf,
    network_namespace: Option<PathBuf>,
    home: PathBuf,
}

impl ByAddressEdge {
    pub(super) async fn start(lab: &Lab, rig: &Rig, name: &'static str) -> Self {
        Self::start_named(lab, rig, name, &[]).await
    }

    /// The same with these names in its API server's certificate.
    pub(super) async fn start_named(
        lab: &Lab,
        rig: &Rig,
        name: &'static str,
        server_names: &'static [&'static str],
    ) -> Self {
        Self::start_with(lab, rig, name, server_names, &[]).await
    }

    /// The same with an agent that has these targets besides, and what `tombolo rbac` makes of them.
    pub(super) async fn start_with(
        lab: &Lab,
        rig: &Rig,
        name: &'static str,
        server_names: &'static [&'static str],
        targets: &[&str],
    ) -> Self {
        let site = lab.site(name, Uplink::simulated("delay=5ms").with(&["--nat"])).await;
        site.pod().ip(&format!("addr add {CONTROL_PLANE}/32 dev lo")).await.unwrap();
        let place = ClusterOptions {
            network_namespace: Some(site.pod().path().to_owned()),
            address: CONTROL_PLANE,
            port: Some(PORT),
            advertise: CONTROL_PLANE,
            server_names,
            ..ClusterOptions::default()
        };
        let cluster = EdgeCluster::start_at(place).await.unwrap();
        let targets_config = format!("targets: {targets:?}\n");
        let file = format!("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n{targets_config}");
        let file = rig.write(&format!("{name}-rights.yaml"), &file).display().to_string();
        let manifest = rig.tombolo(&["rbac", "--agent-config", &file, "--profile", "open"]).await;
        let account = cluster.create_agent_account_with(&manifest).await.unwrap();
        let agent = site.agent_of(rig, name, &ApiServer::of(&cluster, &account), &targets_config).await;
        rig.connected(name).await;
        let advertised =
            targets.iter().chain(&["192.168.1.10:6443"]).flat_map(|target| ["--advertise", target]);
        let update: Vec<&str> = ["cluster", "update", name].into_iter().chain(advertised).collect();
        tests::enroll::at(rig, &update).await;
        rig.listed(name, |listed| listed.contains("192.168.1.10:6443")).await;
        Self { name, site, cluster, _agent: agent }
    }
}

impl LocalProxy {
    async fn start(rig: &Rig, edge: &ByAddressEdge) -> Self {
        Self::start_within(rig, "alice", ["--cluster", edge.name], edge).await
    }

    /// A proxy for this cluster or network, with this certificate and a cluster's own kubeconfig.
    pub(super) async fn start_within(
        rig: &Rig,
        user: &str,
        [flag, name]: [&str; 2],
        edge: &ByAddressEdge,
    ) -> Self {
        let stem = format!("{user}-{name}");
        let output = rig.path().join(format!("{stem}.conf"));
        let log = format!("{stem}-proxy.log");
        let gateway = format!("https://{}", rig.gateway());
        let (admin_conf, output_text) =
            (edge.cluster.admin_kubeconfig().display().to_string(), output.display().to_string());
        let [cert, key] = ["crt", "key"].map(|end| format!("pki/{user}-caller.{end}"));
        let words = ["proxy", "--gateway", &gateway, "--ca", "pki/server-ca.crt", "--cert", &cert];
        let more = ["--key", &key, flag, name, "--kubeconfig", &admin_conf];
        let invocation = Invocation::of(binary("tombolo"))
            .arguments([words.as_slice(), &more, &["--output", &output_text]].concat())
            .in_network_namespace(rig.network_namespace().map(Path::to_owned))
            .in_directory(rig.path());
        let process = Process::start(&invocation, &rig.path().join(&log)).await.unwrap();
        rig.logged(&log, 0, "is reached through").await;
        is_the_admins(&edge.cluster, &output).await;
        let network_namespace = rig.network_namespace().map(Path::to_owned);
        let home = rig.path().join(format!("{stem}-home"));
        Self { _process: process, kubeconfig: output, network_namespace, home }
    }

    pub(super) fn kubectl(&self, cluster: &EdgeCluster) -> Kubectl {
        let kubectl = cluster.kubectl_with(&self.kubeconfig).with_home(&self.home);
        kubectl.in_network_namespace(self.network_namespace.clone())
    }
}

/// The kubeconfig as a JSON value.
pub(super) async fn read(cluster: &EdgeCluster, kubeconfig: impl Into<PathBuf>) -> Value {
    let shown = cluster.kubectl_with(kubeconfig).stdout(&["config", "view", "--raw", "-o", "json"]).await;
    serde_json::from_str(&shown).unwrap()
}

/// Asserts that only the proxy was changed.
async fn is_the_admins(cluster: &EdgeCluster, rewritten: &Path) {
    let mut expected = read(cluster, cluster.admin_kubeconfig()).await;
    let found = read(cluster, rewritten).await;
    let proxy = found["clusters"][0]["cluster"]["proxy-url"].clone();
    assert!(proxy.as_str().is_some_and(|url| url.starts_with("http://u:") && url.contains("@127.0.0.1:")));
    expected["clusters"][0]["cluster"]["proxy-url"] = proxy;
    assert_eq!(found, expected);
}

pub(super) async fn uid(kubectl: Kubectl) -> String {
    kubectl.stdout(&["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"]).await
}
