//! Further pods of a DaemonSet, attested by ServiceAccount tokens of a real API server, and clients that only
//! resemble one.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use futures::future::join_all;
use rcgen::KeyPair;
use serde_json::Value;
use tests::audit_log::{AuditLog, note};
use tests::clock::Shift;
use tests::enroll::{
    AttestationClaim, AttestationClient, EnrollmentListener, at, hosted_pod_agent, pod_agent, private, start,
    token,
};
use tests::kube::EdgeCluster;
use tests::kube::account::{ACCOUNT, AgentAccount};
use tests::kube::pods::Pod;
use tests::rig::{Agent, ApiServer, Rig};
use tonic::{Code, Status};

/// The limit for any step of a test.
const DONE_MAX: Duration = Duration::from_secs(60);

/// The audience of tokens of edge-a.
const AUDIENCE: &str = "tombolo:tombolo:edge-a";

const HOUR_SECONDS: u64 = 60 * 60;

/// A server, a cluster and its agents' account.
struct AttestationSite {
    cluster: EdgeCluster,
    account: AgentAccount,
    rig: Rig,
    listener: EnrollmentListener,
}

/// This holds an hour after the first pods' token has expired, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_pods_need_no_enrollment_token() {
    let site = AttestationSite::start().await;
    let (first, _first) = site.first("one").await;
    let two = site.cluster.create_pod("two").await;
    let three = site.cluster.create_pod("three").await;
    let _more = [site.agent("two", &two).await, site.agent("three", &three).await];
    site.serve([&first, &two, &three]).await;

    // The token held for 15 minutes.
    site.rig.set_clocks(Shift::minutes(15 + 61));
    let four = site.cluster.create_pod("four").await;
    let later = site.cluster.issued_later(&site.token(&four).await, 76 * 60);
    private(&site.rig, "four.token", &later);
    let _fourth = pod_agent(&site.rig, &site.listener, "four", "edge-a", &site.api_server()).await;

    site.serve([&first, &two, &three, &four]).await;
    let listed = at(&site.rig, &["agent", "list"]).await;
    for pod in [&first, &two, &three, &four] {
        let row = listed.lines().find(|line| line.contains(&format!("edge-a/{}", pod.uid)));
        assert!(row.is_some_and(|row| row.ends_with(&pod.name)), "{listed}");
    }
    let attested = site.recorded("attest", 3).await;
    let attested: BTreeSet<&str> = attested.iter().map(|line| note(line, "agent")).collect();
    assert_eq!(attested, BTreeSet::from([two.uid.as_str(), &three.uid, &four.uid]));
    // Nobody was asked about a token: the API server has seen no review.
    let asked = site.cluster.audit().expect("the API server's log");
    assert!(!asked.iter().any(|event| event.request_uri.contains("tokenreviews")), "a TokenReview");
}

/// The cluster that the pods run in has issued their tokens. The agents serve another cluster, with an issuer of the same name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_host_cluster_serve_a_cluster_that_they_do_not_run_in() {
    let site = AttestationSite::start().await;
    let tenant = EdgeCluster::start().await.expect("a second cluster starts");
    let account = tenant.create_agent_account().await.expect("an account for the agent");
    let (host, api_server) = (site.api_server(), ApiServer::of(&tenant, &account));
    let (_, file) = token(&site.rig, "edge-a").await;
    let one = site.cluster.create_pod("one").await;
    private(&site.rig, "one.token", &site.token(&one).await);

    // Without the setting, the tenant's issuer is recorded for a token that it has not signed, and nothing is enrolled.
    let wrong = pod_agent(&site.rig, &site.listener, "one", "edge-a", &api_server).await;
    site.rig.logged("one.log", 0, "got no certificate").await;
    wrong.process.stop(DONE_MAX).await.expect("it ends");

    let _one = hosted_pod_agent(&site.rig, &site.listener, "one", "edge-a", &api_server, &host).await;
    site.serve([&one]).await;
    fs::remove_file(file).expect("it was read");
    let two = site.cluster.create_pod("two").await;
    private(&site.rig, "two.token", &site.token(&two).await);
    let _two = hosted_pod_agent(&site.rig, &site.listener, "two", "edge-a", &api_server, &host).await;
    site.serve([&one, &two]).await;
    let answer = site.rig.ask_with_token("GET", "/clusters/edge-a/version?from=a-caller", &[]).await;
    assert_eq!(answer.status, 200);
    let was_asked = |cluster: &EdgeCluster| {
        let asked = cluster.audit().expect("the API server's log");
        asked.iter().any(|event| event.request_uri.ends_with("?from=a-caller"))
    };
    assert_eq!((was_asked(&tenant), was_asked(&site.cluster)), (true, false), "(the tenant, the host)");
}

