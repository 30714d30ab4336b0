//! The servers to which there are tunnels: a server that is found by two addresses gets one tunnel.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::wire::Welcome;
use tokio::sync::watch;
use transport::Tunnel;

use super::backoff::STEADY_AFTER;
use super::server_choice::ConnectedServer;
use crate::streams::ledgers::ServerIdentity;

/// All tunnels to servers. Clones share them.
#[derive(Clone, Default)]
pub(super) struct ConnectedServers(Arc<ConnectedShared>);

#[derive(Default)]
struct ConnectedShared {
    tunnels: Mutex<Vec<ServerTunnel>>,
    next: std::sync::atomic::AtomicU64,
    changed: watch::Sender<()>,
}

/// A tunnel, by its server and the supervisor that has it.
struct ServerTunnel {
    number: u64,
    server: ServerProcess,
    /// Number of the supervisor, whose address reaches the server.
    supervisor: u64,
    /// It was dialed by a configured name, and gives way to one that was dialed by an address of the server's own.
    by_name: bool,
    tunnel: Box<dyn Registered>,
}

/// The state of a registered tunnel, as far as the choice between addresses needs it.
pub(super) trait Registered: Send + 'static {
    /// Returns true if the server was heard lately and the tunnel takes new streams.
    fn serves(&self) -> bool;

    /// The last time at which the tunnel turned from suspect to live; `None` if it never was suspect.
    fn flapped_at(&self) -> Option<Instant>;

    /// Time since the last sign of life from the server.
    fn silence(&self) -> Duration;
}

impl Registered for Tunnel {
    fn serves(&self) -> bool {
        Self::serves(self)
    }

    fn flapped_at(&self) -> Option<Instant> {
        Self::flapped_at(self)
    }

    fn silence(&self) -> Duration {
        Self::silence(self)
    }
}

/// A server process and its keys, as its Welcome has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerProcess {
    identity: ServerIdentity,
    /// Names its keys. Empty from a server that does not send it.
    keys: Vec<u8>,
}

/// The registration of a tunnel, which ends when this is dropped.
#[must_use = "the tunnel is unregistered when this is dropped"]
pub(super) struct Registration {
    connected: ConnectedServers,
    number: u64,
}

