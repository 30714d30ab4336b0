//! Secrets in the environment and the files of both daemons, while they are in use and once they are wrong:
//! none is written down.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::connect_proxy::ConnectProxy;
use tests::enroll::{self, EnrollmentListener, private};
use tests::fake_api::{Answer, Behaviour, FakeApi};
use tests::rig::policy::{allow_all, usual};
use tests::rig::{Agent, ApiServer, Reply, Rig, TOKEN, ask};
use tests::scratch::Scratch;
use trust::user_token::TokenDigest;

use super::planted::Planted;
use super::{LEVEL, written};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Agents may assert every identity, and send no requests of their own to their API server.
const MORE: &str = "impersonation: { users: [\"*\"], groups: [\"*\"] }\nadvertise: [\"192.168.1.10:6443\"]\ncarrier: http2\n";

/// A server and agents that use every secret which they may have, each of its own.
struct EnvironmentSetup {
    planted: Planted,
    rig: Rig,
    listener: EnrollmentListener,
    /// The API server that the server asks.
    host: FakeApi,
    /// The fake API server of edge-a.
    fake: FakeApi,
    proxy: ConnectProxy,
    /// The environment variables of all programs.
    variables: Vec<(String, String)>,
}

/// This holds while the secret is in use, and once it is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_of_environment_and_files_is_written_down() {
    let mut setup = EnvironmentSetup::set().await;
    let agent = setup.enrolled("one", "token").await;
    setup.rig.connected("edge-a").await;
    let by_certificate = setup.agent_by_certificate().await;

    for secret in ["static-token", "reviewed-token"] {
        let token = setup.planted.canary(secret);
        let reply = setup.ask(&token).await;
        assert_eq!(reply.status, 200, "{secret}: {}", reply.body);
    }
    setup.is_used();
    let mut leaked = vec![
        setup.rig.metrics(setup.rig.probes()).await,
        setup.rig.metrics(agent.probes).await,
        setup.rig.metrics(by_certificate.probes).await,
    ];
    setup.log_what_they_see().await;

    leaked.extend(setup.spoil(&agent).await);

    let server = Rig::ends_with(setup.rig.server(), rustix::process::Signal::TERM).await;
    assert!(server.is_some(), "it ends by itself");
    drop((agent, by_certificate));
    leaked.iter().for_each(|text| setup.planted.has_none("a metric or an answer", text));
    let logs = written(setup.rig.path());
    assert!(logs.iter().map(|(_, text)| text.len()).sum::<usize>() > 100_000, "nothing was logged at TRACE");
    logs.iter().for_each(|(path, text)| setup.planted.has_none(path, text));
}

impl EnvironmentSetup {
    async fn set() -> Self {
        let mut planted = Planted::default();
        let host = host().await;
        let scratch = Scratch::new("tombolo-canaries-").expect("a folder");
        let ca = scratch.path().join("ca.crt");
        fs::write(&ca, host.ca_pem()).expect("a file can be written");
        let way = format!("server: {}, caFile: {ca:?}, tokenFile: host.token", host.url());
        let review = format!(
            "    tokenReview: {{ name: host, {way}, audiences: [tombolo], usernamePrefix: \"host:\", groupsPrefix: \"host:\" }}\n"
        );
        let mut rig = Rig::start_logging(LEVEL, &review).await;
        rig.write("host.token", &planted.canary("host-token"));
        let digest = |token: &str| TokenDigest::of(token.as_bytes());
        let group = tests::rig::GROUP;
        let token = planted.canary("static-token");
        let lines = [(TOKEN, "tess"), (&token, "tom")]
            .map(|(token, user)| format!("{},{user},1,\"{group}\"\n", digest(token)));
        rig.write("tokens.csv", &lines.concat());
        rig.write_policy(
            &[usual().as_slice(), &[allow_all("ops", ("\"token-review:host\"", "host:ops"), &["*"])]]
                .concat(),
        );
        rig.write_config(|config| {
            let delegating = format!("policy: {{ file: policy.yaml, delegation: {{ {way} }} }}");
            config.replacen("policy: { file: policy.yaml }", &delegating, 1)
        });
        let password = planted.canary("proxy-of-environment");
        planted.know("proxy-credentials", format!("agent:{password}"));
        let proxy = ConnectProxy::start("agent", &password).await.expect("a proxy");
        let variables = [
            ("HTTPS_PROXY".to_owned(), format!("http://agent:{password}@{}", proxy.address())),
            ("DATABASE_PASSWORD".to_owned(), planted.canary("somebody-elses-variable")),
        ];
        rig.take_variables(&variables);
        let listener = enroll::open(&mut rig).await;
        for key in keys(rig.path()) {
            planted.know_key(&key.display().to_string(), &fs::read_to_string(&key).expect("a key"));
        }
        let fake = FakeApi::start_http1().await.expect("the fake starts");
        fake.otherwise(Behaviour::json("{}"));
        fake.write_kubeconfig(&rig.path().join("a.conf"), &planted.canary("kubeconfig-token"))
            .expect("a kubeconfig");
        Self { planted, rig, listener, host, fake, proxy, variables: variables.into() }
    }

