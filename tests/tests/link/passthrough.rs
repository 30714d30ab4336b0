//! Two sites whose control planes have one address, each reached by its own server name with TLS that passes
//! through.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tests::binaries::binary;
use tests::caller::SOON;
use tests::kube::audit::AuditEvent;
use tests::kube::kubectl::Kubectl;
use tests::lab::trial;
use tests::process::{Invocation, run};
use tests::rig::policy::user_may_dial;
use tests::rig::{Rig, free_port};
use tokio::time::{sleep, sleep_until};

use super::by_address::{ByAddressEdge, read, uid};

/// The names, each in the certificate of its own cluster alone.
const NAMES: [&str; 2] = ["api.edge-a.test", "api.edge-b.test"];
/// A name that leads to the first cluster, and is in no certificate.
const UNCERTIFIED: &str = "wrong.edge-a.test";

/// The number of times that each cluster is asked in turn.
const TURNS: usize = 10;
/// client-go gives a connection of HTTP/2 up after 45 s without an answer.
const DARK: Duration = Duration::from_secs(4);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Two clusters have the same address.
#[test]
fn an_admin_conf_with_another_server_name_reaches_its_own_cluster() {
    trial("an_admin_conf_with_another_server_name_reaches_its_own_cluster", async |lab| {
        let passthrough = free_port();
        let server = |(name, cluster): (&str, &str)| {
            format!("{{ name: {name}, cluster: {cluster}, target: \"192.168.1.10:6443\" }}")
        };
        let [a, b] = NAMES;
        let servers = [(a, "edge-a"), (b, "edge-b"), (UNCERTIFIED, "edge-a")].map(server).join(", ");
        let rig = lab
            .rig(&format!(
                "passthrough: {{ name: sni, listen: \"{passthrough}\", sources: [127.0.0.1/32], servers: [{servers}] }}\n"
            ))
            .await;
        let edges = [
            ByAddressEdge::start_named(lab, &rig, "edge-a", &[NAMES[0]]).await,
            ByAddressEdge::start_named(lab, &rig, "edge-b", &[NAMES[1]]).await,
        ];
        rig.put_policy(&[user_may_dial(
            "sni",
            ("entry-point:sni", "entry-point:sni"),
            &["edge-a", "edge-b"],
        )])
        .await;
        let kubectls = [
            PassthroughKubectl::of(&rig, &edges[0], a, passthrough).await,
            PassthroughKubectl::of(&rig, &edges[1], b, passthrough).await,
        ];

        let mut uids = Vec::new();
        for edge in &edges {
            uids.push(uid(edge.cluster.admin()).await);
        }
        assert_ne!(uids[0], uids[1]);
        for turn in 0..TURNS {
            for (through, expected) in kubectls.iter().zip(&uids) {
                assert_eq!(uid(through.kubectl.clone()).await, *expected, "turn {turn}");
            }
        }

        // By its client certificate, which only the API server has asked for.
        let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
        let admin = edges[0].cluster.admin().stdout(&whoami).await;
        assert_eq!(kubectls[0].kubectl.stdout(&whoami).await, admin);
        kubectls[0].kubectl.stdout(&["create", "namespace", "through"]).await;
        let made = |event: &&AuditEvent| event.verb == "create" && event.request_uri.contains("namespaces");
        let events = edges[0].cluster.audit().unwrap();
        let made =
            events.iter().filter(made).find(|event| event.request_uri.starts_with("/api/v1/namespaces"));
        let made = made.expect("it was made");
        assert_eq!((&made.user.username, &made.impersonated_user), (&admin, &None));

        goes_on_behind_an_outage(&rig, &edges[0], &kubectls[0].kubectl).await;
        is_refused_where_it_would_not_verify(&rig, &edges, passthrough).await;
    });
}

/// A kubeconfig is written only where its API server would be known by the name.
async fn is_refused_where_it_would_not_verify(
    rig: &Rig,
    edges: &[ByAddressEdge; 2],
    passthrough: SocketAddr,
) {
    let words = |edge: &ByAddressEdge, name: &str| {
        words(passthrough, name, &edge.cluster.admin_kubeconfig().display().to_string(), "refused.conf")
    };
    for (edge, name, expected) in [
        (&edges[0], UNCERTIFIED, &["certSANs", "--tls-san", "--tls-sni-cert-key", "kubernetes.default"][..]),
        // It leads to the other cluster.
        (&edges[0], NAMES[1], &["not the one that the kubeconfig trusts"]),
        (&edges[0], "nobody.test", &["passthrough.servers"]),
        (&edges[0], "127.0.0.1", &["is an address"]),
    ] {
        let refused = tombolo(rig, words(edge, name)).await.expect_err("it would not verify");
        assert!(expected.iter().all(|word| refused.contains(word)), "{name}: {refused}");
        assert!(!rig.path().join("refused.conf").exists());
    }
}

