//! Callers that assume another identity: `kubectl --as`.

use serde_json::Value;
use tests::caller::{Http1Caller, Http2Caller, SOON, head};
use tests::fake_api::{Behaviour, FakeApi, HttpVersion, RecordedRequest};
use tests::fake_edge::FakeEdge;
use tests::kube::account;
use tests::kube::audit::AuditEvent;
use tests::real_edge::RealEdge;
use tests::rig::policy::{allow_all, may_assume};
use tests::rig::{ApiServer, GROUP, Rig, TOKEN, ask};
use tests::routes::Route;

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

/// The method and group of the rig's token, and those of callers with a certificate.
const HOLDER: (&str, &str) = ("token", "token:tombolo:admins");
const CERTIFIED: (&str, &str) = ("client-certificate", GROUP);

const ANYBODY: &str = "{ users: [\"*\"], groups: [\"*\"] }";

const USER: &str = "Impersonate-User";
const IN_GROUP: &str = "Impersonate-Group";

/// A request for any other identity reaches no API server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permitted_assumed_identity_is_the_only_one_that_a_cluster_sees() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let edge = setup(version, "{ users: [bob, \"ci:*\"], groups: [ops, dev] }").await;
        for (user, groups) in [("bob", [].as_slice()), ("bob", &["ops", "dev"]), ("ci:deployer", &["dev"])] {
            let headers = identity(user, groups);
            let before = edge.fake.requests().len();

            let reply = edge.rig.ask_with_token("GET", PATH, &headers).await;
            let lower: Vec<(String, &str)> =
                headers.iter().map(|(name, value)| (name.to_lowercase(), *value)).collect();
            let lower: Vec<(&str, &str)> =
                lower.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let answer = Http2Caller::dial(&edge.rig).await.ask("GET", PATH, &lower).await.unwrap();

            assert_eq!((reply.status, answer.status().as_u16()), (200, 200), "{user} {groups:?}: {reply:?}");
            let arrived = edge.fake.requests().split_off(before);
            assert_eq!(arrived.len(), 2);
            arrived.iter().for_each(|request| speaks_for(request, user, groups));
        }
        let before = edge.fake.requests().len();
        for (user, groups) in [
            ("bobby", [].as_slice()),
            ("Bob", &[]),
            ("token:tess", &[]),
            ("ops", &[]),
            ("bob", &["ops", "root"]),
            ("bob", &["bob"]),
            ("bob", &["ops, dev"]),
            ("ci:deployer", &["system:masters"]),
            ("system:admin", &[]),
            ("system:serviceaccount:kube-system:default", &[]),
        ] {
            let reply = edge.rig.ask_with_token("GET", PATH, &identity(user, groups)).await;
            assert_eq!((reply.status, reply.cause()), (403, "ForbiddenByPolicy".into()), "{user} {groups:?}");
        }
        // A caller that policy permits everything, except for assuming an identity.
        let alice = edge.rig.caller("alice", &[GROUP]).await;
        let (gateway, ca) = (edge.rig.gateway(), edge.rig.server_ca());
        let reply = ask(gateway, &ca, Some(&alice), "GET", PATH, &identity("bob", &[])).await.unwrap();
        assert_eq!((reply.status, reply.cause()), (403, "ForbiddenByPolicy".into()));
        // The list of clusters is the caller's own.
        let list = edge.rig.ask_with_token("GET", "/clusters", &identity("bob", &[])).await;
        assert_eq!((list.status, list.cause()), (403, "HeadersRefused".into()));
        assert_eq!(edge.fake.requests().len(), before);
    }
}

