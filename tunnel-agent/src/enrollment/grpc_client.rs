//! A small gRPC client of the enrollment server: TLS, HTTP/2, and unary calls. There are only four calls, so
//! no gRPC library is needed.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use bytes::{Buf as _, Bytes};
use daemon::Scope;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use prost::Message;
use proto::enrollment::ANSWER_BYTES_MAX;
use rustls::client::Resumption;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use transport::DialPath;
use transport::tls::PinnedVerifier;
use trust::OutsideValidity;
use trust::proof::{EXPORTER_BYTES, EXPORTER_LABEL};

/// Longest time of one call, on the slowest link that is supported.
const CALL_MAX: Duration = Duration::from_secs(30);

/// Longest message of the server that is kept, in bytes.
const MESSAGE_BYTES_MAX: usize = 512;

/// gRPC status codes that decide how to go on.
const PERMISSION_DENIED: u32 = 7;
const FAILED_PRECONDITION: u32 = 9;

/// Length of the prefix of a message: the compression flag and the message's length.
const PREFIX_BYTES: usize = 5;

/// A certificate chain, leaf first, with the leaf's key.
pub(super) type ShownCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// An open connection to the enrollment server.
pub(super) struct GrpcClient {
    requests: SendRequest<Full<Bytes>>,
    /// Keying material of this connection, to which proofs are bound.
    pub(super) exporter: [u8; EXPORTER_BYTES],
}

/// A call had no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("{0:?} is not a server name")]
    Name(String),
    #[error("no connection to the enrollment server")]
    Connect(#[source] transport::DialError),
    #[error("TLS with the enrollment server failed; check enrollment.pin and enrollment.server")]
    Tls(#[source] io::Error),
    /// The certificate is not valid by this machine's clock.
    #[error("the enrollment server's certificate {0}")]
    Clock(OutsideValidity),
    #[error("the agent's own TLS cannot connect to the enrollment server")]
    Local(#[source] rustls::Error),
    #[error("no answer of the enrollment server within {} s", CALL_MAX.as_secs())]
    TooSlow,
    #[error("the connection to the enrollment server broke")]
    Broke(#[source] hyper::Error),
    #[error("the answer of the enrollment server is not gRPC (status {0})")]
    NotGrpc(StatusCode),
    /// The server's own status and message.
    #[error("refused: {message}")]
    Refused { code: u32, message: String },
}

impl CallError {
    /// The error of a TLS handshake.
    fn from_tls(error: io::Error) -> Self {
        use rustls::Error::InvalidCertificate;
        let inside = error.get_ref().and_then(|inside| inside.downcast_ref::<rustls::Error>());
        let outside = match inside {
            Some(InvalidCertificate(CertificateError::ExpiredContext { time, not_after })) => {
                OutsideValidity::at(time.as_secs(), 0, not_after.as_secs())
            }
            Some(InvalidCertificate(CertificateError::NotValidYetContext { time, not_before })) => {
                OutsideValidity::at(time.as_secs(), not_before.as_secs(), u64::MAX)
            }
            Some(_) | None => None,
        };
        outside.map_or(Self::Tls(error), Self::Clock)
    }

    /// Returns true if the call may succeed as soon as this machine's clock is set.
    pub(super) fn is_clock(&self) -> bool {
        matches!(self, Self::Clock(_))
    }

    /// Returns true if the server has checked the request and denied it.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { code: PERMISSION_DENIED, .. })
    }

    /// Returns true if the server cannot check the request, because it has no record to check it by.
    pub(super) fn is_not_set_up(&self) -> bool {
        matches!(self, Self::Refused { code: FAILED_PRECONDITION, .. })
    }
}

impl GrpcClient {
    /// Connects to the server, whose certificate has to bear `name`. It is shown the certificate `shown`.
    pub(super) async fn open(
        way: &DialPath,
        name: &str,
        verifier: PinnedVerifier,
        shown: Option<ShownCertificate>,
        clock: Clock,
        scope: &Scope,
    ) -> Result<Self, CallError> {
        timeout(CALL_MAX, Self::connect(way, name, verifier, shown, clock, scope))
            .await
            .unwrap_or(Err(CallError::TooSlow))
    }

    async fn connect(
        way: &DialPath,
        name: &str,
        verifier: PinnedVerifier,
        shown: Option<ShownCertificate>,
        clock: Clock,
        scope: &Scope,
    ) -> Result<Self, CallError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| CallError::Name(name.to_owned()))?;
        let provider = Arc::clone(&verifier.provider);
        let config = ClientConfig::builder_with_details(provider, Arc::new(clock))
            .with_protocol_versions(&[&TLS13])
            .map_err(CallError::Local)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match shown {
            Some((chain, key)) => config.with_client_auth_cert(chain, key).map_err(CallError::Local)?,
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::disabled();
        let tcp: TcpStream = way.connect().await.map_err(CallError::Connect)?;
        let tls =
            TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(CallError::from_tls)?;
        let exporter = tls
            .get_ref()
            .1
            .export_keying_material([0; EXPORTER_BYTES], EXPORTER_LABEL, None)
            .map_err(CallError::Local)?;
        let (requests, connection) =
            http2::handshake(scope.background(), TokioIo::new(tls)).await.map_err(CallError::Broke)?;
        scope.spawn_background(async move {
            // A call that waits for an answer gets the error.
            let _ = connection.await;
        });
        Ok(Self { requests, exporter })
    }

    /// Calls the method `name` once.
    pub(super) async fn call<Q, A>(&mut self, name: &str, request: &Q) -> Result<A, CallError>
    where
        Q: Message,
        A: Message + Default,
    {
        timeout(CALL_MAX, self.answer(name, request)).await.unwrap_or(Err(CallError::TooSlow))
    }

    async fn answer<Q, A>(&mut self, name: &str, request: &Q) -> Result<A, CallError>
    where
        Q: Message,
        A: Message + Default,
    {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("https://enrollment/tombolo.enrollment.v1.Enrollment/{name}"))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .body(Full::new(framed(request)))
            .map_err(|_| CallError::NotGrpc(StatusCode::BAD_REQUEST))?;
        let answer = self.requests.send_request(request).await.map_err(CallError::Broke)?;
        let (head, body) = answer.into_parts();
        let not_grpc = || CallError::NotGrpc(head.status);
        // In an answer without a body, the trailers are in the head.
        check_status(&head.headers)?;
        let body =
            Limited::new(body, ANSWER_BYTES_MAX + PREFIX_BYTES).collect().await.map_err(|_| not_grpc())?;
        if let Some(trailers) = body.trailers() {
            check_status(trailers)?;
        }
        message(body.to_bytes()).ok_or_else(not_grpc)
    }
}

