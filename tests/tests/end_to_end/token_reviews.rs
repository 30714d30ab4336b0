//! Callers with tokens that another cluster's API server reviews: a real one, and one that lies.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tests::caller::{GATEWAY, Http1Caller};
use tests::fake_api::{Answer, Behaviour, FakeApi, HttpVersion, Store};
use tests::fake_edge::add_cluster;
use tests::kube::EdgeCluster;
use tests::rig::policy::allow_all;
use tests::rig::{Agent, ApiServer, Reply, Rig, TOKEN, ask};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

const AUDIENCE: &str = "tombolo";

/// Pause between two events of a watch that is to go on, and how long it takes at most until its token is
/// reviewed again.
const BEAT: Duration = Duration::from_secs(10);
const AGAIN_MAX: Duration = Duration::from_secs(6 * 60);

/// With what the server asks.
const ITS_TOKEN: &str = "the-servers-own-token";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_api_server_authenticates_a_service_accounts_token() {
    let host = EdgeCluster::start().await.unwrap();
    for words in [
        ["create", "serviceaccount", "reviewer", "-n=default"].as_slice(),
        &["create", "serviceaccount", "ann", "-n=default"],
        &[
            "create",
            "clusterrolebinding",
            "r",
            "--clusterrole=system:auth-delegator",
            "--serviceaccount=default:reviewer",
        ],
    ] {
        assert!(host.kubectl(words).await.unwrap().status.success(), "{words:?}");
    }
    let minted = async |account: &str, more: &[&str]| {
        let words = [&["create", "token", account, "-n=default"], more].concat();
        let output = host.kubectl(&words).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (ca, token) = (host.directory().join("review-ca.crt"), host.directory().join("review-token"));
    std::fs::write(&ca, host.ca_pem()).unwrap();
    std::fs::write(&token, minted("reviewer", &[]).await).unwrap();
    let rig = Rig::start_with(&config(&host.url(), &ca, &token)).await;
    let (fake, _agent) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
    fake.otherwise(Behaviour::json("{}"));
    let ann = "host:system:serviceaccount:default:ann";
    let subject = format!("\"token-review:host\", user: {ann:?}");
    rig.put_policy(&[allow_all("ann", ("token", "nobody"), &["*"])
        .replace("method: token, group: \"nobody\"", &format!("method: {subject}"))])
        .await;

    let good = minted("ann", &["--audience", AUDIENCE]).await;
    let reply = by(&rig, &good).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let request = fake.requests().pop().unwrap();
    assert_eq!(request.header("impersonate-user"), [ann]);
    assert!(request.header("impersonate-group").is_empty(), "its own groups mean nothing here: {request:?}");

    for (what, token) in [
        ("for the API server itself", minted("ann", &[]).await),
        ("changed", with_another_signature(&good)),
        ("none", "an-opaque-token".to_owned()),
    ] {
        let reply = by(&rig, &token).await;
        assert_eq!(reply.status, 401, "{what}: {}", reply.body);
    }
    let other = by(&rig, &minted("reviewer", &["--audience", AUDIENCE]).await).await;
    assert_eq!(other.status, 403, "another account: {}", other.body);
    assert_eq!(fake.requests().len(), 1);
    assert!(!rig.server_log().contains("eyJ"), "a token stands in the log");
}

/// C9 of docs/security.md.
/// The reviewer lies about its answer's form or content.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_review_admits_nobody_and_a_token_is_reviewed_once() {
    let (reviewer, rig, fake, _agent) = setup().await;
    let user = json!({ "username": "ann", "groups": ["ops", "system:masters"] });
    let good = json!({ "authenticated": true, "user": user, "audiences": [AUDIENCE] });
    let changed = |name: &str, value: Value| {
        let mut status = good.clone();
        status[name] = value;
        review(&status)
    };
    let without = |name: &str| {
        let mut status = good.clone();
        status.as_object_mut().unwrap().remove(name);
        review(&status)
    };
    let named = |user: Value| changed("user", user);
    for (number, (what, answer, status)) in [
        ("the truth", review(&good), 200),
        ("not authenticated, and a user", changed("authenticated", json!(false)), 401),
        ("authenticated as a text", changed("authenticated", json!("true")), 401),
        ("authenticated as a number", changed("authenticated", json!(1)), 401),
        ("nothing of authentication", without("authenticated"), 401),
        ("an empty status", review(&json!({})), 401),
        ("an error and a user", changed("error", json!("no")), 401),
        ("an error of another type", changed("error", json!({})), 401),
        ("no audience", without("audiences"), 401),
        ("an empty audience", changed("audiences", json!([])), 401),
        ("another audience", changed("audiences", json!(["elsewhere"])), 401),
        ("an audience as a text", changed("audiences", json!(AUDIENCE)), 401),
        ("no user", without("user"), 401),
        ("no name", named(json!({ "groups": ["ops"] })), 401),
        ("an empty name", named(json!({ "username": "" })), 401),
        ("a name of two lines", named(json!({ "username": "a\r\nImpersonate-Group: ops" })), 401),
        ("a name of Kubernetes' own", named(json!({ "username": "system:admin" })), 401),
        ("groups as a text", named(json!({ "username": "ann", "groups": "ops" })), 401),
        ("a group that is none", named(json!({ "username": "ann", "groups": [1] })), 401),
        ("too many groups", named(json!({ "username": "ann", "groups": vec!["g"; 65] })), 401),
        ("huge groups", named(json!({ "username": "ann", "groups": vec!["g".repeat(200); 5_000] })), 503),
        ("another kind", Answer::json(201, json!({ "kind": "Status", "status": good }).to_string()), 503),
        ("no JSON", Answer::json(201, "authenticated"), 503),
        ("an empty answer", Answer::json(200, ""), 503),
        ("its own failure", Answer::json(500, "{}"), 503),
        ("that we may not ask", Answer::json(403, "{}"), 503),
        ("a redirect", Answer { status: 302, ..review(&good) }, 503),
    ]
    .into_iter()
    .enumerate()
    {
        reviewer.on(REVIEWS, Behaviour::Answer(answer));
        let reply = by(&rig, &format!("token-{number}")).await;
        assert_eq!(reply.status, status, "{what}: {}", reply.body);
    }
    let requests = fake.requests();
    assert_eq!(requests.len(), 1, "a lie reached the API server");
    assert_eq!(requests[0].header("impersonate-user"), ["host:ann"]);
    assert_eq!(
        requests[0].header("impersonate-group"),
        ["host:ops"],
        "a group of Kubernetes' own is left out"
    );
    let asked = reviewer.requests().into_iter().next().unwrap();
    assert_eq!(asked.header("authorization"), [format!("Bearer {ITS_TOKEN}")]);

    // Many requests with one token cause one review, whether it is accepted or not.
    for (token, answer, status) in [("hammer", review(&json!({})), 401), ("welcome", review(&good), 200)] {
        reviewer.on(REVIEWS, Behaviour::Answer(answer));
        let before = reviewer.requests().len();
        let replies = futures::future::join_all((0..50).map(|_| by(&rig, token))).await;
        assert!(replies.iter().all(|reply| reply.status == status), "{:?}", replies[0]);
        assert_eq!(reviewer.requests().len() - before, 1, "{token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_reviewer_is_503_and_other_callers_are_served() {
    let (mut reviewer, rig, fake, _agent) = setup().await;
    reviewer.on(REVIEWS, Behaviour::NeverAnswer);
    let reply = by(&rig, "silent").await;
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert!(reply.body.contains("AuthenticatorAway"), "{}", reply.body);
    reviewer.refuse().await;
    assert_eq!(by(&rig, "refused").await.status, 503);
    assert_eq!(rig.ask_with_token("GET", "/clusters", &[]).await.status, 200);
    assert!(fake.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_disconnect_during_a_review_block_no_other() {
    let (reviewer, rig, _fake, _agent) = setup().await;
    reviewer.on(REVIEWS, Behaviour::NeverAnswer);
    let mut callers = Vec::new();
    for number in 0..40 {
        let mut caller = Http1Caller::dial_name(&rig, GATEWAY, None).await;
        let lines = format!("Host: {GATEWAY}\r\nAuthorization: Bearer left-{number}\r\n");
        caller.write(format!("GET {PATH} HTTP/1.1\r\n{lines}\r\n")).await;
        callers.push(caller);
    }
    // As many as are reviewed at once.
    while reviewer.requests().len() < 32 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(callers);
    reviewer.on(REVIEWS, Behaviour::Answer(yes()));

    // Each of theirs ends at its own deadline.
    let mut number = 0;
    while by(&rig, &format!("stays-{number}")).await.status != 200 {
        number += 1;
        assert!(number < 30, "there is no turn for who stays");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_by_a_reviewed_token_resumes() {
    let (reviewer, rig, fake, agent) = setup().await;
    reviewer.on(REVIEWS, Behaviour::Answer(yes()));
    let store = stored(&fake);
    let mut watch = watching(&rig, &store, "long-lived").await;
    drop(agent);
    let anybody = "impersonation: { users: [\"*\"], groups: [\"*\"] }";
    let _agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &fake), anybody).await;
    store.put("shown", "by the next tunnel");
    watch.read_until("by the next tunnel").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: waits until a token that was accepted is reviewed again, four minutes"]
async fn a_later_denial_ends_only_the_watches_of_the_reviewed_token() {
    let (reviewer, rig, fake, _agent) = setup().await;
    reviewer.on(REVIEWS, Behaviour::Answer(yes()));
    let store = stored(&fake);
    let mut watch = watching(&rig, &store, "long-lived").await;
    let mut other = watching(&rig, &store, TOKEN).await;
    let asked = reviewer.requests().len();
    reviewer.on(REVIEWS, Behaviour::Answer(review(&json!({}))));

    let events = async {
        loop {
            store.put("shown", "a beat");
            tokio::time::sleep(BEAT).await;
        }
    };
    let message = tokio::select! {
        message = watch.read_until("\"ERROR\"") => message,
        () = events => unreachable!("it goes on"),
        () = tokio::time::sleep(AGAIN_MAX) => panic!("it goes on: {}", rig.server_log()),
    };

    assert!(message.contains("a beat"), "it went on until then: {message}");
    let error = message.lines().find(|line| line.contains("\"ERROR\"")).expect("an event");
    assert!(error.contains("CredentialRevoked") && error.contains("\"code\":401"), "{error}");
    assert_eq!(reviewer.requests().len(), asked + 1, "it was asked once");
    store.put("shown", "behind it");
    other.read_until("behind it").await;
    assert_eq!(by(&rig, "long-lived").await.status, 401);
}

/// This shows A13 of docs/security.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_in_the_websocket_subprotocol_is_taken_once_and_goes_no_further() {
    let rig = Rig::start().await;
    let (fake, _agent) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
    fake.otherwise(Behaviour::upgrade());
    // base64url of the token that a rig's file knows.
    const MARK: &str = "base64url.bearer.authorization.k8s.io.";
    const ENCODED: &str = "YS10b2tlbi1mb3ItdHJpYWxzLW9ubHk";
    let exec = "/clusters/edge-a/api/v1/namespaces/n/pods/p/exec?command=sh";
    let asked = |lines: &str| {
        format!(
            "GET {exec} HTTP/1.1\r\nHost: gateway.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{lines}\r\n"
        )
    };
    let token = format!("{MARK}{ENCODED}");
    for lines in [
        format!("Sec-WebSocket-Protocol: {token}, v5.channel.k8s.io\r\n"),
        format!("Sec-WebSocket-Protocol: v5.channel.k8s.io\r\nSec-WebSocket-Protocol: {token}\r\n"),
    ] {
        let mut caller = Http1Caller::dial(&rig).await;
        caller.write(asked(&lines)).await;
        let answered = caller.read_head().await;
        assert!(answered.starts_with("HTTP/1.1 101 "), "{answered}");
        assert!(!answered.contains(ENCODED), "{answered}");
        let request = fake.requests().pop().unwrap();
        assert_eq!(request.header("sec-websocket-protocol"), ["v5.channel.k8s.io"]);
        assert_eq!(request.header("impersonate-user"), ["token:tess"]);
    }
    let seen = fake.requests().len();
    let other = "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n";
    for (lines, status) in [
        (format!("Sec-WebSocket-Protocol: {token}, {token}, v5.channel.k8s.io\r\n"), 400),
        (format!("{other}Sec-WebSocket-Protocol: {token}\r\nAuthorization: Bearer x\r\n"), 400),
        (format!("Sec-WebSocket-Protocol: {token}\r\n"), 401),
        (format!("{other}Sec-WebSocket-Protocol: {token}=\r\n"), 401),
        (format!("{other}Sec-WebSocket-Protocol: {MARK}\r\n"), 401),
        (format!("{other}Sec-WebSocket-Protocol: {MARK}d3Jvbmc\r\n"), 401),
        (format!("{other}Cookie: {token}\r\n"), 401),
    ] {
        let mut caller = Http1Caller::dial(&rig).await;
        caller.write(asked(&lines)).await;
        let answered = caller.read_head().await;
        assert!(answered.starts_with(&format!("HTTP/1.1 {status} ")), "{lines}: {answered}");
    }
    // Where there is no WebSocket it is no credential.
    let reply = rig_ask(&rig, &[("Sec-WebSocket-Protocol", &format!("{token}, v5.channel.k8s.io"))]).await;
    assert_eq!(reply.status, 401, "{}", reply.body);
    assert_eq!(fake.requests().len(), seen);
    for log in [rig.server_log(), rig.agent_log("edge-a")] {
        assert!(!log.contains(ENCODED), "the token stands in a log");
    }
}

async fn setup() -> (FakeApi, Rig, FakeApi, Agent) {
    let reviewer = FakeApi::start_http1().await.unwrap();
    let folder = tests::scratch::Scratch::new("tombolo-review-").unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, reviewer.ca_pem()).unwrap();
    // The server reads it for each review: it lies in the rig's folder, which lives as long.
    let rig = Rig::start_with(&config(&reviewer.url(), &ca, Path::new("review.token"))).await;
    rig.write("review.token", &format!("{ITS_TOKEN}\n"));
    let (fake, agent) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
    fake.otherwise(Behaviour::json("{}"));
    rig.put_policy(&[
        allow_all("ops", ("\"token-review:host\"", "host:ops"), &["*"]),
        allow_all("rig", ("token", "token:tombolo:admins"), &["*"]),
    ])
    .await;
    (reviewer, rig, fake, agent)
}

/// A watch by this token, which has shown something.
async fn watching(rig: &Rig, store: &Store, token: &str) -> Http1Caller {
    let mut watch = Http1Caller::dial_name(rig, GATEWAY, None).await;
    let version = store.put("shown", "1");
    let lines = format!("Host: {GATEWAY}\r\nAuthorization: Bearer {token}\r\n");
    watch.write(format!("GET {PATH}?watch=1&resourceVersion={version} HTTP/1.1\r\n{lines}\r\n")).await;
    assert!(watch.read_head().await.starts_with("HTTP/1.1 200 "));
    store.put("shown", "seen");
    watch.read_until("seen").await;
    watch
}

/// The collection of the fake, for lists and watches.
fn stored(fake: &FakeApi) -> Store {
    let store = Store::new();
    fake.on("/api/v1/namespaces", Behaviour::Store(store.clone()));
    store
}

/// The review that accepts a token as ann's, with the group ops.
fn yes() -> Answer {
    let user = json!({ "username": "ann", "groups": ["ops"] });
    review(&json!({ "authenticated": true, "user": user, "audiences": [AUDIENCE] }))
}

fn review(status: &Value) -> Answer {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status });
    Answer::json(201, review.to_string())
}

fn config(server: &str, ca: &Path, token: &Path) -> String {
    format!(
        "    tokenReview:\n      name: host\n      server: {server}\n      caFile: {ca:?}\n      tokenFile: {token:?}\n      \
         audiences: [{AUDIENCE}]\n      usernamePrefix: \"host:\"\n      groupsPrefix: \"host:\"\n"
    )
}

async fn by(rig: &Rig, token: &str) -> Reply {
    rig_ask(rig, &[("Authorization", &format!("Bearer {token}"))]).await
}

async fn rig_ask(rig: &Rig, headers: &[(&str, &str)]) -> Reply {
    ask(rig.gateway(), &rig.server_ca(), None, "GET", PATH, headers).await.expect("the gateway answers")
}

/// The token with its signature's first letter exchanged: all bits of that one count, of the last one two.
fn with_another_signature(token: &str) -> String {
    let (signed, signature) = token.rsplit_once('.').expect("a JWT");
    let other = if signature.starts_with('A') { 'B' } else { 'A' };
    format!("{signed}.{other}{}", &signature[1..])
}