    /// An agent of edge-a that uses its proxy for everything, and has enrolled with the token in a file. Its
    /// log is named `name`.
    async fn enrolled(&mut self, name: &str, token_file: &str) -> Agent {
        if token_file == "token" {
            let (token, _) = enroll::token(&self.rig, "edge-a").await;
            self.planted.know("enrollment-token", token.split_once('.').expect("ID.SECRET").1);
        }
        let (port, listener) = (self.rig.dialed().port(), self.listener.address.port());
        let written = self.planted.canary("proxy-of-the-file");
        let more = format!(
            "{MORE}servers: [\"gateway.test:{port}\"]\nproxy: {{ url: \"http://agent:{written}@127.0.0.1:1\" }}\n\
             enrollment: {{ server: \"gateway.test:{listener}\", pin: \"{}\", tokenFile: {token_file} }}",
            self.listener.pin
        );
        let api_server = ApiServer::Kubeconfig(self.rig.path().join("a.conf"));
        self.rig.agent_without_certificate(name, "edge-a", &api_server, &more).await
    }

    /// An agent of edge-b whose kubeconfig has a certificate with its key.
    async fn agent_by_certificate(&mut self) -> Agent {
        let path = self.rig.path().join("b.conf");
        self.fake.write_kubeconfig_with_certificate(&path, "agent").expect("a kubeconfig");
        let text = fs::read_to_string(&path).expect("a kubeconfig");
        let data =
            text.lines().find_map(|line| line.trim().strip_prefix("client-key-data: ")).expect("a key");
        let data = data.trim_matches('"');
        let pem = STANDARD.decode(data).expect("base64");
        self.planted.know("kubeconfig-key", data);
        self.planted.know_key("kubeconfig-key", &String::from_utf8(pem).expect("PEM"));
        let agent = self.rig.agent_with("edge-b", &ApiServer::Kubeconfig(path), MORE).await;
        let key = fs::read_to_string(self.rig.path().join("pki/edge-b-agent.key")).expect("a key");
        self.planted.know_key("agent-key", &key);
        self.rig.connected("edge-b").await;
        let reply = self.rig.ask_with_token("GET", &PATH.replace("edge-a", "edge-b"), &[]).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        agent
    }

    async fn ask(&self, token: &str) -> Reply {
        let authorization = format!("Bearer {token}");
        let headers = [("Authorization", authorization.as_str())];
        let (gateway, ca) = (self.rig.gateway(), self.rig.server_ca());
        ask(gateway, &ca, None, "GET", PATH, &headers).await.expect("the gateway answers")
    }

    /// A secret that nobody uses is in no log.
    fn is_used(&mut self) {
        let authorized = |fake: &FakeApi, secret: &str| {
            let wanted = format!("Bearer {secret}");
            fake.requests().iter().any(|request| request.header("authorization") == [wanted.as_str()])
        };
        let (host, agent) = (self.planted.canary("host-token"), self.planted.canary("kubeconfig-token"));
        assert!(
            authorized(&self.host, &host) && authorized(&self.fake, &agent),
            "both API servers were shown a token"
        );
        let asked = |path: &str| self.host.requests().iter().any(|request| request.target.starts_with(path));
        assert!(asked(TOKEN_REVIEWS) && asked(ACCESS_REVIEWS), "it was asked in both ways");
        assert!(self.proxy.let_in() >= 2, "the enrollment and the tunnel went through the proxy");
    }

    /// Runs the commands that show something of correct secrets.
    async fn log_what_they_see(&self) {
        let folder = self.rig.path();
        for (program, words) in [
            ("tunnel-server", "--config server.yaml --log-level trace --dry-run"),
            ("tunnel-server", "--help"),
            ("tunnel-agent", "--help"),
            ("tombolo", "doctor server --config server.yaml"),
            ("tombolo", "doctor agent --config one.yaml"),
            ("tombolo", "doctor agent --config edge-b.yaml -o json"),
            ("tombolo", "doctor --kubeconfig a.conf"),
            ("tombolo", "clusters --socket admin/admin.sock -o yaml"),
            ("tombolo", "token list --socket admin/admin.sock"),
            ("tombolo", "agent list --socket admin/admin.sock"),
            ("tombolo", "rbac --agent-config one.yaml"),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let _messages = self.planted.output_of(folder, program, &words, &self.variables).await;
        }
    }

