//! A rig's enrollment listener: its setup, the enrollment of agents, and unauthenticated clients that test it
//! request by request.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::enrollment::enrollment_client::EnrollmentClient;
use proto::enrollment::{AttestRequest, ChallengeRequest, Credential, EnrollRequest, RenewRequest};
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tonic::Status;
use trust::Serial;
use trust::proof::{Attestation, EXPORTER_BYTES, EXPORTER_LABEL, NONCE_BYTES, Proof, Purpose};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::admin::AdminWire;
use crate::dial::{connect_from, dial, shake};
use crate::pki::Issued;
use crate::rig::{Agent, ApiServer, Rig, free_port};

/// The listener at which the rig's agents enroll.
#[derive(Debug, Clone)]
pub struct EnrollmentListener {
    /// The address that it binds.
    pub address: SocketAddr,
    /// The pin of the trusted root, as `tombolo token create` prints it.
    pub pin: String,
}

/// A server at which agents enroll; its configuration ends with `more`.
pub async fn start(more: &str) -> (Rig, EnrollmentListener) {
    let mut rig = Rig::start_with(more).await;
    rig.take_clocks();
    let listener = open(&mut rig).await;
    (rig, listener)
}

/// Restarts a rig's server with an enrollment listener, and creates the cluster `edge-a`.
pub async fn open(rig: &mut Rig) -> EnrollmentListener {
    rig.kill_server();
    let address = SocketAddr::new(rig.dialed().ip(), free_port().port());
    let listener = format!(
        "enrollment: {{ listen: \"{address}\", address: \"{address}\", signerFile: pki/agent-intermediate.sealed, \
         sealingKeyFile: pki/sealing.key }}\n"
    );
    let bundle = "trust: { bundleFile: pki/trust.bundle }\n";
    rig.write_config(|config| {
        let bundle = if config.contains("bundleFile") { "" } else { bundle };
        format!("{config}{bundle}{listener}")
    });
    rig.start_server().await;
    at(rig, &["cluster", "create", "edge-a"]).await;
    let message = at(rig, &["token", "create", "--cluster", "edge-a"]).await;
    let pin = message.split_whitespace().find(|word| word.starts_with("sha256:")).expect("a pin").to_owned();
    EnrollmentListener { address, pin }
}

/// A token for one agent of a cluster, in a file.
pub async fn token(rig: &Rig, cluster: &str) -> (String, PathBuf) {
    let token = at(rig, &["token", "create", "--cluster", cluster, "-o", "token"]).await;
    let path = private(rig, "token", &token);
    (token.trim().to_owned(), path)
}

/// Starts an agent that enrolls. Its files and its log are named `name`.
pub async fn agent(
    rig: &Rig,
    listener: &EnrollmentListener,
    name: &str,
    cluster: &str,
    api_server: &ApiServer,
) -> Agent {
    let more = format!(
        "enrollment: {{ server: \"{}\", pin: \"{}\", tokenFile: token }}",
        listener.address, listener.pin
    );
    rig.agent_without_certificate(name, cluster, api_server, &more).await
}

/// The same in a pod: it has a projected token of its ServiceAccount, in the file `NAME.token`.
pub async fn pod_agent(
    rig: &Rig,
    listener: &EnrollmentListener,
    name: &str,
    cluster: &str,
    api_server: &ApiServer,
) -> Agent {
    let more = format!(
        "enrollment: {{ server: \"{}\", pin: \"{}\", tokenFile: token, serviceAccountTokenFile: {name}.token }}",
        listener.address, listener.pin
    );
    rig.agent_without_certificate(name, cluster, api_server, &more).await
}

/// The same in a pod of another cluster, `host`, which issues the tokens of its pods.
pub async fn hosted_pod_agent(
    rig: &Rig,
    listener: &EnrollmentListener,
    name: &str,
    cluster: &str,
    api_server: &ApiServer,
    host: &ApiServer,
) -> Agent {
    let more = format!(
        "enrollment: {{ server: \"{}\", pin: \"{}\", tokenFile: token, serviceAccountTokenFile: {name}.token, hostCluster: {} }}",
        listener.address,
        listener.pin,
        host.pod_files()
    );
    rig.agent_without_certificate(name, cluster, api_server, &more).await
}

/// A connection to the enrollment listener of a client that proves to be a pod, or tries to.
pub struct AttestationClient {
    client: EnrollmentClient<AdminWire>,
    exporter: [u8; EXPORTER_BYTES],
}

/// The proof that a client presents to be an agent of `edge-a`.
#[derive(Clone, Copy)]
pub struct EnrollmentClaim<'a> {
    /// The instance of the agent that it claims to be.
    pub instance: &'a str,
    /// The serial number of the certificate that it presents as its own.
    pub serial: Serial,
    /// A certificate is asked for of this key.
    pub key: &'a KeyPair,
    /// The key that signs the proof.
    pub signer: &'a KeyPair,
    /// The purpose that the proof is signed for.
    pub purpose: Purpose,
}

/// The proof that a client presents to be a pod.
pub struct AttestationClaim<'a> {
    /// The cluster whose agent it claims to be.
    pub cluster: &'a str,
    /// The token of a ServiceAccount.
    pub token: &'a str,
    /// The nonce that it presents as the listener's.
    pub nonce: [u8; NONCE_BYTES],
    /// A certificate is asked for of this key.
    pub key: &'a KeyPair,
    /// The key that signs the proof.
    pub signer: &'a KeyPair,
}

impl AttestationClient {
    /// Connects to the enrollment listener without a certificate.
    pub async fn connect(rig: &Rig, listener: &EnrollmentListener) -> Self {
        Self::over(dial(listener.address, &rig.server_ca(), &["h2"], None).await.expect("TLS")).await
    }

