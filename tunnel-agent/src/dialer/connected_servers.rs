//! Which servers are reached, and from where: a server that is found by two addresses gets one tunnel.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::wire::Welcome;
use tokio::sync::watch;

/// The servers to which there are tunnels. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct ConnectedServers(Arc<Inner>);

#[derive(Default)]
struct Inner {
    entries: Mutex<Vec<Entry>>,
    next: std::sync::atomic::AtomicU64,
    changed: watch::Sender<()>,
}

/// A tunnel.
struct Entry {
    number: u64,
    server: Server,
    /// The supervisor of the address by which the server is reached.
    supervisor: u64,
    /// Asks whether the server was heard lately, and takes what is new.
    serves: Box<dyn Fn() -> bool + Send>,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    id: String,
    /// Which process; empty from a server that does not say.
    boot: Vec<u8>,
    /// Names its keys; empty from a server that does not say.
    keys: Vec<u8>,
}

/// A tunnel's place on the roll, which it leaves when this is dropped.
#[must_use = "the tunnel leaves the roll when this is dropped"]
pub(super) struct Registration {
    roll: ConnectedServers,
    number: u64,
}

/// What two servers have in common and must not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ServerConflict {
    #[error("two servers call themselves {0}: give each a serverId of its own")]
    Id(String),
    #[error(
        "servers {0} and {1} have the same keys, so that one ends tunnels of the other: give each a state directory of \
         its own, and no copy"
    )]
    Keys(String, String),
}

impl ConnectedServers {
    /// Enters a tunnel to `server` that `supervisor` has; `None` if another supervisor has one to the same process that serves. One
    /// that is silent is no reason: its address may lead nowhere any more, as where IPv6 is broken and IPv4 is not.
    pub(super) fn enter(
        &self,
        supervisor: u64,
        server: Server,
        serves: impl Fn() -> bool + Send + 'static,
    ) -> Option<Registration> {
        let mut entries = self.entries();
        let is_double =
            |other: &Entry| other.supervisor != supervisor && other.server.is(&server) && (other.serves)();
        if entries.iter().any(is_double) {
            return None;
        }
        let number = self.0.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        entries.push(Entry { number, server, supervisor, serves: Box::new(serves) });
        Some(Registration { roll: self.clone(), number })
    }

    /// Whether a tunnel to this server serves.
    pub(super) fn reaches(&self, server: &Server) -> bool {
        self.entries().iter().any(|entry| entry.server.is(server) && (entry.serves)())
    }

    /// The server that `supervisor` has a tunnel to, and another supervisor a younger one, if both serve: the younger has come while
    /// the elder was silent, and stays.
    pub(super) fn gives_way(&self, supervisor: u64) -> Option<Server> {
        let entries = self.entries();
        let mine = entries.iter().filter(|entry| entry.supervisor == supervisor && (entry.serves)());
        let is_younger = |other: &Entry, mine: &Entry| {
            other.supervisor != supervisor && other.number > mine.number && other.server.is(&mine.server)
        };
        let mut elder =
            mine.filter(|mine| entries.iter().any(|other| is_younger(other, mine) && (other.serves)()));
        elder.next().map(|mine| mine.server.clone())
    }

    /// Says that a tunnel does otherwise than before.
    pub(super) fn tell(&self) {
        self.0.changed.send_replace(());
    }

    /// Is told whenever a tunnel has left the roll, or does otherwise than before.
    pub(super) fn changed(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        // Every change is a single push or retain, so poison means nothing here.
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// The server that has said this.
    pub(super) fn of(welcome: &Welcome) -> Self {
        Self {
            id: welcome.server_id.clone(),
            boot: welcome.boot_nonce.clone(),
            keys: welcome.keys_mark.clone(),
        }
    }

    /// Whether both are the same process, as far as is known.
    fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.boot == other.boot
    }

    fn twins(&self, other: &Self) -> Option<ServerConflict> {
        if self.is(other) {
            None
        } else if self.id == other.id {
            Some(ServerConflict::Id(self.id.clone()))
        } else if !self.keys.is_empty() && self.keys == other.keys {
            Some(ServerConflict::Keys(self.id.clone(), other.id.clone()))
        } else {
            None
        }
    }
}