/// A pod that is rescheduled without its disk connects again, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_pods_restarted_at_once_connect_again() {
    let site = AttestationSite::start().await;
    let (first, agent) = site.first("one").await;
    let mut pods = vec![first];
    let mut agents = vec![agent];
    for name in ["two", "three", "four"] {
        pods.push(site.cluster.create_pod(name).await);
        agents.push(site.agent(name, &pods[pods.len() - 1]).await);
    }
    site.serve(&pods).await;

    // Their keys were in memory.
    for agent in agents.drain(..) {
        agent.process.stop(DONE_MAX).await.expect("it ends");
    }
    for pod in &pods {
        fs::remove_dir_all(site.rig.path().join(format!("{}.state", pod.name))).expect("it was there");
    }
    agents.extend(join_all(pods.iter().map(|pod| site.agent(&pod.name, pod))).await);
    site.serve(&pods).await;

    // Another pod in the place of one of them, elsewhere.
    agents.remove(0).process.stop(DONE_MAX).await.expect("it ends");
    let moved = site.cluster.create_pod("one-moved").await;
    let _moved = site.agent("one-moved", &moved).await;
    site.serve([&moved, &pods[1], &pods[2], &pods[3]]).await;
    let listed = at(&site.rig, &["agent", "list"]).await;
    assert_eq!(listed.lines().count(), 1 + 5, "a head, and one agent for each pod: {listed}");
}

