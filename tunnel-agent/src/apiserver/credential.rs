//! The agent's credential for its API server, read again when its files change.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use daemon::config::shown;
use http::HeaderValue;
use http::uri::Authority;
use rustls_pki_types::ServerName;
use tracing::{info, warn};

use super::endpoints::Place;
use super::tls::Configs;
use super::{in_cluster, kubeconfig};
use crate::config::ApiServerSource;

/// Largest file that is read: a kubeconfig of many clusters, or a CA bundle.
pub(super) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Largest token, in bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Why there is no usable credential.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file cannot be read.
    #[error(
        "cannot read the {what} {}, check that the file is there and that this user may read it",
        shown(&path.display().to_string())
    )]
    Unreadable {
        /// `token`, `CA certificate` and so on.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is too large.
    #[error("the {what} {} is larger than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// `token`, `CA certificate` and so on.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// No certificate or key in it.
    #[error("the {what} in {place} is not PEM, or nothing that TLS can use")]
    NotPem {
        /// `CA certificate`, `client certificate` or `client key`.
        what: &'static str,
        /// Where it was found.
        place: String,
    },
    /// No token in it.
    #[error("the token in {0} is empty, too long, or has characters that no token has")]
    Token(String),
    /// Certificate and key do not fit together, say.
    #[error("the client certificate cannot be used")]
    Tls(#[source] rustls::Error),
    /// The API server's address.
    #[error("{0:?} is not the name or address of an API server")]
    Host(String),
    /// The kubeconfig.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::KubeconfigError),
}

/// What the files said. No `Debug`: it holds secrets.
#[derive(PartialEq, Eq)]
pub(super) struct Material {
    pub(super) target: Target,
    pub(super) ca: Vec<u8>,
    pub(super) ca_place: String,
    pub(super) identity: Option<Identity>,
    pub(super) authorization: Option<HeaderValue>,
}

/// A client certificate with its key, PEM.
#[derive(PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) chain: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) place: String,
}

/// Where the API server is, and what its certificate must say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) authority: Authority,
    pub(super) server_name: ServerName<'static>,
}

/// The credential as it was at one moment.
pub(super) struct Snapshot {
    /// Counts changes of everything but the token: connections of an older epoch are not used again.
    pub(super) epoch: u64,
    pub(super) target: Target,
    pub(super) tls: Configs,
    /// The value of `Authorization`, marked as secret.
    pub(super) authorization: Option<HeaderValue>,
}

/// Whose credential requests bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The agent's own.
    Agent,
    /// Each its caller's, in a header of its own; of the agent's nothing is used, not even to connect.
    Callers,
}

/// The credential, always as the files have it, give or take `recheck`.
pub(super) struct Credential {
    source: ApiServerSource,
    whose: Whose,
    recheck: Duration,
    known: RwLock<Known>,
    /// Held by the one who reads the files.
    reading: tokio::sync::Mutex<()>,
}

struct Known {
    material: Arc<Material>,
    snapshot: Arc<Snapshot>,
    /// When the files were read last; `None` if they must be read again at once.
    checked: Option<Instant>,
    /// Whether the last reading failed, which is logged once.
    stale: bool,
}

impl Credential {
    pub(super) fn load(
        source: ApiServerSource,
        whose: Whose,
        recheck: Duration,
    ) -> Result<Self, CredentialError> {
        let material = read(&source, whose)?;
        let snapshot = Arc::new(Snapshot::new(&material, 0)?);
        let known =
            Known { material: Arc::new(material), snapshot, checked: Some(Instant::now()), stale: false };
        Ok(Self { source, whose, recheck, known: RwLock::new(known), reading: tokio::sync::Mutex::default() })
    }

    /// The credential to use now. While somebody reads the files, others use what was known.
    pub(super) async fn current(&self) -> Arc<Snapshot> {
        let (snapshot, fresh) = self.known();
        if fresh {
            return snapshot;
        }
        let Ok(_reading) = self.reading.try_lock() else {
            return snapshot;
        };
        let (source, whose) = (self.source.clone(), self.whose);
        // Files may lie on a disk or network that hangs.
        let read = tokio::task::spawn_blocking(move || read(&source, whose)).await;
        match read {
            Ok(read) => self.learn(read),
            Err(_) => snapshot,
        }
    }

