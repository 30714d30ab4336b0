//! Authorization by another cluster in addition to the policy: a real API server with RBAC, and one that
//! lies, is slow or dead. It can only deny.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::caller::{GATEWAY, Http1Caller};
use tests::enroll::at;
use tests::fake_api::{Answer, Behaviour, FakeApi, HttpVersion, Store};
use tests::fake_edge::add_cluster;
use tests::kube::EdgeCluster;
use tests::rig::policy::{allow_all, rule, user_may_dial};
use tests::rig::{Agent, GROUP, Reply, Rig, TOKEN, ask};

const LIST: &str = "/api/v1/namespaces/n/configmaps";
const EXEC: &str = "/api/v1/namespaces/n/pods/p/exec?command=sh";

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// With what the server asks.
const ITS_TOKEN: &str = "the-servers-own-token";

/// The RBAC rules of the other cluster.
const RULES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: edge-a-readers }
rules:
- { apiGroups: [access.tombolo.dev], resources: [clusters/kube-api], resourceNames: [edge-a], verbs: [get, list, watch] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: edge-a-readers }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edge-a-readers }
subjects:
- { kind: ServiceAccount, namespace: default, name: ann }
- { kind: User, apiGroup: rbac.authorization.k8s.io, name: "token:tess" }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: everything-at-the-host }
rules:
- { apiGroups: ["", apps], resources: ["*"], verbs: ["*"] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: everything-at-the-host }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everything-at-the-host }
subjects:
- { kind: User, apiGroup: rbac.authorization.k8s.io, name: alice }
"#;

/// The permissions to dial: tess at one of both, alice at both.
const DIALS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: dials-edge-a }
rules:
- { apiGroups: [access.tombolo.dev], resources: [clusters/dial], resourceNames: [edge-a], verbs: [dial] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: dials-everywhere }
rules:
- { apiGroups: [access.tombolo.dev], resources: [clusters/dial], verbs: [dial] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: dials-edge-a }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dials-edge-a }
subjects: [{ kind: User, apiGroup: rbac.authorization.k8s.io, name: "token:tess" }]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: dials-everywhere }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dials-everywhere }
subjects: [{ kind: User, apiGroup: rbac.authorization.k8s.io, name: alice }]
"#;

