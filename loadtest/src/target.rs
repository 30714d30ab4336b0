//! A minimal API server: TLS, HTTP/2 or HTTP/1.1, and an immediate response.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::tests::kube::kubeconfig::{Credential, Kubeconfig};
use ::tests::pki::Authority;
use ::tests::process::{Invocation, Process};
use ::tests::rig::ApiServer;
use bytes::Bytes;
use clap::Args;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use crate::repeated_body::RepeatedBody;
use crate::route::{DIRECT, Destination, Http, Route};

/// The path of the small response, of [`SMALL_BYTES`].
pub const SMALL: &str = "/api/v1/namespaces/default/configmaps/small";
/// The path of large transfers: a GET downloads, a PUT uploads and gets the number of received bytes.
pub const BULK: &str = "/api/v1/namespaces/default/configmaps/bulk";
/// The path of the small response with a delay of [`SLOW_TAKES`].
pub const SLOW: &str = "/api/v1/namespaces/default/configmaps/slow";
/// The delay of slow responses, as of a large list.
pub const SLOW_TAKES: std::time::Duration = std::time::Duration::from_secs(1);
/// Size of a small response in bytes.
pub const SMALL_BYTES: usize = 1024;

/// Most concurrent streams of a connection, more than any scenario opens.
const STREAMS_MAX: u32 = 250;
/// The receive window of an upload. The connection's window never limits all streams together.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = STREAMS_MAX * STREAM_WINDOW_BYTES;
/// Longest wait until a new target has printed its address.
const START_MAX: std::time::Duration = std::time::Duration::from_secs(10);
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(10);

/// The error if the target cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A file or a socket cannot be opened.
    #[error("the target cannot start")]
    Io(#[from] io::Error),
    /// The certificate or key is no PEM.
    #[error("the target's certificate or key is no PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// The certificate and the key cannot be used together.
    #[error("the target's certificate and key cannot be used")]
    Tls(#[from] rustls::Error),
}

/// The flags of `loadtest target`.
#[derive(Debug, Args)]
pub struct TargetFlags {
    /// The certificate of the target, PEM
    #[arg(long, value_name = "FILE")]
    pub certificate: PathBuf,

    /// The key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,

    /// Size of the response to a GET of the bulk path, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub bulk_mib: u32,
}

/// A running target process, and its destination.
#[derive(Debug)]
pub struct Target {
    process: Process,
    /// The destination for callers without a tunnel.
    pub destination: Destination,
}

impl Target {
    /// Starts this program again as `loadtest target`, with its files in `directory`.
    ///
    /// # Panics
    /// The target does not start.
    pub async fn start(directory: &Path, bulk_mib: u32) -> Self {
        Self::start_with(&Authority::new("target"), directory, bulk_mib).await
    }

    /// The same, with a certificate of this authority.
    ///
    /// # Panics
    /// The target does not start.
    pub async fn start_with(authority: &Authority, directory: &Path, bulk_mib: u32) -> Self {
        let issued = authority.issue_server(&[], &[std::net::Ipv4Addr::LOCALHOST.into()]);
        let (certificate, key) = (directory.join("target.crt"), directory.join("target.key"));
        fs::write(&certificate, &issued.certificate_pem).expect("a file can be written");
        fs::write(&key, &issued.key_pem).expect("a file can be written");
        let program = std::env::current_exe().expect("a process knows its executable");
        let arguments = [
            "target".to_owned(),
            format!("--certificate={}", certificate.display()),
            format!("--key={}", key.display()),
            format!("--bulk-mib={bulk_mib}"),
        ];
        let log = directory.join("target.log");
        let process =
            Process::start(&Invocation::of(program).arguments(arguments), &log).await.expect("it starts");
        let deadline = Instant::now() + START_MAX;
        let address = loop {
            // The line may not be complete yet.
            let said = process.tail();
            if let Some(address) = said.strip_suffix('\n').and_then(|line| line.parse().ok()) {
                break address;
            }
            assert!(Instant::now() < deadline, "the target did not start: {said}");
            sleep(LOOK_EVERY).await;
        };
        let destination = Destination {
            address,
            ca_pem: authority.certificate_pem().to_owned(),
            identity: None,
            http: Http::Two,
            via: None,
        };
        Self { process, destination }
    }

    /// The process id of the target.
    pub fn id(&self) -> u32 {
        self.process.id().expect("the target runs")
    }

    /// The route to it without a tunnel.
    pub fn direct(&self, http: Http) -> Route {
        let destination = Destination { http, ..self.destination.clone() };
        let (small, bulk) = (vec![destination.uri(SMALL)], Some(destination.uri(BULK)));
        Route { name: DIRECT.to_owned(), destination, small, bulk, daemons: None, target: self.id() }
    }

    /// The same as agents reach it: by a kubeconfig, which is written into this folder.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn api_server(&self, folder: &Path) -> io::Result<ApiServer> {
        let path = folder.join("target.kubeconfig");
        let (server, credential) =
            (format!("https://{}", self.destination.address), Credential::Token("anybody".to_owned()));
        Kubeconfig { server: &server, ca_pem: &self.destination.ca_pem, credential: &credential }
            .write(&path)?;
        Ok(ApiServer::Kubeconfig(path))
    }
}

