//! A fake API server that records its requests and misbehaves on demand, as a real one would not.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::kube::kubeconfig::{Credential, Kubeconfig};
use crate::pki::{Authority, Issued};

mod behaviour;
mod exec;
mod gate;
mod http1;
mod http2;
mod listen;
mod record;
mod recorded_stream;
mod response_plan;
mod socket;
mod store;
mod wire;

pub use behaviour::{Answer, Behaviour, Cut, Declared, ListenerMode, WatchFeed};
pub use gate::{Gate, Moment, NotReached};
pub use record::{Hangup, HttpVersion, RecordedConnection, RecordedRequest, WaitError};
pub use store::{Change, Emitted, Store};

use behaviour::BehaviourTable;
use listen::Listening;
use record::Records;

/// The options that are fixed when a [`FakeApi`] starts.
#[derive(Debug, Clone)]
pub struct FakeApiOptions {
    /// The protocols offered by ALPN, in order of preference; a peer without ALPN speaks HTTP/1.1.
    pub versions: Vec<HttpVersion>,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`, as a kube-apiserver sets it.
    pub concurrent_streams_max: u32,
    /// Number of requests after which an HTTP/2 connection sends GOAWAY and finishes the running ones; `None`
    /// is never.
    pub goaway_after: Option<usize>,
    /// The authority's certificate, PEM, if every client must have one of it; `None` asks for one of the fake's own
    /// authority without insisting.
    pub required_clients: Option<String>,
}

/// The client certificates that a TLS server asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientCertificates<'a> {
    /// The server asks for none.
    NotAsked,
    /// One of this authority (PEM), or none.
    Asked(&'a str),
    /// One of this authority (PEM).
    Required(&'a str),
}

/// The fake; dropping it closes its listener and all its connections.
#[derive(Debug)]
#[must_use = "the fake is gone when this is dropped"]
pub struct FakeApi {
    shared: Arc<Shared>,
    listening: Listening,
    address: SocketAddr,
    authority: Authority,
}

/// State that the fake shares with its connections.
#[derive(Debug)]
struct Shared {
    options: FakeApiOptions,
    script: BehaviourTable,
    records: Records,
    /// Changes when every HTTP/2 connection must send GOAWAY.
    goaways: watch::Sender<()>,
}

impl Default for FakeApiOptions {
    fn default() -> Self {
        Self {
            versions: vec![HttpVersion::Http2, HttpVersion::Http1],
            concurrent_streams_max: 250,
            goaway_after: None,
            required_clients: None,
        }
    }
}

impl FakeApi {
    /// Starts on a free port of 127.0.0.1, with HTTP/2 and HTTP/1.1.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(FakeApiOptions::default()).await
    }

    /// Starts a fake that speaks only HTTP/1.1.
    pub async fn start_http1() -> io::Result<Self> {
        Self::start_with(FakeApiOptions { versions: vec![HttpVersion::Http1], ..FakeApiOptions::default() })
            .await
    }

    /// Starts a fake with these options.
    pub async fn start_with(options: FakeApiOptions) -> io::Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), options).await
    }

    /// Starts a fake at this address; its port may be 0 for a free one.
    pub async fn start_at(bound: SocketAddr, options: FakeApiOptions) -> io::Result<Self> {
        let authority = Authority::new("fake-api");
        let server = authority.issue_server(&["localhost", "kubernetes.default.svc"], &[bound.ip()]);
        let clients = match &options.required_clients {
            Some(required) => ClientCertificates::Required(required),
            None => ClientCertificates::Asked(authority.certificate_pem()),
        };
        let config = tls(&server, &options.versions, clients);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let shared = Arc::new(Shared {
            options,
            script: BehaviourTable::default(),
            records: Records::default(),
            goaways: watch::Sender::new(()),
        });
        let (listening, address) = Listening::open(bound, acceptor, Arc::clone(&shared)).await?;
        Ok(Self { shared, listening, address, authority })
    }

    /// The fake's address, `127.0.0.1` unless it was started at another, and its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the fake, such as `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate of the authority that signed the fake's, PEM.
    pub fn ca_pem(&self) -> &str {
        self.authority.certificate_pem()
    }

    /// Writes a kubeconfig with a bearer token, as an agent may use it.
    pub fn write_kubeconfig(&self, path: &Path, token: &str) -> io::Result<()> {
        let credential = Credential::Token(token.to_owned());
        Kubeconfig { server: &self.url(), ca_pem: self.ca_pem(), credential: &credential }.write(path)
    }

