//! The enrollment service with a real store, a real signer and a real audit log.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use audit::{ChainKey, FILE_BYTES_MIN, Log, Settings, SigningKey, Sync, Target, WriterGuard};
use daemon::StateDir;
use proto::enrollment::Workload;
use proto::enrollment::enrollment_server::Enrollment as _;
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use serde_json::Value;
use tokio::sync::watch;
use tonic::Code;
use trust::proof::{Attestation, Proof, Purpose};
use trust::{Role, Root, Serial, Signer};
use x509_parser::extensions::GeneralName;

use super::*;
use crate::clocks::Clocks;
use crate::directory::{ClusterSpecUpdate, Directory, Revoked};
use crate::enrollment::test_cluster::{TestCluster, keys};
use crate::enrollment::{EnrollmentSettings, FAILURES_MAX};
use crate::identity::oidc::pod::Verifier;

mod attesting;
mod checking;
mod enrolling;
mod renewing;

const BUNDLE: &[u8] = b"the trust bundle";
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
const GRACE: Duration = Duration::from_secs(90 * 24 * 60 * 60);
const SITE: &str = "192.0.2.1:40000";
/// The ServiceAccount of a cluster's agents, and its UID.
const ACCOUNT: (&str, &str) = ("tunnel-agent", "7d");

/// A server with the cluster `edge-a`.
struct Server {
    _state: tempfile::TempDir,
    audit: PathBuf,
    running: Option<WriterGuard>,
    shared: Arc<SharedEnrollment>,
}

impl Server {
    async fn start() -> Self {
        Self::start_issuing_for(LIFETIME).await
    }

    async fn start_issuing_for(lifetime: Duration) -> Self {
        let state = tempfile::tempdir().unwrap();
        let directory = Directory::open(&StateDir::open(&state.path().join("state")).unwrap()).unwrap();
        directory.create_cluster(edge_a(), ClusterSpecUpdate::default(), SystemTime::now()).await.unwrap();
        let audit = state.path().join("audit");
        let settings = Settings {
            server: "server-1".into(),
            directory: audit.clone(),
            target: Target::Files { bytes_max: FILE_BYTES_MIN, kept: 2 },
            sync: Sync::Interval,
        };
        let keys = (ChainKey::generate().unwrap(), SigningKey::generate().unwrap());
        let (log, running) = Log::open(&settings, &keys.0, &keys.1).unwrap();
        let now = SystemTime::now();
        let root = Root::generate(Role::Agent, "tombolo".parse().unwrap(), now).unwrap();
        // A closed channel still has its last value.
        let (_, trust_bundle) = watch::channel(Arc::from(BUNDLE));
        let signer: Arc<dyn Signer> = Arc::new(root.intermediate(now).unwrap());
        let (_, signer) = watch::channel(signer);
        let shared = SharedEnrollment {
            directory,
            signer,
            settings: EnrollmentSettings {
                trust_domain: "tombolo".to_owned(),
                lifetime,
                grace: GRACE,
                trust_bundle,
            },
            failures: FailedAttempts::new(FAILURES_MAX),
            pod_failures: FailedAttempts::new(FAILURES_MAX),
            rate_limits: RateLimits::default(),
            verifier: Verifier::new().unwrap(),
            clocks: Clocks::new("server-1".to_owned()),
            log,
        };
        Self { _state: state, audit, running: Some(running), shared: Arc::new(shared) }
    }

    /// The service for a connection from a site.
    fn service(&self) -> EnrollmentService {
        self.service_for(SITE)
    }

    fn service_for(&self, peer: &str) -> EnrollmentService {
        let mut exporter = [0; EXPORTER_BYTES];
        aws_lc_rs::rand::fill(&mut exporter).unwrap();
        let (peer, nonce) = (peer.parse().unwrap(), Nonce::default());
        let (shared, proved) = (Arc::clone(&self.shared), Box::new(|| {}));
        EnrollmentService { shared, peer, exporter, nonce, proved, has_failed: AtomicBool::new(false) }
    }

    async fn token(&self) -> String {
        let ttl = Duration::from_secs(900);
        self.shared.directory.create_token(edge_a(), ttl, SystemTime::now()).await.unwrap().0.reveal()
    }

    /// The certificate of an agent that a token has enrolled, with this workload.
    async fn enrolled(&self, key: &AgentKey, workload: Option<Workload>) -> Credential {
        let request = EnrollRequest { workload, ..key.enroll(&self.token().await) };
        answered(self.service().enroll(Request::new(request)).await).credential.unwrap()
    }

    /// Makes every later write to the audit log fail.
    fn stop_auditing(&mut self) {
        self.running = None;
    }

