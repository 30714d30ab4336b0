//! One server, its agents and its callers, with a place for each fault of the table: ports, files, and API servers that misbehave.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::KeyPair;
use serde_json::{Value, json};
use tests::connect_proxy::ConnectProxy;
use tests::enroll::{self, EnrollmentListener, private, request_for_token, unauthenticated_client};
use tests::fake_api::{Answer, Behaviour, FakeApi};
use tests::rig::{Agent, ApiServer, GROUP, Rig, free_port};
use tokio::task::JoinHandle;

use super::faults::{DoctorFault, DoctorSubject};
use super::{DOCTOR_MAX, REVIEWS, RULES, doctor, expired};

/// The password of the site's proxy.
const PROXY: (&str, &str) = ("agent", "a-proxys-password");

/// A server with everything in which the table plants its faults.
pub(super) struct DoctorSite {
    rig: Rig,
    listener: EnrollmentListener,
    /// A token that is not used up.
    token: String,
    /// The texts for the names in braces.
    places: BTreeMap<&'static str, String>,
    /// The files without a fault.
    texts: [(DoctorSubject, String); 4],
    _agent: Agent,
    _apis: Vec<FakeApi>,
    _proxy: ConnectProxy,
    _relays: Vec<JoinHandle<()>>,
    _silent: (TcpListener, UdpSocket),
    /// Holds the protocol that a port of one protocol does not have.
    _held: (UdpSocket, TcpListener),
}

impl DoctorSite {
    pub(super) async fn start() -> Self {
        let mut rig = Rig::start().await;
        let listener = enroll::open(&mut rig).await;
        let (apis, mut places) = apis(&rig).await;
        let good = ApiServer::Kubeconfig(places["good-api"].clone().into());
        let agent = rig.agent("edge-a", &good).await;
        let gone = rig.agent("edge-off", &good).await;
        gone.process.stop(DOCTOR_MAX).await.expect("it ends");
        rig.disconnected("edge-off").await;
        let token = files(&rig, &listener).await;
        let proxy = ConnectProxy::start(PROXY.0, PROXY.1).await.expect("a proxy");
        let (tcp_only, udp, relay_tcp) = tcp_only(rig.gateway()).await;
        let (udp_only, tcp, relay_udp) = udp_only(rig.gateway()).await;
        let silent = silent();
        let port = rig.gateway().port();
        for (name, text) in [
            ("gateway", rig.gateway().to_string()),
            ("named-gateway", format!("gateway.test:{port}")),
            ("localhost", format!("localhost:{port}")),
            ("listener", listener.address.to_string()),
            ("pin", listener.pin.clone()),
            ("other-pin", format!("sha256:{}", "0".repeat(64))),
            ("tcp-only", tcp_only.to_string()),
            ("udp-only", udp_only.to_string()),
            ("silent", silent.0.local_addr().expect("its address").to_string()),
            ("free", free_port().to_string()),
            ("proxy", format!("http://{}:{}@{}", PROXY.0, PROXY.1, proxy.address())),
            ("proxy-address", proxy.address().to_string()),
        ] {
            places.insert(name, text);
        }
        let texts = texts(&rig, &listener, &places["good-api"]);
        Self {
            rig,
            listener,
            token,
            places,
            texts,
            _agent: agent,
            _apis: apis,
            _proxy: proxy,
            _relays: vec![relay_tcp, relay_udp],
            _silent: silent,
            _held: (udp, tcp),
        }
    }

