//! `tombolo passthrough`: a cluster's own kubeconfig for the door at which TLS passes through, if it would verify there.

use std::io;
use std::path::Path;
use std::time::Duration;

use daemon::Scope;
use rustls::{ALL_VERSIONS, AlertDescription, CertificateError};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::args::{CopyPlace, OwnKubeconfig, Passthrough};
use crate::files::{self, ReadError, WriteError};
use crate::pem::{self, PemError};
use crate::proxy::rewritten::{self, NotRewritten, Readdressed};
use crate::runtime::{self, NoRuntime};
use crate::served;
use crate::tls::{self, ALPN_HTTP1};

/// The API server shakes hands within this time: the server waits for clusters that are away, and the agent for its API server.
const HANDSHAKE_MAX: Duration = Duration::from_secs(60);

/// Why no kubeconfig was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassthroughError {
    #[error(transparent)]
    Runtime(#[from] NoRuntime),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Kubeconfig(#[from] NotRewritten),
    #[error("what the kubeconfig trusts cannot be used")]
    Authority(#[from] PemError),
    #[error("what the kubeconfig trusts cannot be used")]
    Roots(#[source] rustls::Error),
    #[error(
        "{0} is an address: programs send none as a server name, so use the DNS name that passthrough.servers has"
    )]
    NotAName(String),
    #[error(transparent)]
    NotVerified(#[from] NotVerified),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Why the API server that is reached by a name is not known to be the kubeconfig's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotVerified {
    #[error(
        "{0} cannot be reached from here, so that nothing is known of it; --address names it where DNS does not"
    )]
    Unreachable(String, #[source] io::Error),
    #[error("{0} did not shake hands in time")]
    Silent(String),
    #[error("the server knows no {0}: name it in passthrough.servers of its configuration")]
    UnknownName(String),
    #[error(
        "the server does not let you come to {0}: policy has to name its way in, `tombolo cluster update --advertise` its target, \
         and the agent has to advertise that"
    )]
    Denied(String),
    #[error("the server does not reach the API server of {0} now: check that its cluster is connected")]
    Away(String),
    #[error("{}", of_names(.name, .presented))]
    OtherNames { name: String, presented: Vec<String> },
    #[error(
        "the API server of {0} is not the one that the kubeconfig trusts: the name may lead to another cluster"
    )]
    OtherAuthority(String, #[source] rustls::Error),
    #[error("the handshake with {0} failed")]
    Tls(String, #[source] io::Error),
}

/// Writes it where only this user reads it, once the API server has shown that it would verify.
pub(crate) fn write(order: &Passthrough) -> Result<Vec<String>, PassthroughError> {
    let Passthrough { server, own, address, copy } = order;
    let (OwnKubeconfig { kubeconfig, context }, CopyPlace { output, force }) = (own, copy);
    let (name, port) = server.address();
    let server_name = ServerName::try_from(name.to_owned()).ok();
    let Some(server_name @ ServerName::DnsName(_)) = server_name else {
        return Err(PassthroughError::NotAName(name.to_owned()));
    };
    let text = files::read(kubeconfig)?;
    let directory = kubeconfig.parent().unwrap_or_else(|| Path::new(""));
    let Readdressed { text, authority } =
        rewritten::with_server(&text, directory, context.as_deref(), server.bare())?;
    let roots = pem::ders(&authority, kubeconfig)?;
    let tls = tls::client(roots, None, ALL_VERSIONS, ALPN_HTTP1).map_err(PassthroughError::Roots)?;
    let connect = async |_: &Scope| {
        let stream = match address {
            Some(address) => TcpStream::connect(address).await,
            None => TcpStream::connect((name, port)).await,
        };
        let stream = stream.map_err(|error| NotVerified::Unreachable(name.to_owned(), error))?;
        let shaken = timeout(HANDSHAKE_MAX, TlsConnector::from(tls).connect(server_name, stream)).await;
        let shaken = shaken.map_err(|_| NotVerified::Silent(name.to_owned()))?;
        shaken.map(drop).map_err(|error| not_verified(name, error))
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

fn not_verified(name: &str, error: io::Error) -> NotVerified {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).cloned();
    let name = name.to_owned();
    match of_tls {
        Some(rustls::Error::AlertReceived(AlertDescription::UnrecognisedName)) => {
            NotVerified::UnknownName(name)
        }
        Some(rustls::Error::AlertReceived(AlertDescription::AccessDenied)) => NotVerified::Denied(name),
        Some(rustls::Error::AlertReceived(AlertDescription::InternalError)) => NotVerified::Away(name),
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented,
            ..
        })) => NotVerified::OtherNames { name, presented },
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForName)) => {
            NotVerified::OtherNames { name, presented: Vec::new() }
        }
        Some(refused @ rustls::Error::InvalidCertificate(_)) => NotVerified::OtherAuthority(name, refused),
        _ => NotVerified::Tls(name, error),
    }
}

fn of_names(name: &str, presented: &[String]) -> String {
    let has = if presented.is_empty() { String::new() } else { format!(", but {}", presented.join(", ")) };
    format!("the API server's certificate does not have {name}{has}: {}", served::mending(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_without_the_name_is_told_with_the_flags_that_mend_it() {
        let presented = vec!["DnsName(\"kubernetes\")".to_owned()];
        let context = CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("api.edge-a.example").unwrap(),
            presented,
        };
        let error = io::Error::other(rustls::Error::InvalidCertificate(context));

        let said = not_verified("api.edge-a.example", error).to_string();

        for word in ["kubernetes", "certSANs", "--tls-san api.edge-a.example", "--tls-sni-cert-key"] {
            assert!(said.contains(word), "{said}");
        }
    }
}