    /// The same from another address of this machine, with an agent's certificate, if one is given.
    ///
    /// # Errors
    /// If the listener does not accept the connection.
    pub async fn connect_from(
        source: IpAddr,
        rig: &Rig,
        listener: &EnrollmentListener,
        shown: Option<&Issued>,
    ) -> io::Result<Self> {
        let (name, ca) = (listener.address.ip().to_string(), rig.server_ca());
        let socket = connect_from(source, listener.address).await?;
        Ok(Self::over(shake(socket, &name, &ca, &["h2"], shown).await?).await)
    }

    async fn over(tls: TlsStream<TcpStream>) -> Self {
        let exporter = tls.get_ref().1.export_keying_material([0; EXPORTER_BYTES], EXPORTER_LABEL, None);
        let wire = AdminWire::greet(tls).await.expect("HTTP/2");
        let client = EnrollmentClient::with_origin(wire, AdminWire::origin());
        Self { client, exporter: exporter.expect("an exporter") }
    }

    /// Asks for a certificate with this token and key.
    ///
    /// # Errors
    /// The status of the listener, or that of a broken connection.
    pub async fn enroll(&mut self, token: &str, key: &KeyPair) -> Result<Credential, Status> {
        let answer = self.client.enroll(request_for_token(token, "edge-a", key)).await?;
        Ok(answer.into_inner().credential.expect("a credential"))
    }

    /// Requests a nonce from the listener.
    pub async fn nonce(&mut self) -> [u8; NONCE_BYTES] {
        let answer = self.client.challenge(ChallengeRequest {}).await.expect("a nonce").into_inner();
        answer.nonce.try_into().expect("32 bytes")
    }

    /// Asks for the next certificate, and signs for this connection, or as for the `other` one.
    pub async fn renew(
        &mut self,
        claim: &EnrollmentClaim<'_>,
        other: Option<&Self>,
    ) -> Result<Credential, Status> {
        let EnrollmentClaim { instance, serial, key, signer, purpose } = *claim;
        let spki = key.subject_public_key_info();
        let exporter = other.map_or(&self.exporter, |other| &other.exporter);
        let statement = Proof { purpose, exporter, serial, spki: &spki };
        let request = CertificateParams::default().serialize_request(key).expect("a request");
        let asked = RenewRequest {
            cluster: "edge-a".to_owned(),
            instance: instance.to_owned(),
            serial: serial.to_bytes().to_vec(),
            certificate_request: request.der().to_vec(),
            proof: statement.sign(signer).expect("a key signs"),
            issuer_keys: Vec::new(),
        };
        let answer = self.client.renew(asked).await?;
        Ok(answer.into_inner().credential.expect("a credential"))
    }

    /// Requests a certificate with such a proof.
    pub async fn attest(&mut self, claim: &AttestationClaim<'_>) -> Result<Credential, Status> {
        let AttestationClaim { cluster, token, nonce, key, signer } = claim;
        let spki = key.subject_public_key_info();
        let statement = Attestation { exporter: &self.exporter, nonce, token, spki: &spki };
        let request = CertificateParams::default().serialize_request(key).expect("a request");
        let asked = AttestRequest {
            cluster: (*cluster).to_owned(),
            service_account_token: (*token).to_owned(),
            certificate_request: request.der().to_vec(),
            nonce: nonce.to_vec(),
            proof: statement.sign(signer).expect("a key signs"),
        };
        let answer = self.client.attest(asked).await?;
        Ok(answer.into_inner().credential.expect("a credential"))
    }
}

/// A gRPC client without a certificate. It trusts the servers' root, as anybody could.
pub async fn unauthenticated_client(rig: &Rig, listener: &EnrollmentListener) -> EnrollmentClient<AdminWire> {
    AttestationClient::connect(rig, listener).await.client
}

/// An enrollment request with this token and key.
pub fn request_for_token(token: &str, cluster: &str, key: &KeyPair) -> EnrollRequest {
    let request = CertificateParams::default().serialize_request(key).expect("a request");
    let (token, cluster) = (token.to_owned(), cluster.to_owned());
    EnrollRequest { token, cluster, certificate_request: request.der().to_vec(), workload: None }
}

/// The certificate that was issued for this key, as PEM.
pub fn issued(credential: &Credential, key: &KeyPair) -> Issued {
    let pem = |der: &Vec<u8>| {
        let text = STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    };
    Issued { certificate_pem: credential.chain.iter().map(pem).collect(), key_pem: key.serialize_pem() }
}

/// The agent that a certificate names, and its serial number.
///
/// # Panics
/// If it is no agent's certificate.
pub fn named(credential: &Credential) -> (String, Serial) {
    let (_, leaf) = X509Certificate::from_der(&credential.chain[0]).expect("a certificate");
    let names = leaf.subject_alternative_name().expect("one list of names").expect("names").value;
    let [GeneralName::URI(uri)] = names.general_names.as_slice() else { panic!("{names:?}") };
    let (_, instance) = uri.rsplit_once("/agent/").expect("an agent's URI");
    (instance.to_owned(), Serial::of(&leaf).expect("a serial number of ours"))
}

/// `tombolo` at the rig's admin socket.
pub async fn at(rig: &Rig, words: &[&str]) -> String {
    rig.tombolo(&[words, &["--socket", "admin/admin.sock"]].concat()).await
}

/// A file of the rig that others may not read.
pub fn private(rig: &Rig, name: &str, text: &str) -> PathBuf {
    let path = rig.write(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    path
}
