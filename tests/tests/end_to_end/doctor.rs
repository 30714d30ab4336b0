//! `tombolo doctor`: it reports success, or names each problem and its remedy.

mod faults;
mod site;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use proto::admin::ListClustersRequest;
use proto::admin::admin_client::AdminClient;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::Value;
use tests::admin::AdminWire;
use tests::binaries::binary;
use tests::enroll;
use tests::fake_api::{Answer, Behaviour, FakeApi};
use tests::kube::EdgeCluster;
use tests::process::{Invocation, run};
use tests::rig::{ApiServer, GROUP, Rig};

use faults::FAULTS;
use site::DoctorSite;

/// A dial to nobody waits for the handshake's deadline.
const DOCTOR_MAX: Duration = Duration::from_secs(60);

/// The path at which an agent's rights are reviewed.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The path at which its rules are listed.
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// Doctors that run at the same time. Most of them wait for a peer that is silent.
const DOCTORS_MAX: usize = 8;

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

    well.is_well(&[
        "a Tombolo gateway answers",
        "for 127.0.0.1",
        "clock",
        "agrees with the gateway's",
        "ready",
    ]);
    let json = doctor(&rig, &["--kubeconfig", &shown(&kubeconfig), "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json.text).expect("JSON");
    assert_eq!(json["failed"], false, "{json}");
}

/// Each row of the table is one run of the doctor: its exit code, and a check with its result and words that help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_planted_fault_has_its_check_its_exit_code_and_advice() {
    let site = DoctorSite::start().await;

    let tried = stream::iter(FAULTS.iter().enumerate()).map(|(number, fault)| site.difference(number, fault));
    let different: Vec<String> =
        tried.buffer_unordered(DOCTORS_MAX).filter_map(std::future::ready).collect().await;

    assert!(different.is_empty(), "{} of {}:\n{}", different.len(), FAULTS.len(), different.join("\n"));
    // After all these checks, among them many of this token.
    site.token_enrolls().await;
}

#[test]
fn the_table_has_more_than_forty_faults_of_different_names() {
    let planted = FAULTS.iter().filter(|fault| fault.result != "ok");
    assert!(planted.count() > 40);
    let mut names: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FAULTS.len());
}

/// The certificate and the roots are those of its state directory, and so the tunnel is tried as the agent would open it.
#[tokio::test]
async fn an_enrolled_agent_is_examined_by_its_stored_identity() {
    let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let listener = enroll::open(&mut rig).await;
    allow(&api);
    let (_, file) = enroll::token(&rig, "edge-a").await;
    let _agent = enroll::agent(&rig, &listener, "one", "edge-a", &ApiServer::of_fake(&rig, &api)).await;
    rig.connected("edge-a").await;
    fs::remove_file(file).expect("it was read");
    let before = tunnels(&rig).await;

    let well = doctor(&rig, &["agent", "--config", "one.yaml"]).await;

    well.is_well(&[
        "is enrolled already and needs no token",
        "renews its certificate by itself",
        "answers with a certificate of a root that the agent trusts",
        "of cluster edge-a",
    ]);
    assert_eq!(well.text.matches("accepts the agent's certificate").count(), 2, "{}", well.text);
    assert_eq!(tunnels(&rig).await, before, "the running agent's tunnel stays, and no other comes");
}

/// As `tombolo token create` prints it: the file names no API server, and the flag of the agent does.
#[tokio::test]
async fn an_agent_whose_file_names_no_api_server_is_examined_by_its_flag() {
    let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    enroll::open(&mut rig).await;
    allow(&api);
    let kubeconfig = rig.path().join("api.kubeconfig");
    api.write_kubeconfig(&kubeconfig, "a-token").expect("a kubeconfig");
    let create = ["token", "create", "--cluster", "edge-a", "--dir", "site", "--user", "alice"];
    enroll::at(&rig, &create).await;
    let words = ["agent", "--config", "site/agent.yaml"];

    let well = doctor(&rig, &[words.as_slice(), &["--kubeconfig", "api.kubeconfig"]].concat()).await;

    assert_eq!(well.code, Some(0), "{}", well.text);
    for words in ["api.kubeconfig, context", "may impersonate users and groups", "not used up"] {
        assert!(well.text.contains(words), "no {words:?}: {}", well.text);
    }
    let without = doctor(&rig, &words).await;
    without.fails("api-server", &["no kubeconfig is named, and this is no pod", "--kubeconfig FILE"]);
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
}

