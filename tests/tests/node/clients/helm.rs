//! helm with a chart of our own: it installs, waits for, tests, changes, rolls back and removes real pods.

use std::path::Path;

use futures::future::join_all;
use serde_json::Value;
use tests::kube::assets;
use tests::kube::kubectl::Kubectl;
use tests::node_edge::{NodeEdge, trial};
use tests::skip::skip;

use crate::kubectls::{Client, clients_of, until};

const CHART: &str = "kube/helm/chart";
const RELEASE: &str = "greeter";

#[test]
fn helm_installs_tests_upgrades_rolls_back_and_uninstalls_a_chart() {
    let test = "helm_installs_tests_upgrades_rolls_back_and_uninstalls_a_chart";
    match assets::helm() {
        Ok(program) => trial(test, async |edges| {
            let edge = &edges.edges[0];
            let clients = clients_of(edge, "helm", &program);
            join_all(clients.iter().map(|client| lives(edge, client))).await;
        }),
        Err(missing) => skip(test, &missing.to_string()),
    }
}

/// The life of a release, from installation to removal.
async fn lives(edge: &NodeEdge, client: &Client) {
    let namespace = client.name.as_str();
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join(CHART);
    let chart = chart.to_str().expect("a path");
    let waits = ["--wait", "--timeout=100s", "--namespace", namespace];
    let helm = async |words: &[&str]| client.kubectl.stdout(&[words, &waits].concat()).await;

    helm(&["install", RELEASE, chart, "--create-namespace", "--set=greeting=one"]).await;
    serves(edge, namespace, "one /\n").await;
    let jobs = ["get", "job", "greeter-before", "-o", "jsonpath={.status.succeeded}", "-n", namespace];
    assert_eq!(edge.direct.stdout(&jobs).await, "1", "{}", client.name);

    let test = ["test", RELEASE, "--logs", "--timeout=100s", "--namespace", namespace];
    let tested = client.kubectl.stdout(&test).await;
    assert!(tested.contains("\nthe greeting is one\n"), "{}: {tested}", client.name);

    helm(&["upgrade", RELEASE, chart, "--set=greeting=two"]).await;
    serves(edge, namespace, "two /\n").await;

    let broken = [["upgrade", RELEASE, chart, "--set=hook=3"].as_slice(), &waits].concat();
    let message = client.kubectl.refusal(&broken).await;
    assert!(message.contains("pre-upgrade hooks failed"), "{}: {message}", client.name);
    assert_eq!(served(edge, namespace).await, "two /\n", "{}", client.name);

    helm(&["rollback", RELEASE, "1"]).await;
    serves(edge, namespace, "one /\n").await;
    let expected = ["superseded", "superseded", "failed", "deployed"];
    assert_eq!(statuses(&client.kubectl, namespace).await, expected, "{}", client.name);

    helm(&["uninstall", RELEASE]).await;
    let secrets = ["get", "secrets", "-o", "name", "-n", namespace];
    assert_eq!(edge.direct.stdout(&secrets).await, "", "{}: where helm keeps its releases", client.name);
    let kinds = "deployments,pods,services,configmaps";
    let left = ["get", kinds, "-l", "release=greeter", "-o", "name", "-n", namespace];
    until("all of it is gone", async || edge.direct.stdout(&left).await.is_empty().then_some(())).await;
}

/// Waits until the release serves this text. Its Service only gradually learns its pods.
async fn serves(edge: &NodeEdge, namespace: &str, says: &str) {
    until(says, async || (served(edge, namespace).await == says).then_some(())).await;
}

/// The text that the release serves, or nothing if nobody answers. The request goes by the gateway, whichever
/// client has installed it.
async fn served(edge: &NodeEdge, namespace: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/services/{RELEASE}:80/proxy/");
    let output = edge.tunneled.run(&["get", "--raw", &path]).await.expect("kubectl runs");
    String::from_utf8(output.stdout).expect("it is text")
}

/// The statuses of all revisions, the first one first.
async fn statuses(helm: &Kubectl, namespace: &str) -> Vec<String> {
    let history = helm.stdout(&["history", RELEASE, "-o", "json", "--namespace", namespace]).await;
    let history: Value = serde_json::from_str(&history).expect("JSON");
    let revisions = history.as_array().expect("a list of revisions").iter();
    revisions.map(|revision| revision["status"].as_str().expect("a status").to_owned()).collect()
}
