//! The memory for the answers of clusters, which one read, and all reads together, may take.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most bytes of the answer of one cluster.
pub(super) const CLUSTER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most bytes of the answers of all clusters to one read.
const READ_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most bytes of the answers to all reads together.
const ALL_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The room for all reads. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Room(Arc<Semaphore>);

/// The room that one read has taken, until it is dropped.
#[derive(Debug)]
pub(super) struct ReadRoom {
    all: Arc<Semaphore>,
    taken: Mutex<(usize, Option<OwnedSemaphorePermit>)>,
}

/// An answer does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRoom {
    #[error("its answer has more than {max} MiB: ask for pages (limit), or for fewer objects", max = CLUSTER_BYTES_MAX >> 20)]
    Cluster,
    #[error("the answers of all clusters have more than {max} MiB: ask for pages (limit), or for fewer objects", max = READ_BYTES_MAX >> 20)]
    Read,
    #[error("this server holds as many answers for cluster sets as it may: try again in a second")]
    Server,
}

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ALL_BYTES_MAX)))
    }
}

impl Room {
    /// The room for a new read.
    pub(super) fn of_read(&self) -> ReadRoom {
        ReadRoom { all: Arc::clone(&self.0), taken: Mutex::default() }
    }
}

impl ReadRoom {
    /// Takes room for some more bytes of an answer that has `has` bytes already.
    ///
    /// # Errors
    /// [`NoRoom`]
    pub(super) fn take(&self, has: usize, more: usize) -> Result<(), NoRoom> {
        if has.saturating_add(more) > CLUSTER_BYTES_MAX {
            return Err(NoRoom::Cluster);
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.0.saturating_add(more) > READ_BYTES_MAX {
            return Err(NoRoom::Read);
        }
        let permits = u32::try_from(more).map_err(|_| NoRoom::Server)?;
        let permit = Arc::clone(&self.all).try_acquire_many_owned(permits).map_err(|_| NoRoom::Server)?;
        taken.0 += more;
        match &mut taken.1 {
            Some(all) => all.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_a_read_and_all_reads_have_limits_and_give_room_back() {
        let room = Room::default();
        let first = room.of_read();
        assert_eq!(first.take(0, CLUSTER_BYTES_MAX), Ok(()));
        assert_eq!(first.take(CLUSTER_BYTES_MAX, 1), Err(NoRoom::Cluster));
        for _ in 1..READ_BYTES_MAX / CLUSTER_BYTES_MAX {
            assert_eq!(first.take(0, CLUSTER_BYTES_MAX), Ok(()));
        }
        assert_eq!(first.take(0, 1), Err(NoRoom::Read));
        let others: Vec<ReadRoom> = (1..ALL_BYTES_MAX / READ_BYTES_MAX).map(|_| room.of_read()).collect();
        for other in &others {
            for _ in 0..READ_BYTES_MAX / CLUSTER_BYTES_MAX {
                assert_eq!(other.take(0, CLUSTER_BYTES_MAX), Ok(()));
            }
        }
        let late = room.of_read();
        assert_eq!(late.take(0, 1), Err(NoRoom::Server));
        drop(first);
        assert_eq!(late.take(0, 1), Ok(()));
    }
}
