//! Callers' own credentials that pass through to their cluster, and to no other.

use proto::AbortCode;
use proto::wire::{PassThrough, StreamOpen};
use rustix::process::Signal;
use serde_json::Value;
use tests::caller::{Http2Caller, SOON, read_to_end};
use tests::carrier::is_not_quic;
use tests::fake_api::{Answer, Behaviour, FakeApi, FakeApiOptions, HttpVersion, RecordedRequest};
use tests::kube::EdgeCluster;
use tests::kube::audit::AuditEvent;
use tests::rig::policy::{allow_all, may_assume};
use tests::rig::{Agent, ApiServer, GROUP, Reply, Rig, TOKEN, ask};
use tokio::time::timeout;

use crate::rogue_server::{AUDIT_ID, ROGUE_SPEAKS, RogueServer};

const PATH: &str = "/clusters/edge-p/api/v1/namespaces";

/// Callers' own credentials pass through to one cluster, and not to the other. No wait times out during a
/// test.
const CLUSTERS: &str = "clusters: [{ name: edge-p, passThrough: true }, { name: edge-a, impersonation: { users: [\"*\"], \
                        groups: [\"*\"] } }]\nparking: { limitSeconds: 300 }\n";

/// A token that only the cluster knows.
const OF_THE_CLUSTER: &str = "Bearer a-token-of-the-clusters-own";

