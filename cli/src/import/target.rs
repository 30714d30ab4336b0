//! The store that gets the records, as the server's configuration names it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::config::{LoadError, parse_without_head, with_server_id};
use etcd::{Endpoint, NotAnEndpoint};
use proto::spiffe::TRUST_DOMAIN_DEFAULT;
use records::layout::{PREFIX_DEFAULT, keys_below};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use serde::Deserialize;

use crate::args::ServerImport;
use crate::files::{self, ReadError};
use crate::pem::{self, PemError};
use crate::tls::{self, ALPN_H2};

/// The kind of a server's configuration.
const KIND: &str = "ServerConfig";

/// The default directory of the server's state.
const STATE_DEFAULT: &str = "/var/lib/tombolo/server";

/// The store, and the trust domain of its servers.
pub(super) struct ImportTarget {
    pub(super) store: TargetStore,
    pub(super) trust_domain: String,
}

/// The kind of a store.
pub(super) enum TargetStore {
    /// The state directory of one server.
    StateDir(PathBuf),
    /// The etcd of several servers.
    Etcd(EtcdTarget),
}

/// The etcd of several servers, and the beginning of all their keys.
pub(super) struct EtcdTarget {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) prefix: String,
}

/// The error if a configuration names no store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Invalid(#[from] LoadError),
    #[error("{0} is of kind {1}; name the configuration of a server with --config")]
    OtherKind(PathBuf, String),
    #[error("directory.etcd.endpoints names no member; name all members of etcd there")]
    NoEndpoint,
    #[error("directory.etcd.endpoints is wrong")]
    Endpoint(#[from] NotAnEndpoint),
    #[error("directory.etcd.{0} is missing, and etcd's members have TLS")]
    NoFile(&'static str),
    #[error("the prefix {0:?} of directory.etcd is no path such as {PREFIX_DEFAULT}")]
    Prefix(String),
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error("the files of directory.etcd cannot be used")]
    Tls(#[from] rustls::Error),
}

/// The keys of the configuration that name the store.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoreConfig {
    kind: String,
    state_dir: Option<PathBuf>,
    trust_domain: Option<String>,
    #[serde(default)]
    directory: DirectorySection,
}

#[derive(Default, Deserialize)]
struct DirectorySection {
    etcd: Option<EtcdSection>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EtcdSection {
    #[serde(default)]
    endpoints: Vec<String>,
    ca_file: Option<PathBuf>,
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    prefix: Option<String>,
}

impl ImportTarget {
    /// The store that the arguments name.
    pub(super) fn of(args: &ServerImport) -> Result<Self, TargetError> {
        if let Some(state_dir) = &args.state_dir {
            let store = TargetStore::StateDir(state_dir.clone());
            return Ok(Self { store, trust_domain: args.trust_domain.to_string() });
        }
        Self::read(&args.config, args.server_id.as_deref())
    }

    fn read(path: &Path, server_id: Option<&str>) -> Result<Self, TargetError> {
        let text = with_server_id(files::read(path)?, server_id, path)?;
        let StoreConfig { kind, state_dir, trust_domain, directory } = parse_without_head(&text, path)?;
        if kind != KIND {
            return Err(TargetError::OtherKind(path.to_owned(), daemon::config::redact(&kind).to_string()));
        }
        let base = path.parent().unwrap_or_else(|| Path::new(""));
        let trust_domain = trust_domain.unwrap_or_else(|| TRUST_DOMAIN_DEFAULT.to_owned());
        let store = match directory.etcd {
            Some(section) => TargetStore::Etcd(EtcdTarget::new(section, &trust_domain, base)?),
            None => TargetStore::StateDir(base.join(state_dir.unwrap_or_else(|| STATE_DEFAULT.into()))),
        };
        Ok(Self { store, trust_domain })
    }
}

impl EtcdTarget {
    fn new(section: EtcdSection, trust_domain: &str, base: &Path) -> Result<Self, TargetError> {
        let EtcdSection { endpoints, ca_file, certificate_file, key_file, prefix } = section;
        let endpoints: Vec<Endpoint> =
            endpoints.iter().map(|endpoint| endpoint.parse()).collect::<Result<_, _>>()?;
        if endpoints.is_empty() {
            return Err(TargetError::NoEndpoint);
        }
        let tls = if endpoints.iter().any(|endpoint| endpoint.tls_name().is_some()) {
            let file = |name, file: Option<PathBuf>| {
                file.map(|file| base.join(file)).ok_or(TargetError::NoFile(name))
            };
            let roots = pem::read_certificates(&file("caFile", ca_file)?)?.ders;
            let certificate = file("certificateFile", certificate_file)?;
            let identity = pem::read_identity(&certificate, &file("keyFile", key_file)?)?;
            Some(tls::client(roots, Some(identity), &[&TLS13, &TLS12], ALPN_H2)?)
        } else {
            None
        };
        let prefix = prefix.unwrap_or_else(|| PREFIX_DEFAULT.to_owned());
        let below = keys_below(&prefix, trust_domain).ok_or(TargetError::Prefix(prefix))?;
        Ok(Self { endpoints, tls, prefix: below })
    }
}