    /// Writes a kubeconfig with a client certificate that the fake's own authority has signed.
    pub fn write_kubeconfig_with_certificate(&self, path: &Path, user: &str) -> io::Result<()> {
        let credential = Credential::Certificate(self.authority.issue_user(user, &[]));
        Kubeconfig { server: &self.url(), ca_pem: self.ca_pem(), credential: &credential }.write(path)
    }

    /// Sets the behaviour for requests whose path begins with `prefix`, from now on. The longest prefix wins.
    pub fn on(&self, prefix: &str, behaviour: Behaviour) {
        self.shared.script.set(prefix, behaviour);
    }

    /// Sets the behaviour for all other requests. Until this is called they get a 404 `Status`.
    pub fn otherwise(&self, behaviour: Behaviour) {
        self.shared.script.set("", behaviour);
    }

    /// Lets answers to requests whose path with its query begins with `prefix` wait until the gate is opened.
    pub fn hold(&self, prefix: &str, moment: Moment) -> Gate {
        let gate = Gate::new(moment);
        self.shared.script.set_gate(prefix, gate.clone());
        gate
    }

    /// Sends GOAWAY on every open HTTP/2 connection, as a kube-apiserver's `--goaway-chance` does: running
    /// requests are finished, and no new ones are accepted.
    pub fn send_goaway(&self) {
        self.shared.goaways.send_replace(());
    }

    /// Sets what connections get before any request, from now on.
    pub fn set_listener_mode(&self, listener: ListenerMode) {
        self.shared.script.set_listener_mode(listener);
    }

    /// Closes the listener: new connections are refused by the kernel, existing ones live on.
    pub async fn refuse(&mut self) {
        self.listening.close().await;
    }

    /// Listens again at the same address after [`Self::refuse`].
    pub async fn listen_again(&mut self) -> io::Result<()> {
        self.listening.reopen(self.address).await
    }

    /// Drops all connections without a clean shutdown, as a killed API server does.
    pub fn drop_connections(&self) {
        self.listening.drop_connections();
    }

    /// All requests so far, in the order of their heads' arrival.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.records.requests()
    }

    /// All connections so far, in the order of their arrival.
    pub fn connections(&self) -> Vec<RecordedConnection> {
        self.shared.records.connections()
    }

    /// The most HTTP/2 streams that were open at the same time on one connection; one that its
    /// peer has reset counts until that is noticed.
    pub fn streams_open_max(&self) -> usize {
        self.shared.records.streams_open_max()
    }

    /// Waits for a request that `wanted` accepts; one that has arrived already counts.
    pub async fn wait_for_request(
        &self,
        limit: Duration,
        wanted: impl Fn(&RecordedRequest) -> bool,
    ) -> Result<RecordedRequest, WaitError> {
        let find = |requests: &[RecordedRequest]| requests.iter().find(|request| wanted(request)).cloned();
        self.shared.records.wait(limit, "no such request", find).await
    }

    /// Waits until the client of a request disconnects while it is being answered, and returns when that was
    /// noticed.
    pub async fn wait_for_hangup(&self, request: u64, limit: Duration) -> Result<Hangup, WaitError> {
        let find =
            |requests: &[RecordedRequest]| requests.iter().find(|one| one.id == request)?.hangup.clone();
        self.shared.records.wait(limit, "nobody hung up on that request", find).await
    }

    /// Waits until the answer to a request has been written to its end.
    pub async fn wait_for_answered(&self, request: u64, limit: Duration) -> Result<Instant, WaitError> {
        let find = |requests: &[RecordedRequest]| requests.iter().find(|one| one.id == request)?.answered;
        self.shared.records.wait(limit, "that request was not answered", find).await
    }
}

/// TLS of an API server that speaks these versions of HTTP, and asks for these certificates.
pub(crate) fn tls(
    server: &Issued,
    versions: &[HttpVersion],
    clients: ClientCertificates<'_>,
) -> ServerConfig {
    let certificate = CertificateDer::from_pem_slice(server.certificate_pem.as_bytes()).expect("our own PEM");
    let key = PrivateKeyDer::from_pem_slice(server.key_pem.as_bytes()).expect("our own PEM");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = |authority_pem: &str| {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(authority_pem.as_bytes());
        roots.add(root.expect("our own PEM")).expect("a root");
        WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
    };
    let verifier = match clients {
        ClientCertificates::NotAsked => WebPkiClientVerifier::no_client_auth(),
        ClientCertificates::Asked(pem) => {
            verifier(pem).allow_unauthenticated().build().expect("a root is enough")
        }
        ClientCertificates::Required(pem) => verifier(pem).build().expect("a root is enough"),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)
        .expect("key and certificate belong together");
    config.alpn_protocols = versions.iter().map(|version| version.alpn().to_vec()).collect();
    config
}
