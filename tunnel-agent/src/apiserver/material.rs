//! The content of the credential's files: the API server's address, its CA, and the token or client
//! certificate.

use std::path::Path;

use daemon::read_bounded;
use http::HeaderValue;
use http::header::{HeaderMap, LOCATION};
use http::uri::{Authority, PathAndQuery};
use rustls_pki_types::ServerName;

use super::endpoints::Destination;
use super::location;
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
    /// The path below which the API server serves its own, such as `/k8s/clusters/c-1`. Empty for none.
    base_path: String,
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
            base_path: String::new(),
        })
    }

    /// The same, where the API server serves its paths below this one, which is empty or begins with a slash
    /// and ends with none.
    pub(super) fn with_base_path(self, base_path: String) -> Self {
        Self { base_path, ..self }
    }

    /// The path to ask for, so that the API server serves `path`, byte for byte.
    pub(super) fn path(&self, path: &PathAndQuery) -> PathAndQuery {
        if self.base_path.is_empty() {
            return path.clone();
        }
        // Both parts were parsed as paths before, so this does not fail.
        format!("{}{path}", self.base_path).parse().unwrap_or_else(|_| path.clone())
    }

    /// Makes a `Location` on this API server one that does not know its address and base path: a path as
    /// callers ask for it. One beside the base path leads out of the cluster, so it gets the address of its
    /// host. Relative references, and those to other hosts, stay as they are.
    pub(super) fn strip_base_path(&self, headers: &mut HeaderMap) {
        let mut locations = headers.get_all(LOCATION).iter();
        // Of several the gateway decides: it has to see all of them.
        let (Some(location), None) = (locations.next(), locations.next()) else { return };
        let path_here = location::path_at(location, &self.authority);
        let path = path_here.as_deref().or_else(|| location.to_str().ok());
        let Some(path) = path.filter(|path| path.starts_with('/') && !path.starts_with("//")) else { return };
        let inside = match path.strip_prefix(self.base_path.as_str()) {
            Some(inside) if inside.is_empty() || inside.starts_with('?') => format!("/{inside}"),
            // Two slashes would be the begin of another host's name.
            Some(inside) if inside.starts_with('/') && !inside.starts_with("//") => inside.to_owned(),
            Some(_) | None => format!("https://{}{path}", self.authority),
        };
        if let Ok(inside) = HeaderValue::from_str(&inside) {
            headers.insert(LOCATION, inside);
        }
    }

    /// Another address at which the same certificate name is shown.
    pub(super) fn at(&self, destination: Destination) -> Self {
        let Some(address) = destination else {
            return self.clone();
        };
        // An address with its port is always a valid authority.
        let authority = address.to_string().parse().unwrap_or_else(|_| self.authority.clone());
        let (host, port) = (address.ip().to_string(), address.port());
        Self { host, port, authority, ..self.clone() }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn address(base_path: &str) -> ApiServerAddress {
        ApiServerAddress::new("rancher.example", 443, None).unwrap().with_base_path(base_path.to_owned())
    }

    #[test]
    fn a_path_is_asked_for_below_the_base_path_byte_for_byte() {
        let path: PathAndQuery = "/api//v1/%70ods/../x?a=%20&&b".parse().unwrap();

        assert_eq!(address("").path(&path), path);
        assert_eq!(
            address("/k8s/clusters/c-1").path(&path),
            "/k8s/clusters/c-1/api//v1/%70ods/../x?a=%20&&b"
        );
    }

    #[test]
    fn a_location_on_the_api_server_is_a_path_as_callers_ask_for_it() {
        for (base_path, location, expected) in [
            ("", "/api/v1?x=1#y", "/api/v1?x=1#y"),
            ("", "https://rancher.example/api", "/api"),
            ("", "https://RANCHER.example:443/api?x", "/api?x"),
            ("", "https://rancher.example", "/"),
            ("", "https://rancher.example?x=1", "/?x=1"),
            ("/k8s/c", "/k8s/c/api/v1?x=1", "/api/v1?x=1"),
            ("/k8s/c", "/k8s/c", "/"),
            ("/k8s/c", "/k8s/c?x=1", "/?x=1"),
            ("/k8s/c", "https://rancher.example/k8s/c/api", "/api"),
            // These lead out of the cluster.
            ("/k8s/c", "/login", "https://rancher.example:443/login"),
            ("/k8s/c", "/k8s/c2/api", "https://rancher.example:443/k8s/c2/api"),
            ("/k8s/c", "https://rancher.example/login", "https://rancher.example:443/login"),
            ("/k8s/c", "/k8s/c//elsewhere.test", "https://rancher.example:443/k8s/c//elsewhere.test"),
            ("", "https://rancher.example//elsewhere.test", "/elsewhere.test"),
            // These are no references to it, or say nothing of its address.
            ("/k8s/c", "login?next=x", "login?next=x"),
            ("/k8s/c", "?page=2", "?page=2"),
            ("/k8s/c", "./a", "./a"),
            ("/k8s/c", "//other.example/k8s/c/api", "//other.example/k8s/c/api"),
            ("/k8s/c", "https://other.example/k8s/c/api", "https://other.example/k8s/c/api"),
            ("", "https://rancher.example:6443/api", "https://rancher.example:6443/api"),
            ("", "http://rancher.example/api", "http://rancher.example/api"),
            ("", "https://u@rancher.example/api", "https://u@rancher.example/api"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, HeaderValue::from_str(location).unwrap());

            address(base_path).strip_base_path(&mut headers);

            assert_eq!(headers[LOCATION], expected, "{base_path:?} {location}");
        }
    }
    #[test]
    fn several_locations_stay_as_they_are() {
        for locations in [["/k8s/c/x", "https://other.example/"], ["https://other.example/", "/k8s/c/x"]] {
            let mut headers = HeaderMap::new();
            for location in locations {
                headers.append(LOCATION, HeaderValue::from_static(location));
            }

            address("/k8s/c").strip_base_path(&mut headers);

            assert!(headers.get_all(LOCATION).iter().eq(locations));
        }
    }
}
