//! The agent's credential for its API server, read again when its files change.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::HeaderValue;
use http::uri::Authority;
use tracing::{info, warn};

use super::material::{CredentialError, Material, Target};
use super::tls::Configs;
use super::{in_cluster, kubeconfig};
use crate::config::ApiServerSource;

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
