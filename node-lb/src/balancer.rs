//! The API servers, shared by the tasks that find, probe and use them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use daemon::{Degraded, NotReady, Readiness};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::members::{
    Changes, Grade, Member, Members, NamedBefore, OpenConnection, ProbeOutcome, Source, Traffic,
};
use crate::random::random;

/// The part of the process's readiness.
const PART: &str = "api-servers";

/// The API servers of the cluster. Clones share them.
#[derive(Clone)]
pub struct Balancer(Arc<SharedBalancer>);

struct SharedBalancer {
    members: Mutex<Members>,
    /// Notified when the API servers or their health are others.
    changed: watch::Sender<()>,
    /// Notified when every API server has to be probed now, but for the one in it.
    probe_now: watch::Sender<Option<SocketAddr>>,
    joins: watch::Sender<Option<Join>>,
    /// The times at which each source was last confirmed, in the order of [`Source::ALL`].
    confirmed: Mutex<[Instant; Source::ALL.len()]>,
    health: Mutex<HealthReport>,
    moves: AtomicU64,
    refused: AtomicU64,
    taken_over: AtomicU64,
    handovers: [AtomicU64; HandoverResult::ALL.len()],
}

/// Makes the enum of results and, from the same list, their labels.
macro_rules! handover_results {
    ($($(#[$doc:meta])* $result:ident = $label:literal;)*) => {
        /// The result of a handover between two processes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum HandoverResult {
            $($(#[$doc])* $result,)*
        }

        impl HandoverResult {
            /// Every result, in the order of the metric's labels.
            pub const ALL: &'static [Self] = &[$(Self::$result,)*];

            /// The value of the metric's label `result`.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$result => $label,)*
                }
            }
        }
    };
}

handover_results! {
    /// This process has taken over from its predecessor.
    Taken = "taken";
    /// A successor asked this process and did not take over, so this process went on.
    Resumed = "resumed";
}

/// An API server has become ready beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// The API server that joined.
    pub address: SocketAddr,
    /// The number of others that are ready.
    pub others: usize,
}

/// An API server that was chosen for a connection, which counts from now on until this is dropped. So many
/// connections that are dialed at once do not all go to the same one.
#[derive(Debug)]
pub struct Chosen {
    /// The address that is to be dialed.
    pub address: SocketAddr,
    /// The counters of the API server.
    pub traffic: Arc<Traffic>,
    _open: OpenConnection,
}

/// The report of health at `/readyz`.
struct HealthReport {
    readiness: Readiness,
    starting: Option<NotReady>,
    degraded: Option<Degraded>,
}

impl Balancer {
    /// No API server is known. The process is not ready before one has shown its certificate.
    #[must_use]
    pub fn new(readiness: Readiness) -> Self {
        let starting = Some(readiness.handle(PART));
        Self(Arc::new(SharedBalancer {
            members: Mutex::default(),
            changed: watch::Sender::new(()),
            probe_now: watch::Sender::new(None),
            joins: watch::Sender::new(None),
            confirmed: Mutex::new([Instant::now(); Source::ALL.len()]),
            health: Mutex::new(HealthReport { readiness, starting, degraded: None }),
            moves: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            taken_over: AtomicU64::new(0),
            handovers: Default::default(),
        }))
    }

    /// Replaces the addresses of a source, which has just been read.
    pub fn name(&self, source: Source, addresses: &[SocketAddr]) {
        if addresses.is_empty() {
            warn!(source = source.label(), "a source names no API server, which changes nothing");
            return;
        }
        self.confirm(source);
        let mut members = self.members();
        if members.name(source, addresses, Instant::now()) {
            let known: Vec<String> = members.iter().map(|member| member.address.to_string()).collect();
            drop(members);
            info!(source = source.label(), api_servers = ?known, "the API servers are others now");
            self.0.changed.send_replace(());
        }
    }

    /// Takes over the content of the state file.
    pub fn remember(&self, remembered: &[NamedBefore]) {
        self.confirm(Source::StateFile);
        self.members().remember(remembered, Instant::now());
        self.0.changed.send_replace(());
    }

    /// The API servers to write down for the next process.
    #[must_use]
    pub fn to_remember(&self) -> Vec<NamedBefore> {
        let (mut members, now) = (self.members(), Instant::now());
        members.expire(now);
        members.to_remember(now)
    }

    /// Notes that the source was read or written now.
    pub fn confirm(&self, source: Source) {
        self.0.confirmed.lock().unwrap_or_else(PoisonError::into_inner)[source as usize] = Instant::now();
    }

    /// The time since the source was last read, or since the start of the process.
    #[must_use]
    pub fn source_age(&self, source: Source) -> Duration {
        self.0.confirmed.lock().unwrap_or_else(PoisonError::into_inner)[source as usize].elapsed()
    }

    /// Takes over the outcome of a probe, or of a dial, that began then. Returns true if the API server is to be
    /// probed again at once.
    pub fn probed(&self, address: SocketAddr, outcome: ProbeOutcome, began: Instant) -> bool {
        let mut members = self.members();
        let changes = members.probed(address, outcome, began);
        for cut in &changes.cut {
            if let Some(member) = members.get(*cut) {
                member.traffic.cut();
            }
        }
        let ready = members.count(Grade::Ready);
        drop(members);
        self.report(address, &changes, ready);
        changes.probe_again
    }

    /// The API server for a new connection, other than those that were tried.
    #[must_use]
    pub fn choose(&self, tried: &[SocketAddr]) -> Option<Chosen> {
        let mut members = self.members();
        let chosen = members.choose(tried, random)?;
        let traffic = Arc::clone(&chosen.traffic);
        Some(Chosen { address: chosen.address, _open: traffic.open(), traffic })
    }

