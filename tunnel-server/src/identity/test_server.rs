//! A test double of an HTTPS server: an issuer, or the host cluster's API server. It answers as a test says.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use daemon::Scope;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// A request that the server got.
#[derive(Debug, Clone)]
pub(super) struct SeenRequest {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl SeenRequest {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// The server, which lives as long as the test.
pub(super) struct TestServer {
    /// Its URL, which is `https://localhost:PORT`.
    pub(super) url: String,
    certificate: CertificateDer<'static>,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
}

impl TestServer {
    /// A server that answers each request by `answer`, one connection after the other.
    pub(super) async fn answering(
        answer: impl Fn(&SeenRequest) -> (StatusCode, String) + Send + Sync + 'static,
    ) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap().der().clone();
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.clone()], private)
                .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&seen));
        Scope::here().spawn_background(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // A client that does not trust its certificate hangs up.
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await?.to_bytes();
                        let seen =
                            SeenRequest { method: head.method, uri: head.uri, headers: head.headers, body };
                        log.lock().unwrap_or_else(PoisonError::into_inner).push(seen.clone());
                        let (status, body) = answer(&seen);
                        let mut response = Response::new(Full::new(Bytes::from(body)));
                        *response.status_mut() = status;
                        Ok::<_, hyper::Error>(response)
                    }
                });
                // A client that has its answer hangs up.
                let _ = http1::Builder::new()
                    .keep_alive(false)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            }
        });
        Self { url, certificate, seen }
    }

    /// A client configuration that trusts only its certificate, and never changes.
    pub(super) fn tls(&self) -> watch::Receiver<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        watch::channel(Arc::new(config)).1
    }

    /// The requests so far, in their order.
    pub(super) fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
