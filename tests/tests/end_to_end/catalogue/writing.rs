//! Writing over HTTP: every verb and every kind of patch does and answers the same by every route.

use serde_json::{Value, json};
use tests::cbor;
use tests::real_edge::RealEdge;
use tests::routes::{RouteClient, TestRequest, TestResponse, masked};

use super::config_map;

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_YAML: &str = "application/apply-patch+yaml";
const APPLY_CBOR: &str = "application/apply-patch+cbor";

/// The API server takes no more in one request.
const REQUEST_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A step: what is asked, and the status that must come.
type Step = (TestRequest, u16);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn config_maps_are_written_the_same_by_every_entry_point() {
    let collection = "/api/v1/namespaces/maps/configmaps";
    let one = &format!("{collection}/m");
    let apply = "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: applied}}";
    let steps = [
        // Not one of these leaves anything.
        (post(&format!("{collection}?dryRun=All"), &config_map("m", "1")), 201),
        (TestRequest::get(one), 404),
        (patch(&format!("{one}?fieldManager=me&dryRun=All"), APPLY_YAML, apply), 201),
        (TestRequest::get(one), 404),
        (post(&format!("{collection}?fieldValidation=Strict"), &misspelt()), 400),
        (post(&format!("{collection}?dryRun=All&fieldValidation=Warn"), &misspelt()), 201),
        (TestRequest::with("POST", collection, JSON, "{"), 400),
        (TestRequest::with("POST", collection, JSON, " "), 400),
        (TestRequest::with("POST", collection, JSON, vec![b' '; REQUEST_BYTES_MAX + 1]), 413),
        (post(collection, &config_map("Not A Name", "1")), 422),
        (post(collection, &config_map("m", "1")), 201),
        (post(collection, &config_map("m", "1")), 409),
        (put(&format!("{one}?dryRun=All"), &config_map("m", "never")), 200),
        (TestRequest::get(one), 200),
        (put(one, &config_map("m", "2")), 200),
        (put(one, &config_map("m", &"x".repeat(1_000_000))), 200),
        (put(one, &outdated()), 409),
        (put(one, &config_map("m", "2")), 200),
        (patch(&format!("{one}?dryRun=All"), MERGE_PATCH, r#"{"data":{"a":"never"}}"#), 200),
        (patch(one, JSON_PATCH, r#"[{"op":"test","path":"/data/a","value":"no"}]"#), 422),
        (
            patch(
                one,
                JSON_PATCH,
                r#"[{"op":"test","path":"/data/a","value":"2"},{"op":"remove","path":"/data/b"}]"#,
            ),
            200,
        ),
        (patch(one, MERGE_PATCH, r#"{"data":{"a":null,"c":"3"}}"#), 200),
        (patch(one, STRATEGIC_PATCH, r#"{"metadata":{"labels":{"kept":"yes"}}}"#), 200),
        (patch(one, "application/no-patch", "{}"), 415),
        (patch(&format!("{one}?fieldManager=me"), APPLY_YAML, apply), 200),
        (patch(&format!("{one}?fieldManager=you"), APPLY_YAML, &apply.replace("applied", "yours")), 409),
        (
            patch(
                &format!("{one}?fieldManager=you&force=true"),
                APPLY_YAML,
                &apply.replace("applied", "yours"),
            ),
            200,
        ),
        (apply_cbor(&format!("{one}?fieldManager=you")), 200),
        (TestRequest::with("DELETE", one, JSON, r#"{"preconditions":{"uid":"another"}}"#), 409),
        (TestRequest::of("DELETE", format!("{one}?dryRun=All")), 200),
        (TestRequest::get(one), 200),
        (
            TestRequest::with(
                "DELETE",
                one,
                JSON,
                r#"{"propagationPolicy":"Background","gracePeriodSeconds":0}"#,
            ),
            200,
        ),
        (TestRequest::of("DELETE", one), 404),
        (post(collection, &config_map("x", "1")), 201),
        (post(collection, &config_map("y", "1")), 201),
        (patch(&format!("{collection}/y"), MERGE_PATCH, r#"{"metadata":{"labels":{"kept":"yes"}}}"#), 200),
        (TestRequest::of("DELETE", format!("{collection}?dryRun=All")), 200),
        (TestRequest::of("DELETE", format!("{collection}?labelSelector=kept%3Dno")), 200),
        (TestRequest::get(format!("{collection}/x")), 404),
        (TestRequest::get(format!("{collection}/y")), 200),
        (TestRequest::of("DELETE", collection), 200),
        (TestRequest::of("DELETE", "/api/v1/namespaces/maps/nothings"), 404),
    ];
    by_every_route("maps", &steps).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresources_and_reviews_are_the_same_by_every_entry_point() {
    let namespace = "/api/v1/namespaces/workloads";
    let deployments = "/apis/apps/v1/namespaces/workloads/deployments";
    let web = &format!("{deployments}/web");
    let scale = &format!("{web}/scale");
    let pods = &format!("{namespace}/pods");
    let sidecar =
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "b", "image": "b" }] } } } });
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": "get", "resource": "secrets", "namespace": "x" } },
    });
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p" },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "nowhere" },
    });
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "q" } });
    let steps = [
        (post(deployments, &deployment()), 201),
        // A strategic patch adds to the containers, a merge patch would replace them.
        (patch(web, STRATEGIC_PATCH, &sidecar.to_string()), 200),
        (TestRequest::get(scale), 200),
        (patch(scale, MERGE_PATCH, r#"{"spec":{"replicas":5}}"#), 200),
        (patch(&format!("{web}/status"), MERGE_PATCH, r#"{"status":{"replicas":3}}"#), 200),
        (TestRequest::get(web), 200),
        (TestRequest::of("DELETE", web), 200),
        (post(pods, &pod("p")), 201),
        (post(pods, &pod("q")), 201),
        (post(&format!("{pods}/p/binding"), &binding), 201),
        (post(&format!("{pods}/q/eviction"), &eviction), 201),
        (TestRequest::get(format!("{pods}/q")), 404),
        (TestRequest::of("DELETE", format!("{pods}/p?gracePeriodSeconds=0")), 200),
        (post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review), 201),
        (post(&format!("{namespace}/serviceaccounts/nobody/token"), &json!({})), 404),
    ];
    by_every_route("workloads", &steps).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_resources_are_written_the_same_by_every_entry_point() {
    let collection = "/apis/tombolo.test/v1/namespaces/islands/islands";
    let sylt = &format!("{collection}/sylt");
    let island = |spec: Value| json!({ "apiVersion": "tombolo.test/v1", "kind": "Island", "metadata": { "name": "sylt" }, "spec": spec });
    let tides = island(json!({ "tides": 2 }));
    let apply = island(json!({ "names": ["Söl"] })).to_string();
    let steps = [
        (post(&format!("{collection}?dryRun=All"), &tides), 201),
        (TestRequest::get(sylt), 404),
        (post(collection, &island(json!({ "tides": -1 }))), 422),
        (post(&format!("{collection}?fieldValidation=Strict"), &island(json!({ "ebb": 1 }))), 400),
        (post(collection, &tides), 201),
        (patch(sylt, MERGE_PATCH, r#"{"spec":{"tides":4}}"#), 200),
        (patch(sylt, JSON_PATCH, r#"[{"op":"replace","path":"/spec/tides","value":3}]"#), 200),
        (patch(sylt, STRATEGIC_PATCH, "{}"), 415),
        (patch(&format!("{sylt}?fieldManager=me"), APPLY_YAML, &apply), 200),
        (patch(&format!("{sylt}/status"), MERGE_PATCH, r#"{"status":{"tides":3}}"#), 200),
        (patch(&format!("{sylt}/scale"), MERGE_PATCH, r#"{"spec":{"replicas":7}}"#), 200),
        (TestRequest::get(sylt), 200),
        (TestRequest::of("DELETE", collection), 200),
        (TestRequest::get(sylt), 404),
    ];
    by_every_route("islands", &steps).await;
}

/// Takes the same steps by each way, one way after the other, in the same namespace, which is empty at each
/// end.
async fn by_every_route(namespace: &str, steps: &[Step]) {
    let edge = RealEdge::shared().await;
    edge.namespace(namespace).await;
    let lines = edge.lines().await;
    let mut direct = Vec::new();
    for line in lines.all() {
        for (number, step) in steps.iter().enumerate() {
            let message = comparable(&take(line, step).await);
            match direct.get(number) {
                None => direct.push(message),
                Some(direct) => assert_eq!(message, *direct, "{:?} by {}", step.0, line.name),
            }
        }
    }
}

async fn take(line: &RouteClient, (ask, status): &Step) -> TestResponse {
    let answer = line.ask(ask).await;
    let message = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, *status, "{:.300} by {}: {message}", format!("{ask:?}"), line.name);
    answer
}

/// The parts of an answer that are equal if two objects were written in the same way.
fn comparable(answer: &TestResponse) -> (u16, Vec<(String, String)>, String) {
    let mut headers = answer.lasting_headers();
    // A version or an uid may have one more digit.
    headers.retain(|(name, _)| name != "content-length");
    (answer.status, headers, masked(&answer.body))
}

fn post(path: &str, object: &Value) -> TestRequest {
    TestRequest::with("POST", path, JSON, object.to_string())
}

fn put(path: &str, object: &Value) -> TestRequest {
    TestRequest::with("PUT", path, JSON, object.to_string())
}

fn patch(path: &str, kind: &str, body: &str) -> TestRequest {
    TestRequest::with("PATCH", path, kind, body.to_owned())
}

fn apply_cbor(path: &str) -> TestRequest {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "a": "cbor" },
    });
    TestRequest::with("PATCH", path, APPLY_CBOR, cbor::encode(&object))
}

fn misspelt() -> Value {
    let mut object = config_map("misspelt", "1");
    object["dada"] = json!({});
    object
}

fn outdated() -> Value {
    let mut object = config_map("m", "outdated");
    object["metadata"]["resourceVersion"] = json!("1");
    object
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "a", "image": "a" }] },
            },
        },
    })
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "a", "image": "a" }] },
    })
}
