//! The content of the credential's files: the API server's address, its CA, and the token or client
//! certificate.

use std::path::Path;

use daemon::read_bounded;
use http::HeaderValue;
use http::uri::Authority;
use rustls_pki_types::ServerName;

use super::endpoints::Destination;
use error::FILE_BYTES_MAX;

pub use error::CredentialError;
pub(super) use error::KubeconfigError;

mod error;

/// Largest token that is accepted, in bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The content of the credential's files. It has no `Debug`, because it holds secrets.
#[derive(PartialEq, Eq)]
pub(super) struct Material {
    pub(super) target: ApiServerAddress,
    pub(super) ca: Vec<u8>,
    pub(super) ca_source: String,
    pub(super) client_certificate: Option<ClientCertificate>,
    pub(super) authorization: Option<HeaderValue>,
}

/// A client certificate with its key, PEM.
#[derive(PartialEq, Eq)]
pub(super) struct ClientCertificate {
    pub(super) chain: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) source: String,
}

/// The API server's address, and the name that its certificate must bear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiServerAddress {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) authority: Authority,
    pub(super) server_name: ServerName<'static>,
}

impl Material {
    /// Returns true if connections made with `other` may still be used.
    pub(super) fn connects_like(&self, other: &Self) -> bool {
        self.target == other.target
            && self.ca == other.ca
            && self.client_certificate == other.client_certificate
    }
}

impl ApiServerAddress {
    /// `name`, where it differs from `host`, is what the certificate must bear.
    pub(super) fn new(host: &str, port: u16, name: Option<&str>) -> Result<Self, CredentialError> {
        let refused = || CredentialError::Host(host.to_owned());
        let bracketed =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let name = name.unwrap_or(host).to_owned();
        Ok(Self {
            host: host.to_owned(),
            port,
            authority: bracketed.parse().map_err(|_| refused())?,
            server_name: ServerName::try_from(name.clone()).map_err(|_| CredentialError::Host(name))?,
        })
    }

    /// Another address at which the same certificate name is shown.
    pub(super) fn at(&self, destination: Destination) -> Self {
        let Some(address) = destination else {
            return self.clone();
        };
        // An address with its port is always a valid authority.
        let authority = address.to_string().parse().unwrap_or_else(|_| self.authority.clone());
        let (host, port) = (address.ip().to_string(), address.port());
        Self { host, port, authority, server_name: self.server_name.clone() }
    }
}

/// The value of `Authorization` for the token in a file, which may have blanks around it.
pub(super) fn bearer(token: &[u8], source: &str) -> Result<HeaderValue, CredentialError> {
    let token = token.trim_ascii();
    let fits = !token.is_empty() && token.len() <= TOKEN_BYTES_MAX && token.iter().all(u8::is_ascii_graphic);
    let refused = || CredentialError::Token(source.to_owned());
    if !fits {
        return Err(refused());
    }
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).map_err(|_| refused())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The bytes of a file, at most [`FILE_BYTES_MAX`].
pub(super) fn file(what: &'static str, path: &Path) -> Result<Vec<u8>, CredentialError> {
    let bytes = read_bounded(path, FILE_BYTES_MAX).map_err(|source| CredentialError::Unreadable {
        what,
        path: path.to_owned(),
        source,
    })?;
    bytes.ok_or_else(|| CredentialError::TooLarge { what, path: path.to_owned() })
}
