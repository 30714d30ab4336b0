//! Servers whose entries went away without a word. One that is cut off from etcd still serves for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::records::RegisteredServer;

/// The longest limit that can be configured, for a server that does not say which one it has.
const STALE_LIMIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A server that has news from etcd registers itself again within this time.
const REGISTERS_WITHIN: Duration = Duration::from_secs(10);

/// Most servers that are remembered. Beyond it, the first to refuse everybody is forgotten.
const DEPARTED_MAX: usize = 256;

/// The servers that may still run, by ID.
#[derive(Debug, Default)]
pub(super) struct DepartedServers(BTreeMap<String, DepartedServer>);

/// A server that may still run.
#[derive(Debug, Clone)]
pub(super) struct DepartedServer {
    /// Its last entry among the servers.
    pub(super) server: Arc<RegisteredServer>,
    /// The time from which it refuses everybody, because it has had no news.
    pub(super) refuses_from: SystemTime,
}

impl RegisteredServer {
    /// The age of its memory at which it refuses everybody.
    pub(super) fn stale_limit(&self) -> Duration {
        self.stale_limit_seconds.map_or(STALE_LIMIT_MAX, Duration::from_secs)
    }
}

impl DepartedServers {
    /// Notes that an entry went away. A server that had said that it stops has ended.
    pub(super) fn insert(&mut self, id: String, server: Arc<RegisteredServer>, now: SystemTime) {
        self.0.retain(|_, departed| departed.refuses_from > now);
        if server.draining {
            return;
        }
        if self.0.len() >= DEPARTED_MAX {
            let first = self.0.iter().min_by_key(|(_, departed)| departed.refuses_from);
            let first = first.map(|(id, _)| id.clone());
            first.into_iter().for_each(|id| drop(self.0.remove(&id)));
        }
        let refuses_from = now + REGISTERS_WITHIN + server.stale_limit();
        self.0.insert(id, DepartedServer { server, refuses_from });
    }

    /// Forgets a server that is registered again: its earlier process is gone.
    pub(super) fn remove(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Those that may still serve at `now`.
    pub(super) fn at(&self, now: SystemTime) -> impl Iterator<Item = (&String, &DepartedServer)> {
        self.0.iter().filter(move |(_, departed)| departed.refuses_from > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_left_without_a_word_may_serve_until_it_is_stale() {
        let mut departed = DepartedServers::default();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        departed.insert("one".to_owned(), server(false, Some(300)), at(100));
        departed.insert("two".to_owned(), server(true, Some(300)), at(100));
        departed.insert("three".to_owned(), server(false, None), at(100));

        let names = |now| departed.at(now).map(|(id, _)| id.as_str()).collect::<Vec<_>>();
        assert_eq!(names(at(409)), ["one", "three"], "the second one had said that it stops");
        assert_eq!(names(at(410)), ["three"], "nobody knows the limit of the third");
        assert!(names(at(100 + 10 + 24 * 60 * 60)).is_empty());
    }

    #[test]
    fn a_server_that_is_registered_again_has_not_left() {
        let mut departed = DepartedServers::default();
        departed.insert("one".to_owned(), server(false, Some(300)), SystemTime::UNIX_EPOCH);

        departed.remove("one");

        assert_eq!(departed.at(SystemTime::UNIX_EPOCH).count(), 0);
    }

    #[test]
    fn as_many_are_remembered_as_there_may_be() {
        let mut departed = DepartedServers::default();
        for number in 0..2 * DEPARTED_MAX {
            let now = SystemTime::UNIX_EPOCH + Duration::from_millis(number as u64);
            departed.insert(format!("server-{number}"), server(false, Some(300)), now);
        }

        let last = format!("server-{}", 2 * DEPARTED_MAX - 1);
        let all: Vec<_> = departed.at(SystemTime::UNIX_EPOCH).map(|(id, _)| id.clone()).collect();
        assert!(all.len() == DEPARTED_MAX && all.contains(&last), "{all:?}");
    }

    fn server(draining: bool, stale_limit_seconds: Option<u64>) -> Arc<RegisteredServer> {
        Arc::new(RegisteredServer {
            level: 1,
            epoch: "1".to_owned(),
            keys_mark: "1".to_owned(),
            software: String::new(),
            started: SystemTime::UNIX_EPOCH.into(),
            addresses: Vec::new(),
            peering: None,
            draining,
            stale_limit_seconds,
        })
    }
}