/// A denial ends what runs, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_clusters_rbac_can_deny_what_policy_allows() {
    let (host, site, store, ann) = real_host().await;
    let everybody = |name: &str, subject: &str| {
        allow_all(name, ("token", "nobody"), &["*"]).replace("method: token, group: \"nobody\"", subject)
    };
    site.rig
        .put_policy(&[
            everybody(
                "ann",
                "method: \"token-review:host\", user: \"host:system:serviceaccount:default:ann\"",
            ),
            everybody("tess", "method: token, user: \"token:tess\""),
            everybody("alice", "method: client-certificate, user: alice"),
        ])
        .await;
    // By the name that the cluster gave her, and by the one that policy knows him by.
    for (who, token) in [("ann", ann.as_str()), ("tess", TOKEN)] {
        let reply = site.ask(token, "edge-a", LIST).await;
        assert_eq!(reply.status, 200, "{who}: {}", reply.body);
        for (cluster, path) in [("edge-a", EXEC), ("edge-b", LIST)] {
            let reply = site.ask(token, cluster, path).await;
            assert_eq!(reply.status, 403, "{who} at {cluster}: {}", reply.body);
            assert!(reply.body.contains("ForbiddenByHost"), "{who} at {cluster}: {}", reply.body);
        }
    }
    // Rights on that cluster's own objects are none on an edge.
    let alice = site.rig.caller("alice", &[]).await;
    let path = format!("/clusters/edge-a{LIST}");
    let reply =
        ask(site.rig.gateway(), &site.rig.server_ca(), Some(&alice), "GET", &path, &[]).await.unwrap();
    assert_eq!(reply.status, 403, "{}", reply.body);
    for words in
        ["\\\"alice\\\" may not list", "though the server's own policy allows it", "access.tombolo.dev"]
    {
        assert!(reply.body.contains(words), "{}", reply.body);
    }
    assert_eq!(site.fake.requests().len(), 2, "what was refused reached the API server");

    let (mut ann, mut tess) = (site.watch(&store, &ann).await, site.watch(&store, TOKEN).await);
    let words = [
        "patch",
        "clusterrolebinding",
        "edge-a-readers",
        "--type=json",
        "-p=[{\"op\":\"remove\",\"path\":\"/subjects/0\"}]",
    ];
    host.admin().stdout(&words).await;
    let taken = Instant::now();
    let message = ann.read_until("ForbiddenByHost").await;
    assert!(message.contains("\"ERROR\"") && message.contains("\"code\":403"), "{message}");
    // A promise of 16 s, which a test on a loaded machine does not hold anybody to.
    eprintln!("forbidden, told and ended after {:?}", taken.elapsed());
    store.put("shown", "later");
    tess.read_until("later").await;
    let ended = "tombolo_server_request_terminations_total{reason=\"forbidden_by_host\"}";
    site.rig.measured(ended, |ended| ended == 1.0).await;
    assert!(!site.rig.server_log().contains("eyJ"), "a token stands in the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_forbidden_by_the_other_cluster_looks_absent_from_its_network() {
    let (host, site, _, _) = real_host().await;
    let rules = host.directory().join("dials.yaml");
    std::fs::write(&rules, DIALS).unwrap();
    host.admin().stdout(&["apply", "-f", rules.to_str().unwrap()]).await;
    // Which no agent advertises.
    let target = "api.plant-1.test:6443";
    for cluster in ["edge-a", "edge-b"] {
        let words = ["cluster", "update", cluster, "--network", "plant-1", "--advertise", target];
        at(&site.rig, &words).await;
    }
    site.rig
        .put_policy(&[
            user_may_dial("tess", ("token", "token:tess"), &["*"]),
            user_may_dial("alice", ("client-certificate", "alice"), &["*"]),
            user_may_dial("bob", ("client-certificate", "bob"), &["*"]),
        ])
        .await;
    let asked = async |user: Option<&str>| {
        let identity = match user {
            Some(user) => Some(site.rig.caller(user, &[]).await),
            None => None,
        };
        let authorization = format!("Bearer {TOKEN}");
        let headers = [("Tombolo-Network", "plant-1"), ("Authorization", authorization.as_str())];
        let headers = if user.is_some() { &headers[..1] } else { &headers };
        let (gateway, ca) = (site.rig.gateway(), site.rig.server_ca());
        ask(gateway, &ca, identity.as_ref(), "CONNECT", target, headers).await.unwrap()
    };

    // Whom it lets dial both.
    let both = asked(Some("alice")).await;
    assert_eq!((both.status, both.cause().as_str()), (403, "TargetAmbiguous"), "{both:?}");
    assert!(both.body.contains("among edge-a, edge-b"), "{both:?}");
    // Whom it lets dial one comes as far as to that one's agent, which has no such target.
    let one = asked(None).await;
    assert_eq!((one.status, one.cause().as_str()), (403, "TargetRefused"), "{one:?}");
    assert!(one.body.contains("the agent of cluster edge-a does not advertise"), "{one:?}");
    // And whom it lets dial none reads of none.
    let none = asked(Some("bob")).await;
    assert_eq!((none.status, none.cause().as_str()), (403, "TargetRefused"), "{none:?}");
    assert!(none.body.contains("in none of this network's"), "{none:?}");
    for reply in [one, none] {
        assert!(!reply.body.contains("edge-b") && !reply.head.contains("edge-b"), "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_plain_yes_permits_and_policy_is_asked_first() {
    let (host, site, _) = fake_host().await;
    let yes = json!({ "allowed": true });
    for (number, (what, answer, status)) in [
        ("yes", review(&yes), 200),
        ("yes, with an error beside it", review(&json!({ "allowed": true, "evaluationError": "x" })), 200),
        ("no", review(&json!({ "allowed": false })), 403),
        ("yes and no", review(&json!({ "allowed": true, "denied": true })), 403),
        ("yes as a text", review(&json!({ "allowed": "true" })), 503),
        ("yes as a number", review(&json!({ "allowed": 1 })), 503),
        ("no as a text", review(&json!({ "allowed": true, "denied": "no" })), 503),
        ("nothing", review(&json!({})), 503),
        ("another kind", Answer::json(201, json!({ "kind": "Status", "status": yes }).to_string()), 503),
        ("no JSON", Answer::json(201, "allowed"), 503),
        ("an empty answer", Answer::json(200, ""), 503),
        ("too much", review(&json!({ "allowed": true, "reason": "x".repeat(300_000) })), 503),
        ("its own failure", Answer::json(500, "{}"), 503),
        ("that we may not ask", Answer::json(403, "{}"), 503),
        ("a redirect", Answer { status: 302, ..review(&yes) }, 503),
    ]
    .into_iter()
    .enumerate()
    {
        host.on(REVIEWS, Behaviour::Answer(answer));
        // A name of its own each, of which nothing is remembered.
        let caller = site.rig.caller(&format!("caller-{number}"), &[GROUP]).await;
        let path = format!("/clusters/edge-a{LIST}");
        let (gateway, ca) = (site.rig.gateway(), site.rig.server_ca());
        let reply = ask(gateway, &ca, Some(&caller), "GET", &path, &[]).await.unwrap();
        assert_eq!(reply.status, status, "{what}: {}", reply.body);
        let cause = match status {
            403 => "ForbiddenByHost",
            503 => "HostAway",
            _ => "",
        };
        assert!(reply.body.contains(cause), "{what}: {}", reply.body);
        assert!(!reply.head.to_ascii_lowercase().contains("retry-after"), "{what}");
    }
    assert_eq!(site.fake.requests().len(), 2, "a lie reached the API server");

    let asked = host.requests().into_iter().next().unwrap();
    assert_eq!(asked.header("authorization"), [format!("Bearer {ITS_TOKEN}")]);
    let asked: Value = serde_json::from_slice(&asked.body).unwrap();
    let about = json!({
        "group": "access.tombolo.dev", "resource": "clusters", "subresource": "kube-api", "name": "edge-a", "verb": "list",
    });
    let spec = json!({ "user": "caller-0", "groups": [GROUP], "resourceAttributes": about });
    assert_eq!(asked["spec"], spec, "it is asked about access to the cluster, and about nothing in it");

    // Many who ask the same are one question; what policy forbids is none.
    host.on(REVIEWS, Behaviour::Answer(review(&yes)));
    let before = host.requests().len();
    let replies = futures::future::join_all((0..50).map(|_| site.ask(TOKEN, "edge-a", LIST))).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{:?}", replies[0]);
    assert_eq!(host.requests().len() - before, 1);
    let all = "{ verbs: [\"*\"], apiGroups: [\"*\"], resources: [\"*\"], namespaces: [\"*\"] }";
    let tokens = allow_all("tokens", ("token", "token:tombolo:admins"), &["*"]);
    let denied = rule("not-these", "Deny", ("token", "token:tombolo:admins"), &["edge-a"], all);
    site.rig.put_policy(&[tokens, denied]).await;
    let reply = site.ask(TOKEN, "edge-a", EXEC).await;
    assert_eq!((reply.status, reply.body.contains("ForbiddenByPolicy")), (403, true), "{}", reply.body);
    assert_eq!(host.requests().len() - before, 1, "nobody was asked about what policy forbids");
}

/// Running exchanges go on while the authorizing cluster is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_authorizing_cluster_nothing_new_starts() {
    let (mut host, site, store) = fake_host().await;
    host.on(REVIEWS, Behaviour::Answer(review(&json!({ "allowed": true }))));
    let mut watch = site.watch(&store, TOKEN).await;

    host.on(REVIEWS, Behaviour::NeverAnswer);
    let reply = site.ask(TOKEN, "edge-b", LIST).await;
    assert_eq!((reply.status, reply.body.contains("HostAway")), (503, true), "slow: {}", reply.body);
    // The permission of the watch has expired, and asking for it again has failed.
    while asked_about(&host, "watch") < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    host.refuse().await;
    let reply = site.ask(TOKEN, "edge-b", EXEC).await;
    assert_eq!((reply.status, reply.body.contains("HostAway")), (503, true), "dead: {}", reply.body);
    assert_eq!(site.rig.ask_with_token("GET", "/clusters", &[]).await.status, 200);
    store.put("shown", "while it is away");
    watch.read_until("while it is away").await;

    // The cluster is back and denies: running exchanges get the reason.
    host.on(REVIEWS, Behaviour::Answer(review(&json!({ "allowed": false }))));
    host.listen_again().await.unwrap();
    let message = watch.read_until("ForbiddenByHost").await;
    assert!(message.contains("\"ERROR\""), "{message}");
    assert_eq!(site.ask(TOKEN, "edge-a", LIST).await.status, 403);
}

/// A server that asks another cluster, and two clusters behind it with fake API servers.
struct DelegatedSite {
    rig: Rig,
    fake: FakeApi,
    _others: (Agent, FakeApi, Agent),
}

impl DelegatedSite {
    async fn set(host: &str, ca: &Path, token: &Path, store: &Store) -> Self {
        let way = format!("server: {host}, caFile: {ca:?}, tokenFile: {token:?}");
        let review = format!(
            "    tokenReview: {{ name: host, {way}, audiences: [tombolo], usernamePrefix: \"host:\", groupsPrefix: \"host:\" }}\n"
        );
        let mut rig = Rig::start_with(&review).await;
        rig.kill_server();
        rig.write_config(|config| {
            let delegating = format!("policy: {{ file: policy.yaml, delegation: {{ {way} }} }}");
            config.replacen("policy: { file: policy.yaml }", &delegating, 1)
        });
        rig.start_server().await;
        let (fake, agent) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
        fake.otherwise(Behaviour::json("{}"));
        fake.on(LIST, Behaviour::Store(store.clone()));
        let (other, other_agent) = add_cluster(&rig, "edge-b", HttpVersion::Http1).await;
        Self { rig, fake, _others: (agent, other, other_agent) }
    }

    async fn ask(&self, token: &str, cluster: &str, path: &str) -> Reply {
        let (path, authorization) = (format!("/clusters/{cluster}{path}"), format!("Bearer {token}"));
        let headers = [("Authorization", authorization.as_str())];
        ask(self.rig.gateway(), &self.rig.server_ca(), None, "GET", &path, &headers).await.unwrap()
    }

    /// A watch that has shown an event.
    async fn watch(&self, store: &Store, token: &str) -> Http1Caller {
        let mut watch = Http1Caller::dial_name(&self.rig, GATEWAY, None).await;
        let version = store.put("shown", "1");
        let target = format!("/clusters/edge-a{LIST}?watch=1&resourceVersion={version}");
        let lines = format!("Host: {GATEWAY}\r\nAuthorization: Bearer {token}\r\n");
        watch.write(format!("GET {target} HTTP/1.1\r\n{lines}\r\n")).await;
        let head = watch.read_head().await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        store.put("shown", "seen");
        watch.read_until("seen").await;
        watch
    }
}

/// A real cluster with [`RULES`], a server that asks it, and a token of ann's there.
async fn real_host() -> (EdgeCluster, DelegatedSite, Store, String) {
    let host = EdgeCluster::start().await.unwrap();
    let rules = host.directory().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let reviewer = "--serviceaccount=default:reviewer";
    for words in [
        ["create", "serviceaccount", "reviewer", "-n=default"].as_slice(),
        &["create", "serviceaccount", "ann", "-n=default"],
        &["create", "clusterrolebinding", "r", "--clusterrole=system:auth-delegator", reviewer],
        &["apply", "-f", rules.to_str().unwrap()],
    ] {
        host.admin().stdout(words).await;
    }
    let minted = async |account: &str, more: &[&str]| {
        let words = [&["create", "token", account, "-n=default"], more].concat();
        host.admin().stdout(&words).await.trim().to_owned()
    };
    let (ca, token) = (host.directory().join("review-ca.crt"), host.directory().join("review-token"));
    std::fs::write(&ca, host.ca_pem()).unwrap();
    std::fs::write(&token, minted("reviewer", &[]).await).unwrap();
    let store = Store::new();
    let site = DelegatedSite::set(&host.url(), &ca, &token, &store).await;
    let ann = minted("ann", &["--audience", "tombolo"]).await;
    (host, site, store, ann)
}

async fn fake_host() -> (FakeApi, DelegatedSite, Store) {
    let host = FakeApi::start_http1().await.unwrap();
    let folder = tests::scratch::Scratch::new("tombolo-host-").unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, host.ca_pem()).unwrap();
    let store = Store::new();
    // The CA is read at the start, and the token for each question: it lies in the rig's folder.
    let site = DelegatedSite::set(&host.url(), &ca, Path::new("host.token"), &store).await;
    site.rig.write("host.token", &format!("{ITS_TOKEN}\n"));
    (host, site, store)
}

/// Number of reviews at the fake about this verb.
fn asked_about(host: &FakeApi, verb: &str) -> usize {
    let about = format!("\"verb\":\"{verb}\"");
    host.requests().iter().filter(|asked| String::from_utf8_lossy(&asked.body).contains(&about)).count()
}

fn review(status: &Value) -> Answer {
    let (version, kind) = ("authorization.k8s.io/v1", "SubjectAccessReview");
    Answer::json(201, json!({ "apiVersion": version, "kind": kind, "status": status }).to_string())
}
