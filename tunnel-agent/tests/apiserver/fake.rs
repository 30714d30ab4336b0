//! A TLS server whose behaviour a test defines, and the credential files of an agent for it.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use daemon::Scope;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tunnel_agent::apiserver::{ApiServer, Timeouts};
use tunnel_agent::clock::Clock;
use tunnel_agent::config::ApiServerSource;

/// Longest time of any step. After it the test has hung.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Streams that kube-apiserver grants on a connection.
pub(crate) const GRANTED: u32 = 100;

pub(crate) type Connection = TlsStream<TcpStream>;

/// A certificate authority for the fake servers.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A fake server. Its tasks end with the scope.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    /// Connections accepted so far, TLS included.
    pub(crate) accepted: Arc<AtomicUsize>,
}

/// The mounted credential of a pod, as the kubelet lays it out.
pub(crate) struct Mounted {
    home: tempfile::TempDir,
    version: usize,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server configuration for 127.0.0.1 that speaks `protocols`.
    pub(crate) fn server(&self, protocols: &[&str]) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

impl Fake {
    /// A server whose connections are each given to `serve`, with their number from 1.
    pub(crate) async fn start<F, S>(scope: &Scope, tls: Arc<rustls::ServerConfig>, serve: F) -> Self
    where
        F: Fn(Connection, usize) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let (count, owner, serve) = (accepted.clone(), scope.clone(), Arc::new(serve));
        scope.spawn_background(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (tls, count, serve) = (TlsAcceptor::from(tls.clone()), count.clone(), serve.clone());
                owner.spawn_background(async move {
                    if let Ok(connection) = tls.accept(tcp).await {
                        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                        serve(connection, number).await;
                    }
                });
            }
        });
        Self { address, accepted }
    }

    pub(crate) fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Mounted {
    pub(crate) fn new(token: &str, ca: &str) -> Self {
        let mut mounted = Self { home: tempfile::tempdir().unwrap(), version: 0 };
        mounted.swap(token, ca);
        for name in ["token", "ca.crt"] {
            std::os::unix::fs::symlink(format!("..data/{name}"), mounted.path().join(name)).unwrap();
        }
        mounted
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// Replaces both files at once, as the kubelet does: a new directory, and a link renamed over the old
    /// one.
    pub(crate) fn swap(&mut self, token: &str, ca: &str) {
        self.version += 1;
        let directory = self.path().join(format!("..version_{}", self.version));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("token"), token).unwrap();
        std::fs::write(directory.join("ca.crt"), ca).unwrap();
        let link = self.path().join("..data_tmp");
        std::os::unix::fs::symlink(directory.file_name().unwrap(), &link).unwrap();
        std::fs::rename(link, self.path().join("..data")).unwrap();
    }

    /// The place of the files, for an API server at this address.
    pub(crate) fn source(&self, address: SocketAddr) -> ApiServerSource {
        let (host, port) = (address.ip().to_string(), address.port());
        ApiServerSource::InCluster { directory: self.path(), host, port }
    }

    pub(crate) fn api_server(&self, address: SocketAddr, timeouts: Timeouts, scope: &Scope) -> ApiServer {
        ApiServer::new(self.source(address), timeouts, Clock::default(), scope).unwrap()
    }
}

/// A scope, a server and an API server in front of it, for tests that need no files of their own.
pub(crate) async fn pair<F, S>(protocols: &[&str], timeouts: Timeouts, serve: F) -> (Scope, Fake, ApiServer)
where
    F: Fn(Connection, usize) -> S + Send + Sync + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let (scope, authority) = (Scope::here(), Authority::new());
    let fake = Fake::start(&scope, authority.server(protocols), serve).await;
    let api_server = Mounted::new("token-1", &authority.pem()).api_server(fake.address, timeouts, &scope);
    (scope, fake, api_server)
}

/// Serves HTTP/2 with the grant of kube-apiserver.
pub(crate) async fn http2<A, R, B>(connection: Connection, answer: A)
where
    A: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    http2_granting(GRANTED, connection, answer).await;
}

/// Serves HTTP/2 with another grant.
pub(crate) async fn http2_granting<A, R, B>(granted: u32, connection: Connection, answer: A)
where
    A: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, std::convert::Infallible>(answered.await) }
    });
    // The side under test sees how a connection ends.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(granted)
        .serve_connection(TokioIo::new(connection), service)
        .await;
}

/// Serves HTTP/1.1 on one connection.
pub(crate) async fn http1<A, R, B>(connection: Connection, answer: A)
where
    A: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, std::convert::Infallible>(answered.await) }
    });
    // The side under test sees how a connection ends.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(connection), service)
        .with_upgrades()
        .await;
}

/// Reads the head of a request, byte by byte, and no byte more.
pub(crate) async fn read_head(connection: &mut Connection) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match connection.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Answers every request of a connection with the same bytes.
pub(crate) async fn write(connection: &mut Connection, bytes: impl AsRef<[u8]>) {
    connection.write_all(bytes.as_ref()).await.unwrap();
    connection.flush().await.unwrap();
}

pub(crate) fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).body(Empty::new()).unwrap()
}

/// The complete body of an answer.
pub(crate) async fn whole<B>(response: Response<B>) -> Result<String, B::Error>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let bytes = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

/// The output of `future`. Fails the test if something hangs.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("something hangs")
}

/// Sends so many requests at the same time, and returns their answers in the order of arrival.
pub(crate) async fn all_at_once(requests: usize, scope: &Scope, api_server: &ApiServer) -> Vec<String> {
    let (done, mut answers) = mpsc::channel(requests);
    for _ in 0..requests {
        let (api_server, done) = (api_server.clone(), done.clone());
        scope.spawn(async move {
            done.send(whole(api_server.send(get("/")).await.unwrap()).await.unwrap()).await.unwrap();
        });
    }
    let mut whole = Vec::new();
    for _ in 0..requests {
        whole.push(soon(answers.recv()).await.unwrap());
    }
    whole
}

/// A log that many connections write.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}
