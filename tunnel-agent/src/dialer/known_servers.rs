//! The servers that the agent was told of: the newest list, also after a restart.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daemon::{StateDir, StateError, StateFile};
use proto::frame::Message as _;
use proto::server_list::{SERVERS_BYTES_MAX, ServerList};
use proto::wire::Servers;
use tokio::sync::watch;

/// The file in the state directory with the newest list.
const FILE: StateFile = StateFile::Servers;

/// The lists that the servers of open tunnels have sent. Clones share them.
#[derive(Clone)]
pub(super) struct KnownServers(Arc<SharedLists>);

struct SharedLists {
    /// The newest list of each open tunnel, by the tunnel's sequence. One that is empty comes from a server that shares its
    /// records with nobody.
    heard: Mutex<Vec<(u64, ServerList)>>,
    newest: watch::Sender<Arc<ServerList>>,
}

impl KnownServers {
    /// Begins with the list of the last run, if there is one. Blocks.
    ///
    /// # Errors
    /// The state directory cannot be read.
    pub(super) fn open(state: &StateDir) -> Result<Self, StateError> {
        let parse = |bytes: &[u8]| Servers::decode(bytes);
        let stored = state.read_or_replace(FILE, SERVERS_BYTES_MAX as u64, parse)?;
        Ok(Self::starting_with(stored.map(ServerList::from_wire).unwrap_or_default()))
    }

    fn starting_with(list: ServerList) -> Self {
        let newest = watch::Sender::new(Arc::new(list));
        Self(Arc::new(SharedLists { heard: Mutex::default(), newest }))
    }

    /// The server at the other end of this tunnel has sent a list.
    pub(super) fn heard(&self, sequence: u64, list: ServerList) {
        let mut heard = self.lists();
        heard.retain(|(of, _)| *of != sequence);
        heard.push((sequence, list));
        self.choose(&heard);
    }

    /// This tunnel has ended. Its list counts no more, unless it is the last one.
    pub(super) fn ended(&self, sequence: u64) {
        let mut heard = self.lists();
        heard.retain(|(of, _)| *of != sequence);
        self.choose(&heard);
    }

    /// The newest list, and each change of it.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<ServerList>> {
        self.0.newest.subscribe()
    }

    /// The highest revision counts, and only among servers that are connected: after records were restored from a backup, their
    /// revisions are lower.
    fn choose(&self, heard: &[(u64, ServerList)]) {
        let Some((_, newest)) = heard.iter().max_by_key(|(_, list)| list.revision()) else { return };
        self.0.newest.send_if_modified(|current| {
            let is_new = current.servers() != newest.servers();
            if is_new {
                *current = Arc::new(newest.clone());
            }
            is_new
        });
    }

    fn lists(&self) -> MutexGuard<'_, Vec<(u64, ServerList)>> {
        // Every change leaves a valid list behind, so a poisoned lock does no harm.
        self.0.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores a list for the next start. Blocks.
///
/// # Errors
/// The state directory cannot be written.
pub(super) fn store(state: &StateDir, list: &ServerList) -> Result<(), StateError> {
    state.write(FILE, &list.to_wire().encode_to_vec())
}

#[cfg(test)]
mod tests {
    use proto::server_list::ListedServer;

    use super::*;

    #[test]
    fn the_list_of_the_highest_revision_counts() {
        let known = KnownServers::starting_with(ServerList::default());
        known.heard(1, list(7, &["a", "b"]));
        known.heard(2, list(5, &["a"]));
        assert_eq!(names(&known), ["a", "b"]);
        known.heard(2, list(8, &["b"]));
        assert_eq!(names(&known), ["b"]);
    }

    #[test]
    fn after_a_restored_backup_a_lower_revision_counts() {
        let known = KnownServers::starting_with(list(900, &["a", "b"]));
        known.heard(1, list(950, &["a", "b", "c"]));
        known.ended(1);
        assert_eq!(names(&known), ["a", "b", "c"], "the last list stays without a tunnel");
        known.heard(2, list(3, &["a"]));
        assert_eq!(names(&known), ["a"]);
    }

    #[test]
    fn a_server_that_shares_nothing_ends_the_list_if_no_other_has_one() {
        let known = KnownServers::starting_with(list(900, &["a", "b"]));
        known.heard(1, list(950, &["a", "b"]));
        known.heard(2, ServerList::default());
        assert_eq!(names(&known), ["a", "b"]);
        known.ended(1);
        assert_eq!(names(&known), Vec::<String>::new());
    }

    #[test]
    fn a_stored_list_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(&folder.path().join("state")).unwrap();
        assert_eq!(names(&KnownServers::open(&state).unwrap()), Vec::<String>::new());

        store(&state, &list(7, &["a", "b"])).unwrap();
        assert_eq!(names(&KnownServers::open(&state).unwrap()), ["a", "b"]);

        state.write(FILE, b"\xff\xff\xff").unwrap();
        assert_eq!(names(&KnownServers::open(&state).unwrap()), Vec::<String>::new());
    }

    fn list(revision: i64, ids: &[&str]) -> ServerList {
        let server = |id: &&str| ListedServer {
            id: (*id).to_owned(),
            addresses: vec![format!("{id}.example:8443")],
            is_draining: false,
        };
        ServerList::new(revision, ids.iter().map(server))
    }

    fn names(known: &KnownServers) -> Vec<String> {
        known.subscribe().borrow().servers().iter().map(|server| server.id.clone()).collect()
    }
}
