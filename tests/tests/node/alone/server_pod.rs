//! The server as it ships for Kubernetes: a restricted pod with a volume. It is deleted, drains, and comes
//! back with its store.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::json;
use tests::enroll::private;
use tests::kube::kubectl::Kubectl;
use tests::kube::{ClusterOptions, EdgeCluster};
use tests::lab::{self, Lab, Uplink, run};
use tests::node::{self, PODS};
use tests::node_edge::NodeEdge;
use tests::process::Process;
use tests::rig::{Agent, ApiServer, GROUP, ProcessEnvironment, Rig};
use tests::skip::skip;
use tests::sources::copy_of_deploy;

use super::agent_pods::{are_rolled_out, change};
use crate::kubectls::{SOON, until, wrote};

/// The variable with the path of the image's archive from `.ci/image`, and the image's name.
const ARCHIVE: &str = "TOMBOLO_SERVER_IMAGE";
const IMAGE: &str = "tombolo.test/tunnel-server";
const TAG: &str = "1";

const NAMESPACE: &str = "tombolo-system";
const DEPLOYMENT: &str = "deployment/tunnel-server";
/// The example's name of the server, and the port of its probes there.
const GATEWAY: &str = "gateway.example";
const PROBES: u16 = 9090;
/// A folder of certificates like a person's, beside the rig's own.
const PKI: &str = "host-pki";
const EDGE: &str = "edge-a";
/// A request that is under way for 20 s, and then over by itself.
const SLOW: &str = "/api/v1/namespaces?watch=true&timeoutSeconds=20";

/// A host cluster in which the server is a pod; the edge cluster, its agent and its callers are in the lab's
/// cloud.
struct Hosted<'a> {
    lab: &'a Lab,
    rig: &'a Rig,
    host: NodeEdge,
    /// The file in place of `/etc/hosts`, which has the address of [`GATEWAY`].
    hosts: PathBuf,
}

#[test]
#[ignore = "soak: its image is built for four minutes first, by .ci/image"]
fn a_server_pod_that_is_deleted_drains_and_returns_with_its_store() {
    trial("a_server_pod_that_is_deleted_drains_and_returns_with_its_store", async |hosted: &Hosted<'_>| {
        let first = hosted.pod().await;
        hosted.is_confined().await;
        hosted.is_not_evicted(&first).await;
        let (edge, _agent) = hosted.edge().await;
        let alice = hosted.caller(&edge, "alice").await;
        assert_eq!(whoami(&alice).await, "alice");
        hosted.tombolo(&["user", "revoke", "--name", "mallory"]).await;
        let knew = hosted.knows().await;
        assert!(knew.contains("edge-a/") && knew.contains("mallory"), "{knew}");

        let mut slow = hosted.start(&alice, &["get", "--raw", SLOW], "slow").await;
        wrote(&mut slow, "\"name\":\"default\"").await;
        let state = "jsonpath={.status.containerStatuses[0].state}{\"\\n\"}";
        let of_pod = ["get", "pod", &first, "--namespace", NAMESPACE, "--watch", "-o", state];
        let mut life = hosted.start(&hosted.host.direct, &of_pod, "life").await;
        let probes = SocketAddr::from((hosted.address().await, PROBES));
        hosted.host.direct.stdout(&["delete", "pod", &first, "--namespace", NAMESPACE, "--wait=false"]).await;
        hosted.rig.draining(probes).await;
        edge.admin().stdout(&["create", "namespace", "made-meanwhile"]).await;
        wrote(&mut slow, "\"name\":\"made-meanwhile\"").await;
        let ended = slow.wait(SOON).await.expect("kubectl ends");
        assert!(ended.success(), "{}", slow.tail());
        let life = wrote(&mut life, "exitCode").await;
        assert!(life.contains("\"exitCode\":0,"), "{life}");
        let gone = ["wait", "--for=delete", "pod", &first, "--namespace", NAMESPACE, "--timeout=60s"];
        hosted.host.direct.stdout(&gone).await;

        let second = hosted.pod().await;
        assert_ne!(first, second);
        until("the agent is back", async || {
            let read = alice.run(&["get", "namespace", "made-meanwhile"]).await.expect("kubectl runs");
            read.status.success().then_some(())
        })
        .await;
        assert_eq!(hosted.knows().await, knew);
    });
}

