//! `tombolo passthrough`: a copy of a cluster's own kubeconfig for the server's TLS passthrough. It is written only if the API
//! server's certificate is valid there.

use std::io;
use std::path::Path;
use std::time::Duration;

use daemon::Scope;
use rustls::{ALL_VERSIONS, AlertDescription, CertificateError};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::args::{ClusterKubeconfig, CopyOutput, PassthroughArgs};
use crate::certificate_names;
use crate::files::{self, ReadError, WriteError};
use crate::kubeconfig::rewrite::{self, ReaddressedKubeconfig, RewriteError};
use crate::pem::{self, PemError};
use crate::runtime::{self, RuntimeError};
use crate::tls::{self, ALPN_HTTP1};

/// Longest TLS handshake with the API server. The server may wait for a cluster that is not connected, and the agent for its API
/// server.
const HANDSHAKE_MAX: Duration = Duration::from_secs(60);

/// The error if no kubeconfig was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassthroughError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Kubeconfig(#[from] RewriteError),
    #[error("the CA certificates of the kubeconfig cannot be used")]
    CaCertificates(#[from] PemError),
    #[error("the CA certificates of the kubeconfig cannot be used")]
    Roots(#[source] rustls::Error),
    #[error(
        "{0} is an address, which TLS clients do not send as a server name: use the DNS name in passthrough.servers"
    )]
    NotADnsName(String),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The error if the TLS handshake through the passthrough did not prove that the kubeconfig's API server answers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error(
        "{0} cannot be reached from here, so it cannot be checked; if DNS does not know it yet, pass --address"
    )]
    Unreachable(String, #[source] io::Error),
    #[error("{0} did not finish the TLS handshake in time")]
    Timeout(String),
    #[error("the server knows no {0}: name it in passthrough.servers of its configuration")]
    UnknownName(String),
    #[error(
        "the server does not let you reach {0}: policy has to allow its entry point, `tombolo cluster update --advertise` its target, \
         and the agent has to advertise that target"
    )]
    Denied(String),
    #[error("the server cannot reach the API server of {0} now: check that its cluster is connected")]
    Disconnected(String),
    #[error("{}", other_names(.name, .presented))]
    OtherNames { name: String, presented: Vec<String> },
    #[error(
        "the API server of {0} is not the one that the kubeconfig trusts: the name may lead to another cluster"
    )]
    OtherCa(String, #[source] rustls::Error),
    #[error("the handshake with {0} failed")]
    Tls(String, #[source] io::Error),
}

/// Connects through the passthrough, and writes the copy to a file of mode 0600 if the API server's certificate is valid.
pub(crate) fn write(args: &PassthroughArgs) -> Result<Vec<String>, PassthroughError> {
    let PassthroughArgs { server, own, address, copy } = args;
    let (ClusterKubeconfig { kubeconfig, context }, CopyOutput { output, force }) = (own, copy);
    let (name, port) = server.address();
    let server_name = ServerName::try_from(name.to_owned()).ok();
    let Some(server_name @ ServerName::DnsName(_)) = server_name else {
        return Err(PassthroughError::NotADnsName(name.to_owned()));
    };
    let text = files::read(kubeconfig)?;
    let directory = kubeconfig.parent().unwrap_or_else(|| Path::new(""));
    let ReaddressedKubeconfig { text, ca_pem } =
        rewrite::with_server(&text, directory, context.as_deref(), server.as_str())?;
    let roots = pem::parse_certificates(&ca_pem, kubeconfig)?;
    let tls = tls::client(roots, None, ALL_VERSIONS, ALPN_HTTP1).map_err(PassthroughError::Roots)?;
    let connect = async |_: &Scope| {
        let stream = match address {
            Some(address) => TcpStream::connect(address).await,
            None => TcpStream::connect((name, port)).await,
        };
        let stream = stream.map_err(|error| HandshakeError::Unreachable(name.to_owned(), error))?;
        let handshake = timeout(HANDSHAKE_MAX, TlsConnector::from(tls).connect(server_name, stream)).await;
        let handshake = handshake.map_err(|_| HandshakeError::Timeout(name.to_owned()))?;
        handshake.map(drop).map_err(|error| handshake_error(name, error))
    };
    runtime::run(connect)??;
    files::write_private(output, &text, *force)?;
    Ok(vec![
        format!(
            "wrote {} (private): {name} is in the API server's certificate, and the kubeconfig trusts it",
            output.display()
        ),
        format!("next: kubectl --kubeconfig {} get namespaces", output.display()),
    ])
}

fn handshake_error(name: &str, error: io::Error) -> HandshakeError {
    let tls_error = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).cloned();
    let name = name.to_owned();
    match tls_error {
        Some(rustls::Error::AlertReceived(AlertDescription::UnrecognisedName)) => {
            HandshakeError::UnknownName(name)
        }
        Some(rustls::Error::AlertReceived(AlertDescription::AccessDenied)) => HandshakeError::Denied(name),
        Some(rustls::Error::AlertReceived(AlertDescription::InternalError)) => {
            HandshakeError::Disconnected(name)
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented,
            ..
        })) => HandshakeError::OtherNames { name, presented },
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForName)) => {
            HandshakeError::OtherNames { name, presented: Vec::new() }
        }
        Some(refused @ rustls::Error::InvalidCertificate(_)) => HandshakeError::OtherCa(name, refused),
        _ => HandshakeError::Tls(name, error),
    }
}

fn other_names(name: &str, presented: &[String]) -> String {
    let has = if presented.is_empty() { String::new() } else { format!(", but {}", presented.join(", ")) };
    format!("the API server's certificate does not have {name}{has}: {}", certificate_names::how_to_add(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_without_the_name_is_reported_with_its_fix() {
        let presented = vec!["DnsName(\"kubernetes\")".to_owned()];
        let context = CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("api.edge-a.example").unwrap(),
            presented,
        };
        let error = io::Error::other(rustls::Error::InvalidCertificate(context));

        let message = handshake_error("api.edge-a.example", error).to_string();

        for word in ["kubernetes", "certSANs", "--tls-san api.edge-a.example", "--tls-sni-cert-key"] {
            assert!(message.contains(word), "{message}");
        }
    }
}
