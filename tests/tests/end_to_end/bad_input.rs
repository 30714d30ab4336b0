//! The daemons' reaction to wrong configurations: one message that names the mistake, and an exit code.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};
use tests::binaries::binary;
use tests::carrier::Carrier;
use tests::fake_api::FakeApi;
use tests::process::{Invocation, run};
use tests::rig::{Agent, ApiServer, Rig};

/// A daemon that refuses its configuration does so at once; only a busy machine needs more.
const REFUSE_MAX: Duration = Duration::from_secs(20);
/// For this long dials of a refused agent are counted. Without growing pauses it would make hundreds.
const COUNTED: Duration = Duration::from_secs(5);
const DIALS_MAX: usize = 25;

/// A change of a good configuration file, and the texts that the message must contain.
type WrongConfig<'a> = (&'a str, &'a str, &'a [&'a str]);

#[tokio::test]
async fn a_wrong_server_configuration_exits_with_2_and_names_the_mistake() {
    let trial = ConfigTrial::start().await;
    let (server_id, caller_key) = (trial.expired("server.crt"), trial.path("pki/alice-caller.key"));
    let open = trial.rig.path().join("open.state");
    fs::create_dir(&open).expect("a folder");
    fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("a mode");
    let (open_state, state) = (open.display().to_string(), trial.path("server.state"));
    let expired = format!("pki/{server_id}.crt");
    let typo = trial.text("policy.yaml").replacen("names: [\"*\"]", "names: [\"edge-**\"]", 1);
    trial.rig.write("typo.yaml", &typo);
    trial.rig.write("empty.csv", "");
    let wrong: &[WrongConfig<'_>] = &[
        ("policy:", "polcy:", &["broken.yaml:", "polcy"]),
        ("ServerConfig", "AgentConfig", &["broken.yaml:2:", "kind", "AgentConfig", "use ServerConfig"]),
        ("v1alpha1", "v9", &["broken.yaml:1:", "apiVersion", "tombolo.dev/v9", "tombolo.dev/v1alpha1"]),
        ("kind: ServerConfig", "", &["kind is missing", "kind: ServerConfig"]),
        ("policy: {", "serverId: a #", &["policy.file", "nothing", "the path of a file"]),
        ("policy.yaml", "none.yaml", &["there is no policy", "none.yaml", "policy.file"]),
        ("policy.yaml", "server.yaml", &["server.yaml:2:7", "ServerConfig", "use Policy"]),
        ("policy.yaml", "typo.yaml", &["typo.yaml:4:", "rules[0].clusters.names[0]", "edge-**"]),
        ("pki/server.key", "pki/alice-caller.key", &["tls.keyFile", &caller_key, "belongs to"]),
        ("pki/server.key", "pki/none.key", &["tls.keyFile", "none.key"]),
        ("pki/server.crt", "tokens.csv", &["tls.certificateFile", "tokens.csv", "PEM"]),
        ("pki/agent-ca.crt", "pki/caller-ca.crt", &["clientCertificate.caFile", "CA of its own"]),
        (
            "hostSuffix: clusters.test",
            "hostSuffix: 10.0.0.1",
            &["gateway.hostSuffix", "10.0.0.1", "DNS name"],
        ),
        (
            "gateway:\n  listen: \"127.0.0.1",
            "gateway:\n  listen: \"me",
            &["gateway.listen", "me:", "an IP address and a port"],
        ),
        ("stateDir", "drainGraceSeconds: 0\nstateDir", &["drainGraceSeconds", "0", "1 to 600"]),
        (&state, &open_state, &["others may enter", &open_state, "755", "chmod 700"]),
        (
            "stateDir",
            "drainGraceSeconds: a: b\nstateDir",
            &["broken.yaml:", "mapping values are not allowed", "the line is `drainGraceSeconds: a: b`"],
        ),
        ("tunnel: {", "tunnel: { addresses: [gateway],", &["tunnel.addresses", "gateway", "HOST:PORT"]),
    ];
    for (from, to, words) in wrong {
        trial.refuses("tunnel-server", "server.yaml", (from, to), &[], words).await;
    }
    // Tokens are read later, when the running server's state and ports would be refused.
    let own_state = trial.path("own.state");
    let listeners = ["--gateway-listen", "--tunnel-listen", "--probes-listen"];
    let mut apart = vec!["--state-dir", &own_state];
    apart.extend(listeners.iter().flat_map(|listener| [*listener, "127.0.0.1:0"]));
    let words = ["there is no token in the file", "tombolo user token create"];
    trial.refuses("tunnel-server", "server.yaml", ("tokens.csv", "empty.csv"), &apart, &words).await;
    let certificate = ("pki/server.crt", expired.as_str());
    let words = ["tls.certificateFile", &expired, "expired", "2001", "tombolo ca issue server"];
    let key = format!("pki/{server_id}.key");
    let both = trial.text("server.yaml").replace("pki/server.key", &key);
    trial.rig.write("expired.yaml", &both);
    trial.refuses("tunnel-server", "expired.yaml", certificate, &[], &words).await;
    // Each is a certificate with its own key, and of another role.
    for client in ["edge-a-agent", "alice-caller"] {
        let (client_certificate, key) = (format!("pki/{client}.crt"), format!("pki/{client}.key"));
        trial.rig.write("client.yaml", &trial.text("server.yaml").replace("pki/server.key", &key));
        let words = ["tls.certificateFile", &client_certificate, "client's certificate", "ca issue server"];
        let certificate = ("pki/server.crt", client_certificate.as_str());
        trial.refuses("tunnel-server", "client.yaml", certificate, &[], &words).await;
    }
}

#[tokio::test]
async fn a_wrong_agent_configuration_exits_with_2_and_names_the_mistake() {
    let trial = ConfigTrial::start().await;
    trial.rig.tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", "edge-b"]).await;
    let key = trial.path("pki/edge-b-agent.key");
    let gateway = trial.rig.gateway().to_string();
    let wrong: &[WrongConfig<'_>] = &[
        ("cluster: edge-a", "cluter: edge-a", &["broken.yaml:3:", "cluter"]),
        ("AgentConfig", "ServerConfig", &["broken.yaml:2:", "kind", "ServerConfig", "use AgentConfig"]),
        (
            "cluster: edge-a",
            "cluster: edge-a: b",
            &["broken.yaml:3:", "mapping values are not allowed", "the line is `cluster: edge-a: b`"],
        ),
        ("cluster: edge-a", "cluster: Edge_A", &["cluster", "Edge_A", "lower-case letters"]),
        ("cluster: edge-a", "cluster: edge-b", &["edge-a-agent.crt", "cluster edge-a", "cluster edge-b"]),
        (
            "edge-a-agent.crt",
            "alice-caller.crt",
            &["alice-caller.crt", "is not an agent's certificate", "ca issue agent"],
        ),
        (
            "edge-a-agent.crt",
            "server.crt",
            &["server.crt", "is not an agent's certificate", "ca issue agent"],
        ),
        ("edge-a-agent.key", "edge-b-agent.key", &[&key, "is not the key of", "edge-a-agent.crt"]),
        ("edge-a-agent.crt", "none.crt", &["tls.certificateFile", "none.crt", "cannot read"]),
        (&gateway, "gateway", &["servers", "gateway", "host:port"]),
        ("apiServer: { kubeconfig", "apiServer: { context: c, kubconfig", &["kubconfig"]),
        (
            "impersonation: {",
            "impersonation: { systemNames: [\"system:masters\"],",
            &["systemNames", "above"],
        ),
    ];
    for (from, to, words) in wrong {
        trial.refuses("tunnel-agent", "edge-a.yaml", (from, to), &[], words).await;
    }
}

#[tokio::test]
async fn wrong_flags_end_both_daemons_with_2_and_name_what_is_allowed() {
    let trial = ConfigTrial::start().await;
    for (program, file) in [("tunnel-server", "server.yaml"), ("tunnel-agent", "edge-a.yaml")] {
        let wrong: [(&[&str], &[&str]); 5] = [
            (&["--log-level", "a=b=c"], &["--log-level", "a=b=c", "debug"]),
            (&["--log-format", "xml"], &["--log-format", "xml", "json"]),
            (&["--no-such-flag"], &["--no-such-flag", "--help"]),
            (&["--drain-grace", "9999"], &["drainGraceSeconds", "9999", "1 to 600"]),
            (&["--config", "/none.yaml"], &["/none.yaml", "--config"]),
        ];
        for (flags, words) in wrong {
            let flags =
                if flags[0] == "--config" { flags.to_vec() } else { [&["--config", file], flags].concat() };
            trial.error_output(program, &flags, 2, words).await;
        }
        let help =
            trial.error_output(program, &["--help"], 0, &["Examples:", "Exit codes:", "--drain-grace"]).await;
        assert!(help.lines().count() > 40, "{help}");
    }
}

#[tokio::test]
async fn a_port_in_use_ends_a_daemon_with_1_and_names_key_and_address() {
    let mut trial = ConfigTrial::start().await;
    trial.rig.kill_server();
    let (gateway, probes) = (trial.rig.gateway(), trial.rig.probes());

    let tcp = |address: SocketAddr| TcpListener::bind(address).expect("it is free");
    let held = tcp(gateway);
    trial.in_use("tunnel-server", "server.yaml", "gateway.listen", gateway).await;
    drop(held);
    let held = UdpSocket::bind(gateway).expect("it is free");
    trial.in_use("tunnel-server", "server.yaml", "tunnel.listen", gateway).await;
    drop(held);
    let held = tcp(probes);
    trial.in_use("tunnel-server", "server.yaml", "probes.listen", probes).await;
    drop(held);
    trial.in_use("tunnel-agent", "edge-a.yaml", "probes.listen", trial.agent.probes).await;

    // Nothing of that has hurt: the server starts, and the agent that had waited for it is back.
    trial.rig.start_server().await;
    trial.rig.connected("edge-a").await;
}

#[tokio::test]
async fn an_agent_of_another_authority_is_refused_logs_it_and_backs_off() {
    let trial = ConfigTrial::start().await;
    trial.rig.tombolo(&["ca", "init", "--dir", "others"]).await;
    trial.rig.tombolo(&["ca", "issue", "agent", "--dir", "others", "--cluster", "edge-a"]).await;
    let text = trial.text("edge-a.yaml").replace("pki/edge-a-agent", "others/edge-a-agent");
    let text =
        text.replace("edge-a.state", "others.state").replace(&trial.agent.probes.to_string(), "127.0.0.1:0");
    let config = trial.rig.write("others.yaml", &text);
    let invocation = Invocation::of(binary("tunnel-agent"))
        .arguments(["--config".to_owned(), config.display().to_string()])
        .arguments(["--log-format", "text"]);
    let output = trial.rig.path().join("others.log");
    let mut agent = tests::process::Process::start(&invocation, &output).await.expect("it starts");

    trial.rig.logged("others.log", 0, "not one of the agents' CA").await;
    let greeted = trial.rig.server_log().matches("tunnel opened").count();
    assert_eq!(greeted, 1, "only the rightful agent: {}", trial.rig.server_log());
    tokio::time::sleep(COUNTED).await;
    // On TCP the certificate is judged before the connection is an agent's.
    let failed = match Carrier::of_run() {
        Carrier::Quic => "a connection of an agent did not become a tunnel",
        Carrier::Http2 => "handshake failed",
    };
    let dials = trial.rig.server_log().matches(failed).count();
    assert!((1..=DIALS_MAX).contains(&dials), "{dials} dials\n{}", trial.rig.server_log());
    println!("{dials} dials of a refused agent in its first {COUNTED:?}");
    assert!(agent.ended().is_none(), "a server may be corrected, too: it goes on dialing");
}

/// A server and an agent with good configurations, and the means to break copies of these.
struct ConfigTrial {
    rig: Rig,
    agent: Agent,
    _api: FakeApi,
}

impl ConfigTrial {
    async fn start() -> Self {
        let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
        rig.caller("alice", &["dev"]).await;
        let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
        Self { rig, agent, _api: api }
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.rig.path().join(file)).expect("the rig wrote it")
    }

    fn path(&self, file: &str) -> String {
        self.rig.path().join(file).display().to_string()
    }

    /// Makes an expired certificate of the same names as this one, with a key, and returns its name.
    fn expired(&self, like: &str) -> String {
        let uri = "spiffe://tombolo/cluster/edge-a/agent/old";
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        params.subject_alt_names.push(SanType::URI(uri.try_into().expect("a URI")));
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.self_signed(&key).expect("it can be signed").pem();
        let name = format!("expired-{}", like.trim_end_matches(".crt"));
        self.rig.write(&format!("pki/{name}.crt"), &certificate);
        self.rig.write(&format!("pki/{name}.key"), &key.serialize_pem());
        name
    }

    /// Breaks a copy of a configuration file, and sees it refused.
    async fn refuses(
        &self,
        program: &str,
        file: &str,
        (from, to): (&str, &str),
        flags: &[&str],
        words: &[&str],
    ) {
        let good = self.text(file);
        assert!(good.contains(from), "{from:?} is not in {file}");
        let broken: PathBuf = self.rig.write("broken.yaml", &good.replacen(from, to, 1));
        let broken = broken.display().to_string();
        self.error_output(program, &[&["--config", &broken], flags].concat(), 2, words).await;
    }

    async fn in_use(&self, program: &str, file: &str, key: &str, address: SocketAddr) {
        let address = address.to_string();
        self.error_output(program, &["--config", file], 1, &[key, &address, "already in use"]).await;
    }

    /// Runs a daemon that ends by itself, and looks at its code and at what it wrote: one message, with these
    /// words.
    async fn error_output(&self, program: &str, flags: &[&str], code: i32, words: &[&str]) -> String {
        let invocation =
            Invocation::of(binary(program)).arguments(flags.iter().copied()).in_directory(self.rig.path());
        let output = run(&invocation, REFUSE_MAX).await.expect("it ends by itself");
        let message = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(code), "{program} {flags:?}: {message}");
        for word in words {
            assert!(message.contains(word), "{program} {flags:?} does not say {word:?}: {message}");
        }
        let errors = message.matches("error: ").count() + message.matches("\"ERROR\"").count();
        assert_eq!(errors, usize::from(code != 0), "one message: {message}");
        message
    }
}
