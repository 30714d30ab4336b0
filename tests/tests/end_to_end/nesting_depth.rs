//! Deeply nested input to every parser that unauthenticated clients reach: an error, and the process goes on.

use std::time::Duration;

use serde_json::json;
use tests::caller::{Http1Caller, SOON, head};
use tests::fake_api::{Answer, Behaviour, HttpVersion, WatchFeed};
use tests::fake_edge::add_cluster;
use tests::oidc::{AUDIENCE, EC_KEY, Issuer, KEYS, TokenSignature};
use tests::rig::policy::{FILE, allow_all};
use tests::rig::{Agent, ApiServer, Rig, ask};
use tokio::time::{sleep, timeout};

/// The number of levels: a stack of 2 MiB has no room for a frame of 200 bytes for each.
const DEPTH: usize = 10_000;
const PATH: &str = "/clusters/edge-a/api/v1/namespaces";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// A token of a JWT may have 16 KiB, of which base64 leaves three quarters.
const DEPTH_OF_TOKEN: usize = 5_000;

const RELOAD: &str = "tombolo_server_policy_reload_last_successful";

/// The input comes from callers, token issuers and reviewers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deeply_nested_input_is_an_error_and_affects_nobody_else() {
    let (mut issuer, reviewer) =
        (Issuer::start().await, tests::fake_api::FakeApi::start_http1().await.unwrap());
    let scratch = tests::scratch::Scratch::new("tombolo-depths-").unwrap();
    let ca = scratch.path().join("ca.crt");
    std::fs::write(&ca, reviewer.ca_pem()).unwrap();
    let rig = Rig::start_with(&config(&issuer, &reviewer.url(), &ca)).await;
    rig.write("review.token", "the-servers-own-token\n");
    let (fake, _agent) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
    fake.otherwise(Behaviour::json("{}"));
    let by = async |token: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("Authorization", authorization.as_str())];
        ask(rig.gateway(), &rig.server_ca(), None, "GET", PATH, &headers).await.expect("an answer").status
    };

    for nested in nested_json(DEPTH) {
        let status = format!(
            "{{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenReview\",\"status\":{{\"authenticated\":true,\
             \"audiences\":[\"{AUDIENCE}\"],\"user\":{{\"username\":\"ann\",\"extra\":{nested}}}}}}}"
        );
        for answer in [status, nested.clone()] {
            reviewer.on(REVIEWS, Behaviour::Answer(Answer::json(201, answer)));
            let status = by(&format!("opaque-{}", reviewer.requests().len())).await;
            // What nobody looks at may be skipped, however deep it is; then policy says no.
            assert!(matches!(status, 401 | 403 | 503), "{status}");
        }
    }
    for nested in nested_json(DEPTH_OF_TOKEN / 6) {
        let mut claims = issuer.claims("ann").to_string();
        claims.pop();
        let claims = format!("{claims},\"nested\":{nested}}}");
        let of_header = format!("{{\"alg\":\"ES256\",\"kid\":\"{EC_KEY}\",\"nested\":{nested}}}");
        for token in [
            issuer.token_of(&claims),
            issuer.signed(&of_header, &issuer.claims("ann").to_string(), TokenSignature::Ec),
        ] {
            let status = by(&token).await;
            assert!(matches!(status, 401 | 403), "{status}");
        }
    }
    // Keys that are not known yet are asked for, and what comes is no key.
    for nested in nested_json(DEPTH) {
        issuer.fake.on(KEYS, Behaviour::json(format!("{{\"keys\":[{nested}]}}")));
        let header = json!({ "alg": "ES256", "kid": "unknown" }).to_string();
        let status = by(&issuer.signed(&header, &issuer.claims("ann").to_string(), TokenSignature::Ec)).await;
        assert!(matches!(status, 401 | 503), "{status}");
    }
    issuer.fake.refuse().await;

    // In what an API server tells a watch, which is looked into.
    for (kind, nested) in [
        ("application/json", nested_json(DEPTH).concat().into_bytes()),
        ("application/cbor", [0x81; DEPTH].to_vec()),
    ] {
        let feed = WatchFeed::new();
        fake.on("/api/v1/namespaces/n/configmaps", Behaviour::Watch(feed.clone()));
        let mut watch = Http1Caller::dial(&rig).await;
        let accept = format!("Accept: {kind}\r\n");
        watch.write(head("GET", &format!("{PATH}/n/configmaps?watch=1"), &accept)).await;
        watch.read_head().await;
        let pushed = async {
            while feed.push(nested.clone()) == 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(SOON, pushed).await.expect("somebody watches");
        watch.read_exactly(DEPTH).await;
    }
    assert_eq!(rig.ask_with_token("GET", PATH, &[]).await.status, 200);
    assert!(!rig.server_log().contains("panicked"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_nest_deeply_are_refused_and_end_nothing_that_runs() {
    let mut rig = Rig::start().await;
    let (fake, _agent) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
    fake.otherwise(Behaviour::json("{}"));
    for nested in nested_yaml() {
        rig.write(FILE, &format!("apiVersion: tombolo.dev/v1alpha1\nkind: Policy\nrules: {nested}\n"));
        rig.measured(RELOAD, |successful| successful == 0.0).await;
        assert_eq!(rig.ask_with_token("GET", PATH, &[]).await.status, 200, "the last good one is in force");
        let output = rig.tombolo_writes(&["policy", "check", FILE]).await;
        assert!(output.contains("policy") && !output.contains("panicked"), "{output}");
        rig.put_policy(&[allow_all("again", ("token", "token:tombolo:admins"), &["*"])]).await;
    }
    for nested in nested_yaml() {
        let agent = starts_with(&rig, &nested).await;
        assert_eq!(agent, Some(2), "the agent's configuration");
    }
    let config = std::fs::read_to_string(rig.path().join("server.yaml")).unwrap();
    for nested in nested_yaml() {
        rig.kill_server();
        rig.write_config(|_| format!("{config}clusterz: {nested}\n"));
        assert_eq!(rig.start_server_and_fail().await, Some(2), "{}", rig.server_log());
        rig.write_config(|_| config.clone());
        rig.start_server().await;
    }
    assert!(!rig.server_log().contains("panicked"));
}

/// The exit code of an agent whose configuration nests like this.
async fn starts_with(rig: &Rig, nested: &str) -> Option<i32> {
    let api = ApiServer::Kubeconfig(rig.path().join("none.kubeconfig"));
    let mut agent: Agent = rig.agent_with("edge-z", &api, &format!("advertise: {nested}")).await;
    agent.process.wait(SOON).await.expect("it ends").code()
}

/// Arrays, objects, and both, closed and not.
fn nested_json(depth: usize) -> [String; 4] {
    [
        "[".repeat(depth) + &"]".repeat(depth),
        "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth),
        "[{\"a\":".repeat(depth / 2) + "1" + &"}]".repeat(depth / 2),
        "[".repeat(depth),
    ]
}

/// In flow, in blocks of one line, and in blocks of many.
fn nested_yaml() -> [String; 4] {
    const BLOCKS: usize = 1_000;
    let blocks: String = (0..BLOCKS).map(|n| format!("\n{}a:", " ".repeat(n + 1))).collect();
    [
        "[".repeat(DEPTH) + &"]".repeat(DEPTH),
        "{a: ".repeat(DEPTH) + &"}".repeat(DEPTH),
        format!("\n  {}", "- ".repeat(DEPTH)),
        blocks,
    ]
}

fn config(issuer: &Issuer, server: &str, ca: &std::path::Path) -> String {
    format!(
        "    oidc:\n    - name: corp\n      issuer: {}\n      audience: {AUDIENCE}\n      caFile: {:?}\n      \
         groupsClaim: groups\n      usernamePrefix: \"oidc:\"\n      groupsPrefix: \"oidc:\"\n    \
         tokenReview:\n      name: host\n      server: {server}\n      caFile: {ca:?}\n      tokenFile: review.token\n      \
         audiences: [{AUDIENCE}]\n      usernamePrefix: \"host:\"\n      groupsPrefix: \"host:\"\n",
        issuer.url(),
        issuer.ca_file(),
    )
}