    /// Plants a fault, and returns how the doctor's answer differs from the table.
    pub(super) async fn difference(&self, number: usize, fault: &DoctorFault) -> Option<String> {
        let DoctorFault { subject, name, edits, code, result, check, words } = *fault;
        let file = match edits.iter().find(|(old, _)| *old == "{file}") {
            Some((_, file)) => (*file).to_owned(),
            None => self.planted(number, subject, edits),
        };
        let words_of_command = match subject {
            DoctorSubject::Agent | DoctorSubject::Enrolling => vec!["agent", "--config", &file],
            DoctorSubject::Server => vec!["server", "--config", &file],
            DoctorSubject::Caller => vec!["--kubeconfig", &file],
        };
        let said = doctor(&self.rig, &[words_of_command, vec!["-o", "json"]].concat()).await;
        let json: Value = match serde_json::from_str(&said.text) {
            Ok(json) => json,
            Err(error) => return Some(format!("{name}: no JSON ({error}): {}", said.text)),
        };
        let words: Vec<String> = words.iter().map(|word| self.placed(word)).collect();
        let fits = |finding: &Value| {
            let text = format!("{} {}", finding["message"], finding["advice"]).replace("\\\"", "\"");
            finding["check"] == check
                && finding["result"] == result
                && words.iter().all(|word| text.contains(word))
        };
        let is_found = json["checks"].as_array().is_some_and(|findings| findings.iter().any(fits));
        let is_code = said.code == Some(code) && json["exitCode"] == code;
        (!is_found || !is_code).then(|| {
            format!(
                "{name}: expected {code}, {result} {check} {words:?}; exit code {:?}: {json:#}",
                said.code
            )
        })
    }

    /// Enrolls an agent with the token that the doctor has checked.
    pub(super) async fn token_enrolls(&self) {
        let key = KeyPair::generate().expect("a key");
        let mut client = unauthenticated_client(&self.rig, &self.listener).await;
        client.enroll(request_for_token(&self.token, "edge-a", &key)).await.expect("the token is unused");
    }

    /// Writes a file with the fault, and returns its name.
    fn planted(&self, number: usize, subject: DoctorSubject, edits: &[(&str, &str)]) -> String {
        let same = |one: DoctorSubject| std::mem::discriminant(&one) == std::mem::discriminant(&subject);
        let text = self.texts.iter().find(|(of, _)| same(*of)).map(|(_, text)| text.clone());
        let mut text = text.expect("each subject has a file");
        for (old, new) in edits {
            let (old, new) = (self.placed(old), self.placed(new));
            assert!(text.contains(&old), "fault {number}: {old} is not in {text}");
            text = text.replace(&old, &new);
        }
        let name = format!("fault-{number}.yaml");
        private(&self.rig, &name, &text);
        name
    }

    fn placed(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, place) in &self.places {
            text = text.replace(&format!("{{{name}}}"), place);
        }
        text
    }
}