/// kubectl with the kubeconfig that `tombolo passthrough` writes.
struct PassthroughKubectl {
    kubectl: Kubectl,
}

impl PassthroughKubectl {
    async fn of(rig: &Rig, edge: &ByAddressEdge, name: &str, passthrough: SocketAddr) -> Self {
        let (admin_conf, output) = (edge.cluster.admin_kubeconfig(), format!("{name}.conf"));
        let words = words(passthrough, name, &admin_conf.display().to_string(), &output);
        tombolo(rig, words).await.unwrap();
        let kubeconfig = rig.path().join(output);
        let mut expected = read(&edge.cluster, admin_conf).await;
        expected["clusters"][0]["cluster"]["server"] =
            format!("https://{name}:{}", passthrough.port()).into();
        assert_eq!(read(&edge.cluster, &kubeconfig).await, expected, "nothing was changed but the server");
        let hosts = rig.write("names", &format!("127.0.0.1 localhost {} {}\n", NAMES[0], NAMES[1]));
        let kubectl = edge.cluster.kubectl_with(kubeconfig).with_hosts(Some(hosts)).limit(SOON);
        // One home for both: kubectl's cache goes by the server's name.
        let kubectl = kubectl.with_home(rig.path().join("home"));
        Self { kubectl: kubectl.in_network_namespace(rig.network_namespace().map(Path::to_owned)) }
    }
}

/// Runs it where the server is; why it failed, if it did.
async fn tombolo(rig: &Rig, words: Vec<String>) -> Result<(), String> {
    let invocation = Invocation::of(binary("tombolo")).arguments(words).in_directory(rig.path());
    let invocation = invocation.in_network_namespace(rig.network_namespace().map(Path::to_owned));
    let output = run(&invocation, SOON).await.expect("tombolo runs");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn words(passthrough: SocketAddr, name: &str, admin_conf: &str, output: &str) -> Vec<String> {
    let (url, address) = (format!("https://{name}:{}", passthrough.port()), passthrough.to_string());
    ["passthrough", "--server", &url, "--address", &address, "--kubeconfig", admin_conf, "--output", output]
        .map(str::to_owned)
        .to_vec()
}

/// The events of a watch go on over the same connection.
pub(super) async fn goes_on_behind_an_outage(rig: &Rig, edge: &ByAddressEdge, kubectl: &Kubectl) {
    let output = rig.path().join("watched");
    let watch = ["get", "namespaces", "--watch-only", "--output-watch-events", "-o", "name"];
    let watching = kubectl.start(&watch, &output).await.unwrap();
    watch_has_begun(rig, &output, "before", edge).await;
    let down = edge.site.link().down().await;
    edge.cluster.admin().stdout(&["create", "namespace", "in-the-dark"]).await;
    sleep_until((down + DARK).into()).await;
    assert!(!std::fs::read_to_string(&output).unwrap().contains("in-the-dark"), "the link was not dark");
    edge.site.link().up().await;
    comes(&output, "in-the-dark").await;
    drop(watching);
}

/// Makes namespaces until one is seen by the watch, so that it has begun.
async fn watch_has_begun(rig: &Rig, output: &PathBuf, prefix: &str, edge: &ByAddressEdge) {
    let deadline = Instant::now() + SOON;
    for number in 0.. {
        let name = format!("{prefix}-{number}");
        edge.cluster.admin().stdout(&["create", "namespace", &name]).await;
        if std::fs::read_to_string(output).unwrap().contains(prefix) {
            return;
        }
        assert!(Instant::now() < deadline, "the watch never began: {}", rig.server_log());
        sleep(LOOK_EVERY).await;
    }
}

async fn comes(output: &PathBuf, text: &str) {
    let deadline = Instant::now() + SOON;
    while !std::fs::read_to_string(output).unwrap().contains(text) {
        assert!(Instant::now() < deadline, "{text} never came");
        sleep(LOOK_EVERY).await;
    }
}
