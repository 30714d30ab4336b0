//! A fake API server of a host cluster that returns any answer: the requests that the server sends to it, and
//! those that it does not.

use std::fs;

use serde_json::{Value, json};
use tests::caller::SOON;
use tests::fake_api::{Answer, Behaviour, FakeApi, RecordedRequest};
use tests::lab::{Lab, trial};
use tests::rig::Rig;

const SERVICES: &str = "/api/v1/namespaces/tombolo/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/tombolo/endpointslices";
const FAILURES: &str = "tombolo_server_vip_publishing_failures_total";

/// The longest list that is read.
const LISTED_BYTES_MAX: usize = 8 * 1024 * 1024;

#[test]
fn a_list_is_as_long_as_it_may_be_and_not_one_byte_longer() {
    trial("a_list_is_as_long_as_it_may_be", async |lab| {
        let host = FakeApi::start_http1().await.unwrap();
        let list = |bytes: usize| {
            let around = json!({ "items": [], "around": "" }).to_string();
            list(json!({ "items": [], "around": "x".repeat(bytes - around.len()) }))
        };
        host.on(SERVICES, list(LISTED_BYTES_MAX + 1));
        host.on(SLICES, list(LISTED_BYTES_MAX));

        let rig = rig(lab, &host).await;
        rig.measured(FAILURES, |failures| failures > 0.5).await;
        assert!(
            host.requests().iter().all(|request| request.method == "GET"),
            "nothing is known, so nothing is made"
        );
        host.on(SERVICES, list(LISTED_BYTES_MAX));
        host.wait_for_request(SOON, |request| request.method == "POST").await.unwrap();
    });
}

/// A change and a removal name the object's UID, so that a later object of the same name is left alone. A
/// created object replaces nobody else's.
#[test]
fn a_server_changes_only_the_host_cluster_objects_that_it_has_seen() {
    trial("what_is_changed_or_removed_is_what_was_seen", async |lab| {
        let host = FakeApi::start_http1().await.unwrap();
        let object = |name: &str| json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7" }, "spec": {} });
        host.on(SERVICES, list(json!({ "items": [object("edge-a"), object("gone")] })));
        host.on(SLICES, list(json!({ "items": [] })));
        // Another object of this name was created meanwhile, to which the slice must not refer.
        let conflict =
            Answer::json(409, json!({ "kind": "Status", "message": "Precondition failed" }).to_string());
        host.on(&format!("{SERVICES}/edge-a"), Behaviour::Answer(conflict.clone()));
        host.on(&format!("{SERVICES}/gone"), Behaviour::Answer(conflict));

        let _rig = rig(lab, &host).await;

        let complete = |request: &RecordedRequest, method: &str| {
            request.method == method && request.body_ended.is_some()
        };
        let applied = host.wait_for_request(SOON, |request| complete(request, "PATCH")).await.unwrap();
        assert_eq!(applied.target, format!("{SERVICES}/edge-a?fieldManager=tombolo&force=true"));
        assert_eq!(applied.header("content-type"), ["application/apply-patch+yaml"]);
        assert_eq!(applied.header("authorization"), ["Bearer host-token"]);
        assert_eq!(body(&applied)["metadata"]["uid"], "uid-edge-a");
        let gone = format!("{SERVICES}/gone");
        let is_removed = |request: &RecordedRequest| complete(request, "DELETE") && request.target == gone;
        let removed = host.wait_for_request(SOON, is_removed).await.unwrap();
        let preconditions = json!({ "uid": "uid-gone", "resourceVersion": "7" });
        assert_eq!(body(&removed)["preconditions"], preconditions);
        let listed = |request: &&RecordedRequest| request.method == "GET";
        for list in host.requests().iter().filter(listed) {
            let ours = "?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dtombolo,tombolo.dev%2Fserver%3D";
            assert!(list.target.contains(ours), "{}", list.target);
        }
        assert!(
            !host.requests().iter().any(|request| request.method == "POST"),
            "there is no slice without its Service"
        );
    });
}

fn list(list: Value) -> Behaviour {
    Behaviour::Answer(Answer::json(200, list.to_string()))
}

fn body(request: &RecordedRequest) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

/// A server that keeps a Service for one cluster there.
async fn rig(lab: &Lab, host: &FakeApi) -> Rig {
    let (ca, token) = (lab.path().join("host-ca.crt"), lab.path().join("host.token"));
    fs::write(&ca, host.ca_pem()).unwrap();
    fs::write(&token, "host-token\n").unwrap();
    let rig = lab
        .rig(&format!(
            "vip:\n  entryPoints: [{{ name: pods, sources: [10.8.1.0/24], range: {{ network: 100.100.0.0/24, clusters: [edge-a] }} }}]\n  \
             publish: {{ server: \"{}\", caFile: {ca:?}, tokenFile: {token:?} }}\n",
            host.url()
        ))
        .await;
    tests::enroll::at(&rig, &["cluster", "create", "edge-a"]).await;
    rig
}