    /// Where the API server is, as was last read.
    pub(super) fn authority(&self) -> Authority {
        self.known().0.target.authority.clone()
    }

    /// Whose it is.
    pub(super) fn whose(&self) -> Whose {
        self.whose
    }

    /// The API server did not accept the credential: look at the files before the next request.
    pub(super) fn distrust(&self) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).checked = None;
    }

    fn known(&self) -> (Arc<Snapshot>, bool) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let fresh = known.checked.is_some_and(|checked| checked.elapsed() < self.recheck);
        (known.snapshot.clone(), fresh)
    }

    /// Takes what was read, if it is usable and new; else what was known goes on.
    fn learn(&self, read: Result<Material, CredentialError>) -> Arc<Snapshot> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.checked = Some(Instant::now());
        let learnt = read.and_then(|material| {
            if material == *known.material {
                return Ok(None);
            }
            let epoch = known.snapshot.epoch + u64::from(!material.connects_like(&known.material));
            let snapshot = Snapshot::new(&material, epoch)?;
            Ok(Some((material, snapshot)))
        });
        match learnt {
            Ok(None) => known.stale = false,
            Ok(Some((material, snapshot))) => {
                info!(epoch = snapshot.epoch, "the credential for the API server changed");
                known.material = Arc::new(material);
                known.snapshot = Arc::new(snapshot);
                known.stale = false;
            }
            Err(error) => {
                if !known.stale {
                    warn!(error = %daemon::chain(&error), "the credential for the API server cannot be read again");
                }
                known.stale = true;
            }
        }
        known.snapshot.clone()
    }
}

impl Material {
    /// Whether connections made with `other` may still be used.
    fn connects_like(&self, other: &Self) -> bool {
        self.target == other.target && self.ca == other.ca && self.identity == other.identity
    }
}

impl Snapshot {
    fn new(material: &Material, epoch: u64) -> Result<Self, CredentialError> {
        Ok(Self {
            epoch,
            target: material.target.clone(),
            tls: Configs::new(material)?,
            authorization: material.authorization.clone(),
        })
    }
}

impl Target {
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

    /// The same API server's certificate, shown at another place.
    pub(super) fn at(&self, place: Place) -> Self {
        let Some(address) = place else {
            return self.clone();
        };
        // An address with its port is always one.
        let authority = address.to_string().parse().unwrap_or_else(|_| self.authority.clone());
        let (host, port) = (address.ip().to_string(), address.port());
        Self { host, port, authority, server_name: self.server_name.clone() }
    }
}

/// The value of `Authorization` for a token as files have it, with blanks around it.
pub(super) fn bearer(token: &[u8], place: &str) -> Result<HeaderValue, CredentialError> {
    let token = token.trim_ascii();
    let fits = !token.is_empty() && token.len() <= TOKEN_BYTES_MAX && token.iter().all(u8::is_ascii_graphic);
    let refused = || CredentialError::Token(place.to_owned());
    if !fits {
        return Err(refused());
    }
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).map_err(|_| refused())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The bytes of a file, at most [`FILE_BYTES_MAX`].
pub(super) fn file(what: &'static str, path: &Path) -> Result<Vec<u8>, CredentialError> {
    let mut bytes = Vec::new();
    // One byte more than allowed, so that a file that is too large shows.
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Err(source) => Err(CredentialError::Unreadable { what, path: path.to_owned(), source }),
        Ok(_) if bytes.len() as u64 > FILE_BYTES_MAX => {
            Err(CredentialError::TooLarge { what, path: path.to_owned() })
        }
        Ok(_) => Ok(bytes),
    }
}

fn read(source: &ApiServerSource, whose: Whose) -> Result<Material, CredentialError> {
    let material = match source {
        ApiServerSource::InCluster { directory, host, port } => in_cluster::read(directory, host, *port),
        ApiServerSource::Kubeconfig { path, context } => kubeconfig::read(path, context.as_deref()),
    }?;
    Ok(match whose {
        Whose::Agent => material,
        Whose::Callers => Material { identity: None, authorization: None, ..material },
    })
}