/// The test sends identities in every spelling. Everything except one user with groups is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_user_with_groups_is_accepted_as_an_assumed_identity() {
    let edge = setup(HttpVersion::Http1, ANYBODY).await;
    let refused = async |headers: &[(&str, &str)]| {
        let reply = edge.rig.ask_with_token("GET", PATH, headers).await;
        assert_eq!(reply.status, 403, "{headers:?}: {reply:?}");
    };
    let mut tried = 0;
    for name in [USER, IN_GROUP, "Impersonate-Uid", "Impersonate-Extra-Scopes", "Impersonate-X"] {
        let (lower, upper) = (name.to_lowercase(), name.to_uppercase());
        for spelling in [name.to_owned(), lower.clone(), upper.clone()] {
            for value in ["system:admin", "", "a, b"] {
                // Beside a proper user, which policy lets this caller be.
                let beside = [(USER, "bob"), (spelling.as_str(), value)];
                let is_group = name == IN_GROUP;
                if is_group && value == "a, b" {
                    let before = edge.fake.requests().len();
                    assert_eq!(edge.rig.ask_with_token("GET", PATH, &beside).await.status, 200);
                    // One header is one name, as the API server reads it.
                    speaks_for(&edge.fake.requests()[before], "bob", &["a, b"]);
                } else if !(is_group && value == "system:admin") {
                    refused(&beside).await;
                }
                if name != USER {
                    refused(&[(spelling.as_str(), value)]).await;
                }
                tried += 1;
            }
        }
        for spelling in [name.replace('-', "_"), lower.replacen('-', "_", 1), upper.replace('-', "_")] {
            for value in ["system:admin", "", "a, b"] {
                refused(&[(spelling.as_str(), value)]).await;
                refused(&[(USER, "bob"), (spelling.as_str(), value)]).await;
                tried += 1;
            }
        }
    }
    assert!(tried >= 60, "{tried}");
    refused(&[(USER, "bob"), (USER, "bob")]).await;
    refused(&[(USER, "bob"), ("impersonate-user", "root")]).await;
    for names in [USER, IN_GROUP, "impersonate-user, close"] {
        let headers = [("Connection", names), (USER, "bob"), ("Connection", "close")];
        let reply = edge.rig.ask_with_token("GET", PATH, &headers).await;
        assert_eq!(reply.status, 400, "{names}: {reply:?}");
    }

    // A trailer after the body is no header.
    let mut caller = Http1Caller::dial(&edge.rig).await;
    let lines = "Impersonate-User: bob\r\nTransfer-Encoding: chunked\r\nTrailer: Impersonate-Group\r\n";
    caller.write(head("POST", PATH, lines)).await;
    caller.write("2\r\n{}\r\n0\r\nImpersonate-Group: system:masters\r\nImpersonate-User: root\r\n\r\n").await;
    assert!(caller.read_head().await.starts_with("HTTP/1.1 200"));
    for request in edge.fake.requests() {
        assert_eq!(request.header("impersonate-user"), ["bob"], "{:?}", request.headers);
    }
    for connection in edge.fake.connections() {
        let bytes = String::from_utf8_lossy(&connection.bytes).into_owned();
        assert!(!bytes.contains("system:") && !bytes.contains("root"), "{bytes}");
    }
}