impl Registration {
    /// What this tunnel's server has in common with another that is there, too. Meant to be asked once a tunnel has held
    /// for a while: just after a restart the tunnel of the process before may still look alive.
    pub(super) fn twins(&self) -> Option<ServerConflict> {
        let entries = self.roll.entries();
        let mine = entries.iter().find(|entry| entry.number == self.number)?;
        let others = entries.iter().filter(|other| other.supervisor != mine.supervisor && (other.serves)());
        others.filter_map(|other| mine.server.twins(&other.server)).next()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.roll.entries().retain(|entry| entry.number != self.number);
        self.roll.tell();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_server_found_by_two_addresses_is_entered_once_until_it_is_lost() {
        let roll = ConnectedServers::default();
        let mut changed = roll.changed();
        let first = roll.enter(1, server("a", 1, 1), || true).unwrap();
        assert!(roll.enter(2, server("a", 1, 1), || true).is_none());

        drop(first);

        assert!(changed.has_changed().unwrap());
        changed.mark_unchanged();
        assert!(roll.enter(2, server("a", 1, 1), || true).is_some());
    }

    #[test]
    fn a_tunnel_that_turned_silent_keeps_no_other_address_away_and_gives_way_when_it_is_back() {
        let (roll, serves) = (ConnectedServers::default(), Arc::new(AtomicBool::new(true)));
        let asked = Arc::clone(&serves);
        let _elder = roll.enter(1, server("a", 1, 1), move || asked.load(Ordering::Relaxed)).unwrap();
        assert!(roll.reaches(&server("a", 1, 1)));

        serves.store(false, Ordering::Relaxed);
        assert!(!roll.reaches(&server("a", 1, 1)));
        let _younger = roll.enter(2, server("a", 1, 1), || true).unwrap();
        assert_eq!((roll.gives_way(1), roll.gives_way(2)), (None, None), "what is silent is held");

        serves.store(true, Ordering::Relaxed);
        assert_eq!((roll.gives_way(1), roll.gives_way(2)), (Some(server("a", 1, 1)), None));
    }

    #[test]
    fn a_second_tunnel_by_the_same_address_is_entered() {
        let roll = ConnectedServers::default();
        let _first = roll.enter(1, server("a", 1, 1), || true).unwrap();
        assert!(roll.enter(1, server("a", 1, 1), || true).is_some());
    }

    #[test]
    fn two_processes_of_one_name_are_two_servers_and_are_noticed() {
        let roll = ConnectedServers::default();
        let _one = roll.enter(1, server("a", 1, 1), || true).unwrap();
        let other = roll.enter(2, server("a", 2, 2), || true).unwrap();
        assert_eq!(other.twins(), Some(ServerConflict::Id("a".to_owned())));
    }

    #[test]
    fn two_servers_with_one_state_directory_are_noticed() {
        let roll = ConnectedServers::default();
        let _one = roll.enter(1, server("a", 1, 7), || true).unwrap();
        let other = roll.enter(2, server("b", 2, 7), || true).unwrap();
        assert_eq!(other.twins(), Some(ServerConflict::Keys("b".to_owned(), "a".to_owned())));
    }

    #[test]
    fn a_restarted_server_is_no_twin_of_itself() {
        let roll = ConnectedServers::default();
        let _before = roll.enter(1, server("a", 1, 1), || false).unwrap();
        let by_another_address = roll.enter(2, server("a", 2, 1), || true).unwrap();
        let by_the_same = roll.enter(1, server("a", 3, 1), || false).unwrap();
        assert_eq!(by_another_address.twins(), None);
        drop(by_another_address);
        assert_eq!(by_the_same.twins(), None);
    }

    #[test]
    fn servers_that_say_nothing_of_their_keys_have_none_in_common() {
        let roll = ConnectedServers::default();
        let silent = |id: &str| Server { id: id.to_owned(), boot: Vec::new(), keys: Vec::new() };
        let _one = roll.enter(1, silent("a"), || true).unwrap();
        let other = roll.enter(2, silent("b"), || true).unwrap();
        assert_eq!(other.twins(), None);
        assert!(roll.enter(3, silent("a"), || true).is_none());
    }

    fn server(id: &str, boot: u8, keys: u8) -> Server {
        Server { id: id.to_owned(), boot: vec![boot; 16], keys: vec![keys; 8] }
    }
}
