//! The way to an HTTPS server for the checks: it resolves, connects and shakes hands, and reports each step.

use std::net::SocketAddr;
use std::time::Duration;

use daemon::Scope;
use rustls::{ALL_VERSIONS, CertificateError};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::check::Check;
use super::report::Report;
use crate::https::HttpsConnection;
use crate::tls::{self, ALPN_HTTP1, ClientIdentity};

/// Longest wait for a DNS lookup, a connection or a handshake.
const STEP_MAX: Duration = Duration::from_secs(5);

/// A server, and the credential that the requests carry.
pub(super) struct HttpsTarget {
    /// The server in messages, such as `the gateway`.
    pub(super) whose: &'static str,
    pub(super) host: String,
    pub(super) port: u16,
    /// The name that its certificate must have, if that is not the host.
    pub(super) server_name: Option<String>,
    pub(super) roots: Vec<CertificateDer<'static>>,
    pub(super) identity: Option<ClientIdentity>,
    pub(super) token: Option<String>,
}

/// The addresses of a host. `None` if there are none; the report says why.
pub(super) async fn resolve(report: &mut Report, host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    match look_up(host, port).await {
        Ok(addresses) => Some(addresses),
        Err(found) => {
            report.fail(Check::Dns, found, "check the name and your DNS");
            None
        }
    }
}

/// The addresses of a host, at least one.
///
/// # Errors
/// The text says why there is none.
pub(super) async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    match timeout(STEP_MAX, lookup_host((host, port))).await {
        Ok(Ok(found)) => Some(found.collect::<Vec<_>>())
            .filter(|addresses| !addresses.is_empty())
            .ok_or_else(|| format!("{host} has no address")),
        Ok(Err(error)) => Err(format!("{host} has no address ({error})")),
        Err(_) => Err(format!("no DNS answer for {host} within {} s", STEP_MAX.as_secs())),
    }
}

impl HttpsTarget {
    /// Resolves the host, connects and shakes hands. `None` at the first failure; the report says why.
    pub(super) async fn reach(self, report: &mut Report, scope: &Scope) -> Option<HttpsConnection> {
        let Self { whose, host, port, server_name, roots, identity, token } = self;
        let addresses = resolve(report, &host, port).await?;
        let stream = connect(report, whose, &addresses).await?;
        let name = server_name.unwrap_or_else(|| host.clone());
        let config = match tls::client(roots, identity, ALL_VERSIONS, ALPN_HTTP1) {
            Ok(config) => config,
            Err(error) => {
                report.fail_by(Check::Tls, &error);
                return None;
            }
        };
        let Ok(parsed) = ServerName::try_from(name.clone()) else {
            report.fail(
                Check::Tls,
                format!("{name} is no name that a certificate can have"),
                "correct the name",
            );
            return None;
        };
        let stream = match timeout(STEP_MAX, TlsConnector::from(config).connect(parsed, stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                report_tls_error(report, whose, &name, &error);
                return None;
            }
            Err(_) => {
                let advice =
                    format!("check that {host}:{port} is {whose}, and proxies and firewalls on the way");
                report.fail(Check::Tls, format!("{whose} does not answer the TLS handshake"), advice);
                return None;
            }
        };
        report.ok(Check::Tls, format!("{whose} has a valid certificate for {name}"));
        match HttpsConnection::over(stream, format!("{host}:{port}"), token, scope).await {
            Ok(connection) => Some(connection),
            Err(error) => {
                report.fail_by(Check::Http, &error);
                None
            }
        }
    }
}

async fn connect(report: &mut Report, whose: &str, addresses: &[SocketAddr]) -> Option<TcpStream> {
    let mut last = None;
    for address in addresses {
        match timeout(STEP_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                report.ok(Check::Tcp, format!("{whose} answers at {address}"));
                return Some(stream);
            }
            Ok(Err(error)) => last = Some((address, error.to_string())),
            Err(_) => last = Some((address, "no answer".to_owned())),
        }
    }
    let (address, error) = last?;
    let advice = format!("check that {whose} runs, that the port is right, and firewalls on the way (TCP)");
    report.fail(Check::Tcp, format!("{whose} cannot be reached at {address} ({error})"), advice);
    None
}

/// Reports why the handshake failed, with advice for each reason.
#[expect(clippy::wildcard_enum_match_arm, reason = "rustls' errors are foreign and non-exhaustive")]
fn report_tls_error(report: &mut Report, whose: &str, name: &str, error: &std::io::Error) {
    let cause = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let (problem, advice) = match cause {
        Some(rustls::Error::InvalidCertificate(reason)) => match reason {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => (
                format!("{whose}'s certificate is not of the CA that is trusted here"),
                "use the CA certificate of that server's authority; if it is the right one, another server answers there"
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
                "correct this machine's clock, or the clock of the machine that issued it".to_owned(),
            ),
            other => (format!("{whose}'s certificate cannot be used: {other}"), "have it issued again".to_owned()),
        },
        _ => (
            format!("the handshake with {whose} failed ({error})"),
            "check that the port is the right one and speaks TLS".to_owned(),
        ),
    };
    report.fail(Check::Tls, problem, advice);
}