    /// Makes the used secrets invalid, and returns the answers after that.
    async fn spoil(&mut self, agent: &Agent) -> Vec<String> {
        let mut leaked = Vec::new();
        // The API server no longer accepts the agent's token, and the next one is in an unreadable file.
        self.fake.otherwise(Behaviour::Answer(Answer::json(401, "{}")));
        let wrong = self.planted.canary("wrong-kubeconfig");
        self.rig.write("a.conf", &format!("users: [{{ name: u, user: {{ token: [{wrong} }} }}]\n"));
        for _ in 0..2 {
            leaked.push(self.ask(TOKEN).await.body);
        }
        self.rig.logged("one.log", 0, "cannot be read again").await;
        leaked.push(self.rig.metrics(agent.probes).await);

        let plain = self.planted.canary("plain-token");
        self.rig.write("tokens.csv", &format!("{plain},tess,1\n"));
        self.rig.logged("server.log", 0, "was not taken").await;
        let unknown = json!({ "authenticated": false });
        let refused = Behaviour::Answer(Answer::json(401, "{}"));
        for (place, behaviour) in [
            ("unknown-token", review("authentication", "TokenReview", &unknown)),
            ("unanswered-token", refused.clone()),
        ] {
            self.host.on(TOKEN_REVIEWS, behaviour);
            let token = self.planted.canary(place);
            let reply = self.ask(&token).await;
            assert!([401, 503].contains(&reply.status), "{place}: {}", reply.body);
            leaked.push(reply.body);
        }
        self.host.on(ACCESS_REVIEWS, refused);
        leaked.push(self.ask(TOKEN).await.body);
        leaked.push(self.rig.metrics(self.rig.probes()).await);

        self.fake.write_kubeconfig(&self.rig.path().join("a.conf"), &wrong).expect("a kubeconfig");
        leaked.extend(self.fail_to_enroll().await);
        leaked
    }

    /// Agents that are given no certificate: by a token of nobody's, by one in place of its file, by another
    /// password for the proxy.
    async fn fail_to_enroll(&mut self) -> Vec<String> {
        let guessed =
            self.planted.know("guessed-token", format!("0123456789abcdef.{}", "5ecre7ca".repeat(8)));
        private(&self.rig, "guessed", &guessed);
        let _by_guess = self.enrolled("guesses", "guessed").await;
        self.rig.logged("guesses.log", 0, "got no certificate").await;
        let misplaced = self.planted.know("misplaced-token", "facade15".repeat(8));
        let _without_file = self.enrolled("misplaces", &format!("0123456789abcdef.{misplaced}")).await;
        self.rig.logged("misplaces.log", 0, "cannot read the token in").await;
        let password = self.planted.canary("other-password");
        self.planted.know("other-credentials", format!("agent:{password}"));
        let proxy = format!("http://agent:{password}@{}", self.proxy.address());
        self.rig.take_variables(&[("https_proxy".to_owned(), proxy)]);
        let refused = self.enrolled("refused", "guessed").await;
        self.rig.logged("refused.log", 0, "wants another user name and password").await;
        vec![self.rig.metrics(refused.probes).await]
    }
}

/// An API server that permits everything, and accepts every token.
async fn host() -> FakeApi {
    let host = FakeApi::start_http1().await.expect("the fake starts");
    let user = json!({ "username": "ann", "groups": ["ops"] });
    let known = json!({ "authenticated": true, "user": user, "audiences": ["tombolo"] });
    host.on(TOKEN_REVIEWS, review("authentication", "TokenReview", &known));
    host.on(ACCESS_REVIEWS, review("authorization", "SubjectAccessReview", &json!({ "allowed": true })));
    host
}

fn review(group: &str, kind: &str, status: &Value) -> Behaviour {
    let review = json!({ "apiVersion": format!("{group}.k8s.io/v1"), "kind": kind, "status": status });
    Behaviour::Answer(Answer::json(201, review.to_string()))
}

/// The private keys of a rig.
fn keys(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder.join("pki")).expect("a folder").flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|end| end == "key")).collect()
}
