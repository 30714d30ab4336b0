//! Finds the addresses of one configured server, again and again, and has each of them kept.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use daemon::chain;
use proto::Backoff;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tracing::{debug, info, warn};
use transport::Carrier;

use super::addresses::{ADDRESSES_MAX, Addresses, Change, Unresolved, resolve};
use super::log_throttle::LogThrottle;
use super::dial::Route;
use super::supervisor::Supervisor;
use super::{Kit, ConfiguredServer, random};
use crate::config::ServerAddress;
use crate::metrics;

/// How often a name is looked up while nothing happens.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

/// How often at most, however often its addresses are dialed.
const RESOLVE_PAUSE: Duration = Duration::from_secs(2);

/// Waits after a lookup in vain, as long as no address is known.
const UNKNOWN_BASE: Duration = Duration::from_millis(500);
const UNKNOWN_CAP: Duration = Duration::from_secs(5);

/// Looks after one configured server.
pub(super) struct Resolver {
    kit: Arc<Kit>,
    server: ConfiguredServer,
    addresses: Addresses,
    /// Tells each supervisor whether its address is the server's; closed where a supervisor has ended. The one without an address
    /// leaves it to a proxy to find one.
    supervisors: BTreeMap<Option<SocketAddr>, watch::Sender<bool>>,
    /// Told before each dial.
    redials: Arc<Notify>,
    unknown: Backoff,
    complaint: LogThrottle,
}

impl Resolver {
    pub(super) fn new(kit: Arc<Kit>, server: ConfiguredServer) -> Self {
        // The server is there from the beginning, without a tunnel.
        drop(metrics::Connected::to(&server.address.to_string()));
        Self {
            kit,
            server,
            addresses: Addresses::default(),
            supervisors: BTreeMap::new(),
            redials: Arc::new(Notify::new()),
            unknown: Backoff::new(UNKNOWN_BASE, UNKNOWN_CAP),
            complaint: LogThrottle::default(),
        }
    }

    /// Runs until the agent stops.
    pub(super) async fn run(mut self) {
        let draining = self.kit.scope.draining();
        tokio::pin!(draining);
        let needs_dns = self.server.address.host.parse::<IpAddr>().is_err();
        loop {
            // Both arms are cancel-safe: a lookup that is dropped is forgotten.
            let found = tokio::select! {
                found = resolve(&self.server.address) => found,
                () = &mut draining => return,
            };
            match found {
                Ok(found) => self.learn(&found),
                Err(unresolved) => self.complain(&unresolved),
            }
            if !needs_dns {
                return;
            }
            let wait = self.wait();
            // Both arms are cancel-safe: neither holds anything.
            tokio::select! {
                () = wait => {}
                () = &mut draining => return,
            }
        }
    }

    fn learn(&mut self, found: &[SocketAddr]) {
        self.complaint.settle();
        self.unknown.reset();
        let Change { come, gone, beyond } = self.addresses.learn(found);
        for gone in gone.into_iter().map(Some).chain([None]) {
            if let Some(supervisor) = self.supervisors.get(&gone) {
                supervisor.send_replace(false);
            }
        }
        if beyond > 0 && !come.is_empty() {
            warn!(server = %self.server.address, beyond, "more than {ADDRESSES_MAX} addresses: the rest is not dialed");
        }
        self.supervisors.retain(|_, supervisor| !supervisor.is_closed());
        for address in come {
            self.keep(Some(address), found.len() == 1);
        }
    }

    /// Has an address kept. A proxy is asked for it by the server's name where that has no other, because proxies allow
    /// names rather than addresses.
    fn keep(&mut self, address: Option<SocketAddr>, by_name: bool) {
        if let Some(supervisor) = self.supervisors.get(&address) {
            supervisor.send_replace(true);
            return;
        }
        let ServerAddress { host, port } = &self.server.address;
        let target =
            address.filter(|_| !by_name).map_or_else(|| host.clone(), |address| address.ip().to_string());
        let proxy = self.kit.proxies.to(host, *port).cloned();
        let route = Route { server: self.server.clone(), address, proxy, target };
        match &route.proxy {
            Some(proxy) => info!(server = %self.server.address, address = %route, %proxy, "dialing"),
            None => info!(server = %self.server.address, address = %route, "dialing"),
        }
        let (tell, is_listed) = watch::channel(true);
        self.supervisors.insert(address, tell);
        let number = self.kit.supervisors.fetch_add(1, Ordering::Relaxed);
        let supervisor = Supervisor::new(Arc::clone(&self.kit), route, number, is_listed, Arc::clone(&self.redials));
        let home = self.kit.scope.home_for(usize::try_from(number).unwrap_or_default());
        self.kit.scope.spawn_on(home, supervisor.run());
    }

    /// Addresses that were known stay what they are: the tunnels to them may live, and DNS be what is broken.
    fn complain(&mut self, unresolved: &Unresolved) {
        match unresolved {
            Unresolved::Failed { .. } => metrics::dial_failed_early("resolve"),
            Unresolved::NoAddress(_) => metrics::dial_failed_early("no_address"),
        }
        let (server, error) = (&self.server.address, chain(unresolved).to_string());
        if self.complaint.is_news(Instant::now(), &error) {
            warn!(%server, error, known = self.supervisors.len(), "the server's addresses could not be found");
        } else {
            debug!(%server, error, "the server's addresses could not be found");
        }
        // A host that reaches the world by a proxy alone often knows no names of it.
        let ServerAddress { host, port } = &self.server.address;
        let has_proxy =
            self.kit.proxies.to(host, *port).is_some() && self.kit.carriers.contains(&Carrier::Http2);
        if has_proxy && self.supervisors.is_empty() {
            self.keep(None, true);
        }
    }

    /// Until the next lookup: soon where no address is known, or when one of them is dialed.
    fn wait(&mut self) -> impl Future<Output = ()> + use<> {
        let again = self.supervisors.is_empty().then(|| self.unknown.next(random()));
        let redials = Arc::clone(&self.redials);
        async move {
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
