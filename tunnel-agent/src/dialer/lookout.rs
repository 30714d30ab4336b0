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

use super::addresses::{ADDRESSES_MAX, Addresses, Change, Unresolved, resolve};
use super::complaint::Complaint;
use super::dial::Way;
use super::keeper::Keeper;
use super::{Kit, Named, random};
use crate::metrics;

/// How often a name is looked up while nothing happens.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

/// How often at most, however often its addresses are dialed.
const RESOLVE_PAUSE: Duration = Duration::from_secs(2);

/// Waits after a lookup in vain, as long as no address is known.
const UNKNOWN_BASE: Duration = Duration::from_millis(500);
const UNKNOWN_CAP: Duration = Duration::from_secs(5);

/// Looks after one configured server.
pub(super) struct Lookout {
    kit: Arc<Kit>,
    server: Named,
    addresses: Addresses,
    /// Tells each keeper whether its address is the server's; closed where a keeper has ended.
    keepers: BTreeMap<SocketAddr, watch::Sender<bool>>,
    /// Told before each dial.
    redials: Arc<Notify>,
    unknown: Backoff,
    complaint: Complaint,
}

impl Lookout {
    pub(super) fn new(kit: Arc<Kit>, server: Named) -> Self {
        // The server is there from the beginning, without a tunnel.
        drop(metrics::Connected::to(&server.address.to_string()));
        Self {
            kit,
            server,
            addresses: Addresses::default(),
            keepers: BTreeMap::new(),
            redials: Arc::new(Notify::new()),
            unknown: Backoff::new(UNKNOWN_BASE, UNKNOWN_CAP),
            complaint: Complaint::default(),
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
        for address in gone {
            if let Some(keeper) = self.keepers.get(&address) {
                keeper.send_replace(false);
            }
        }
        if beyond > 0 && !come.is_empty() {
            warn!(server = %self.server.address, beyond, "more than {ADDRESSES_MAX} addresses: the rest is not dialed");
        }
        self.keepers.retain(|_, keeper| !keeper.is_closed());
        for address in come {
            match self.keepers.get(&address) {
                Some(keeper) => drop(keeper.send_replace(true)),
                None => self.keep(address),
            }
        }
    }

    fn keep(&mut self, address: SocketAddr) {
        info!(server = %self.server.address, %address, "dialing");
        let (tell, is_listed) = watch::channel(true);
        self.keepers.insert(address, tell);
        let number = self.kit.keepers.fetch_add(1, Ordering::Relaxed);
        let way = Way { server: self.server.clone(), address };
        let keeper = Keeper::new(Arc::clone(&self.kit), way, number, is_listed, Arc::clone(&self.redials));
        let home = self.kit.scope.home_for(usize::try_from(number).unwrap_or_default());
        self.kit.scope.spawn_on(home, keeper.run());
    }

    /// Addresses that were known stay what they are: the tunnels to them may live, and DNS be what is broken.
    fn complain(&mut self, unresolved: &Unresolved) {
        match unresolved {
            Unresolved::Failed { .. } => metrics::dial_in_vain("resolve"),
            Unresolved::NoAddress(_) => metrics::dial_in_vain("no_address"),
        }
        let (server, error) = (&self.server.address, chain(unresolved).to_string());
        if self.complaint.is_news(Instant::now(), &error) {
            warn!(%server, error, known = self.keepers.len(), "the server's addresses could not be found");
        } else {
            debug!(%server, error, "the server's addresses could not be found");
        }
    }

    /// Until the next lookup: soon where no address is known, or when one of them is dialed.
    fn wait(&mut self) -> impl Future<Output = ()> + use<> {
        let again = self.keepers.is_empty().then(|| self.unknown.next(random()));
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
