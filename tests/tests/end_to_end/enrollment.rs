//! Enrollment of agents: a token once, the agent's own key, and never another name.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use futures::future::join_all;
use proto::enrollment::{Credential, EnrollRequest};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use serde_json::Value;
use tests::binaries::binary;
use tests::clock::Shift;
use tests::enroll::{
    AttestationClient, EnrollmentClaim, EnrollmentListener, agent, at, named, private, start, token,
    unauthenticated_client,
};
use tests::fake_api::FakeApi;
use tests::process::{Invocation, Process};
use tests::rig::{ApiServer, Rig};
use tonic::{Code, Status};
use trust::proof::Purpose;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The limit for any step of a test.
const DONE_MAX: Duration = Duration::from_secs(60);
const REFUSED: &str = "this token enrolls nobody";

#[tokio::test]
async fn an_agent_enrolls_by_a_token_serves_and_needs_no_token_again() {
    let ((rig, listener), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let (secret, file) = token(&rig, "edge-a").await;

    let first = agent(&rig, &listener, "one", "edge-a", &api_server).await;

    rig.connected("edge-a").await;
    assert_eq!(
        rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await.status,
        404,
        "the fake's answer"
    );
    let identity = rig.path().join("one.state/identity.json");
    let mode = fs::metadata(&identity).expect("it is kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (listed, agents) = (at(&rig, &["token", "list"]).await, at(&rig, &["agent", "list"]).await);
    let serial = tunnel_agent_of(&rig).await;
    assert!(listed.contains(&serial) && agents.contains(&format!("edge-a/{serial}")), "{listed}{agents}");

    first.process.stop(DONE_MAX).await.expect("it ends");
    fs::remove_file(&file).expect("it was read");
    let again = agent(&rig, &listener, "one", "edge-a", &api_server).await;
    rig.connected("edge-a").await;

    let secret = secret.split_once('.').expect("ID.SECRET").1;
    let metrics = rig.metrics(rig.probes()).await + &rig.metrics(again.probes).await;
    for text in [rig.server_log(), rig.agent_log("one"), metrics, listed, agents] {
        assert!(!text.contains(secret), "the token's secret stands in {text}");
    }
    let store = fs::read(rig.path().join("server.state/directory.redb")).expect("the store");
    assert!(!store.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()), "only its hash is kept");
}

/// An operator pastes them at the site, into a folder with nothing in it.
#[tokio::test]
async fn the_commands_of_token_create_join_a_site_as_they_stand() {
    let ((rig, _), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    let ApiServer::Kubeconfig(kubeconfig) = ApiServer::of_fake(&rig, &api) else { panic!("a kubeconfig") };
    let site = rig.path().join("site");
    fs::create_dir(&site).expect("a folder");
    let commands = at(&rig, &["token", "create", "--cluster", "edge-a"]).await;
    // The agent takes the shell's place, so that it ends with this test.
    let commands = commands.replace("\ntunnel-agent ", "\nexec tunnel-agent ");
    assert!(commands.contains("\nexec tunnel-agent "), "{commands}");
    let programs = binary("tunnel-agent").parent().expect("a folder").display().to_string();
    let shell = Invocation::of("sh")
        .arguments(["-euc", &commands])
        .in_directory(&site)
        .variable("PATH", format!("{programs}:/usr/bin:/bin"))
        .variable("KUBECONFIG", kubeconfig.display().to_string())
        .variable("TOMBOLO_AGENT_PROBES_LISTEN", "127.0.0.1:0");

    let _agent = Process::start(&shell, &rig.path().join("site.log")).await.expect("it starts");

    rig.connected("edge-a").await;
    rig.logged("site.log", 0, "this agent was enrolled").await;
    let written = rig.path().join("carried");
    let next = at(&rig, &["token", "create", "--cluster", "edge-a", "--dir", "carried"]).await;
    assert!(
        next.contains("tunnel-agent --config agent.yaml") && written.join("agent.yaml").is_file(),
        "{next}"
    );
}

#[tokio::test]
async fn an_empty_token_file_is_logged_with_the_remedy_and_read_again() {
    let ((rig, listener), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    private(&rig, "token", "\n");

    let _agent = agent(&rig, &listener, "one", "edge-a", &ApiServer::of_fake(&rig, &api)).await;

    rig.logged("one.log", 0, "is empty; write the token into it that `tombolo token create` prints").await;
    assert!(!rig.server_log().contains("it is not known"), "no token is sent that there is not");
    let _token = token(&rig, "edge-a").await;
    rig.connected("edge-a").await;
}

/// The winner gets the same answer again, also from a restarted server.
#[tokio::test]
async fn a_token_enrolls_one_of_a_hundred_keys() {
    let (rig, listener) = start("").await;
    let (secret, _) = token(&rig, "edge-a").await;
    let keys: Vec<KeyPair> = (0..100).map(|_| KeyPair::generate().expect("a key")).collect();

    let answers =
        join_all(keys.iter().map(|key| enroll(&rig, &listener, &secret, "edge-a", plain(key)))).await;

    let (won, lost): (Vec<_>, Vec<_>) =
        answers.into_iter().zip(&keys).partition(|(answer, _)| answer.is_ok());
    let [(Ok(credential), key)] = won.as_slice() else { panic!("{} were enrolled", won.len()) };
    // Some were not listened to, because so many others from here had failed.
    let codes = [Code::PermissionDenied, Code::ResourceExhausted];
    assert!(lost.iter().all(|(answer, _)| codes.contains(&answer.as_ref().unwrap_err().code())));
    assert_eq!(at(&rig, &["agent", "list"]).await.lines().count(), 2, "a head and one agent");

    let mut rig = rig;
    rig.kill_server();
    rig.start_server().await;
    let again = enroll(&rig, &listener, &secret, "edge-a", plain(key)).await.expect("its own answer");
    assert_eq!(again.chain, credential.chain);
}

#[tokio::test]
async fn wrong_guesses_use_up_no_token_and_all_get_the_same_answer() {
    let (rig, listener) = start("").await;
    at(&rig, &["cluster", "create", "edge-b"]).await;
    let ((secret, _), key) = (token(&rig, "edge-a").await, KeyPair::generate().expect("a key"));
    let (id, _) = secret.split_once('.').expect("ID.SECRET");
    let guess = format!("{id}.{}", "0".repeat(64));
    let unknown = format!("{}.{}", "0".repeat(16), "0".repeat(64));

    let mut messages = Vec::new();
    for (token, cluster) in
        [(guess.as_str(), "edge-a"), (&unknown, "edge-a"), ("nonsense", "edge-a"), (&secret, "edge-b")]
    {
        let refused = enroll(&rig, &listener, token, cluster, plain(&key)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
        messages.push(refused.message().to_owned());
    }
    assert!(messages.iter().all(|message| *message == messages[0]), "{messages:?}");

    enroll(&rig, &listener, &secret, "edge-a", plain(&key)).await.expect("the token is as it was");
    let other = KeyPair::generate().expect("a key");
    let used = enroll(&rig, &listener, &secret, "edge-a", plain(&other)).await.unwrap_err();
    assert_eq!(used.message(), messages[0]);
}

#[tokio::test]
async fn an_address_with_too_many_failed_enrollments_is_throttled() {
    let (rig, listener) = start("").await;
    let key = KeyPair::generate().expect("a key");
    let mut codes = Vec::new();
    for _ in 0..30 {
        codes.push(enroll(&rig, &listener, "nonsense", "edge-a", plain(&key)).await.unwrap_err().code());
    }
    assert_eq!(codes[19..21], [Code::PermissionDenied, Code::ResourceExhausted], "{codes:?}");
    rig.measured("tombolo_server_enrollments_total{outcome=\"limited\"}", |limited| limited >= 1.0).await;
}

#[tokio::test]
async fn a_certificate_names_what_is_on_record_whatever_the_request_asks_for() {
    let (rig, listener) = start("").await;
    for evil in evil_requests() {
        let ((secret, _), key) = (token(&rig, "edge-a").await, KeyPair::generate().expect("a key"));
        let request = evil.serialize_request(&key).expect("a request").der().to_vec();

        let credential =
            enroll(&rig, &listener, &secret, "edge-a", request).await.expect("the key alone is used");

        let (_, leaf) = X509Certificate::from_der(&credential.chain[0]).expect("a certificate");
        let names = leaf.subject_alternative_name().unwrap().expect("names").value;
        let [GeneralName::URI(uri)] = names.general_names.as_slice() else { panic!("{names:?}") };
        assert!(uri.starts_with("spiffe://tombolo/cluster/edge-a/agent/"), "{uri}");
        let usage = leaf.extended_key_usage().unwrap().expect("a purpose").value;
        assert!(usage.client_auth && !usage.server_auth && !usage.any && !leaf.is_ca());
        let hours = (leaf.validity().not_after.timestamp() - leaf.validity().not_before.timestamp()) / 3600;
        assert_eq!(hours, 24);
    }
}

#[tokio::test]
async fn an_agent_shows_its_token_only_to_the_pinned_server() {
    let ((rig, mut listener), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    let _token = token(&rig, "edge-a").await;
    let good = listener.pin.clone();
    listener.pin = format!("sha256:{}", "0".repeat(64));

    let _fooled = agent(&rig, &listener, "fooled", "edge-a", &ApiServer::of_fake(&rig, &api)).await;

    rig.logged("fooled.log", 0, "check enrollment.pin").await;
    let unused = at(&rig, &["token", "list"]).await;
    assert_eq!(unused.matches("<nobody>").count(), 2, "{unused}");
    listener.pin = good;
    let _agent = agent(&rig, &listener, "one", "edge-a", &ApiServer::of_fake(&rig, &api)).await;
    rig.connected("edge-a").await;
}

#[tokio::test]
async fn a_second_agent_with_a_used_token_logs_the_remedy() {
    let ((rig, listener), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let _token = token(&rig, "edge-a").await;
    let _first = agent(&rig, &listener, "one", "edge-a", &api_server).await;
    rig.connected("edge-a").await;

    let _second = agent(&rig, &listener, "two", "edge-a", &api_server).await;

    rig.logged("two.log", 0, REFUSED).await;
    rig.logged("server.log", 0, "it was used with another key").await;
    // A new token, and the agent comes in without being started again.
    let _token = token(&rig, "edge-a").await;
    rig.logged("two.log", 0, "this agent was enrolled").await;
}

#[tokio::test]
async fn a_site_that_was_off_for_days_renews_by_its_recorded_key_and_comes_back() {
    let ((rig, listener), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let _token = token(&rig, "edge-a").await;
    let mut off = agent(&rig, &listener, "one", "edge-a", &api_server).await;
    rig.connected("edge-a").await;
    let mut instances = vec![tunnel_agent_of(&rig).await];
    // Two thirds of its certificate's life have passed; then all of it, and two days more; then most of its
    // grace.
    for hours in [20, 20 + 72, 80 * 24] {
        off.process.stop(DONE_MAX).await.expect("it ends");
        let before = identity_file(&rig, "one");
        rig.set_clocks(Shift::hours(hours));

        off = agent(&rig, &listener, "one", "edge-a", &api_server).await;

        renewed(&rig, &before).await;
        rig.connected("edge-a").await;
        instances.push(tunnel_agent_of(&rig).await);
    }
    assert!(instances.windows(2).all(|two| two[0] == two[1]), "{instances:?}");
    let agents = at(&rig, &["agent", "list"]).await;
    assert_eq!(agents.lines().count(), 2, "a head and one agent: {agents}");
}

#[tokio::test]
async fn a_timely_renewal_extends_the_live_tunnel_and_drops_no_stream() {
    let ((rig, listener), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let _token = token(&rig, "edge-a").await;
    let _agent = agent(&rig, &listener, "one", "edge-a", &api_server).await;
    rig.connected("edge-a").await;
    rig.logged("server.log", 0, "tunnel opened").await;
    let (before, opened) = (identity_file(&rig, "one"), rig.server_log().matches("tunnel opened").count());

    rig.set_clocks(Shift::hours(17));

    renewed(&rig, &before).await;
    rig.logged("server.log", 0, "a tunnel was extended by a newer certificate").await;
    assert_eq!(rig.server_log().matches("tunnel opened").count(), opened, "it is the same tunnel");
    assert!(!rig.server_log().contains("tunnel closed"), "{}", rig.server_log());
    // By the newer certificate's serial number it is found from now on.
    let serial = at(&rig, &["agent", "list"]).await;
    let serial =
        serial.lines().nth(1).and_then(|line| line.split_whitespace().nth(2)).expect("a serial number");
    at(&rig, &["agent", "revoke", "--serial", serial]).await;
    rig.disconnected("edge-a").await;
}

#[tokio::test]
async fn after_its_grace_a_site_needs_a_new_token() {
    let ((mut rig, listener), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let _token = token(&rig, "edge-a").await;
    let off = agent(&rig, &listener, "one", "edge-a", &api_server).await;
    rig.connected("edge-a").await;
    off.process.stop(DONE_MAX).await.expect("it ends");
    rig.kill_server();
    rig.write_config(|config| config.replace("enrollment: {", "enrollment: { renewalGraceDays: 2,"));
    rig.set_clocks(Shift::hours(24 + 49));
    rig.start_server().await;

    let _back = agent(&rig, &listener, "one", "edge-a", &api_server).await;

    rig.logged("one.log", 0, "this certificate cannot be renewed").await;
    rig.logged("server.log", 0, "its certificate expired too long ago").await;
}

#[tokio::test]
async fn an_agent_that_wakes_in_1970_comes_back() {
    let ((mut rig, listener), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let _token = token(&rig, "edge-a").await;
    let off = agent(&rig, &listener, "one", "edge-a", &api_server).await;
    rig.connected("edge-a").await;
    off.process.stop(DONE_MAX).await.expect("it ends");
    rig.disconnected("edge-a").await;

    // The server's clock is right: only what is started now is moved.
    rig.kill_server();
    rig.leave_clocks();
    rig.start_server().await;
    rig.take_clocks();
    rig.set_clocks(Shift::to_1970());
    let _back = agent(&rig, &listener, "one", "edge-a", &api_server).await;

    rig.connected("edge-a").await;
}

#[tokio::test]
async fn a_key_that_was_replaced_renews_nothing_and_raises_an_alarm() {
    let ((rig, listener), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let _token = token(&rig, "edge-a").await;
    let first = agent(&rig, &listener, "one", "edge-a", &api_server).await;
    rig.connected("edge-a").await;
    first.process.stop(DONE_MAX).await.expect("it ends");
    let stolen = identity_file(&rig, "one");
    rig.set_clocks(Shift::hours(20));
    let back = agent(&rig, &listener, "one", "edge-a", &api_server).await;
    renewed(&rig, &stolen).await;

    fs::create_dir(rig.path().join("thief.state")).expect("a folder");
    fs::set_permissions(rig.path().join("thief.state"), fs::Permissions::from_mode(0o700)).expect("ours");
    private(&rig, "thief.state/identity.json", &stolen);
    let _thief = agent(&rig, &listener, "thief", "edge-a", &api_server).await;

    rig.logged("server.log", 0, "a client has a key that this agent has replaced").await;
    rig.logged("thief.log", 0, "this certificate cannot be renewed").await;
    rig.connected("edge-a").await;
    drop(back);
}

/// The proof has to be for this purpose and for the same connection.
#[tokio::test]
async fn a_certificate_is_renewed_only_for_a_proof_by_its_own_key() {
    let (rig, listener) = start("").await;
    let (secret, _) = token(&rig, "edge-a").await;
    let [own, next, thiefs] = [(); 3].map(|()| KeyPair::generate().expect("a key"));
    let credential = enroll(&rig, &listener, &secret, "edge-a", plain(&own)).await.expect("a certificate");
    let (instance, serial) = named(&credential);
    let claim =
        EnrollmentClaim { instance: &instance, serial, key: &next, signer: &own, purpose: Purpose::Renewal };

    let (mut here, elsewhere) = (
        AttestationClient::connect(&rig, &listener).await,
        AttestationClient::connect(&rig, &listener).await,
    );
    for (lie, other) in [
        (EnrollmentClaim { signer: &thiefs, ..claim }, None),
        (EnrollmentClaim { signer: &next, ..claim }, None),
        (EnrollmentClaim { purpose: Purpose::Extension, ..claim }, None),
        (claim, Some(&elsewhere)),
    ] {
        let refused = here.renew(&lie, other).await.expect_err("it is nobody's");
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    }
    assert_eq!(rig.server_log().matches("its proof is not by the key on record").count(), 4);
    here.renew(&claim, None).await.expect("a proof");
}

#[tokio::test]
async fn a_revoked_agent_gets_no_next_certificate() {
    let ((rig, listener), api) = (start("").await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let _token = token(&rig, "edge-a").await;
    let first = agent(&rig, &listener, "one", "edge-a", &api_server).await;
    rig.connected("edge-a").await;
    let instance = tunnel_agent_of(&rig).await;
    at(&rig, &["agent", "revoke", &format!("edge-a/{instance}")]).await;
    rig.disconnected("edge-a").await;
    first.process.stop(DONE_MAX).await.expect("it ends");
    rig.set_clocks(Shift::hours(20));
    let _back = agent(&rig, &listener, "one", "edge-a", &api_server).await;

    rig.logged("one.log", 0, "this certificate cannot be renewed").await;
    assert!(at(&rig, &["agent", "list"]).await.contains("Revoked"));
}

/// It differs in the token alone, which enrolls once.
#[tokio::test]
async fn a_token_for_an_existing_cluster_comes_with_the_helm_command_of_create() {
    let (rig, _listener) = start("").await;
    let callers = ["--user", "alice", "--group", "tombolo:admins", "--cluster-role", "view"];
    let create = ["cluster", "create", "site-7", "--print", "helm"];
    let created = at(&rig, &[create.as_slice(), &callers].concat()).await;

    let again = ["token", "create", "--cluster", "site-7", "-o", "helm"];
    let again = at(&rig, &[again.as_slice(), &callers].concat()).await;

    let without_token = |command: &str| {
        let lines: Vec<&str> = command.lines().filter(|line| !line.starts_with("  token: ")).collect();
        lines.join("\n")
    };
    assert_eq!(without_token(&again), without_token(&created));
    assert!(again.contains("  token: ") && again != created, "{again}");
}

async fn enroll(
    rig: &Rig,
    listener: &EnrollmentListener,
    token: &str,
    cluster: &str,
    certificate_request: Vec<u8>,
) -> Result<Credential, Status> {
    let (token, cluster) = (token.to_owned(), cluster.to_owned());
    let asked = EnrollRequest { token, cluster, certificate_request, workload: None };
    let answer = unauthenticated_client(rig, listener).await.enroll(asked).await?;
    Ok(answer.into_inner().credential.expect("a credential"))
}

fn plain(key: &KeyPair) -> Vec<u8> {
    CertificateParams::default().serialize_request(key).expect("a request").der().to_vec()
}

/// Requests that ask for another's name, and for more than an agent may have.
fn evil_requests() -> Vec<CertificateParams> {
    let uri = |uri: &str| SanType::URI(uri.try_into().expect("a URI"));
    let dns = |name: &str| SanType::DnsName(name.try_into().expect("a name"));
    let mut of_b = CertificateParams::default();
    of_b.subject_alt_names = vec![
        uri("spiffe://tombolo/cluster/edge-b/agent/x"),
        uri("spiffe://tombolo/server/server"),
        dns("gateway.test"),
        dns("*.clusters.test"),
        SanType::IpAddress([127, 0, 0, 1].into()),
    ];
    let mut admin = CertificateParams::default();
    admin.distinguished_name.push(DnType::CommonName, "admin");
    admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
    let mut purposes = CertificateParams::default();
    purposes.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    purposes.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::Any];
    let mut extended = CertificateParams::default();
    // basicConstraints CA:TRUE, which rcgen does not put into a request by itself.
    let ca = rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 19], vec![0x30, 3, 1, 1, 0xff]);
    extended.custom_extensions.push(ca);
    vec![of_b, admin, purposes, extended]
}

/// The content of an agent's identity file.
fn identity_file(rig: &Rig, name: &str) -> String {
    fs::read_to_string(rig.path().join(format!("{name}.state/identity.json"))).expect("its identity")
}

/// Waits until an agent has kept another certificate than in `before`.
async fn renewed(rig: &Rig, before: &str) {
    let before: Value = serde_json::from_str(before).expect("JSON");
    let deadline = std::time::Instant::now() + DONE_MAX;
    loop {
        let now: Value = serde_json::from_str(&identity_file(rig, "one")).expect("JSON");
        if now["chain"] != before["chain"] && now["key"] != before["key"] {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "never renewed: {}", rig.agent_log("one"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The agent of edge-a that has a tunnel.
async fn tunnel_agent_of(rig: &Rig) -> String {
    let listed: Value = serde_json::from_str(&at(rig, &["clusters", "-o", "json"]).await).expect("JSON");
    let items = listed["items"].as_array().expect("clusters").clone();
    let edge = items.iter().find(|item| item["metadata"]["name"] == "edge-a").expect("edge-a");
    edge["status"]["tunnels"][0]["agent"].as_str().expect("a tunnel").to_owned()
}