fn trial(test: &str, does: impl AsyncFnOnce(&Hosted<'_>) + Send) {
    if let Err(unable) = node::assets() {
        return skip(test, &unable.to_string());
    }
    let Some(archive) = std::env::var_os(ARCHIVE).map(PathBuf::from) else {
        let reason = format!("{ARCHIVE} does not say where the image is, run: .ci/image tunnel-server");
        return skip(test, &reason);
    };
    let done = run(async |lab| {
        let rig = lab.rig("").await;
        let host = NodeEdge::start(lab, &rig, "host", Uplink::Cable).await;
        // Pods have to be reached under their own addresses, as where a balancer knows them.
        let to_node = format!("route add {PODS} via {}", host.site.address());
        lab.cloud().ip(&to_node).await.expect("a route");
        host.site.node().ip(&format!("route add {PODS} via {}", lab::POD)).await.expect("a route");
        host.node.load_archive(&archive).await.expect("an image");
        let hosted = Hosted { lab, rig: &rig, hosts: host.file("hosts"), host };
        hosted.deploy().await;
        does(&hosted).await;
    });
    done.expect("a lab");
}

impl Hosted<'_> {
    /// Follows the example's first lines, with the trial's image, in a cluster that has a volume.
    async fn deploy(&self) {
        let state = self.host.file("state");
        fs::create_dir(&state).expect("a folder");
        self.host.apply("volume", &volume(&state)).await;
        let site = copy_of_deploy(&self.host.file("deploy"), ["server", "examples/cloud"]);
        change(&site.join("kustomization.yaml"), "registry.example/tombolo/tunnel-server", IMAGE);
        change(&site.join("kustomization.yaml"), "newTag: 0.1.0", &format!("newTag: \"{TAG}\""));
        self.host.direct.stdout(&["apply", "--kustomize", site.to_str().expect("a path")]).await;
        self.rig.tombolo(&["ca", "init", "--dir", PKI]).await;
        self.rig.tombolo(&["ca", "issue", "server", "--dir", PKI, "--name", GATEWAY]).await;
        let secrets = self.rig.tombolo(&["ca", "secrets", "--dir", PKI]).await;
        self.host.apply("secrets", &secrets).await;
    }

    /// The name of the pod, once there is one alone and it is ready; the server's name means it then.
    async fn pod(&self) -> String {
        are_rolled_out(&self.host, NAMESPACE, DEPLOYMENT).await;
        let address = self.address().await;
        fs::write(&self.hosts, format!("127.0.0.1 localhost\n{address} {GATEWAY}\n")).expect("it is ours");
        let names = ["get", "pods", "--namespace", NAMESPACE, "-o", "jsonpath={.items[*].metadata.name}"];
        let names = self.host.direct.stdout(&names).await;
        assert_eq!(names.split_whitespace().count(), 1, "{names}");
        names
    }

    /// The address of the Service's endpoint.
    async fn address(&self) -> Ipv4Addr {
        let slices = "--selector=kubernetes.io/service-name=tunnel-server";
        let ready = "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]}";
        let words = ["get", "endpointslices", "--namespace", NAMESPACE, slices, "-o", ready];
        until("the Service has one endpoint", async || self.host.direct.stdout(&words).await.parse().ok())
            .await
    }

    /// Asserts that the namespace restricts its pods, and that only mounted folders can be written.
    async fn is_confined(&self) {
        let enforced = "jsonpath={.metadata.labels.pod-security\\.kubernetes\\.io/enforce}";
        let enforced = self.host.direct.stdout(&["get", "namespace", NAMESPACE, "-o", enforced]).await;
        assert_eq!(enforced, "restricted");
        let writes = self.in_pod(&["tombolo", "ca", "init", "--dir", "/pki"]);
        let message = self.host.direct.refusal(&writes).await;
        assert!(message.contains("Read-only file system"), "{message}");
    }

    /// Asserts that a drain of its node is refused, because its budget forbids the eviction.
    async fn is_not_evicted(&self, pod: &str) {
        let budget = ["get", "poddisruptionbudget", "tunnel-server", "--namespace", NAMESPACE];
        let healthy = [budget.as_slice(), &["-o", "jsonpath={.status.currentHealthy}"]].concat();
        until("the budget knows of the pod", async || {
            (self.host.direct.stdout(&healthy).await == "1").then_some(())
        })
        .await;
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": NAMESPACE } });
        let file = self.host.file("eviction.json");
        fs::write(&file, eviction.to_string()).expect("it is ours");
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction");
        let evicts = ["create", "--raw", &path, "-f", file.to_str().expect("a path")];
        let message = self.host.direct.refusal(&evicts).await;
        assert!(message.contains("violate the pod's disruption budget"), "{message}");
    }

    /// Starts an edge cluster and its agent, which enrolls at the pod, both in the cloud.
    async fn edge(&self) -> (EdgeCluster, Agent) {
        let cloud = Some(self.lab.cloud().path().to_owned());
        let place = ClusterOptions {
            network_namespace: cloud.clone(),
            port: Some(6443),
            ..ClusterOptions::default()
        };
        let edge = EdgeCluster::start_at(place).await.expect("a cluster starts");
        edge.make_admins(GROUP).await;
        let account = edge.create_agent_account().await.expect("an account for the agent");
        self.tombolo(&["cluster", "create", EDGE]).await;
        let token_output = self.tombolo(&["token", "create", "--cluster", EDGE]).await;
        let pin = token_output.split_whitespace().find(|word| word.starts_with("sha256:")).expect("a pin");
        private(
            self.rig,
            "token",
            &self.tombolo(&["token", "create", "--cluster", EDGE, "-o", "token"]).await,
        );
        let more = format!(
            "servers: [\"{GATEWAY}:8443\"]\n\
             enrollment: {{ server: \"{GATEWAY}:8444\", pin: \"{pin}\", tokenFile: token }}"
        );
        let around = ProcessEnvironment {
            network_namespace: cloud,
            hosts: Some(self.hosts.clone()),
            ..ProcessEnvironment::default()
        };
        let api_server = ApiServer::of(&edge, &account);
        let agent = self.rig.agent_amid(&around, EDGE, &api_server, &more).await;
        self.rig.logged(&format!("{EDGE}.log"), 0, "tunnel opened").await;
        (edge, agent)
    }

    /// A kubectl of a caller in the cloud, as in README.md.
    async fn caller(&self, edge: &EdgeCluster, user: &str) -> Kubectl {
        self.rig.tombolo(&["ca", "issue", "caller", "--dir", PKI, "--user", user, "--group", GROUP]).await;
        let [ca, certificate, key] =
            ["server-ca.crt", &format!("{user}-caller.crt"), &format!("{user}-caller.key")]
                .map(|file| format!("{PKI}/{file}"));
        let (gateway, output) = (format!("https://{GATEWAY}:8443"), format!("{user}.kubeconfig"));
        let words = ["kubeconfig", "--gateway", &gateway, "--ca", &ca, "--cert", &certificate, "--key", &key];
        self.rig.tombolo(&[words.as_slice(), &["--cluster", EDGE, "--output", &output]].concat()).await;
        let cloud = Some(self.lab.cloud().path().to_owned());
        let kubectl = edge.kubectl_with(self.rig.path().join(output));
        kubectl.in_network_namespace(cloud).with_hosts(Some(self.hosts.clone()))
    }

    /// The content of the store: agents, tokens and revoked callers.
    async fn knows(&self) -> String {
        let mut known = String::new();
        for noun in ["agent", "token", "user"] {
            known += &self.tombolo(&[noun, "list"]).await;
        }
        known
    }

    /// Runs `tombolo` beside the server, as in the example.
    async fn tombolo(&self, words: &[&str]) -> String {
        self.host.direct.stdout(&self.in_pod(&[&["tombolo"], words].concat())).await
    }

    fn in_pod<'w>(&self, words: &[&'w str]) -> Vec<&'w str> {
        [["exec", "--namespace", NAMESPACE, DEPLOYMENT, "--"].as_slice(), words].concat()
    }

    async fn start(&self, kubectl: &Kubectl, words: &[&str], name: &str) -> Process {
        kubectl.start(words, &self.host.file(&format!("{name}.out"))).await.expect("kubectl starts")
    }
}

async fn whoami(kubectl: &Kubectl) -> String {
    kubectl.stdout(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await
}

/// A volume in a folder, as a provisioner would make it for the server's claim.
pub fn volume(folder: &Path) -> String {
    format!(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{ name: state }}\nspec:\n  capacity: {{ storage: 2Gi }}\n  \
         accessModes: [ReadWriteOnce]\n  local: {{ path: {} }}\n  nodeAffinity:\n    required:\n      nodeSelectorTerms:\n      \
         - matchExpressions: [{{ key: kubernetes.io/os, operator: In, values: [linux] }}]\n",
        folder.display()
    )
}