fn framed(message: &impl Message) -> Bytes {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], length.to_be_bytes().as_slice(), &message].concat().into()
}

fn message<A: Message + Default>(mut body: Bytes) -> Option<A> {
    if body.len() < PREFIX_BYTES || body.get_u8() != 0 {
        return None;
    }
    let length = usize::try_from(body.get_u32()).ok()?;
    (body.len() == length).then(|| A::decode(body).ok()).flatten()
}

/// Fails if `grpc-status` is there and is not 0.
fn check_status(headers: &HeaderMap) -> Result<(), CallError> {
    let Some(code) = headers.get("grpc-status") else { return Ok(()) };
    let code = code.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(u32::MAX);
    if code == 0 {
        return Ok(());
    }
    let message = headers.get("grpc-message").map_or(&b""[..], http::HeaderValue::as_bytes);
    Err(CallError::Refused { code, message: printable(message) })
}

/// Decodes a percent-encoded message, and drops characters that could disturb a log.
fn printable(message: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = message.iter();
    while let (Some(byte), true) = (rest.next(), text.len() < MESSAGE_BYTES_MAX) {
        let mut digit = || rest.next().and_then(|digit| char::from(*digit).to_digit(16));
        let byte = match byte {
            b'%' => match (digit(), digit()) {
                (Some(high), Some(low)) => u8::try_from(high << 4 | low).unwrap_or(b'?'),
                (_, _) => b'?',
            },
            byte => *byte,
        };
        if byte.is_ascii_graphic() || byte == b' ' {
            text.push(char::from(byte));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proto::enrollment::EnrollRequest;
    use rustls_pki_types::UnixTime;

    use super::*;

    #[test]
    fn a_wrong_clock_at_enrollment_is_named_with_its_side() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let named = |error: CertificateError| {
            CallError::from_tls(io::Error::other(rustls::Error::InvalidCertificate(error)))
        };

        let ahead = named(CertificateError::ExpiredContext { time: at(500_000), not_after: at(100_000) });
        let behind = named(CertificateError::NotValidYetContext { time: at(0), not_before: at(100_000) });
        let other = named(CertificateError::UnknownIssuer);

        assert!(ahead.is_clock() && ahead.to_string().contains("ahead"), "{ahead}");
        assert!(behind.is_clock() && behind.to_string().contains("behind"), "{behind}");
        assert!(!other.is_clock(), "{other}");
    }

    #[test]
    fn the_servers_message_is_decoded_and_cannot_disturb_a_log() {
        assert_eq!(printable(b"no%20such%20token%0A%1b[2m: 100%25"), "no such token[2m: 100%");
        assert_eq!(printable("ä%".as_bytes()), "?");
        assert_eq!(printable(&[b'x'; 1000]).len(), MESSAGE_BYTES_MAX);
    }

    #[test]
    fn a_message_is_read_as_it_is_framed_and_nothing_else_is() {
        let (token, cluster) = ("a".to_owned(), "edge-a".to_owned());
        let asked = EnrollRequest { token, cluster, certificate_request: vec![1, 2], workload: None };
        let framed = framed(&asked);
        assert_eq!(message::<EnrollRequest>(framed.clone()), Some(asked));
        for wrong in [&framed[..4], &framed[..framed.len() - 1], &[1, 0, 0, 0, 0], b""] {
            assert_eq!(message::<EnrollRequest>(Bytes::copy_from_slice(wrong)), None);
        }
    }
}
