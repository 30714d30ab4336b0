//! Resolves the name of one server again and again, and has each of its addresses supervised.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::error_chain;
use proto::Backoff;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tracing::{debug, info, warn};
use transport::Carrier;

use super::addresses::{ADDRESSES_MAX, Addresses, Change, ResolveError, resolve};
use super::dependencies::{ConfiguredServer, Dependencies, SharedDialer};
use super::dial::Route;
use super::log_throttle::LogThrottle;
use super::supervisor::Supervisor;
use super::usage::Usage;
use crate::config::ServerAddress;
use crate::metrics::{self, DialFailureReason};
use crate::random::random;

/// Interval between two lookups of a name while nothing happens.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

/// Least time between two lookups, however often the addresses are dialed.
const RESOLVE_PAUSE: Duration = Duration::from_secs(2);

/// Waits after a failed lookup, as long as no address is known.
const UNKNOWN_BASE: Duration = Duration::from_millis(500);
const UNKNOWN_CAP: Duration = Duration::from_secs(5);

/// The lookups of one server, and the supervisors of its addresses.
pub(super) struct Resolver {
    shared: Arc<SharedDialer>,
    server: ConfiguredServer,
    addresses: Addresses,
    /// Tells each supervisor whether DNS lists its address. Closed where a supervisor has ended. The
    /// supervisor without an address lets a proxy resolve the name.
    /// Further ones of an address, from 1 on, look for other servers behind it.
    supervisors: BTreeMap<(Option<SocketAddr>, usize), watch::Sender<bool>>,
    /// The use that is made of all addresses.
    usage: watch::Receiver<Usage>,
    /// Notified before each dial of an address.
    redials: Arc<Notify>,
    unknown: Backoff,
    log_throttle: LogThrottle,
}

impl Resolver {
    pub(super) fn new(
        shared: Arc<SharedDialer>,
        server: ConfiguredServer,
        usage: watch::Receiver<Usage>,
    ) -> Self {
        // Creates the server's gauge, with the value 0.
        drop(metrics::ConnectedTunnel::to(&server.address.to_string()));
        Self {
            shared,
            server,
            addresses: Addresses::default(),
            supervisors: BTreeMap::new(),
            usage,
            redials: Arc::new(Notify::new()),
            unknown: Backoff::new(UNKNOWN_BASE, UNKNOWN_CAP),
            log_throttle: LogThrottle::default(),
        }
    }

    /// Runs until the agent stops, or the addresses are used no more.
    pub(super) async fn run(mut self) {
        let draining = self.shared.scope.draining();
        tokio::pin!(draining);
        let needs_dns = self.server.address.host.parse::<IpAddr>().is_err();
        loop {
            // Both arms are cancel-safe: waiting for a value takes none.
            tokio::select! {
                used = self.usage.wait_for(|usage| usage.dials) => if used.is_err() { return },
                () = &mut draining => return,
            }
            // Both arms are cancel-safe: a lookup that is dropped is forgotten.
            let found = tokio::select! {
                found = resolve(&self.server.address) => found,
                () = &mut draining => return,
            };
            match found {
                Ok(found) => self.resolved(&found),
                Err(error) => self.failed(&error),
            }
            let wait = self.wait(needs_dns);
            // All arms are cancel-safe: a change that came is kept, and nothing else holds anything.
            tokio::select! {
                () = wait => {}
                changed = self.usage.changed() => if changed.is_err() { return },
                () = &mut draining => return,
            }
        }
    }

    fn resolved(&mut self, found: &[SocketAddr]) {
        self.log_throttle.reset();
        self.unknown.reset();
        let Change { added, removed, left_out } = self.addresses.update(found);
        let removed: Vec<_> = removed.into_iter().map(Some).chain([None]).collect();
        for (_, supervisor) in self.supervisors.iter().filter(|((of, _), _)| removed.contains(of)) {
            supervisor.send_replace(false);
        }
        if left_out > 0 && !added.is_empty() {
            warn!(server = %self.server.address, left_out, "more than {ADDRESSES_MAX} addresses: the rest is not dialed");
        }
        self.supervisors.retain(|_, supervisor| !supervisor.is_closed());
        for address in added {
            self.supervise((Some(address), 0), found.len() == 1);
        }
        self.supervise_more(found);
    }

