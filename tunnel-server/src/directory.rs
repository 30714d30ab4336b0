//! Which clusters this server has ever met, so that "not connected" and "never seen" are two answers.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use daemon::StateDir;
use daemon::state_dir::StateError;
use proto::ClusterId;
use serde::{Deserialize, Serialize};

/// Most clusters that are remembered.
pub const CLUSTERS_MAX: usize = 10_000;

/// The file in the state directory.
const FILE: &str = "clusters.json";

/// Largest file: more than [`CLUSTERS_MAX`] of the longest names take.
const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// The clusters that were met. Calls but for [`Directory::open`] and [`Directory::save`] do not block.
#[derive(Debug)]
pub struct Directory {
    state_dir: StateDir,
    clusters: Mutex<BTreeMap<ClusterId, SystemTime>>,
    /// Held over a whole save, so that an older state never replaces a newer one.
    saving: Mutex<()>,
}

/// What a meeting was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "after a first meeting the directory must be saved"]
pub enum Meeting {
    /// With a new cluster: save.
    First,
    /// With a known one.
    Again,
    /// With one that cannot be remembered, because [`CLUSTERS_MAX`] are known.
    Full,
}

/// Why the directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// What is there is not what we wrote.
    #[error(
        "{path} is damaged: restore it, or move it away, after which clusters that are not connected count as never seen until they come back"
    )]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A name in it is no cluster's, or there are too many.
    #[error("{path} is not one of ours ({reason}): restore it, or move it away")]
    Foreign {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Stored {
    /// When each was last seen, in seconds since 1970.
    clusters_last_seen: BTreeMap<String, u64>,
}

impl Directory {
    /// The directory that is kept in `state_dir`; empty if there is none yet. Blocks.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is damaged; it is never emptied silently.
    pub fn open(state_dir: StateDir) -> Result<Self, DirectoryError> {
        let clusters = match state_dir.read(FILE, FILE_BYTES_MAX)? {
            Some(bytes) => read(&bytes, || state_dir.path().join(FILE).display().to_string())?,
            None => BTreeMap::new(),
        };
        Ok(Self { state_dir, clusters: Mutex::new(clusters), saving: Mutex::default() })
    }

    /// Whether `cluster` was ever met.
    #[must_use]
    pub fn met(&self, cluster: &ClusterId) -> bool {
        self.clusters().contains_key(cluster)
    }

    /// When `cluster` was last seen, if it was ever met.
    #[must_use]
    pub fn last_seen(&self, cluster: &ClusterId) -> Option<SystemTime> {
        self.clusters().get(cluster).copied()
    }

    /// Every cluster that was ever met and that `wanted` picks, in the order of their names, and when it was last seen.
    #[must_use]
    pub fn entries(&self, wanted: impl Fn(&ClusterId) -> bool) -> Vec<(ClusterId, SystemTime)> {
        let clusters = self.clusters();
        let wanted = clusters.iter().filter(|(cluster, _)| wanted(cluster));
        wanted.map(|(cluster, seen)| (cluster.clone(), *seen)).collect()
    }

    /// Notes that `cluster` was here at `at`. What is known to be later stays, unless it is in the future: the clock was
    /// set back.
    pub fn meet(&self, cluster: &ClusterId, at: SystemTime) -> Meeting {
        let mut clusters = self.clusters();
        if let Some(last_seen) = clusters.get_mut(cluster) {
            if *last_seen < at || *last_seen > SystemTime::now() {
                *last_seen = at;
            }
            return Meeting::Again;
        }
        if clusters.len() >= CLUSTERS_MAX {
            return Meeting::Full;
        }
        clusters.insert(cluster.clone(), at);
        Meeting::First
    }

    /// Writes the directory to the state directory: after a first meeting, and at the end. Blocks.
    ///
    /// # Errors
    ///
    /// The system refused; the file is then as it was.
    pub fn save(&self) -> Result<(), StateError> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let clusters_last_seen = self
            .clusters()
            .iter()
            .map(|(cluster, seen)| (cluster.to_string(), unix_seconds(*seen)))
            .collect();
        let path = || self.state_dir.path().join(FILE);
        let bytes = serde_json::to_vec_pretty(&Stored { clusters_last_seen })
            .map_err(|error| StateError::Io { act: "write", path: path(), source: error.into() })?;
        self.state_dir.write(FILE, &bytes)
    }

    fn clusters(&self) -> MutexGuard<'_, BTreeMap<ClusterId, SystemTime>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(bytes: &[u8], path: impl Fn() -> String) -> Result<BTreeMap<ClusterId, SystemTime>, DirectoryError> {
    let stored: Stored =
        serde_json::from_slice(bytes).map_err(|source| DirectoryError::Damaged { path: path(), source })?;
    let Stored { clusters_last_seen } = stored;
    let foreign = |reason: String| DirectoryError::Foreign { path: path(), reason };
    if clusters_last_seen.len() > CLUSTERS_MAX {
        return Err(foreign(format!("it names more than {CLUSTERS_MAX} clusters")));
    }
    let entry = |(name, seconds): (String, u64)| {
        let cluster: ClusterId = name.parse().map_err(|error| foreign(format!("{error}")))?;
        let seen = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        Ok((cluster, seen.ok_or_else(|| foreign(format!("{seconds} is no time")))?))
    };
    clusters_last_seen.into_iter().map(entry).collect()
}

fn unix_seconds(time: SystemTime) -> u64 {
    // A clock before 1970 is wrong anyway.
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