/// Presence of a header never switches off a step of authentication, where identities may be assumed as where
/// not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unauthenticated_client_assumes_no_identity() {
    let edge = setup(HttpVersion::Http1, ANYBODY).await;
    let (gateway, ca) = (edge.rig.gateway(), edge.rig.server_ca());
    for headers in [
        identity("bob", &[]),
        identity("bob", &["ops"]),
        identity("token:tess", &[HOLDER.1]),
        vec![(IN_GROUP, "ops")],
        vec![("Impersonate-Uid", "7")],
        vec![("Impersonate-Extra-Scopes", "x")],
        vec![(USER, "bob"), ("Authorization", "Bearer unknown")],
        vec![(USER, "bob"), ("Authorization", "Basic dGVzczp0b2tlbg==")],
    ] {
        let reply = ask(gateway, &ca, None, "GET", PATH, &headers).await.unwrap();
        assert_eq!((reply.status, reply.cause()), (401, "NotAuthenticated".into()), "{headers:?}");
    }
    assert!(edge.fake.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_assumed_identity_must_pass_the_allow_lists_of_server_and_agent() {
    let clusters = "clusters: [{ name: edge-a, impersonation: { users: [bob, carol], groups: [ops, dev] } }]";
    let rig = Rig::start_with(clusters).await;
    let fake = FakeApi::start().await.unwrap();
    fake.otherwise(Behaviour::json("{}"));
    let more = "impersonation: { users: [bob, dave], groups: [ops] }\nadvertise: [\"192.168.1.10:6443\"]";
    let _agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &fake), more).await;
    rig.connected("edge-a").await;
    rig.put_policy(&rules(ANYBODY)).await;

    for (user, groups, refused) in [
        ("bob", ["ops"].as_slice(), None),
        ("bob", &[], None),
        ("dave", &[], Some("NotAsserted")),
        ("bob", &["ops", "x"], Some("NotAsserted")),
        // Asked for, it is not left out as one of the caller's own would be.
        ("bob", &["system:authenticated"], Some("NotAsserted")),
        ("bob", &["system:masters"], Some("NotAsserted")),
        ("system:admin", &[], Some("NotAsserted")),
        ("carol", &[], Some("ForbiddenByAgent")),
        ("bob", &["dev"], Some("ForbiddenByAgent")),
    ] {
        let before = fake.requests().len();
        let reply = rig.ask_with_token("GET", PATH, &identity(user, groups)).await;
        let arrived = fake.requests().split_off(before);
        match refused {
            None => {
                assert_eq!((reply.status, arrived.len()), (200, 1), "{user} {groups:?}: {reply:?}");
                assert_eq!(arrived[0].header("impersonate-user"), [user]);
                assert_eq!(arrived[0].header("impersonate-group"), groups);
            }
            Some(reason) => {
                assert_eq!((reply.status, reply.cause()), (403, reason.into()), "{user} {groups:?}");
                assert!(arrived.is_empty(), "{user} {groups:?}: {arrived:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_api_server_sees_the_identity_that_kubectl_as_asks_for() {
    let edge = RealEdge::start().await;
    edge.rig.put_policy(&rules("{ users: [\"tombolo:bob\"], groups: [\"tombolo:team-b\"] }")).await;
    let [_, Route { kubectl: alice, .. }, _] = &edge.routes;
    let whoami = ["auth", "whoami", "-o", "json"];
    let as_bob = ["--as=tombolo:bob", "--as-group=tombolo:team-b"];

    let who: Value = serde_json::from_str(&alice.stdout(&[&as_bob[..], &whoami].concat()).await).unwrap();

    let user = &who["status"]["userInfo"];
    assert_eq!(user["username"], "tombolo:bob");
    assert_eq!(user["groups"], serde_json::json!(["tombolo:team-b", "system:authenticated"]));
    let of_bob = |event: &AuditEvent| {
        event.impersonated_user.as_ref().is_some_and(|user| user.username == "tombolo:bob")
    };
    let event = edge.cluster.wait_for_audit(SOON, of_bob).await.unwrap();
    assert_eq!(event.user.username, account::USERNAME);
    // What the other may not do, the caller may not do as that other.
    let output = alice.refusal(&[&as_bob[..], &["get", "nodes"]].concat()).await;
    assert!(output.contains("User \"tombolo:bob\" cannot list resource \"nodes\""), "{output}");
    let version = ["get", "--raw", "/version"];
    alice.stdout(&[&as_bob[..], &version].concat()).await;
    for more in ["--as=tombolo:carol", "--as-uid=7", "--as-group=tombolo:admins", "--as-user-extra=a=b"] {
        let output = alice.refusal(&[&as_bob[..], &[more], &version].concat()).await;
        assert!(output.contains("(Forbidden)"), "{more}: {output}");
    }
}

/// A cluster whose callers may do everything there. The holder of the rig's token may assume `identities`.
async fn setup(version: HttpVersion, identities: &str) -> FakeEdge {
    let edge = FakeEdge::start(version).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    edge.rig
        .put_policy(&[
            allow_all("holders", HOLDER, &["*"]),
            allow_all("certified", CERTIFIED, &["*"]),
            may_assume("deputies", HOLDER, &["edge-a"], identities),
        ])
        .await;
    edge
}

/// The rules of policy for both callers.
fn rules(identities: &str) -> Vec<String> {
    let of = |name: &str, who| {
        [allow_all(name, who, &["*"]), may_assume(&format!("{name}-as"), who, &["edge-a"], identities)]
    };
    [of("holders", HOLDER), of("certified", CERTIFIED)].concat()
}

fn identity<'a>(user: &'a str, groups: &[&'a str]) -> Vec<(&'static str, &'a str)> {
    [(USER, user)].into_iter().chain(groups.iter().map(|&group| (IN_GROUP, group))).collect()
}

/// Asserts that a request has this identity and nothing of the holder of the rig's token.
fn speaks_for(request: &RecordedRequest, user: &str, groups: &[&str]) {
    assert_eq!(request.header("impersonate-user"), [user]);
    assert_eq!(request.header("impersonate-group"), groups);
    let claims = request.headers.iter().filter(|(name, _)| name.to_lowercase().starts_with("impersonate"));
    assert_eq!(claims.count(), 1 + groups.len(), "{:?}", request.headers);
    let all = format!("{:?}", request.headers);
    assert!(!all.contains("tess") && !all.contains(HOLDER.1) && !all.contains(TOKEN), "{all}");
}
