//! Kubernetes' own tools and libraries along three routes: directly, through the gateway by path, and by host
//! name.
//!
//! The answers are the same byte for byte where the API is deterministic. Tests share one cluster and have
//! namespaces of their own.

mod bulk;
mod commands;
mod discovery;
mod encodings;
mod proxying;
mod reading;
mod version_skew;
mod watching;
mod writing;

use serde_json::Value;
use tests::kube::kubectl::Kubectl;
use tests::real_edge::RealEdge;
use tests::routes::{Route, TestRequest};

/// Creates objects directly, and returns the version at which all of them are there.
async fn create(edge: &RealEdge, path: &str, objects: impl IntoIterator<Item = Value>) -> String {
    let direct = edge.routes[0].connect().await;
    let mut version = String::new();
    for object in objects {
        let answer =
            direct.ask(&TestRequest::with("POST", path, "application/json", object.to_string())).await;
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
        let object: Value = serde_json::from_slice(&answer.body).unwrap();
        object["metadata"]["resourceVersion"].as_str().unwrap().clone_into(&mut version);
    }
    version
}

/// A ConfigMap as a JSON value.
fn config_map(name: &str, data: &str) -> Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "labels": { "kept": "no" } },
        "data": { "a": data, "b": "2" },
    })
}

/// The output and exit code of a kubectl, with everything masked that differs between two runs.
async fn output_of(kubectl: &Kubectl, words: &[&str], mask: fn(&str) -> String) -> String {
    let output = kubectl.run(words).await.unwrap();
    let text = |bytes: &[u8]| mask(&String::from_utf8_lossy(bytes));
    format!("{}\n--- stdout\n{}--- stderr\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Runs kubectl along each route at once. All outputs are the same, and each succeeds or fails as it should.
async fn outputs_agree(
    routes: &[Route; 3],
    words: &[&str],
    mask: fn(&str) -> String,
    succeeds: bool,
) -> String {
    let [direct, path, host] = routes;
    let (direct, path, host) = tokio::join!(
        output_of(&direct.kubectl, words, mask),
        output_of(&path.kubectl, words, mask),
        output_of(&host.kubectl, words, mask)
    );
    assert_eq!(direct.starts_with("exit status: 0\n"), succeeds, "kubectl {words:?} directly: {direct}");
    assert!(path == direct, "kubectl {words:?} by path: {path}\ndirectly: {direct}");
    assert!(host == direct, "kubectl {words:?} by host name: {host}\ndirectly: {direct}");
    direct
}

/// Masks nothing of the text.
fn as_it_is(text: &str) -> String {
    text.to_owned()
}

/// The last column of a table, which is an age.
fn without_age(text: &str) -> String {
    let lines = text.lines().map(|line| line.rsplit_once(' ').map_or(line, |(rest, _)| rest.trim_end()));
    lines.map(|line| format!("{line}\n")).collect()
}