#[tokio::test]
async fn the_doctor_examines_an_agent_without_disturbing_the_running_one() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    allow(&api);
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let before = tunnels(&rig).await;

    let well = doctor(&rig, &["agent", "--config", "edge-a.yaml"]).await;

    well.is_well(&[
        "of cluster edge-a",
        "accepts the agent's certificate",
        "may impersonate users and groups",
        "nothing dangerous beyond the agent's needs",
    ]);
    assert_eq!(tunnels(&rig).await, before, "the running agent's tunnel stays, and no other comes");
    assert!(!rig.agent_log("edge-a").contains("tunnel closed"), "{}", rig.agent_log("edge-a"));
    let log = rig.server_log();
    assert_eq!(log.matches("tunnel opened").count(), 1, "not even for a moment: {log}");
    let checked = log.lines().find(|line| line.contains("a connection was checked"));
    let checked = checked.unwrap_or_else(|| panic!("the server names the doctor: {log}"));
    assert!(checked.contains("tombolo-doctor/") && checked.contains("edge-a/"), "{checked}");
    assert!(!log.contains("an agent was refused") && !log.contains("versions {}"), "{log}");
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
    well.is_well(&["issuer-ca", "may create tokenreviews", "may create subjectaccessreviews"]);
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
    doctor(&rig, &words("other-ca.yaml")).await.fails("tls", &["is not of the CA that is trusted here"]);
}

/// It reports the rights that the deployment grants, and the missing ones where it was not applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_reports_missing_rights_at_a_real_api_server() {
    let cluster = EdgeCluster::start().await.expect("a cluster starts");
    let account = cluster.create_agent_account().await.expect("an account for the agent");
    let rig = Rig::start().await;
    let _agent = rig.agent("edge-a", &ApiServer::of(&cluster, &account)).await;
    let well = doctor(&rig, &["agent", "--config", "edge-a.yaml"]).await;
    well.is_well(&[
        "agrees with the API server's",
        "may impersonate users and groups",
        "nothing dangerous beyond the agent's needs",
    ]);
    let text = fs::read_to_string(rig.path().join("edge-a.yaml")).expect("a configuration");
    let section = text.lines().find(|line| line.starts_with("apiServer:")).expect("an API server");
    let admin = format!("apiServer: {{ kubeconfig: {:?} }}", cluster.admin_kubeconfig());
    rig.write("admin.yaml", &text.replace(section, &admin));
    let mighty = doctor(&rig, &["agent", "--config", "admin.yaml"]).await;
    assert_eq!(mighty.code, Some(0), "{}", mighty.text);
    assert!(mighty.text.contains("do everything, as cluster-admin may"), "{}", mighty.text);
    assert!(
        !mighty.text.lines().any(|line| line.starts_with("ok") && line.contains(" rights ")),
        "{}",
        mighty.text
    );
    let kubeconfig = shown(&rig.kubeconfig("alice", &[GROUP], "edge-a").await);

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
            let caller = doctor(&rig, &["--kubeconfig", &kubeconfig]).await;
            caller.fails("agent-impersonation", &["cannot impersonate", "tombolo rbac"]);
            return;
        }
    }
}

impl Diagnosis {
    /// Asserts exit code 0, only ok lines, and these words. The rig's token file is open to others, and a
    /// fake has no clock, so the last line refers to these two checks.
    fn is_well(&self, words: &[&str]) {
        assert_eq!(self.code, Some(0), "{}", self.text);
        for line in self.text.lines() {
            assert!(
                line.starts_with("ok ")
                    || line.contains("tokens.csv")
                    || line.contains("the API server says no time")
                    || line.starts_with("help "),
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
    // A proxy of this machine is none of the tests'.
    let tombolo =
        ["HTTPS_PROXY", "https_proxy"].iter().fold(tombolo, |tombolo, name| tombolo.variable(name, ""));
    let output = run(&tombolo.in_directory(rig.path()), DOCTOR_MAX).await.expect("tombolo runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Diagnosis { code: output.status.code(), text }
}

/// Gives the agent the rights that it needs, and no others.
fn allow(api: &FakeApi) {
    api.on(REVIEWS, Behaviour::Answer(Answer::json(201, r#"{"status":{"allowed":true}}"#)));
    let rules = r#"{"status":{"resourceRules":[],"incomplete":false}}"#;
    api.on(RULES, Behaviour::Answer(Answer::json(201, rules)));
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

fn shown(path: &Path) -> String {
    path.display().to_string()
}
