//! The credential for the API server, read again when its files change.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Uri, Version};
use tracing::{info, warn};

use super::material::{ApiServerAddress, CredentialError, Material};
use super::tls::TlsConfigs;
use super::{in_cluster, kubeconfig};
use crate::clock::Clock;
use crate::config::ApiServerSource;

/// The credential as it was at one moment.
pub(super) struct Snapshot {
    /// Counts changes of everything but the token: connections of an older epoch are not used again.
    pub(super) epoch: u64,
    pub(super) target: ApiServerAddress,
    pub(super) tls: TlsConfigs,
    /// The value of `Authorization`, marked as secret.
    pub(super) authorization: Option<HeaderValue>,
}

/// The owner of the credential that requests bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CredentialOwner {
    /// The agent itself owns the credential.
    Agent,
    /// The caller of each request, in the request's own header. Nothing of the agent's is used, not even to
    /// connect.
    Callers,
}

/// The credential as its files have it, with a delay of at most `recheck`.
pub(super) struct Credential {
    source: ApiServerSource,
    owner: CredentialOwner,
    recheck: Duration,
    clock: Clock,
    cached: RwLock<CachedCredential>,
    /// Locked by the task that reads the files.
    reading: tokio::sync::Mutex<()>,
}

/// The credential as it was last read.
struct CachedCredential {
    material: Arc<Material>,
    snapshot: Arc<Snapshot>,
    /// Time at which the files were last read. `None` if they have to be read again at once.
    checked: Option<Instant>,
    /// True if the last reading failed. The failure is logged once.
    has_failed: bool,
}

impl Credential {
    pub(super) fn load(
        source: ApiServerSource,
        owner: CredentialOwner,
        recheck: Duration,
        clock: Clock,
    ) -> Result<Self, CredentialError> {
        let material = read(&source, owner)?;
        let snapshot = Arc::new(Snapshot::new(&material, 0, TlsConfigs::new(&material, &clock)?));
        let cached = CachedCredential {
            material: Arc::new(material),
            snapshot,
            checked: Some(Instant::now()),
            has_failed: false,
        };
        Ok(Self {
            source,
            owner,
            recheck,
            clock,
            cached: RwLock::new(cached),
            reading: tokio::sync::Mutex::default(),
        })
    }

    /// The credential to use now. While one task reads the files, others use the cached one.
    pub(super) async fn current(&self) -> Arc<Snapshot> {
        let (snapshot, is_fresh) = self.cached();
        if is_fresh {
            return snapshot;
        }
        let Ok(_reading) = self.reading.try_lock() else {
            return snapshot;
        };
        let (source, owner) = (self.source.clone(), self.owner);
        // Files may lie on a disk or network that hangs.
        let read = tokio::task::spawn_blocking(move || read(&source, owner)).await;
        match read {
            Ok(read) => self.update(read),
            Err(_) => snapshot,
        }
    }

    /// The API server's address, as it was last read.
    pub(super) fn authority(&self) -> Authority {
        self.cached().0.target.authority.clone()
    }

    /// The owner of this credential.
    pub(super) fn owner(&self) -> CredentialOwner {
        self.owner
    }

    /// The API server did not accept the credential, so the files are read before the next request.
    pub(super) fn invalidate(&self) {
        self.cached.write().unwrap_or_else(PoisonError::into_inner).checked = None;
    }

    /// Sets the target and the credential of a request, in the form that the connection's HTTP version needs.
    pub(super) fn set_address<B>(
        &self,
        request: &mut Request<B>,
        path: &PathAndQuery,
        snapshot: &Snapshot,
        is_multiplexed: bool,
    ) {
        let authority = &snapshot.target.authority;
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(snapshot.target.path(path));
        if is_multiplexed {
            parts.scheme = Some(Scheme::HTTPS);
            parts.authority = Some(authority.clone());
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().remove(HOST);
        } else {
            *request.version_mut() = Version::HTTP_11;
            if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
                request.headers_mut().insert(HOST, host);
            }
        }
        // A path alone and a full URI are both complete, so neither can fail.
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        match (self.owner, &snapshot.authorization) {
            (CredentialOwner::Callers, _) => {}
            (CredentialOwner::Agent, Some(value)) => {
                drop(request.headers_mut().insert(AUTHORIZATION, value.clone()));
            }
            (CredentialOwner::Agent, None) => drop(request.headers_mut().remove(AUTHORIZATION)),
        }
    }

    fn cached(&self) -> (Arc<Snapshot>, bool) {
        let cached = self.cached.read().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = cached.checked.is_some_and(|checked| checked.elapsed() < self.recheck);
        (cached.snapshot.clone(), is_fresh)
    }

    /// The clock by which API servers' certificates are verified.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Takes over what was read, if it is usable and new. Otherwise the cached credential stays in use.
    fn update(&self, read: Result<Material, CredentialError>) -> Arc<Snapshot> {
        let mut cached = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        cached.checked = Some(Instant::now());
        let updated = read.and_then(|material| {
            if material == *cached.material {
                return Ok(None);
            }
            let Snapshot { epoch, tls, .. } = &*cached.snapshot;
            let (epoch, tls) = if material.connects_like(&cached.material) {
                (*epoch, tls.clone())
            } else {
                (epoch + 1, TlsConfigs::new(&material, &self.clock)?)
            };
            let snapshot = Snapshot::new(&material, epoch, tls);
            Ok(Some((material, snapshot)))
        });
        match updated {
            Ok(None) => cached.has_failed = false,
            Ok(Some((material, snapshot))) => {
                info!(epoch = snapshot.epoch, "the credential for the API server changed");
                cached.material = Arc::new(material);
                cached.snapshot = Arc::new(snapshot);
                cached.has_failed = false;
            }
            Err(error) => {
                if !cached.has_failed {
                    warn!(error = %daemon::error_chain(&error), "the credential for the API server cannot be read again");
                }
                cached.has_failed = true;
            }
        }
        cached.snapshot.clone()
    }
}

impl Snapshot {
    fn new(material: &Material, epoch: u64, tls: TlsConfigs) -> Self {
        Self { epoch, target: material.target.clone(), tls, authorization: material.authorization.clone() }
    }
}

fn read(source: &ApiServerSource, owner: CredentialOwner) -> Result<Material, CredentialError> {
    let material = match source {
        ApiServerSource::InCluster { directory, host, port } => in_cluster::read(directory, host, *port),
        ApiServerSource::Kubeconfig { path, context } => kubeconfig::read(path, context.as_deref()),
    }?;
    Ok(match owner {
        CredentialOwner::Agent => material,
        CredentialOwner::Callers => Material { client_certificate: None, authorization: None, ..material },
    })
}