/// The pods of a revoked cluster are refused until the cluster is reopened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_pods_and_pods_of_a_revoked_cluster_are_refused() {
    let site = AttestationSite::start().await;
    let (first, _first) = site.first("one").await;
    let two = site.cluster.create_pod("two").await;
    let agent = site.agent("two", &two).await;
    site.serve([&first, &two]).await;

    at(&site.rig, &["agent", "revoke", &format!("edge-a/{}", two.uid)]).await;
    site.serve([&first]).await;
    agent.process.stop(DONE_MAX).await.expect("it ends");
    fs::remove_dir_all(site.rig.path().join("two.state")).expect("it was there");
    let out = site.agent("two", &two).await;
    site.rig.logged("two.log", 0, "this pod is not let in: pod two may not be an agent").await;
    out.process.stop(DONE_MAX).await.expect("it ends");
    // Nor with a token of its own.
    let _token = token(&site.rig, "edge-a").await;
    at(&site.rig, &["agent", "revoke", "--cluster", "edge-a", "--yes"]).await;
    let _token = token(&site.rig, "edge-a").await;
    let _out = site.agent("two", &two).await;
    site.rig.logged("two.log", 0, "this pod may not become an agent").await;
    // The last of a verb, which is written behind its answer.
    let forbidden = |log: &AuditLog, verb| {
        let last = log.completions().into_iter().rev().find(|line| line["verb"] == verb).cloned();
        last.filter(|line| note(line, "decision") == "forbid")
    };
    for (verb, reason) in
        [("attest", "pod two may not be an agent"), ("enroll", "this pod may not become an agent")]
    {
        let line = AuditLog::found(&site.rig, |log| forbidden(log, verb)).await;
        assert!(note(&line, "detail").contains(reason), "{line}");
    }
    site.serve([]).await;

    let three = site.cluster.create_pod("three").await;
    fs::remove_file(site.rig.path().join("token")).expect("it was there");
    let _third = site.agent("three", &three).await;
    site.rig.logged("three.log", 0, "an administrator reopens it").await;
    let shown = at(&site.rig, &["cluster", "attestation", "show", "edge-a"]).await;
    assert!(shown.contains("Closed:     since"), "{shown}");
    at(&site.rig, &["cluster", "attestation", "reopen", "edge-a"]).await;
    site.serve([&three]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_pod_of_the_clusters_agents_gets_a_certificate() {
    let site = AttestationSite::start().await;
    let (first, _first) = site.first("one").await;
    let other = EdgeCluster::start().await.expect("a cluster starts");
    let _others_account = other.create_agent_account().await.expect("an account");
    let others_pod = other.create_pod("two").await;
    let two = site.cluster.create_pod("two").await;
    site.cluster.admin().stdout(&["create", "serviceaccount", "other", "-n", "tombolo"]).await;
    let of_other = site.cluster.create_pod_of("other", "of-other").await;
    let good = site.token(&two).await;
    let header = |header: &str| format!("{}.{}", encoded(header), good.split_once('.').expect("a JWT").1);
    let unsigned = good.rsplit_once('.').expect("a signature").0.to_owned();
    let unbound = format!("--audience={AUDIENCE}");

    let refused_tokens = [
        // The same issuer, namespace and account, to the byte.
        ("a pod of another cluster", other.pod_token(&others_pod, AUDIENCE).await),
        ("no signature", unsigned + "."),
        ("none", header("{\"alg\":\"none\"}")),
        ("a MAC", header("{\"alg\":\"HS256\"}")),
        ("nonsense", "nonsense".to_owned()),
    ];
    let known = [
        ("ServiceAccount tombolo/other", site.token(&of_other).await),
        ("not meant for this server", site.cluster.pod_token(&two, "tombolo:tombolo:edge-b").await),
        ("not meant for this server", site.cluster.pod_token(&two, "https://kubernetes.default.svc").await),
        ("not bound to a pod", site.cluster.account_token(ACCOUNT, &[&unbound]).await),
        ("more than 10 minutes ago", site.aged(&good, 601)),
    ];
    for (what, token) in &refused_tokens {
        let refused = site.attest(token).await.expect_err(what);
        assert_eq!(refused.code(), Code::PermissionDenied, "{what}: {refused:?}");
        assert!(refused.message().contains("could not prove that it is"), "{what}: {refused:?}");
    }
    for (reason, token) in &known {
        let refused = site.attest(token).await.expect_err(reason);
        assert_eq!(refused.code(), Code::PermissionDenied, "{reason}: {refused:?}");
        assert!(refused.message().contains(reason), "{reason}: {refused:?}");
    }
    let forbidden = site.recorded("attest", known.len()).await;
    let forbidden: Vec<&str> = forbidden.iter().map(|line| note(line, "detail")).collect();
    assert_eq!(forbidden.len(), known.len(), "{forbidden:?}");
    for ((reason, _), detail) in known.iter().zip(&forbidden) {
        assert!(detail.contains(reason), "{detail}");
    }

    site.attest(&good).await.expect("the token itself is good");
    site.serve([&first]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nonce_is_signed_by_the_key_itself_on_its_own_connection_and_once() {
    let site = AttestationSite::start().await;
    let _first = site.first("one").await;
    let two = site.cluster.create_pod("two").await;
    let token = site.token(&two).await;
    let [key, other] = [(); 2].map(|()| KeyPair::generate().expect("a key"));
    let mut line = AttestationClient::connect(&site.rig, &site.listener).await;
    let mut elsewhere = AttestationClient::connect(&site.rig, &site.listener).await;
    let shown =
        |nonce, signer| AttestationClaim { cluster: "edge-a", token: &token, nonce, key: &key, signer };

    let nonce = line.nonce().await;
    line.attest(&shown(nonce, &key)).await.expect("as it should be");
    refused(line.attest(&shown(nonce, &key)).await, "a nonce that was used");
    let nonce = line.nonce().await;
    refused(line.attest(&shown(nonce, &other)).await, "signed by another key");
    refused(line.attest(&shown(nonce, &key)).await, "used up by what was refused");
    let (nonce, _) = (line.nonce().await, elsewhere.nonce().await);
    refused(elsewhere.attest(&shown(nonce, &key)).await, "another connection's");
    refused(line.attest(&shown([0; 32], &key)).await, "a nonce that nobody gave");
    refused(line.attest(&shown(nonce, &key)).await, "used up by a guess");

    let nonce = line.nonce().await;
    line.attest(&shown(nonce, &key)).await.expect("as it should be");
}

/// A key set that shares no key with the recorded one may be anybody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_issuer_keys_need_a_recorded_key_beside_them_or_an_administrator() {
    let mut site = AttestationSite::start().await;
    let (first, _first) = site.first("one").await;
    let recorded = || at(&site.rig, &["cluster", "attestation", "show", "edge-a"]);
    let before = recorded().await;

    site.replace_key(true).await;
    site.rig.set_clocks(Shift::hours(17));
    site.rig.logged("server.log", 0, "keys of this cluster's issuer were added").await;
    let two = site.cluster.create_pod("two").await;
    let _second = site.agent_later("two", &two, 17).await;
    site.serve([&first, &two]).await;
    assert_ne!(at(&site.rig, &["cluster", "attestation", "show", "edge-a"]).await, before);

    // A key set without any known key may be anybody's.
    site.replace_key(false).await;
    site.rig.set_clocks(Shift::hours(17 * 2));
    site.rig.logged("server.log", 0, "none of them is recorded already").await;
    let three = site.cluster.create_pod("three").await;
    let _third = site.agent_later("three", &three, 17 * 2).await;
    site.rig.logged("three.log", 0, "could not prove that it is an agent of this cluster").await;
    let verdicts = AuditLog::found(&site.rig, |log| {
        let added = log.completions().into_iter().filter(|line| line["verb"] == "add-issuer-keys");
        let verdicts: BTreeSet<String> = added.map(|line| note(line, "decision").to_owned()).collect();
        (verdicts.len() > 1).then_some(verdicts)
    })
    .await;
    assert_eq!(verdicts, BTreeSet::from(["allow".to_owned(), "forbid".to_owned()]));

    let keys = site.cluster.admin().stdout(&["get", "--raw", "/openid/v1/jwks"]).await;
    let keys = site.rig.write("jwks.json", &keys);
    let keys = keys.to_str().expect("a path");
    at(&site.rig, &["cluster", "attestation", "set-keys", "edge-a", "--keys", keys]).await;
    site.serve([&first, &two, &three]).await;
}

/// An administrator has to forget the old account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_service_account_is_refused_until_the_old_one_is_forgotten() {
    let site = AttestationSite::start().await;
    let (_, _first) = site.first("one").await;
    site.account.revoke().await.expect("it is made anew");
    let two = site.cluster.create_pod("two").await;

    let refused = site.attest(&site.token(&two).await).await.expect_err("another account");
    assert!(refused.message().contains("attestation forget"), "{refused:?}");
    at(&site.rig, &["cluster", "attestation", "forget", "edge-a"]).await;
    let closed = site.attest(&site.token(&two).await).await.expect_err("nothing is recorded");
    assert_eq!(closed.code(), Code::FailedPrecondition, "{closed:?}");

    let _token = token(&site.rig, "edge-a").await;
    let _second = site.agent("two", &two).await;
    site.rig.logged("two.log", 0, "further pods of its ServiceAccount need no token").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_renews_while_others_at_its_address_fail_too_often() {
    let site = AttestationSite::start().await;
    let (first, _first) = site.first("one").await;
    for _ in 0..25 {
        site.attest("nonsense").await.expect_err("it is no token");
    }
    let limited = site.attest("nonsense").await.expect_err("it is no token");
    assert_eq!(limited.code(), Code::ResourceExhausted, "{limited:?}");
    let key = KeyPair::generate().expect("a key");
    let mut codes = BTreeSet::new();
    for _ in 0..25 {
        let asked = tests::enroll::request_for_token("nonsense", "edge-a", &key);
        let refused =
            tests::enroll::unauthenticated_client(&site.rig, &site.listener).await.enroll(asked).await;
        codes.insert(format!("{:?}", refused.expect_err("it is no token").code()));
    }
    assert!(codes.contains("ResourceExhausted"), "{codes:?}");

    site.rig.set_clocks(Shift::hours(17));

    site.rig.logged("server.log", 0, "an agent's certificate was renewed").await;
    let log = site.rig.agent_log("one");
    assert!(!log.contains("got no certificate"), "it was held up: {log}");
    site.serve([&first]).await;
}

impl AttestationSite {
    async fn start() -> Self {
        let cluster = EdgeCluster::start().await.expect("a cluster starts");
        let account = cluster.create_agent_account().await.expect("an account for the agent");
        let (rig, listener) = start("").await;
        Self { cluster, account, rig, listener }
    }

    fn api_server(&self) -> ApiServer {
        ApiServer::of(&self.cluster, &self.account)
    }

    /// The first agent, which has enrolled with a token of the enrollment listener.
    async fn first(&self, name: &str) -> (Pod, Agent) {
        let (_, file) = token(&self.rig, "edge-a").await;
        let pod = self.cluster.create_pod(name).await;
        let agent = self.agent(name, &pod).await;
        self.serve([&pod]).await;
        fs::remove_file(file).expect("it was read");
        (pod, agent)
    }

    async fn agent(&self, name: &str, pod: &Pod) -> Agent {
        private(&self.rig, &format!("{name}.token"), &self.token(pod).await);
        pod_agent(&self.rig, &self.listener, name, "edge-a", &self.api_server()).await
    }

    /// The same so many hours later, by the clock of everybody but the API server.
    async fn agent_later(&self, name: &str, pod: &Pod, hours: u64) -> Agent {
        let token = self.cluster.issued_later(&self.token(pod).await, hours * HOUR_SECONDS);
        private(&self.rig, &format!("{name}.token"), &token);
        pod_agent(&self.rig, &self.listener, name, "edge-a", &self.api_server()).await
    }

    async fn token(&self, pod: &Pod) -> String {
        self.cluster.pod_token(pod, AUDIENCE).await
    }

    /// Has the API server sign with another key, until the agent has a credential that is signed by it.
    async fn replace_key(&mut self, overlaps: bool) {
        self.cluster.replace_account_key(overlaps).await.expect("it starts again");
        self.account.rotate().await.expect("another token");
        let deadline = std::time::Instant::now() + DONE_MAX;
        while self.rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await.status != 200 {
            assert!(std::time::Instant::now() < deadline, "{}", self.rig.agent_log("one"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The same token, issued so many seconds ago and for longer than that.
    fn aged(&self, token: &str, seconds: u64) -> String {
        self.cluster.signed_again(token, |claims| {
            for name in ["iat", "nbf"] {
                claims[name] = (claims[name].as_u64().expect("a time") - seconds).into();
            }
        })
    }

    /// Presents a token with a right proof.
    async fn attest(&self, token: &str) -> Result<(), Status> {
        let key = KeyPair::generate().expect("a key");
        let mut line = AttestationClient::connect(&self.rig, &self.listener).await;
        let nonce = line.nonce().await;
        let claim = AttestationClaim { cluster: "edge-a", token, nonce, key: &key, signer: &key };
        line.attest(&claim).await.map(drop)
    }

    /// The completions of a verb in the audit log, once there are as many.
    async fn recorded(&self, verb: &str, count: usize) -> Vec<Value> {
        AuditLog::found(&self.rig, |log| {
            let of_verb = log.completions().into_iter().filter(|line| line["verb"] == verb).cloned();
            Some(of_verb.collect::<Vec<_>>()).filter(|lines| lines.len() >= count)
        })
        .await
    }

    /// Waits until the cluster's tunnels are those of these pods, and no others.
    async fn serve<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) {
        let wanted: BTreeSet<String> = pods.into_iter().map(|pod| pod.uid.clone()).collect();
        let deadline = std::time::Instant::now() + DONE_MAX;
        loop {
            let listed = at(&self.rig, &["clusters", "-o", "json"]).await;
            let listed: Value = serde_json::from_str(&listed).expect("JSON");
            let found: BTreeSet<String> = tunnels(&listed).collect();
            if found == wanted {
                return;
            }
            assert!(
                std::time::Instant::now() < deadline,
                "{found:?}, not {wanted:?}: {}",
                self.rig.server_log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The agents of edge-a with a live tunnel.
fn tunnels(listed: &Value) -> impl Iterator<Item = String> {
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let edge = items.into_iter().find(|item| item["metadata"]["name"] == "edge-a");
    let tunnels = edge.map(|edge| edge["status"]["tunnels"].as_array().cloned().unwrap_or_default());
    let tunnels = tunnels.into_iter().flatten().filter(|tunnel| tunnel["health"] == "Live");
    tunnels.filter_map(|tunnel| tunnel["agent"].as_str().map(str::to_owned))
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, what: &str) {
    assert_eq!(answer.expect_err(what).code(), Code::PermissionDenied, "{what}");
}

fn encoded(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}