/// Two servers share something that each needs for itself.
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
    /// Registers a tunnel of `supervisor` to `server`. `None` if another supervisor has one to the same
    /// process that serves. One that was dialed by a name does not count beside one by an address of the server's own.
    /// A silent tunnel does not count: its address may lead nowhere any more, as where
    /// IPv6 is broken and IPv4 is not.
    pub(super) fn register(
        &self,
        supervisor: u64,
        by_name: bool,
        server: ServerProcess,
        tunnel: impl Registered,
    ) -> Option<Registration> {
        let mut tunnels = self.tunnels();
        let is_double = |other: &ServerTunnel| {
            let counts = by_name || !other.by_name;
            counts && other.supervisor != supervisor && other.server.is(&server) && other.tunnel.serves()
        };
        if tunnels.iter().any(is_double) {
            return None;
        }
        let number = self.0.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tunnels.push(ServerTunnel { number, server, supervisor, by_name, tunnel: Box::new(tunnel) });
        drop(tunnels);
        self.notify();
        Some(Registration { connected: self.clone(), number })
    }

    /// Returns true if a tunnel to this server serves.
    pub(super) fn reaches(&self, server: &ServerProcess) -> bool {
        self.tunnels().iter().any(|tunnel| tunnel.server.is(server) && tunnel.tunnel.serves())
    }

    /// The servers that are connected, each once.
    pub(super) fn servers(&self) -> Vec<ConnectedServer> {
        let mut servers: Vec<ConnectedServer> = Vec::new();
        for ServerTunnel { server, tunnel, .. } in self.tunnels().iter() {
            let (serves, silence) = (tunnel.serves(), tunnel.silence());
            match servers.iter_mut().find(|known| known.id == server.identity.id()) {
                Some(known) => {
                    (known.serves, known.silence) = (known.serves || serves, known.silence.min(silence));
                }
                None => {
                    servers.push(ConnectedServer { id: server.identity.id().to_owned(), serves, silence });
                }
            }
        }
        servers
    }

    /// The server to which `supervisor` and another one have a tunnel, if both serve and the other's is
    /// younger. The younger one was opened while the elder was silent, and stays, unless it flapped within the
    /// last minutes and the elder has been well since.
    pub(super) fn superseded(&self, supervisor: u64) -> Option<ServerProcess> {
        let tunnels = self.tunnels();
        let mine = tunnels.iter().filter(|tunnel| tunnel.supervisor == supervisor && tunnel.tunnel.serves());
        let is_younger = |other: &ServerTunnel, mine: &ServerTunnel| {
            other.supervisor != supervisor && other.number > mine.number && other.server.is(&mine.server)
        };
        let stays = |other: &ServerTunnel, mine: &ServerTunnel| {
            let flapped_at = other.tunnel.flapped_at();
            let is_steady = flapped_at.is_none_or(|at| at.elapsed() >= STEADY_AFTER);
            other.tunnel.serves() && (is_steady || mine.tunnel.flapped_at() > flapped_at)
        };
        let mut elder =
            mine.filter(|mine| tunnels.iter().any(|other| is_younger(other, mine) && stays(other, mine)));
        elder.next().map(|mine| mine.server.clone())
    }

    /// Notifies subscribers that a tunnel serves, or serves no longer.
    pub(super) fn notify(&self) {
        self.0.changed.send_replace(());
    }

    /// Changes whenever a tunnel has ended, serves, or serves no longer.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    fn tunnels(&self) -> MutexGuard<'_, Vec<ServerTunnel>> {
        // Every change is a single push or retain, so a poisoned lock does no harm.
        self.0.tunnels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerProcess {
    /// The server that has sent this Welcome.
    pub(super) fn from_welcome(welcome: &Welcome) -> Self {
        Self { identity: ServerIdentity::from_welcome(welcome), keys: welcome.keys_mark.clone() }
    }

    /// Returns true if both are the same process, by the fields that servers send.
    fn is(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    fn conflict(&self, other: &Self) -> Option<ServerConflict> {
        let (id, other_id) = (self.identity.id(), other.identity.id());
        if self.is(other) {
            None
        } else if id == other_id {
            Some(ServerConflict::Id(id.to_owned()))
        } else if !self.keys.is_empty() && self.keys == other.keys {
            Some(ServerConflict::Keys(id.to_owned(), other_id.to_owned()))
        } else {
            None
        }
    }
}

impl Registration {
    /// A conflict of this tunnel's server with another one that is connected. Asked once a tunnel is stable:
    /// just after a restart the tunnel of the process before may still look alive.
    pub(super) fn conflict(&self) -> Option<ServerConflict> {
        let tunnels = self.connected.tunnels();
        let mine = tunnels.iter().find(|tunnel| tunnel.number == self.number)?;
        let others =
            tunnels.iter().filter(|other| other.supervisor != mine.supervisor && other.tunnel.serves());
        others.filter_map(|other| mine.server.conflict(&other.server)).next()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connected.tunnels().retain(|tunnel| tunnel.number != self.number);
        self.connected.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    impl<F: Fn() -> bool + Send + 'static> Registered for F {
        fn serves(&self) -> bool {
            self()
        }

        fn flapped_at(&self) -> Option<Instant> {
            None
        }

        fn silence(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// A tunnel that serves while this is true, and flapped so long ago.
    struct Flapped(Arc<AtomicBool>, Option<Duration>);

    impl Registered for Flapped {
        fn serves(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn flapped_at(&self) -> Option<Instant> {
            self.1.map(|ago| Instant::now() - ago)
        }

        fn silence(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn a_healthy_tunnel_is_not_superseded_by_one_that_just_flapped() {
        let (lately, long_ago) = (STEADY_AFTER / 2, STEADY_AFTER * 2);
        for (elder, younger, is_superseded) in [
            (None, Some(lately), false),
            (Some(long_ago), Some(lately), false),
            (None, Some(long_ago), true),
            // The elder was silent after the younger was, as in the beginning.
            (Some(lately / 2), Some(lately), true),
            (Some(lately), None, true),
        ] {
            let (connected, serves) = (ConnectedServers::default(), Arc::new(AtomicBool::new(false)));
            let silent = Flapped(Arc::clone(&serves), elder);
            let _elder = connected.register(1, true, server("a", 1, 1), silent).unwrap();
            let well = Flapped(Arc::new(AtomicBool::new(true)), younger);
            let _younger = connected.register(2, true, server("a", 1, 1), well).unwrap();
            serves.store(true, Ordering::Relaxed);
            assert_eq!(connected.superseded(1).is_some(), is_superseded, "{elder:?} {younger:?}");
        }
    }

    #[test]
    fn a_server_found_by_two_addresses_is_registered_once() {
        let connected = ConnectedServers::default();
        let mut changed = connected.subscribe();
        let first = connected.register(1, true, server("a", 1, 1), || true).unwrap();
        assert!(connected.register(2, true, server("a", 1, 1), || true).is_none());

        drop(first);

        assert!(changed.has_changed().unwrap());
        changed.mark_unchanged();
        assert!(connected.register(2, true, server("a", 1, 1), || true).is_some());
    }

    #[test]
    fn a_silent_tunnel_blocks_no_other_address_and_is_superseded() {
        let (connected, serves) = (ConnectedServers::default(), Arc::new(AtomicBool::new(true)));
        let asked = Arc::clone(&serves);
        let _elder =
            connected.register(1, true, server("a", 1, 1), move || asked.load(Ordering::Relaxed)).unwrap();
        assert!(connected.reaches(&server("a", 1, 1)));

        serves.store(false, Ordering::Relaxed);
        assert!(!connected.reaches(&server("a", 1, 1)));
        let _younger = connected.register(2, true, server("a", 1, 1), || true).unwrap();
        assert_eq!(
            (connected.superseded(1), connected.superseded(2)),
            (None, None),
            "a silent tunnel is kept"
        );

        serves.store(true, Ordering::Relaxed);
        assert_eq!((connected.superseded(1), connected.superseded(2)), (Some(server("a", 1, 1)), None));
    }

    #[test]
    fn a_tunnel_by_a_name_gives_way_to_one_by_the_servers_own_address() {
        let connected = ConnectedServers::default();
        let _by_name = connected.register(1, true, server("a", 1, 1), || true).unwrap();
        let _by_address = connected.register(2, false, server("a", 1, 1), || true).unwrap();
        assert_eq!((connected.superseded(1), connected.superseded(2)), (Some(server("a", 1, 1)), None));
        assert!(connected.register(3, true, server("a", 1, 1), || true).is_none());
        assert!(connected.register(4, false, server("a", 1, 1), || true).is_none());
    }

    #[test]
    fn a_server_counts_as_serving_if_one_of_its_tunnels_does() {
        let connected = ConnectedServers::default();
        let _silent = connected.register(1, true, server("a", 1, 1), || false).unwrap();
        let _serves = connected.register(2, true, server("a", 1, 1), || true).unwrap();
        let _other = connected.register(3, true, server("b", 1, 2), || false).unwrap();
        let expected = [("a", true), ("b", false)].map(|(id, serves)| ConnectedServer {
            id: id.to_owned(),
            serves,
            silence: Duration::ZERO,
        });
        assert_eq!(connected.servers(), expected);
    }

    #[test]
    fn a_second_tunnel_by_the_same_address_is_registered() {
        let connected = ConnectedServers::default();
        let _first = connected.register(1, true, server("a", 1, 1), || true).unwrap();
        assert!(connected.register(1, true, server("a", 1, 1), || true).is_some());
    }

    #[test]
    fn two_processes_of_one_name_are_two_servers_in_conflict() {
        let connected = ConnectedServers::default();
        let _one = connected.register(1, true, server("a", 1, 1), || true).unwrap();
        let other = connected.register(2, true, server("a", 2, 2), || true).unwrap();
        assert_eq!(other.conflict(), Some(ServerConflict::Id("a".to_owned())));
    }

    #[test]
    fn two_servers_with_one_state_directory_are_in_conflict() {
        let connected = ConnectedServers::default();
        let _one = connected.register(1, true, server("a", 1, 7), || true).unwrap();
        let other = connected.register(2, true, server("b", 2, 7), || true).unwrap();
        assert_eq!(other.conflict(), Some(ServerConflict::Keys("b".to_owned(), "a".to_owned())));
    }

    #[test]
    fn a_restarted_server_is_in_no_conflict_with_itself() {
        let connected = ConnectedServers::default();
        let _before = connected.register(1, true, server("a", 1, 1), || false).unwrap();
        let by_another_address = connected.register(2, true, server("a", 2, 1), || true).unwrap();
        let by_the_same = connected.register(1, true, server("a", 3, 1), || false).unwrap();
        assert_eq!(by_another_address.conflict(), None);
        drop(by_another_address);
        assert_eq!(by_the_same.conflict(), None);
    }

    #[test]
    fn servers_that_say_nothing_of_their_keys_have_none_in_common() {
        let connected = ConnectedServers::default();
        let silent = |id: &str| {
            ServerProcess::from_welcome(&Welcome { server_id: id.to_owned(), ..Welcome::default() })
        };
        let _one = connected.register(1, true, silent("a"), || true).unwrap();
        let other = connected.register(2, true, silent("b"), || true).unwrap();
        assert_eq!(other.conflict(), None);
        assert!(connected.register(3, true, silent("a"), || true).is_none());
    }

    fn server(id: &str, boot: u8, keys: u8) -> ServerProcess {
        ServerProcess::from_welcome(&Welcome {
            server_id: id.to_owned(),
            boot_nonce: vec![boot; 16],
            keys_mark: vec![keys; 8],
            ..Welcome::default()
        })
    }
}