    /// The API server of a connection that another process has made and handed over. It has shown its certificate
    /// there, so it is relayed to until it shows another one here. It is tried as a last resort if no source
    /// names it.
    #[must_use]
    pub fn choose_again(&self, address: SocketAddr) -> Chosen {
        let mut members = self.members();
        if members.get(address).is_none() {
            let last_resort = NamedBefore { address, unnamed_for: Some(Duration::ZERO) };
            members.remember(&[last_resort], Instant::now());
            self.0.changed.send_replace(());
        }
        let traffic = members.get(address).map_or_else(Arc::default, |member| Arc::clone(&member.traffic));
        Chosen { address, _open: traffic.open(), traffic }
    }

    /// The API server for a new connection. Before any has shown its certificate this waits for one, as long as `limit`.
    /// Cancel-safe.
    pub async fn choose_first(&self, limit: Duration) -> Option<Chosen> {
        let mut changed = self.subscribe();
        let choosing = async {
            loop {
                if let Some(chosen) = self.choose(&[]) {
                    return Some(chosen);
                }
                changed.changed().await.ok()?;
            }
        };
        timeout(limit, choosing).await.ok().flatten()
    }

    /// Returns true if bytes may be relayed to the API server: it has shown a certificate of the CA, and no other
    /// since.
    #[must_use]
    pub fn has_proved(&self, address: SocketAddr) -> bool {
        self.members().get(address).is_some_and(Member::has_proved)
    }

    /// Calls `read` with all API servers.
    pub fn read<T>(&self, read: impl FnOnce(&Members) -> T) -> T {
        read(&self.members())
    }

    /// The addresses of all API servers that are known.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members().iter().map(|member| member.address).collect()
    }

    /// Returns true if the API server is still known.
    #[must_use]
    pub fn has(&self, address: SocketAddr) -> bool {
        self.members().get(address).is_some()
    }

    /// Changes whenever the API servers or their health are others.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Changes when all API servers but the one in it are to be probed now.
    #[must_use]
    pub fn probe_requests(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.0.probe_now.subscribe()
    }

    /// Requests a probe of the API server now, because a caller's dial was not answered.
    pub fn suspect(&self) {
        self.0.probe_now.send_replace(None);
    }

    /// Changes when an API server has joined others.
    #[must_use]
    pub fn joins(&self) -> watch::Receiver<Option<Join>> {
        self.0.joins.subscribe()
    }

    /// Counts a connection that was moved to another API server.
    pub fn moved(&self) {
        self.0.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection for which there was no API server.
    pub fn refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The connections that were moved, and those that were refused.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.0.moves.load(Ordering::Relaxed), self.0.refused.load(Ordering::Relaxed))
    }

    /// Counts connections that another process has handed over.
    pub fn taken_over(&self, connections: usize) {
        self.0.taken_over.fetch_add(connections as u64, Ordering::Relaxed);
    }

    /// Counts a handover to this process, or one from it that did not take place.
    pub fn handover(&self, result: HandoverResult) {
        self.0.handovers[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The connections that another process has handed over.
    #[must_use]
    pub fn connections_taken_over(&self) -> u64 {
        self.0.taken_over.load(Ordering::Relaxed)
    }

    /// The number of handovers with this result.
    #[must_use]
    pub fn handovers(&self, result: HandoverResult) -> u64 {
        self.0.handovers[result as usize].load(Ordering::Relaxed)
    }

    fn report(&self, address: SocketAddr, changes: &Changes, ready: usize) {
        if changes.probe_others {
            self.0.probe_now.send_replace(Some(address));
        }
        for cut in &changes.cut {
            warn!(api_server = %cut, "the connections to an API server that does not answer are ended");
        }
        let Some((before, after)) = changes.grade else { return };
        let (from, to) = (before.label(), after.label());
        match after {
            Grade::Ready => info!(api_server = %address, from, "an API server is ready"),
            Grade::Alive => {
                info!(api_server = %address, from, "an API server is there and says that it is not ready")
            }
            Grade::Down => warn!(api_server = %address, from, "an API server does not answer"),
            Grade::Unproven => {
                error!(api_server = %address, from, to, "nothing more is relayed to this address")
            }
        }
        self.report_health(after, ready);
        if let Some(others) = changes.joined {
            self.0.joins.send_replace(Some(Join { address, others }));
        }
        self.0.changed.send_replace(());
    }

    fn report_health(&self, after: Grade, ready: usize) {
        let mut health = self.0.health.lock().unwrap_or_else(PoisonError::into_inner);
        if after != Grade::Unproven {
            health.starting = None;
        }
        if ready > 0 {
            health.degraded = None;
        } else if health.degraded.is_none() {
            health.degraded = Some(health.readiness.degraded(PART, "no API server is ready"));
        }
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.0.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Balancer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let members = self.members();
        f.debug_list()
            .entries(members.iter().map(|member: &Member| (member.address, member.grade())))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_are_still_being_dialed_count() {
        let balancer = Balancer::new(Readiness::new());
        let addresses = [1_u8, 2].map(|last| SocketAddr::from(([10, 0, 0, last], 6443)));
        balancer.name(Source::Slice, &addresses);
        for address in addresses {
            let answered = ProbeOutcome::Answered { is_ready: true, round_trip: Duration::ZERO };
            balancer.probed(address, answered, Instant::now());
        }

        let chosen: Vec<Chosen> = (0..10).filter_map(|_| balancer.choose(&[])).collect();

        for address in addresses {
            assert_eq!(chosen.iter().filter(|chosen| chosen.address == address).count(), 5);
        }
        drop(chosen);
        balancer.read(|members| assert!(members.iter().all(|member| member.traffic.connections() == 0)));
    }
}
