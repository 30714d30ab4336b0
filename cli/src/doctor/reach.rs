//! Reaches an HTTPS server as a caller would, and tells apart why it cannot.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use daemon::Scope;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HOST};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ALL_VERSIONS, CertificateError};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::report::Report;
use crate::tls::{self, ALPN_HTTP1, Identity};

/// How long a name, a connection or a handshake may take.
const STEP_MAX: Duration = Duration::from_secs(5);

/// How long an answer may take: an agent waits for its API server's head.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Most of an answer that is looked at.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Who is asked, and as whom.
pub(super) struct Target {
    /// For messages: `the gateway`.
    pub(super) whose: &'static str,
    pub(super) host: String,
    pub(super) port: u16,
    /// What its certificate must name, if not the host.
    pub(super) server_name: Option<String>,
    pub(super) roots: Vec<CertificateDer<'static>>,
    pub(super) identity: Option<Identity>,
    pub(super) token: Option<String>,
}

/// A connection over which questions may be asked.
pub(super) struct Reached {
    requests: SendRequest<Full<Bytes>>,
    host: String,
    token: Option<String>,
}

/// An answer, read as far as is of interest.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) date: Option<SystemTime>,
    pub(super) body: Vec<u8>,
}

/// The addresses of a host; where there is none, the report says so.
pub(super) async fn resolve(report: &mut Report, host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    match timeout(STEP_MAX, lookup_host((host, port))).await {
        Ok(Ok(found)) => {
            let addresses: Vec<_> = found.collect();
            if !addresses.is_empty() {
                return Some(addresses);
            }
            report.fail("name", format!("{host} has no address"), "check the name and your DNS");
        }
        Ok(Err(error)) => {
            report.fail("name", format!("{host} has no address ({error})"), "check the name and your DNS");
        }
        Err(_) => report.fail("name", format!("nobody says where {host} is"), "check that your DNS answers"),
    }
    None
}

impl Target {
    /// Connects and shakes hands, and reports each.
    pub(super) async fn reach(self, report: &mut Report, scope: &Scope) -> Option<Reached> {
        let Self { whose, host, port, server_name, roots, identity, token } = self;
        let addresses = resolve(report, &host, port).await?;
        let stream = connect(report, whose, &addresses).await?;
        let name = server_name.unwrap_or_else(|| host.clone());
        let config = match tls::client(roots, identity, ALL_VERSIONS, ALPN_HTTP1) {
            Ok(config) => config,
            Err(error) => {
                report.fail_by("TLS", &error);
                return None;
            }
        };
        let Ok(parsed) = ServerName::try_from(name.clone()) else {
            report.fail(
                "TLS",
                format!("{name} is no name that a certificate could bear"),
                "correct the name",
            );
            return None;
        };
        let shaken = match timeout(STEP_MAX, TlsConnector::from(config).connect(parsed, stream)).await {
            Ok(Ok(shaken)) => shaken,
            Ok(Err(error)) => {
                distrust(report, whose, &name, &error);
                return None;
            }
            Err(_) => {
                let advice = format!("check that {host}:{port} is {whose}, and what stands in between");
                report.fail("TLS", format!("{whose} does not shake hands"), advice);
                return None;
            }
        };
        report.ok("TLS", format!("{whose} shows a certificate of the CA for {name}"));
        match http1::handshake(TokioIo::new(shaken)).await {
            Ok((requests, connection)) => {
                scope.attend(async move {
                    // How it ended is told to whoever waits for an answer.
                    let _ = connection.await;
                });
                Some(Reached { requests, host: format!("{host}:{port}"), token })
            }
            Err(error) => {
                report.fail_by("HTTP", &error);
                None
            }
        }
    }
}

impl Reached {
    /// One request with the credential.
    pub(super) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Answer, String> {
        let asked = async {
            let mut request = Request::builder().method(method).uri(path);
            request = request.header(HOST, &self.host).header(ACCEPT, "application/json");
            if let Some(token) = &self.token {
                let mut value =
                    HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| error.to_string())?;
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
            if body.is_some() {
                request = request.header(CONTENT_TYPE, "application/json");
            }
            let request =
                request.body(Full::from(body.unwrap_or_default())).map_err(|error| error.to_string())?;
            self.requests.ready().await.map_err(|error| chained(&error))?;
            let answer = self.requests.send_request(request).await.map_err(|error| chained(&error))?;
            let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
            let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes().to_vec();
            Ok(Answer { status, date, body })
        };
        match timeout(ANSWER_MAX, asked).await {
            Ok(answered) => answered,
            Err(_) => Err(format!("no answer within {} s", ANSWER_MAX.as_secs())),
        }
    }
}

fn chained(error: &hyper::Error) -> String {
    daemon::chain(error).to_string()
}

async fn connect(report: &mut Report, whose: &str, addresses: &[SocketAddr]) -> Option<TcpStream> {
    let mut last = None;
    for address in addresses {
        match timeout(STEP_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                report.ok("TCP", format!("{whose} answers at {address}"));
                return Some(stream);
            }
            Ok(Err(error)) => last = Some((address, error.to_string())),
            Err(_) => last = Some((address, "no answer".to_owned())),
        }
    }
    let (address, error) = last?;
    let advice = format!("check that {whose} runs, that the port is right, and firewalls on the way (TCP)");
    report.fail("TCP", format!("{whose} is not reached at {address} ({error})"), advice);
    None
}

/// Why a certificate was not accepted, each reason with its own way out.
#[expect(clippy::wildcard_enum_match_arm, reason = "rustls' errors are foreign and non-exhaustive")]
fn distrust(report: &mut Report, whose: &str, name: &str, error: &std::io::Error) {
    let found = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let (said, advice) = match found {
        Some(rustls::Error::InvalidCertificate(reason)) => match reason {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => (
                format!("{whose}'s certificate is not of the CA that is trusted here"),
                "take the CA certificate of that server's authority; if it is right, somebody else answers there"
                    .to_owned(),
            ),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
                format!("{whose}'s certificate does not name {name}"),
                format!("reach it by a name in its certificate, or issue one with --name {name}"),
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
                format!("{whose}'s certificate has expired"),
                "renew it there; if it has not expired, correct this machine's clock".to_owned(),
            ),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
                format!("{whose}'s certificate is not valid yet"),
                "correct this machine's clock, or that of whoever issued it".to_owned(),
            ),
            other => (format!("{whose}'s certificate cannot be used: {other}"), "have it issued again".to_owned()),
        },
        _ => (
            format!("the handshake with {whose} failed ({error})"),
            "check that the port is the right one and speaks TLS".to_owned(),
        ),
    };
    report.fail("TLS", said, advice);
}