/// The files without a fault. A caller's names its files, so that each can be another one.
fn texts(rig: &Rig, listener: &EnrollmentListener, good_api: &str) -> [(DoctorSubject, String); 4] {
    let read = |name: &str| fs::read_to_string(rig.path().join(name)).expect("a configuration");
    let (gateway, address, pin) = (rig.gateway(), listener.address, &listener.pin);
    let enrolling = format!(
        "apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\ncluster: edge-a\nservers: [\"{gateway}\"]\n\
         apiServer: {{ kubeconfig: {good_api:?} }}\nstateDir: enrolling.state\n\
         enrollment: {{ server: \"{address}\", pin: \"{pin}\", tokenFile: good.token }}\n"
    );
    let caller = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{ name: c, context: {{ cluster: c, user: u }} }}]\n\
         clusters: [{{ name: c, cluster: {{ server: \"https://{gateway}/clusters/edge-a\", \
         certificate-authority: pki/server-ca.crt }} }}]\n\
         users: [{{ name: u, user: {{ client-certificate: pki/alice-caller.crt, client-key: pki/alice-caller.key }} }}]\n"
    );
    [
        (DoctorSubject::Agent, read("edge-a.yaml")),
        (DoctorSubject::Enrolling, enrolling),
        (DoctorSubject::Server, read("server.yaml")),
        (DoctorSubject::Caller, caller),
    ]
}

/// Writes the files of the faults, and returns the token that is good.
async fn files(rig: &Rig, listener: &EnrollmentListener) -> String {
    let open = |name: &str, text: &str| {
        let path = rig.write(name, text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("it is ours");
    };
    let read = |name: &str| fs::read_to_string(rig.path().join(name)).expect("a file");
    rig.caller("alice", &[GROUP]).await;
    rig.caller("mallory", &[]).await;
    expired(rig, "expired");
    rig.tombolo(&["ca", "init", "--dir", "other"]).await;
    rig.tombolo(&["ca", "issue", "agent", "--dir", "other", "--cluster", "edge-a"]).await;
    open("open-agent.crt", &read("pki/edge-a-agent.crt"));
    open("open-agent.key", &read("pki/edge-a-agent.key"));
    open("open-sealing.key", &read("pki/sealing.key"));
    fs::create_dir(rig.path().join("open.state")).expect("a folder");
    fs::set_permissions(rig.path().join("open.state"), fs::Permissions::from_mode(0o755))
        .expect("it is ours");
    fs::create_dir(rig.path().join("damaged.state")).expect("a folder");
    private(rig, "damaged.state/identity.json", "{}");

    enroll::at(rig, &["cluster", "create", "edge-c"]).await;
    let (other, _) = enroll::token(rig, "edge-c").await;
    let (used, _) = enroll::token(rig, "edge-a").await;
    let (good, _) = enroll::token(rig, "edge-a").await;
    let key = KeyPair::generate().expect("a key");
    let mut client = unauthenticated_client(rig, listener).await;
    client.enroll(request_for_token(&used, "edge-a", &key)).await.expect("it is used now");
    private(rig, "other.token", &other);
    private(rig, "used.token", &used);
    private(rig, "good.token", &good);
    open("open.token", &good);
    private(rig, "invented.token", &format!("{}.{}", "0".repeat(16), "0".repeat(64)));
    private(rig, "empty.token", "\n");
    let claims = json!({ "aud": ["https://kubernetes.default.svc"], "iat": 1 }).to_string();
    private(rig, "pod.token", &format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)));
    good
}

/// The API servers, each with a kubeconfig `NAME.kubeconfig`, and the paths of these.
async fn apis(rig: &Rig) -> (Vec<FakeApi>, BTreeMap<&'static str, String>) {
    let allowed = |allowed: bool| Answer::json(201, json!({ "status": { "allowed": allowed } }).to_string());
    let rules = |rules: Value| {
        Answer::json(201, json!({ "status": { "resourceRules": rules, "incomplete": false } }).to_string())
    };
    let status =
        |message: &str| Answer::json(403, json!({ "kind": "Status", "message": message }).to_string());
    let late = |mut answer: Answer| {
        answer.headers.push(("Date".to_owned(), "Sun, 06 Nov 1994 08:49:37 GMT".to_owned()));
        Behaviour::Answer(answer)
    };
    let everything = json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]);
    let secrets = json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["secrets"] }]);
    let no_right = "users \"alice\" is forbidden: User \"system:serviceaccount:tombolo:tunnel-agent\" cannot impersonate \
                    resource \"users\" in API group \"\" at the cluster scope";
    let no_role = "forbidden: User \"alice\" cannot get path \"/readyz\"";
    let (mut apis, mut places) = (Vec::new(), BTreeMap::new());
    for (name, changes) in [
        ("good-api", vec![]),
        ("powerless-api", vec![(REVIEWS, Behaviour::Answer(allowed(false)))]),
        ("mighty-api", vec![(RULES, Behaviour::Answer(rules(everything)))]),
        ("reading-api", vec![(RULES, Behaviour::Answer(rules(secrets)))]),
        ("unknown-api", vec![(REVIEWS, Behaviour::Answer(Answer::json(401, "{}")))]),
        ("late-api", vec![(REVIEWS, late(allowed(true))), ("/readyz", late(Answer::json(200, "ok")))]),
        ("impersonation-api", vec![("/readyz", Behaviour::Answer(status(no_right)))]),
        ("rbac-api", vec![("/readyz", Behaviour::Answer(status(no_role)))]),
        ("silent-api", vec![("/readyz", Behaviour::NeverAnswer)]),
        ("other-ca-api", vec![]),
        ("away-api", vec![]),
        (
            "plain-api",
            vec![
                ("/clusters", Behaviour::Answer(Answer::json(404, "{}"))),
                ("/version", Behaviour::json(r#"{"gitVersion":"v1.36.3"}"#)),
            ],
        ),
        ("no-version-api", vec![("/clusters", Behaviour::Answer(Answer::json(404, "{}")))]),
    ] {
        let mut api = FakeApi::start().await.expect("a fake starts");
        api.on("/readyz", Behaviour::Answer(Answer::json(200, "ok")));
        // Some of them stand for a gateway.
        api.on("/clusters", Behaviour::json(r#"{"kind":"ClusterList","apiVersion":"tombolo.dev/v1alpha1"}"#));
        api.on(REVIEWS, Behaviour::Answer(allowed(true)));
        api.on(RULES, Behaviour::Answer(rules(json!([]))));
        for (path, behaviour) in changes {
            api.on(path, behaviour);
        }
        let path = rig.path().join(format!("{name}.kubeconfig"));
        api.write_kubeconfig(&path, "a-token").expect("a kubeconfig");
        if name == "away-api" {
            api.refuse().await;
        }
        places.insert(name, path.display().to_string());
        apis.push(api);
    }
    // Its kubeconfig has the address of one API server and the CA of another.
    let read = |name: &str| fs::read_to_string(&places[name]).expect("a kubeconfig");
    let address = |name: &str| {
        let text = read(name);
        let (_, rest) = text.split_once("https://").expect("a URL");
        rest.chars()
            .take_while(|letter| letter.is_ascii_digit() || ".:".contains(*letter))
            .collect::<String>()
    };
    let text = read("other-ca-api").replace(&address("other-ca-api"), &address("good-api"));
    fs::write(&places["other-ca-api"], text).expect("a kubeconfig");
    (apis, places)
}

/// A port that passes TCP to the gateway, and has UDP that nobody reads.
async fn tcp_only(gateway: SocketAddr) -> (SocketAddr, UdpSocket, JoinHandle<()>) {
    let (listener, udp) = silent();
    let address = listener.local_addr().expect("its address");
    listener.set_nonblocking(true).expect("a socket");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    let relay = tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(gateway).await?;
                tokio::io::copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    (address, udp, relay)
}

/// A port that passes the UDP of one client to the gateway, and has TCP that nobody accepts.
async fn udp_only(gateway: SocketAddr) -> (SocketAddr, TcpListener, JoinHandle<()>) {
    let (tcp, near) = silent();
    let address = tcp.local_addr().expect("its address");
    near.set_nonblocking(true).expect("a socket");
    let near = tokio::net::UdpSocket::from_std(near).expect("a socket");
    let far = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    far.connect(gateway).await.expect("an address");
    let relay = tokio::spawn(async move {
        let (mut client, mut there, mut back) = (None, [0; 65_536], [0; 65_536]);
        loop {
            // Both arms are cancel-safe: a datagram is received completely or not at all.
            tokio::select! {
                Ok((bytes, from)) = near.recv_from(&mut there) => {
                    client = Some(from);
                    let _ = far.send(&there[..bytes]).await;
                }
                Ok(bytes) = far.recv(&mut back) => {
                    if let Some(client) = client {
                        let _ = near.send_to(&back[..bytes], client).await;
                    }
                }
                else => return,
            }
        }
    });
    (address, tcp, relay)
}

/// A port at which neither TCP nor UDP is ever answered.
fn silent() -> (TcpListener, UdpSocket) {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        // Another process may have the same port by UDP.
        if let Ok(udp) = UdpSocket::bind(listener.local_addr().expect("its address")) {
            return (listener, udp);
        }
    }
}
