//! Elections among the servers that share their records: the leader does what only one of them may do.

use std::time::{Duration, Instant};

use tracing::info;

use super::Directory;
use super::leader::Leader;
use super::store::{SharedElection, StoreError, StoreTable};

/// The time for which a server that shares no records leads from any moment on: it asks again before that.
const ALONE_FOR: Duration = Duration::from_secs(60 * 60);

/// The part of this server in an election. A server that shares no records is always the leader.
///
/// By its own clock a server stops to lead before etcd ends its lease, and so before another one can lead. Ask
/// [`Election::leads_until`] before each step, because the process may have been stopped meanwhile.
#[derive(Debug)]
pub struct Election {
    directory: Directory,
    name: String,
    shared: Option<SharedElection>,
}

impl Directory {
    /// The part of the server `server_id` in the election of this name. It leads once it was a candidate.
    #[must_use]
    pub fn election(&self, name: &str, server_id: &str) -> Election {
        let shared = self.0.store.election(name, server_id);
        Election { directory: self.clone(), name: name.to_owned(), shared }
    }

    /// The server that leads in an election, as far as memory knows; `None` if nobody leads, or nobody shares the records.
    #[must_use]
    pub fn leader(&self, election: &str) -> Option<String> {
        self.cache().leaders.get(election).map(|leader| leader.server_id.clone())
    }
}

impl Election {
    /// Makes this server the leader if there is none, and returns whether it leads. etcd is asked only if nobody is known to lead.
    ///
    /// # Errors
    /// [`StoreError`]. Then it does not lead.
    pub async fn campaign(&mut self) -> Result<bool, StoreError> {
        if self.leads_until().is_some() {
            return Ok(true);
        }
        let is_free = self.known_leader().is_none_or(|leader| self.is_own(&leader));
        let Some(shared) = self.shared.as_mut().filter(|_| is_free) else { return Ok(false) };
        let directory = &self.directory;
        let value = |server_id: &str, lease| {
            let leader = Leader { server_id: server_id.to_owned(), lease };
            let value = serde_json::to_vec(&leader);
            value.map_err(|error| directory.0.store.damaged_at(StoreTable::Leaders, server_id, error))
        };
        shared.campaign(value).await?;
        let leads = self.leads_until().is_some();
        if leads {
            info!(election = self.name, "this server is elected, and leads");
        }
        Ok(leads)
    }

    /// The time until which no other server can lead, by this server's own clock; `None` if this one does not lead.
    #[must_use]
    pub fn leads_until(&self) -> Option<Instant> {
        let Some(shared) = &self.shared else { return Some(Instant::now() + ALONE_FOR) };
        // Somebody may have removed the key by hand.
        let is_others = self.known_leader().is_some_and(|leader| !self.is_own(&leader));
        if is_others { None } else { shared.leads_until() }
    }

    /// The time until which the others know this server as one that runs, by its own clock; `None` if they may not.
    #[must_use]
    pub fn registered_until(&self) -> Option<Instant> {
        match &self.shared {
            None => Some(Instant::now() + ALONE_FOR),
            Some(shared) => shared.registered_until(),
        }
    }

    /// Gives the lead up, if this server has it. Another one can lead at once.
    ///
    /// # Errors
    /// [`StoreError`]. Then the lead ends with the lease.
    pub async fn resign(&mut self) -> Result<(), StoreError> {
        match &mut self.shared {
            Some(shared) => shared.resign().await,
            None => Ok(()),
        }
    }

    fn known_leader(&self) -> Option<Leader> {
        self.directory.cache().leaders.get(&self.name).cloned()
    }

    fn is_own(&self, leader: &Leader) -> bool {
        let value = serde_json::to_vec(leader).ok();
        self.shared.as_ref().is_some_and(|shared| value.is_some_and(|value| shared.has_written(&value)))
    }
}

#[cfg(test)]
mod tests {
    use daemon::StateDir;

    use super::*;

    #[tokio::test]
    async fn a_server_that_shares_no_records_always_leads() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateDir::open(&folder.path().join("state")).expect("ours");
        let directory = Directory::open(&state).expect("an empty store");
        let mut election = directory.election("janitor", "gateway");

        assert!(election.leads_until().is_some() && election.registered_until().is_some());
        assert!(election.campaign().await.unwrap());
        election.resign().await.unwrap();
        assert!(election.leads_until().is_some());
        assert_eq!(directory.leader("janitor"), None, "nothing is written");
    }
}
