//! An HTTPS client with one CA and a new connection for each request: it calls few servers, and seldom.

use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Longest time from the look-up of the name to the last byte of the answer.
pub(super) const HTTPS_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A client that speaks HTTPS only, trusts only its own CA, follows no redirect and keeps no cookie.
#[derive(Clone)]
pub(super) struct HttpsClient {
    /// The newest value is for the next connection.
    tls: watch::Receiver<Arc<ClientConfig>>,
    /// The name that the certificate must have, if it is not the host of the URL.
    server_name: Option<ServerName<'static>>,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpsError {
    #[error("the URL {0} is not https://HOST[:PORT] with a path")]
    Url(Uri),
    #[error("no server answers at {0}")]
    Connect(String, #[source] io::Error),
    #[error("the answer is broken off, or no HTTP")]
    Http(#[from] hyper::Error),
    #[error("the answer cannot be read to its end, or has more than {max} bytes")]
    Body { max: usize, source: Box<dyn Error + Send + Sync> },
    #[error("no answer within {max} s", max = HTTPS_TIMEOUT.as_secs())]
    Late,
}

impl HttpsClient {
    pub(super) fn new(
        tls: watch::Receiver<Arc<ClientConfig>>,
        server_name: Option<ServerName<'static>>,
    ) -> Self {
        Self { tls, server_name }
    }

    /// Sends `request`, whose URI is absolute, and reads at most `bytes_max` of the answer's body.
    pub(super) async fn send(
        &self,
        request: Request<Bytes>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, HttpsError> {
        timeout(HTTPS_TIMEOUT, self.send_without_timeout(request, bytes_max))
            .await
            .unwrap_or(Err(HttpsError::Late))
    }

    async fn send_without_timeout(
        &self,
        request: Request<Bytes>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, HttpsError> {
        let (request, host, port) = addressed(request)?;
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.clone())
                .map_err(|error| HttpsError::Connect(host.clone(), io::Error::other(error)))?,
        };
        let unreachable = |error| HttpsError::Connect(format!("{host} port {port}"), error);
        let stream = TcpStream::connect((host.as_str(), port)).await.map_err(unreachable)?;
        let tls = TlsConnector::from(Arc::clone(&self.tls.borrow()));
        let stream = tls.connect(name, stream).await.map_err(unreachable)?;
        let (mut sender, connection) =
            http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await?;
        let exchange = async {
            let (head, body) = sender.send_request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, bytes_max).collect().await;
            let body = body.map_err(|source| HttpsError::Body { max: bytes_max, source })?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        let (mut exchange, mut connection) = (pin!(exchange), pin!(connection));
        // Both arms are cancel-safe: each is polled by reference. Biased, so that an answer that is there counts, whatever
        // became of its connection.
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            ended = &mut connection => {
                ended?;
                exchange.await
            }
        }
    }
}

/// The request in the form of HTTP/1.1, and the host and port of its URL.
fn addressed(mut request: Request<Bytes>) -> Result<(Request<Bytes>, String, u16), HttpsError> {
    let uri = request.uri().clone();
    let refused = || HttpsError::Url(uri.clone());
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
    let authority = authority.filter(|_| uri.scheme() == Some(&Scheme::HTTPS)).ok_or_else(refused)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = authority.port_u16().unwrap_or(443);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|_| refused())?;
    let host_value = HeaderValue::from_str(authority.as_str()).map_err(|_| refused())?;
    request.headers_mut().insert(HOST, host_value);
    Ok((request, host, port))
}

#[cfg(test)]
mod tests;