    /// Starts further supervisors of the addresses in turn, if there are several servers behind the name.
    fn supervise_more(&mut self, found: &[SocketAddr]) {
        let wanted = self.usage.borrow().tunnels_min;
        let known: Vec<SocketAddr> =
            found.iter().copied().filter(|address| self.addresses.has(*address)).collect();
        if known.is_empty() {
            return;
        }
        for number in known.len()..wanted.min(ADDRESSES_MAX) {
            let key = (Some(known[number % known.len()]), number / known.len());
            if self.supervisors.get(&key).is_none_or(|supervisor| !*supervisor.borrow()) {
                self.supervise(key, found.len() == 1);
            }
        }
    }

    /// Starts a supervisor of an address. Where it is the only one, a proxy is asked for the server's name
    /// instead, because proxies allow names rather than addresses.
    fn supervise(&mut self, key: (Option<SocketAddr>, usize), by_name: bool) {
        let (address, _) = key;
        if let Some(supervisor) = self.supervisors.get(&key) {
            supervisor.send_replace(true);
            return;
        }
        let ServerAddress { host, port } = &self.server.address;
        let target =
            address.filter(|_| !by_name).map_or_else(|| host.clone(), |address| address.ip().to_string());
        let proxy = self.shared.dependencies.proxies.to(host, *port).cloned();
        let route = Route { server: self.server.clone(), address, proxy, target };
        match &route.proxy {
            Some(proxy) => info!(server = %self.server.address, address = %route, %proxy, "dialing"),
            None => info!(server = %self.server.address, address = %route, "dialing"),
        }
        let (listing, is_listed) = watch::channel(true);
        self.supervisors.insert(key, listing);
        let number = self.shared.next_supervisor();
        let (shared, redials) = (Arc::clone(&self.shared), Arc::clone(&self.redials));
        let supervisor = Supervisor::new(shared, route, number, (is_listed, self.usage.clone()), redials);
        let home = self.shared.scope.home_for(usize::try_from(number).unwrap_or_default());
        self.shared.scope.spawn_on(home, supervisor.run());
    }

    /// Keeps the addresses that are known: the tunnels to them may be alive, and only DNS broken.
    fn failed(&mut self, error: &ResolveError) {
        metrics::dial_failed(match error {
            ResolveError::Failed { .. } => DialFailureReason::Resolve,
            ResolveError::NoAddress(_) => DialFailureReason::NoAddress,
        });
        let (server, error) = (&self.server.address, error_chain(error).to_string());
        if self.log_throttle.should_log(Instant::now(), &error) {
            warn!(%server, error, known = self.supervisors.len(), "the server's addresses could not be found");
        } else {
            debug!(%server, error, "the server's addresses could not be found");
        }
        // A host that has only a proxy to the outside often cannot resolve outside names.
        let ServerAddress { host, port } = &self.server.address;
        let Dependencies { proxies, carriers, .. } = &self.shared.dependencies;
        let has_proxy = proxies.to(host, *port).is_some() && carriers.contains(&Carrier::Http2);
        if has_proxy && self.supervisors.is_empty() {
            self.supervise((None, 0), true);
        }
    }

    /// Waits until the next lookup: for a short time where no address is known, or until one of them is
    /// dialed. An address needs no second lookup.
    fn wait(&mut self, needs_dns: bool) -> impl Future<Output = ()> + use<> {
        let again = self.supervisors.is_empty().then(|| self.unknown.next(random()));
        let redials = Arc::clone(&self.redials);
        async move {
            if !needs_dns {
                return std::future::pending().await;
            }
            if let Some(again) = again {
                return sleep(again).await;
            }
            sleep(RESOLVE_PAUSE).await;
            // Both arms are cancel-safe: a notification that came is kept, a sleep has nothing to lose.
            tokio::select! {
                () = redials.notified() => {}
                () = sleep(RESOLVE_EVERY) => {}
            }
        }
    }
}