/// Serves on a free port of 127.0.0.1, which it prints, until it is killed.
///
/// # Errors
/// Every variant of [`TargetError`].
pub async fn serve(flags: &TargetFlags) -> Result<(), TargetError> {
    let acceptor = TlsAcceptor::from(Arc::new(tls(flags)?));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let answers = Arc::new(Answers::new(u64::from(flags.bulk_mib) << 20));
    loop {
        let (socket, _) = listener.accept().await?;
        tokio::spawn(serve_connection(socket, acceptor.clone(), Arc::clone(&answers)));
    }
}

fn tls(flags: &TargetFlags) -> Result<ServerConfig, TargetError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&flags.certificate)?.collect();
    let key = PrivateKeyDer::from_pem_file(&flags.key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn serve_connection(socket: TcpStream, acceptor: TlsAcceptor, answers: Arc<Answers>) {
    // A caller that disconnects is no error.
    let _ = socket.set_nodelay(true);
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request: Request<Incoming>| {
        let answers = Arc::clone(&answers);
        async move { Ok::<_, Infallible>(answers.answer(request).await) }
    });
    if is_h2 {
        let builder = http2::Builder::new(TokioExecutor::new());
        let _ = { builder }
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    } else {
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}

/// The responses, which are built once.
struct Answers {
    small: Bytes,
    bulk_bytes: u64,
}

impl Answers {
    fn new(bulk_bytes: u64) -> Self {
        let head = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"small"},"data":{"of":""#;
        let tail = r#""}}"#;
        let filling = "x".repeat(SMALL_BYTES - head.len() - tail.len());
        Self { small: Bytes::from(format!("{head}{filling}{tail}")), bulk_bytes }
    }

    async fn answer<B: hyper::body::Body + Unpin>(&self, request: Request<B>) -> Response<RepeatedBody> {
        if request.uri().path() == SLOW {
            sleep(SLOW_TAKES).await;
        }
        let body = match (request.method(), request.uri().path()) {
            (&Method::PUT, _) => {
                RepeatedBody::once(Bytes::from(count_bytes(request.into_body()).await.to_string()))
            }
            (_, BULK) => RepeatedBody::with_size(self.bulk_bytes),
            _ => RepeatedBody::once(self.small.clone()),
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// Counts the bytes of a body until it ends or breaks.
async fn count_bytes(mut body: impl hyper::body::Body + Unpin) -> u64 {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, |data| bytes::Buf::remaining(data) as u64);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn responses_have_the_expected_sizes() {
        let answers = Answers::new(200_001);
        let ask = async |method, path: &str, body| {
            let request = Request::builder().method(method).uri(path).body(body).expect("a request");
            answers.answer(request).await.into_body().collect().await.expect("a body").to_bytes()
        };
        let small = ask(Method::GET, SMALL, RepeatedBody::empty()).await;
        assert_eq!(small.len(), SMALL_BYTES);
        serde_json::from_slice::<serde_json::Value>(&small).expect("JSON");
        assert_eq!(ask(Method::GET, BULK, RepeatedBody::empty()).await.len(), 200_001);
        assert_eq!(ask(Method::PUT, BULK, RepeatedBody::with_size(123_456)).await, "123456");
    }
}
