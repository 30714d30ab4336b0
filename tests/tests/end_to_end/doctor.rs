//! `tombolo doctor`: it reports success, or names each problem and its remedy.

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proto::admin::ListClustersRequest;
use proto::admin::admin_client::AdminClient;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::Value;
use tests::admin::AdminWire;
use tests::binaries::binary;
use tests::fake_api::{Answer, Behaviour, FakeApi};
use tests::kube::EdgeCluster;
use tests::process::{Invocation, run};
use tests::rig::{ApiServer, GROUP, Rig};

/// A dial to nobody waits for the handshake's deadline.
const DOCTOR_MAX: Duration = Duration::from_secs(60);

/// The path at which an agent's rights are reviewed.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The output of the doctor.
struct Diagnosis {
    code: Option<i32>,
    text: String,
}

#[tokio::test]
async fn the_doctor_finds_nothing_where_a_callers_cluster_answers() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    api.on("/readyz", Behaviour::Answer(Answer::json(200, "ok")));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let kubeconfig = rig.kubeconfig("alice", &[GROUP], "edge-a").await;

    let well = doctor(&rig, &["--kubeconfig", &shown(&kubeconfig)]).await;

    well.is_well(&["the gateway answers at", "for 127.0.0.1", "clock", "agrees with the gateway's", "ready"]);
    let json = doctor(&rig, &["--kubeconfig", &shown(&kubeconfig), "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json.text).expect("JSON");
    assert_eq!(json["failed"], false, "{json}");
}

#[tokio::test]
async fn each_cause_that_keeps_a_caller_from_its_cluster_has_its_own_message() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let path = rig.kubeconfig("alice", &[GROUP], "edge-a").await;
    let good = fs::read_to_string(&path).expect("a kubeconfig");
    let with = |name: &str, text: String| shown(&rig.write(name, &text));
    let named = |ca: &str, certificate: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{ name: c, context: {{ cluster: c, user: u }} }}]\n\
             clusters: [{{ name: c, cluster: {{ server: \"https://{}/clusters/edge-a\", certificate-authority: {ca} }} }}]\n\
             users: [{{ name: u, user: {{ client-certificate: {certificate}.crt, client-key: {certificate}.key }} }}]\n",
            rig.gateway()
        )
    };

    let never = doctor(&rig, &["--kubeconfig", &shown(&path)]).await;
    never.fails("cluster", &["edge-a was never seen", "tombolo clusters"]);

    let caller = "pki/alice-caller";
    let untrusted = with("ca", named("pki/caller-ca.crt", caller));
    doctor(&rig, &["--kubeconfig", &untrusted])
        .await
        .fails("TLS", &["not of the CA that is trusted here", "CA certificate"]);

    expired(&rig, "expired");
    let too_old = with("old", named("pki/server-ca.crt", "expired"));
    doctor(&rig, &["--kubeconfig", &too_old])
        .await
        .fails("certificate", &["has expired on 2001", "tombolo ca issue"]);

    let foreign = with("foreign", named("pki/server-ca.crt", "pki/server"));
    doctor(&rig, &["--kubeconfig", &foreign]).await.fails("cluster", &["does not answer"]);

    let nobody = free();
    let away = with("away", good.replace(&rig.gateway().to_string(), &nobody.to_string()));
    doctor(&rig, &["--kubeconfig", &away]).await.fails("TCP", &[&nobody.to_string(), "refused", "firewalls"]);

    let port = rig.gateway().port();
    let other_name = with("name", good.replace(&rig.gateway().to_string(), &format!("localhost:{port}")));
    doctor(&rig, &["--kubeconfig", &other_name])
        .await
        .fails("TLS", &["does not name localhost", "--name localhost"]);

    doctor(&rig, &["--kubeconfig", "none"]).await.fails("kubeconfig", &["cannot read none"]);
    let context = doctor(&rig, &["--kubeconfig", &shown(&path), "--context", "edge-z"]).await;
    context.fails("kubeconfig", &["has no context edge-z", "edge-a"]);

    let mut late = Answer::json(200, "ok");
    late.headers.push(("Date".to_owned(), "Sun, 06 Nov 1994 08:49:37 GMT".to_owned()));
    api.on("/readyz", Behaviour::Answer(late));
    let direct = rig.path().join("direct");
    api.write_kubeconfig(&direct, "a-token").expect("a kubeconfig");
    doctor(&rig, &["--kubeconfig", &shown(&direct)]).await.fails("clock", &["ahead of the gateway's", "NTP"]);
}

#[tokio::test]
async fn a_server_is_examined_while_it_runs_and_while_it_does_not() {
    let mut rig = Rig::start().await;
    let words = ["server", "--config", "server.yaml"];

    let running = doctor(&rig, &words).await;
    running.is_well(&[
        "belong together",
        "policy.yaml has 2 rules",
        "tunnel-server/",
        "is the running server's",
        "the server is ready",
    ]);
    assert_eq!(running.text.matches("is the running server's").count(), 3, "{}", running.text);

    rig.kill_server();
    let stopped = doctor(&rig, &words).await;
    assert_eq!(stopped.code, Some(0), "{}", stopped.text);
    assert!(stopped.text.contains("no server runs here"), "{}", stopped.text);
    assert_eq!(stopped.text.matches(" is free").count(), 3, "{}", stopped.text);

    let _taken = TcpListener::bind(rig.gateway()).expect("the port is free");
    doctor(&rig, &words).await.fails("gateway.listen", &["in use by another process", "ss -lpn"]);
    drop(_taken);

    expired(&rig, "expired");
    let text = fs::read_to_string(rig.path().join("server.yaml")).expect("a configuration");
    rig.write("old.yaml", &text.replace("pki/server.", "expired."));
    doctor(&rig, &["server", "--config", "old.yaml"]).await.fails("certificate", &["has expired on 2001"]);
    rig.write("mixed.yaml", &text.replace("pki/server.key", "expired.key"));
    doctor(&rig, &["server", "--config", "mixed.yaml"]).await.fails("key", &["do not belong together"]);
    rig.write("no-policy.yaml", &text.replace("policy.yaml", "tokens.csv"));
    doctor(&rig, &["server", "--config", "no-policy.yaml"])
        .await
        .fails("policy", &["tokens.csv", "tombolo policy check"]);
    doctor(&rig, &["agent", "--config", "server.yaml"])
        .await
        .fails("configuration", &["is of kind ServerConfig"]);
}

#[tokio::test]
async fn the_doctor_examines_an_agent_without_disturbing_the_running_one() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    api.on(REVIEWS, Behaviour::Answer(Answer::json(201, r#"{"status":{"allowed":true}}"#)));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let before = tunnels(&rig).await;

    let well = doctor(&rig, &["agent", "--config", "edge-a.yaml"]).await;

    well.is_well(&[
        "of cluster edge-a",
        "accepts the agent's certificate",
        "may impersonate users and groups",
    ]);
    assert_eq!(tunnels(&rig).await, before, "the running agent's tunnel stays, and no other comes");
    assert!(!rig.agent_log("edge-a").contains("tunnel closed"), "{}", rig.agent_log("edge-a"));
    let log = rig.server_log();
    assert_eq!(log.matches("tunnel opened").count(), 1, "not even for a moment: {log}");
    let checked = log.lines().find(|line| line.contains("a connection was checked"));
    let checked = checked.unwrap_or_else(|| panic!("the server names the doctor: {log}"));
    assert!(checked.contains("tombolo-doctor/") && checked.contains("edge-a/"), "{checked}");
    assert!(!log.contains("an agent was refused") && !log.contains("versions {}"), "{log}");

    api.on(REVIEWS, Behaviour::Answer(Answer::json(201, r#"{"status":{"allowed":false}}"#)));
    let powerless = doctor(&rig, &["agent", "--config", "edge-a.yaml"]).await;
    powerless.fails("rights", &["may not impersonate users", "nor list endpointslices", "tombolo rbac"]);

    let text = fs::read_to_string(rig.path().join("edge-a.yaml")).expect("a configuration");
    let with = |name: &str, old: &str, new: &str| {
        assert!(text.contains(old), "{old}");
        rig.write(name, &text.replace(old, new));
    };
    with("services.yaml", "cluster: edge-a", "cluster: edge-a\ntargets: [\"hook.shop.svc:443\"]");
    let unread = doctor(&rig, &["agent", "--config", "services.yaml"]).await;
    unread.fails(
        "rights",
        &["nor list services \"hook\"", "nor watch endpointslices", "where the Services lead"],
    );
    with("nobody.yaml", &rig.gateway().to_string(), &free().to_string());
    let nobody = doctor(&rig, &["agent", "--config", "nobody.yaml"]).await;
    nobody.fails("QUIC", &["no answer", "UDP"]);
    with("caller.yaml", "edge-a-agent", "alice-caller");
    let _alice = rig.caller("alice", &[]).await;
    let caller = doctor(&rig, &["agent", "--config", "caller.yaml"]).await;
    caller.fails(
        "identity",
        &["is no agent of trust domain tombolo", "tombolo ca issue agent --cluster edge-a"],
    );
    caller.fails("QUIC", &["refuses the handshake"]);
    with("cluster.yaml", "cluster: edge-a", "cluster: edge-b");
    doctor(&rig, &["agent", "--config", "cluster.yaml"])
        .await
        .fails("identity", &["for cluster edge-a, the file for edge-b"]);
    with("ca.yaml", "server-ca.crt", "caller-ca.crt");
    doctor(&rig, &["agent", "--config", "ca.yaml"]).await.fails("QUIC", &["cannot be trusted"]);
}

#[tokio::test]
async fn the_doctor_asks_each_reviewer_once_whether_the_server_may_ask() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    rig.write("host-ca.crt", api.ca_pem());
    rig.write("host.token", "the-servers-own-token\n");
    let text = fs::read_to_string(rig.path().join("server.yaml")).expect("a configuration");
    let host = format!("server: \"{}\", caFile: host-ca.crt, tokenFile: host.token", api.url());
    let issuer = "{ name: corp, issuer: \"https://corp.example\", caFile: pki/server-ca.crt }";
    let text = text.replace(
        "  authentication:\n",
        &format!("  authentication:\n    oidc: [{issuer}]\n    tokenReview: {{ {host} }}\n"),
    );
    let text = text.replace(
        "policy: { file: policy.yaml }",
        &format!("policy: {{ file: policy.yaml, delegation: {{ {host} }} }}"),
    );
    let words = |name| ["server", "--config", name];
    rig.write("asking.yaml", &text);
    let says = |allowed: bool| {
        let answer = format!("{{\"status\":{{\"allowed\":{allowed}}}}}");
        api.on(REVIEWS, Behaviour::Answer(Answer::json(201, answer)));
    };

    says(true);
    let well = doctor(&rig, &words("asking.yaml")).await;
    well.is_well(&["issuer's CA", "may create tokenreviews", "may create subjectaccessreviews"]);
    let asked: Vec<Value> =
        api.requests().iter().map(|asked| serde_json::from_slice(&asked.body).expect("JSON")).collect();
    let resources: Vec<&Value> =
        asked.iter().map(|asked| &asked["spec"]["resourceAttributes"]["resource"]).collect();
    assert_eq!(resources, ["tokenreviews", "subjectaccessreviews"]);

    says(false);
    let powerless = doctor(&rig, &words("asking.yaml")).await;
    powerless.fails("rights", &["may not create tokenreviews", "system:auth-delegator"]);
    powerless.fails("rights", &["may not create subjectaccessreviews", "system:auth-delegator"]);
    api.on(REVIEWS, Behaviour::Answer(Answer::json(401, "{}")));
    doctor(&rig, &words("asking.yaml")).await.fails("credential", &["does not accept it", "tokenFile"]);
    rig.write("no-token.yaml", &text.replace("host.token", "no.token"));
    doctor(&rig, &words("no-token.yaml")).await.fails("credential", &["no.token"]);
    rig.write("other-ca.yaml", &text.replace("host-ca.crt", "pki/caller-ca.crt"));
    doctor(&rig, &words("other-ca.yaml")).await.fails("TLS", &["is not of the CA that is trusted here"]);
}

/// It reports the rights that the deployment grants, and the missing ones where it was not applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_reports_missing_rights_at_a_real_api_server() {
    let cluster = EdgeCluster::start().await.expect("a cluster starts");
    let account = cluster.create_agent_account().await.expect("an account for the agent");
    let rig = Rig::start().await;
    let _agent = rig.agent("edge-a", &ApiServer::of(&cluster, &account)).await;
    let well = doctor(&rig, &["agent", "--config", "edge-a.yaml"]).await;
    well.is_well(&["agrees with the API server's", "may impersonate users and groups"]);

    let taken =
        cluster.kubectl(&["delete", "clusterrolebinding", "tunnel-agent"]).await.expect("kubectl runs");
    assert!(taken.status.success(), "{taken:?}");
    // The API server's authorizer sees it a moment later.
    let deadline = Instant::now() + DOCTOR_MAX;
    loop {
        let powerless = doctor(&rig, &["agent", "--config", "edge-a.yaml"]).await;
        if powerless.code == Some(1) || Instant::now() >= deadline {
            powerless.fails("rights", &["may not impersonate users", "tombolo rbac"]);
            assert!(!powerless.text.contains("nor list endpointslices"), "{}", powerless.text);
            return;
        }
    }
}

impl Diagnosis {
    /// Asserts exit code 0, only ok lines, and these words. The rig's token file is open to others, and a
    /// fake has no clock.
    fn is_well(&self, words: &[&str]) {
        assert_eq!(self.code, Some(0), "{}", self.text);
        for line in self.text.lines() {
            assert!(
                line.starts_with("ok ")
                    || line.contains("tokens.csv")
                    || line.contains("the API server says no time"),
                "{line}\n{}",
                self.text
            );
        }
        for word in words {
            assert!(self.text.contains(word), "no {word:?}: {}", self.text);
        }
    }

    /// Exit code 1, and a check that failed in these words.
    fn fails(&self, check: &str, words: &[&str]) {
        assert_eq!(self.code, Some(1), "{}", self.text);
        let is_it = |line: &&str| {
            let mut columns = line.split("   ").map(str::trim).filter(|column| !column.is_empty());
            columns.next() == Some("failed") && columns.next() == Some(check)
        };
        let lines: Vec<&str> = self.text.lines().filter(is_it).collect();
        let says = |line: &&str| words.iter().all(|word| line.contains(word));
        assert!(lines.iter().any(says), "no failed {check} with {words:?}: {}", self.text);
    }
}

async fn doctor(rig: &Rig, words: &[&str]) -> Diagnosis {
    let tombolo = Invocation::of(binary("tombolo")).arguments(["doctor"]).arguments(words.iter().copied());
    let output = run(&tombolo.in_directory(rig.path()), DOCTOR_MAX).await.expect("tombolo runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Diagnosis { code: output.status.code(), text }
}

/// The agent, the address and the start of each tunnel.
async fn tunnels(rig: &Rig) -> Vec<(String, String, Option<i64>)> {
    let wire = AdminWire::connect(&rig.admin_socket()).await.expect("the admin API answers");
    let mut admin = AdminClient::with_origin(wire, AdminWire::origin());
    let listed = admin.list_clusters(ListClustersRequest::default()).await.expect("it answers").into_inner();
    let tunnels = listed.clusters.into_iter().flat_map(|cluster| cluster.tunnels);
    tunnels.map(|tunnel| (tunnel.agent, tunnel.address, tunnel.since.map(|since| since.seconds))).collect()
}

/// Writes a certificate of long ago, and its key.
fn expired(rig: &Rig, name: &str) -> PathBuf {
    let key = KeyPair::generate().expect("a key can be made");
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
    let certificate = params.self_signed(&key).expect("a certificate can be made");
    rig.write(&format!("{name}.key"), &key.serialize_pem());
    rig.write(&format!("{name}.crt"), &certificate.pem())
}

fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    drop(UdpSocket::bind(address));
    address
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