const AUTHORIZATION: &str = "Authorization";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_own_token_reaches_its_cluster_with_nothing_of_the_agents() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let edge = TokenEdge::start(version).await;
        // The agent's own requests show its certificate, so it has one that works.
        let own =
            edge.fake.wait_for_request(SOON, |one| one.target.contains("endpointslices")).await.unwrap();
        assert!(edge.shows_certificate(&own));
        let before = edge.fake.requests().len();

        let upgrade = [
            (AUTHORIZATION, OF_THE_CLUSTER),
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let exec = "/clusters/edge-p/api/v1/namespaces/a/pods/x/exec?command=id";
        for (method, path, headers) in [
            ("GET", PATH, [(AUTHORIZATION, OF_THE_CLUSTER), ("Cookie", "a=secret")].as_slice()),
            ("GET", "/clusters/edge-p/api/v1/pods?watch=1", &[(AUTHORIZATION, OF_THE_CLUSTER)]),
            ("POST", PATH, &[("authorization", OF_THE_CLUSTER), ("Content-Length", "0")]),
            ("GET", exec, &upgrade),
        ] {
            let reply = edge.ask(method, path, headers).await;
            assert_eq!(reply.status, 200, "{method} {path}: {reply:?}");
        }
        let mut http2 = Http2Caller::dial_name(&edge.rig, "gateway.test", Some(&edge.alice().await)).await;
        let answer = http2.ask("GET", PATH, &[("authorization", OF_THE_CLUSTER)]).await.unwrap();
        assert_eq!(answer.status(), 200);

        let arrived = edge.callers(before);
        assert_eq!(arrived.len(), 5);
        for request in &arrived {
            assert_eq!(request.header("authorization"), [OF_THE_CLUSTER], "{:?}", request.headers);
            let all = format!("{:?}", request.headers).to_lowercase();
            assert!(
                !all.contains("impersonate") && !all.contains("alice") && !all.contains("secret"),
                "{all}"
            );
            assert!(!edge.shows_certificate(request), "{}", request.target);
        }
        // Neither log has it.
        for log in [edge.rig.server_log(), edge.rig.agent_log("edge-p")] {
            assert!(!log.contains("clusters-own"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_passthrough_needs_a_certificate_and_exactly_one_bearer_token() {
    let edge = TokenEdge::start(HttpVersion::Http1).await;
    let (gateway, ca) = (edge.rig.gateway(), edge.rig.server_ca());
    for (headers, status, cause) in [
        ([].as_slice(), 401, "NoBearerToken"),
        (&[(AUTHORIZATION, "")], 401, "NoBearerToken"),
        (&[(AUTHORIZATION, "Bearer")], 401, "NoBearerToken"),
        (&[(AUTHORIZATION, "Bearer a b")], 401, "NoBearerToken"),
        (&[(AUTHORIZATION, "Basic dGVzczp0b2tlbg==")], 401, "NoBearerToken"),
        (&[("Proxy-Authorization", OF_THE_CLUSTER)], 401, "NoBearerToken"),
        (&[("Cookie", "Authorization=Bearer x")], 401, "NoBearerToken"),
        (&[(AUTHORIZATION, OF_THE_CLUSTER), (AUTHORIZATION, OF_THE_CLUSTER)], 400, "NotAuthenticated"),
        (&[(AUTHORIZATION, OF_THE_CLUSTER), ("Impersonate-User", "bob")], 403, "HeadersRefused"),
        (&[(AUTHORIZATION, OF_THE_CLUSTER), ("Impersonate-Group", "bob")], 403, "HeadersRefused"),
        (&[(AUTHORIZATION, OF_THE_CLUSTER), ("Connection", "Authorization")], 400, "HeadersRefused"),
    ] {
        let reply = edge.ask("GET", PATH, headers).await;
        assert_eq!((reply.status, reply.cause()), (status, cause.to_owned()), "{headers:?}");
    }
    // A token for the gateway is for the gateway.
    let token = format!("Bearer {TOKEN}");
    for (authorization, message) in
        [(token.as_str(), "client certificate"), (OF_THE_CLUSTER, "not known here")]
    {
        let reply = ask(gateway, &ca, None, "GET", PATH, &[(AUTHORIZATION, authorization)]).await.unwrap();
        assert_eq!((reply.status, reply.cause()), (401, "NotAuthenticated".to_owned()));
        assert!(reply.body.contains(message), "{reply:?}");
    }
    assert_eq!(ask(gateway, &ca, None, "GET", PATH, &[]).await.unwrap().status, 401);
    // Whom policy does not let reach the cluster, no token helps.
    let mallory = edge.rig.caller("mallory", &["nobodies"]).await;
    let reply =
        ask(gateway, &ca, Some(&mallory), "GET", PATH, &[(AUTHORIZATION, OF_THE_CLUSTER)]).await.unwrap();
    assert_eq!(reply.status, 403);
    // Elsewhere two credentials are one too many.
    for path in ["/clusters/edge-a/api/v1/namespaces", "/clusters/edge-x/api", "/clusters"] {
        let reply = edge.ask("GET", path, &[(AUTHORIZATION, OF_THE_CLUSTER)]).await;
        assert_eq!((reply.status, reply.cause()), (400, "NotAuthenticated".to_owned()), "{path}");
    }
    assert!(edge.callers(0).is_empty(), "{:?}", edge.callers(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_pass_only_where_server_and_agent_both_enable_it() {
    let rig = Rig::start_with(CLUSTERS).await;
    let fake = FakeApi::start().await.unwrap();
    fake.otherwise(Behaviour::json("{}"));
    let api_server = ApiServer::of_fake(&rig, &fake);
    let _agents = [
        rig.agent_with("edge-p", &api_server, "advertise: [\"192.168.1.10:6443\"]").await,
        rig.agent_with("edge-a", &api_server, "passThrough: true\nadvertise: [\"192.168.1.10:6443\"]").await,
    ];
    rig.connected("edge-p").await;
    rig.connected("edge-a").await;
    let alice = rig.caller("alice", &[GROUP]).await;

    for (cluster, status, cause) in [("edge-p", 403, "ForbiddenByAgent"), ("edge-a", 400, "NotAuthenticated")]
    {
        let path = format!("/clusters/{cluster}/api/v1/namespaces");
        let headers = [(AUTHORIZATION, OF_THE_CLUSTER)];
        let reply = ask(rig.gateway(), &rig.server_ca(), Some(&alice), "GET", &path, &headers).await.unwrap();
        assert_eq!((reply.status, reply.cause()), (status, cause.to_owned()), "{cluster}: {reply:?}");
    }
    assert!(fake.requests().is_empty(), "{:?}", fake.requests());
}

/// The requests come from a rogue server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_refuses_requests_without_exactly_one_token() {
    if is_not_quic("an_agent_refuses_requests_without_exactly_one_token", ROGUE_SPEAKS) {
        return;
    }
    let open = StreamOpen::http(PassThrough {}, AUDIT_ID.to_owned(), false);
    let asked = |lines: &str| format!("GET /api/v1/pods HTTP/1.1\r\nhost: a\r\n{lines}\r\n");
    let bearer = "Authorization: Bearer x\r\n";
    let off = RogueServer::guarded("impersonation: { users: [\"*\"] }\n").await;
    assert_eq!(off.refusal(&open, &asked(bearer)).await, Some(AbortCode::NoPassThrough));
    assert_eq!(off.served(), 0);

    let rogue = RogueServer::guarded("passThrough: true\n").await;
    for (lines, code) in [
        ("", AbortCode::NoBearer),
        ("Authorization: \r\n", AbortCode::NoBearer),
        ("Authorization: Bearer\r\n", AbortCode::NoBearer),
        ("Authorization: Bearer \r\n", AbortCode::NoBearer),
        ("Authorization: Bearer x y\r\n", AbortCode::NoBearer),
        ("Authorization: Bearer x, Bearer y\r\n", AbortCode::NoBearer),
        ("Authorization: Basic eDp5\r\n", AbortCode::NoBearer),
        ("Authorization: Bearer x\r\nAuthorization: Bearer x\r\n", AbortCode::NoBearer),
        ("Authorization: Bearer x\r\nauthorization: \r\n", AbortCode::NoBearer),
        ("Proxy-Authorization: Bearer x\r\n", AbortCode::NoBearer),
        ("Authorization: Bearer x\r\nImpersonate-User: root\r\n", AbortCode::BadRequest),
        ("Authorization: Bearer x\r\nImpersonate_Group: root\r\n", AbortCode::BadRequest),
        ("Authorization: Bearer x\r\nImpersonate-Uid: 0\r\n", AbortCode::BadRequest),
        ("Authorization: Bearer x\r\nConnection: Authorization\r\n", AbortCode::BadRequest),
    ] {
        assert_eq!(rogue.refusal(&open, &asked(lines)).await, Some(code), "{lines:?}");
    }
    assert_eq!(rogue.served(), 0);
    assert_eq!(rogue.refusal(&open, &asked(bearer)).await, None);
    assert_eq!((rogue.served(), rogue.asserted()), (1, vec![(String::new(), Vec::new())]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_401_of_the_api_server_goes_through_to_the_caller_as_it_is() {
    let edge = TokenEdge::start(HttpVersion::Http2).await;
    let headers = vec![("Www-Authenticate".to_owned(), "Bearer realm=\"theirs\"".to_owned())];
    let theirs = "{\"kind\":\"Status\",\"message\":\"theirs\"}";
    edge.fake.otherwise(Behaviour::Answer(Answer { status: 401, headers, body: theirs.into() }));

    for _ in 0..2 {
        let reply = edge.ask("GET", PATH, &[(AUTHORIZATION, OF_THE_CLUSTER)]).await;
        assert_eq!((reply.status, reply.body.contains(theirs)), (401, true), "{reply:?}");
        assert!(reply.head.to_lowercase().contains("www-authenticate: bearer realm=\"theirs\""), "{reply:?}");
    }
}

/// A watch with one is not resumed, either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_with_the_callers_own_token_is_never_parked_or_resent() {
    let mut edge = TokenEdge::start(HttpVersion::Http2).await;
    edge.fake.on("/api/v1/stalls", Behaviour::NeverAnswer);
    let feed = tests::fake_api::WatchFeed::new();
    edge.fake.on("/api/v1/pods", Behaviour::Watch(feed.clone()));
    let headers = [("authorization", OF_THE_CLUSTER)];
    let mut caller = Http2Caller::dial_name(&edge.rig, "gateway.test", Some(&edge.alice().await)).await;
    let watched = "/clusters/edge-p/api/v1/pods?watch=1&resourceVersion=5";
    let (watch, _) = caller.send("GET", watched, &headers, true);
    let mut watch = timeout(SOON, watch).await.unwrap().unwrap().into_body();
    feed.push("{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"7\"}}}\n");
    assert!(timeout(SOON, watch.data()).await.unwrap().unwrap().is_ok());
    let (unanswered, _) = caller.send("GET", "/clusters/edge-p/api/v1/stalls", &headers, true);
    edge.fake.wait_for_request(SOON, |one| one.target == "/api/v1/stalls").await.unwrap();

    edge.restart_agent().await;

    assert_eq!(timeout(SOON, unanswered).await.unwrap().unwrap().status(), 504);
    let (_, end) = timeout(SOON, read_to_end(watch)).await.expect("it ends");
    assert!(end.is_err(), "an honest error");
    assert_eq!(edge.callers(0).len(), 2, "nothing was sent twice: {:?}", edge.callers(0));

    // Requests for the other cluster wait for longer than this test can.
    Rig::ends_with(&mut edge.agent.process, Signal::TERM).await;
    edge.rig.disconnected("edge-p").await;
    let away = edge.ask("GET", PATH, &headers).await;
    assert_eq!((away.status, away.cause()), (503, "ClusterNotConnected".to_owned()));
}

/// It rejects a made-up token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_api_server_accepts_its_own_service_accounts_token() {
    let cluster = EdgeCluster::start().await.unwrap();
    let account = cluster.create_agent_account().await.unwrap();
    let admin = cluster.admin();
    admin.stdout(&["create", "serviceaccount", "reader", "-n", "default"]).await;
    let token = admin.stdout(&["create", "token", "reader", "-n", "default"]).await;
    let rig = Rig::start_with(CLUSTERS).await;
    let _agent = rig.agent_with("edge-p", &ApiServer::of(&cluster, &account), "passThrough: true").await;
    rig.connected("edge-p").await;
    let kubeconfig = rig.kubeconfig("alice", &[GROUP], "edge-p").await;
    let alice = cluster.kubectl_with(kubeconfig).limit(SOON);
    let whoami = ["auth", "whoami", "-o", "json"];
    let user = alice.stdout(&["config", "view", "-o", "jsonpath={.users[0].name}"]).await;

    let none = alice.refusal(&whoami).await;
    alice.stdout(&["config", "set-credentials", &user, "--token", token.trim()]).await;
    let who: Value = serde_json::from_str(&alice.stdout(&whoami).await).unwrap();
    alice.stdout(&["config", "set-credentials", &user, "--token", "garbage"]).await;
    let garbage = alice.refusal(&whoami).await;

    let username = "system:serviceaccount:default:reader";
    assert_eq!(who["status"]["userInfo"]["username"], username);
    let of_reader = |event: &AuditEvent| event.user.username == username;
    let event = cluster.wait_for_audit(SOON, of_reader).await.unwrap();
    assert_eq!(event.impersonated_user, None);
    for (output, word) in [(none, "as Authorization"), (garbage, "Unauthorized")] {
        assert!(output.contains(word), "{word}: {output}");
    }
}

/// A cluster to which credentials pass through, whose agent has a client certificate of its own.
struct TokenEdge {
    rig: Rig,
    fake: FakeApi,
    agent: Agent,
}

impl TokenEdge {
    async fn start(version: HttpVersion) -> Self {
        let rig = Rig::start_with(CLUSTERS).await;
        // Upgrades are asked over HTTP/1.1 alone.
        let options =
            FakeApiOptions { versions: vec![version, HttpVersion::Http1], ..FakeApiOptions::default() };
        let fake = FakeApi::start_with(options).await.unwrap();
        fake.otherwise(Behaviour::json("{}"));
        let kubeconfig = rig.path().join("agent.kubeconfig");
        fake.write_kubeconfig_with_certificate(&kubeconfig, "the-agent").unwrap();
        rig.put_policy(&[
            allow_all("certified", ("client-certificate", GROUP), &["*"]),
            allow_all("holders", ("token", "token:tombolo:admins"), &["*"]),
            may_assume(
                "deputies",
                ("client-certificate", GROUP),
                &["*"],
                "{ users: [\"*\"], groups: [\"*\"] }",
            ),
        ])
        .await;
        let agent = start_agent(&rig).await;
        Self { rig, fake, agent }
    }

    async fn restart_agent(&mut self) {
        self.agent.process.kill();
        self.agent = start_agent(&self.rig).await;
    }

    async fn alice(&self) -> tests::pki::Issued {
        self.rig.caller("alice", &[GROUP]).await
    }

    /// Sends a request as alice, by certificate.
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
        let (gateway, ca) = (self.rig.gateway(), self.rig.server_ca());
        ask(gateway, &ca, Some(&self.alice().await), method, path, headers)
            .await
            .expect("the gateway answers")
    }

    /// The requests of callers after the first `from` ones. The agent's own have no audit ID.
    fn callers(&self, from: usize) -> Vec<RecordedRequest> {
        let requests = self.fake.requests().split_off(from);
        requests.into_iter().filter(|request| !request.header("audit-id").is_empty()).collect()
    }

    fn shows_certificate(&self, request: &RecordedRequest) -> bool {
        let connections = self.fake.connections();
        connections.iter().find(|one| one.id == request.connection).unwrap().shows_certificate
    }
}

async fn start_agent(rig: &Rig) -> Agent {
    let api_server = ApiServer::Kubeconfig(rig.path().join("agent.kubeconfig"));
    let agent = rig.agent_with("edge-p", &api_server, "passThrough: true").await;
    rig.connected("edge-p").await;
    agent
}
