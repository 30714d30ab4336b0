//! The thinnest API server there can be: TLS, HTTP/2, and an answer at once.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tests::kube::kubeconfig::{Credential, Kubeconfig};
use ::tests::pki::Authority;
use ::tests::process::{Invocation, Process};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use crate::args::TargetFlags;
use crate::way::Door;

/// The path of the small answer, of [`SMALL_BYTES`].
pub const SMALL: &str = "/api/v1/namespaces/default/configmaps/small";
/// The path of the large one.
pub const BULK: &str = "/api/v1/namespaces/default/configmaps/bulk";
/// Bytes of an object without much in it.
pub const SMALL_BYTES: usize = 1024;

/// What the large answer is made of.
const CHUNK_BYTES: usize = 64 * 1024;
/// What kube-apiserver grants.
const STREAMS_MAX: u32 = 250;
/// How long it may take to say where it is.
const START_MAX: std::time::Duration = std::time::Duration::from_secs(10);
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(10);

/// Why it cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A file or a socket.
    #[error("the target cannot start")]
    Io(#[from] io::Error),
    /// No PEM.
    #[error("the target's certificate or key is no PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// They do not fit.
    #[error("the target's certificate and key cannot be used")]
    Tls(#[from] rustls::Error),
}

/// A target in a process of its own, and what is needed to reach it.
#[derive(Debug)]
pub struct Target {
    _process: Process,
    /// Where callers reach it without a tunnel.
    pub door: Door,
}

impl Target {
    /// Starts this program again as `loadtest target`, with its files in `directory`.
    ///
    /// # Panics
    /// Where it does not start.
    pub async fn start(directory: &Path, bulk_mib: u32) -> Self {
        let authority = Authority::new("target");
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
            // The whole line, or not yet.
            let said = process.tail();
            if let Some(address) = said.strip_suffix('\n').and_then(|line| line.parse().ok()) {
                break address;
            }
            assert!(Instant::now() < deadline, "the target did not start: {said}");
            sleep(LOOK_EVERY).await;
        };
        let door = Door { address, ca_pem: authority.certificate_pem().to_owned(), identity: None };
        Self { _process: process, door }
    }

    /// Writes a kubeconfig for agents.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        let (server, credential) =
            (format!("https://{}", self.door.address), Credential::Token("anybody".to_owned()));
        Kubeconfig { server: &server, ca_pem: &self.door.ca_pem, credential: &credential }.write(path)
    }
}

/// Serves on a free port of 127.0.0.1, which it prints, until it is killed.
///
/// # Errors
/// [`TargetError`].
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
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

async fn serve_connection(socket: TcpStream, acceptor: TlsAcceptor, answers: Arc<Answers>) {
    // A caller who hangs up is no concern of a server that does nothing.
    let _ = socket.set_nodelay(true);
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answers.answer(request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let builder = http2::Builder::new(TokioExecutor::new());
    let _ =
        { builder }.max_concurrent_streams(STREAMS_MAX).serve_connection(TokioIo::new(stream), service).await;
}

/// What is answered, made once.
struct Answers {
    small: Bytes,
    chunk: Bytes,
    bulk_bytes: u64,
}

/// A piece of bytes, again and again.
struct Repeated {
    piece: Bytes,
    left: u64,
}

impl Answers {
    fn new(bulk_bytes: u64) -> Self {
        let head = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"small"},"data":{"of":""#;
        let tail = r#""}}"#;
        let filling = "x".repeat(SMALL_BYTES - head.len() - tail.len());
        let small = Bytes::from(format!("{head}{filling}{tail}"));
        Self { small, chunk: Bytes::from(vec![b'x'; CHUNK_BYTES]), bulk_bytes }
    }

    fn answer(&self, path: &str) -> Response<Repeated> {
        let (piece, left) = if path == BULK {
            (&self.chunk, self.bulk_bytes)
        } else {
            (&self.small, self.small.len() as u64)
        };
        let mut response = Response::new(Repeated { piece: piece.clone(), left });
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

impl Body for Repeated {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let length = self.left.min(self.piece.len() as u64);
        self.left -= length;
        Poll::Ready(Some(Ok(Frame::data(self.piece.slice(..length as usize)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn answers_have_the_size_that_figures_are_reckoned_with() {
        let answers = Answers::new(3 * CHUNK_BYTES as u64 + 1);
        let small = answers.answer(SMALL).into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(small.len(), SMALL_BYTES);
        serde_json::from_slice::<serde_json::Value>(&small).expect("JSON");
        let bulk = answers.answer(BULK).into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(bulk.len(), 3 * CHUNK_BYTES + 1);
    }
}