    /// The lines of the audit log about enrollment: action, user, and end of each.
    fn audited(mut self) -> Vec<String> {
        self.stop_auditing();
        let mut files: Vec<PathBuf> =
            fs::read_dir(&self.audit).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
        let text: String =
            files.into_iter().filter(is_log).map(|path| fs::read_to_string(path).unwrap()).collect();
        text.lines().filter_map(|line| audit_line(&serde_json::from_str(line).unwrap())).collect()
    }
}

/// One line of the audit log, if it is about enrollment.
fn audit_line(line: &Value) -> Option<String> {
    let text = |pointer: &str| line.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let note = |name: &str| text(&format!("/annotations/tombolo.dev~1{name}"));
    (note("listener") == "enrollment").then(|| {
        assert_eq!((note("cluster"), note("source"), text("/sourceIPs/0")), ("edge-a", SITE, "192.0.2.1"));
        let verb = text("/verb");
        let (rpc, method) = match verb {
            "enroll" => ("Enroll", "enrollment-token"),
            "attest" => ("Attest", "service-account-token"),
            "check-token" => ("CheckToken", "enrollment-token"),
            "check-pod" => ("CheckPod", "service-account-token"),
            "renew" | "add-issuer-keys" => ("Renew", "recorded-key"),
            other => panic!("{other}"),
        };
        let uri = format!("/tombolo.enrollment.v1.Enrollment/{rpc}");
        assert_eq!((text("/requestURI"), text("/user/extra/tombolo.dev~1method/0")), (uri.as_str(), method));
        let code = line.pointer("/responseStatus/code").map(ToString::to_string).unwrap_or_default();
        let issued = if note("issued").is_empty() { "" } else { " issued" };
        let (user, decision, detail) = (text("/user/username"), note("decision"), note("detail"));
        format!("{verb} {user} {decision} {code}{issued}: {detail}")
    })
}

/// The private key of an agent.
struct AgentKey(KeyPair);

impl AgentKey {
    fn new() -> Self {
        Self(KeyPair::generate().unwrap())
    }

    fn spki(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    fn csr(&self) -> Vec<u8> {
        CertificateParams::default().serialize_request(&self.0).unwrap().der().to_vec()
    }

    /// The enroll request of an agent with a token of `edge-a`.
    fn enroll(&self, token: &str) -> EnrollRequest {
        EnrollRequest {
            token: token.to_owned(),
            cluster: "edge-a".to_owned(),
            certificate_request: self.csr(),
            workload: None,
        }
    }

    /// The attest request of a further pod over this connection.
    fn attest(&self, at: &EnrollmentService, nonce: &[u8], token: &str) -> AttestRequest {
        let (nonce, spki) = (nonce.try_into().unwrap(), self.spki());
        let proof_input = Attestation { exporter: &at.exporter, nonce: &nonce, token, spki: &spki };
        AttestRequest {
            cluster: "edge-a".to_owned(),
            service_account_token: token.to_owned(),
            certificate_request: self.csr(),
            nonce: nonce.to_vec(),
            proof: proof_input.sign(&self.0).unwrap(),
        }
    }

    /// The renew request, over this connection, of the agent with this key for a certificate of the `next`
    /// one.
    fn renew(&self, at: &EnrollmentService, of: &Certificate, next: &Self) -> RenewRequest {
        let spki = next.spki();
        let proof_input =
            Proof { purpose: Purpose::Renewal, exporter: &at.exporter, serial: of.serial, spki: &spki };
        RenewRequest {
            cluster: "edge-a".to_owned(),
            instance: of.instance.clone(),
            serial: of.serial.to_bytes().to_vec(),
            certificate_request: next.csr(),
            proof: proof_input.sign(&self.0).unwrap(),
            issuer_keys: Vec::new(),
        }
    }
}

/// The parts of its certificate that an agent uses.
struct Certificate {
    instance: String,
    serial: Serial,
}

impl Certificate {
    fn of(credential: &Credential) -> Self {
        let (_, certificate) = x509_parser::parse_x509_certificate(&credential.chain[0]).unwrap();
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        let [GeneralName::URI(uri)] = names.value.general_names.as_slice() else { panic!("{names:?}") };
        let instance = uri.rsplit('/').next().unwrap().to_owned();
        Self { instance, serial: Serial::of(&certificate).unwrap() }
    }

    fn agent(&self) -> AgentId {
        AgentId::new(edge_a(), &self.instance).unwrap()
    }
}

fn edge_a() -> ClusterId {
    "edge-a".parse().unwrap()
}

/// The API server of a cluster, which signs tokens that are valid now.
fn issuer(name: &'static str) -> TestCluster {
    TestCluster::new(name, SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}

fn answered<T>(answer: Result<Response<T>, Status>) -> T {
    answer.unwrap().into_inner()
}

fn refused<T>(answer: Result<Response<T>, Status>) -> (Code, String) {
    let Err(status) = answer else { panic!("it was not refused") };
    (status.code(), status.message().to_owned())
}
