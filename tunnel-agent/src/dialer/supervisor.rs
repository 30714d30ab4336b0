//! Supervises the tunnels to one address of a server: carries out the steps of happy eyeballs, and reports
//! back.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::error_chain;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use proto::CloseCode;
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use transport::{Carrier, Tunnel, TunnelEnded};

use super::carrier_choice::{CarrierScheduler, CloseReason, DUPLICATE_RECHECK_AFTER, Step};
use super::connected_servers::{Registration, ServerProcess};
use super::dependencies::SharedDialer;
use super::dial::{Greeted, Route, TunnelDialError, dial};
use super::log_throttle::LogThrottle;
use super::readiness::AddressReadiness;
use super::tunnel_task::{passes_packets, run_tunnel};
use super::usage::Usage;
use crate::metrics::{self, TunnelEnd};
use crate::random::random;

/// Dials that may find servers that are connected already, one after the other, while other servers are looked for.
const SEARCHES_MAX: u32 = 20;

/// Pause between two of these dials, and after the last one.
const SEARCH_PAUSE: Duration = Duration::from_millis(250);
const SEARCH_AGAIN_AFTER: Duration = Duration::from_secs(60);

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The result of a dial by a carrier. `None` if it was abandoned.
type DialResult = (Carrier, Option<Result<Greeted, TunnelDialError>>);

/// The tunnels to one address of a server, and the dials under way.
pub(super) struct Supervisor {
    shared: Arc<SharedDialer>,
    route: Arc<Route>,
    /// Names this supervisor within the process.
    number: u64,
    /// True if DNS still lists the address for the server.
    is_listed: watch::Receiver<bool>,
    /// The use that is made of the address, if it is listed.
    usage: watch::Receiver<Usage>,
    /// The address is used no more, and all tunnels drain.
    is_retired: bool,
    /// Dials in a row that have found a server which is connected already.
    searches: u32,
    /// Notified before each dial, because the server's addresses may have changed.
    redials: Arc<Notify>,
    carrier_choice: CarrierScheduler,
    readiness: AddressReadiness,
    /// The dials under way, each by its own carrier.
    dials: FuturesUnordered<Boxed<DialResult>>,
    /// Cancels the dial by a carrier.
    cancel: Vec<(Carrier, CancellationToken)>,
    attempts: u32,
    tunnels: Vec<OpenTunnel>,
    /// The tasks of the tunnels, by number.
    tunnel_tasks: FuturesUnordered<Boxed<(u64, TunnelEnded)>>,
    /// Probes that resolve to a tunnel's number once packets pass on it.
    probes: FuturesUnordered<Boxed<Option<u64>>>,
    /// Notified when a tunnel's health or draining changes.
    changed: Arc<Notify>,
    /// The server that is reached by another address.
    duplicate_of: Option<ServerProcess>,
    /// The end of the last tunnel, until the next one is greeted.
    ended: Option<TunnelEnd>,
    /// Failed dials over QUIC, and over HTTP/2.
    log_throttles: [LogThrottle; 2],
}

/// A tunnel by the address of a supervisor.
struct OpenTunnel {
    number: u64,
    server_id: String,
    tunnel: Tunnel,
}

impl Supervisor {
    /// Supervises this address. No other supervisor has this number.
    pub(super) fn new(
        shared: Arc<SharedDialer>,
        route: Route,
        number: u64,
        (is_listed, usage): (watch::Receiver<bool>, watch::Receiver<Usage>),
        redials: Arc<Notify>,
    ) -> Self {
        let carriers = shared.dependencies.carriers.iter().copied();
        // Without an address, no datagram can be sent.
        let carriers = carriers.filter(|carrier| route.address.is_some() || *carrier == Carrier::Http2);
        let carrier_choice = CarrierScheduler::new(Instant::now(), &carriers.collect::<Vec<_>>());
        Self {
            readiness: shared.readiness.address(number),
            shared,
            route: Arc::new(route),
            number,
            is_listed,
            usage,
            is_retired: false,
            searches: 0,
            redials,
            carrier_choice,
            dials: FuturesUnordered::new(),
            cancel: Vec::new(),
            attempts: 0,
            tunnels: Vec::new(),
            tunnel_tasks: FuturesUnordered::new(),
            probes: FuturesUnordered::new(),
            changed: Arc::new(Notify::new()),
            duplicate_of: None,
            ended: None,
            log_throttles: [LogThrottle::default(), LogThrottle::default()],
        }
    }

    /// Runs until the agent stops or the address is used no more, and then until every tunnel has ended.
    pub(super) async fn run(mut self) {
        let (draining, mut is_draining) = (self.shared.scope.draining(), false);
        tokio::pin!(draining);
        let mut connected_changes = self.shared.connected.subscribe();
        loop {
            self.take_steps();
            self.readiness.set(self.carrier_choice.reachability());
            // An address that is only not dialed now may be dialed again.
            let is_over = is_draining || self.is_retired || !*self.is_listed.borrow();
            if is_over && self.carrier_choice.is_finished() && self.tunnel_tasks.is_empty() {
                return;
            }
            let due = self.carrier_choice.poll_timeout();
            // All arms are cancel-safe: futures stay in their sets, a notification and a change that came are
            // kept, and a sleep has nothing to lose.
            tokio::select! {
                Some((carrier, dialed)) = self.dials.next() => self.dialed(carrier, dialed),
                Some((number, ended)) = self.tunnel_tasks.next() => self.tunnel_ended(number, &ended),
                Some(proven) = self.probes.next() => if let Some(number) = proven {
                    self.carrier_choice.proven(Instant::now(), number);
                },
                () = self.changed.notified() => self.observe(),
                () = until(due) => self.carrier_choice.handle_timeout(Instant::now()),
                Ok(()) = self.is_listed.changed(), if !is_draining => self.listing_changed(),
                changed = self.usage.changed(), if !is_draining && !self.is_retired => match changed {
                    Ok(()) => self.usage_changed(),
                    Err(_) => self.retire(),
                },
                Ok(()) = connected_changes.changed() => self.look_for_duplicates(),
                () = &mut draining, if !is_draining => {
                    is_draining = true;
                    self.carrier_choice.stop(Instant::now());
                }
            }
        }
    }

    fn take_steps(&mut self) {
        while let Some(step) = self.carrier_choice.poll_step() {
            match step {
                Step::Dial(carrier) => self.dial(carrier),
                Step::Abandon(carrier) => {
                    let abandoned = self.cancel.extract_if(.., |(of, _)| *of == carrier);
                    abandoned.for_each(|(_, token)| token.cancel());
                }
                Step::Drain(number) => self.tunnel(number).into_iter().for_each(Tunnel::begin_drain),
                Step::Close(number) => {
                    let tunnel = self.tunnel(number);
                    tunnel.into_iter().for_each(|tunnel| tunnel.close(CloseCode::Lost));
                }
            }
        }
    }

    fn dial(&mut self, carrier: Carrier) {
        self.redials.notify_one();
        let token = CancellationToken::new();
        self.cancel.push((carrier, token.clone()));
        let dialing = dial(Arc::clone(&self.shared), Arc::clone(&self.route), carrier, self.attempts);
        self.attempts = self.attempts.wrapping_add(u32::from(carrier == Carrier::Quic));
        let dialing = async move { (carrier, token.run_until_cancelled_owned(dialing).await) };
        self.dials.push(Box::pin(dialing));
    }

    fn dialed(&mut self, carrier: Carrier, dialed: Option<Result<Greeted, TunnelDialError>>) {
        let Some(dialed) = dialed else { return };
        self.cancel.retain(|(of, _)| *of != carrier);
        match dialed {
            Ok(greeted) => self.greeted(carrier, greeted),
            Err(error) => self.failed(carrier, &error),
        }
    }

    fn greeted(&mut self, carrier: Carrier, greeted: Greeted) {
        self.attempts = 0;
        self.log_throttles[usize::from(carrier != Carrier::Quic)].reset();
        if let Some(ended) = self.ended.take() {
            metrics::reconnected(ended);
        }
        let (now, server) = (Instant::now(), ServerProcess::from_welcome(&greeted.welcome));
        let (tunnel, server_id) = (greeted.tunnel.clone(), greeted.welcome.server_id.clone());
        let by_name = self.route.server.id.is_none();
        let connected = &self.shared.connected;
        let number = match connected.register(self.number, by_name, server.clone(), tunnel.clone()) {
            Some(registration) => {
                self.searches = 0;
                let number = self.carrier_choice.greeted(now, carrier);
                self.probe(number, carrier, &tunnel);
                self.run_tunnel(number, greeted, Some(registration));
                number
            }
            None => {
                let recheck = self.recheck_after();
                let (name, address) = (&self.route.server.address, &self.route);
                if recheck == DUPLICATE_RECHECK_AFTER {
                    info!(server = %name, %address, server_id, "reached by another address already");
                } else {
                    debug!(server = %name, %address, server_id, next = ?recheck, "another server is looked for");
                }
                self.duplicate_of = Some(server);
                let number = self.carrier_choice.found_duplicate(now, carrier, recheck);
                tunnel.begin_drain();
                self.run_tunnel(number, greeted, None);
                number
            }
        };
        self.tunnels.push(OpenTunnel { number, server_id, tunnel });
    }

    /// The time after which an address is dialed again that has led to a server which is connected already.
    fn recheck_after(&mut self) -> Duration {
        let connected = self.shared.connected.servers();
        let serving = connected.iter().filter(|server| server.serves).count();
        if self.usage.borrow().sought <= serving {
            return DUPLICATE_RECHECK_AFTER;
        }
        self.searches += 1;
        if self.searches < SEARCHES_MAX {
            return SEARCH_PAUSE;
        }
        if self.searches == SEARCHES_MAX {
            let server = &self.route.server.address;
            info!(%server, connected = serving, "no other server answers at this name; it is looked for every minute");
        }
        SEARCH_AGAIN_AFTER
    }

    fn probe(&mut self, number: u64, carrier: Carrier, tunnel: &Tunnel) {
        match carrier {
            Carrier::Quic => {
                let control_plane = self.shared.dependencies.control_plane.clone();
                let probe = passes_packets(tunnel.clone(), control_plane);
                self.probes.push(Box::pin(async move { probe.await.then_some(number) }));
            }
            // A path that carries the handshakes of TCP and TLS carries everything.
            Carrier::Http2 => self.carrier_choice.proven(Instant::now(), number),
        }
    }

    fn run_tunnel(&mut self, number: u64, greeted: Greeted, registration: Option<Registration>) {
        let (shared, route, changed) =
            (Arc::clone(&self.shared), Arc::clone(&self.route), Arc::clone(&self.changed));
        let running = run_tunnel(shared, route, greeted, registration, changed);
        self.tunnel_tasks.push(Box::pin(async move { (number, running.await) }));
    }

    fn failed(&mut self, carrier: Carrier, error: &TunnelDialError) {
        error.count();
        let now = Instant::now();
        let wait = self.carrier_choice.failed(now, carrier, error.failure(), random());
        let (server, address, error) =
            (&self.route.server.address, &self.route, error_chain(error).to_string());
        let throttle = &mut self.log_throttles[usize::from(carrier != Carrier::Quic)];
        let carrier = carrier.as_str();
        if throttle.should_log(now, &error) {
            warn!(%server, %address, carrier, error, next = ?wait, "no tunnel");
        } else {
            debug!(%server, %address, carrier, error, next = ?wait, "no tunnel");
        }
    }

    fn tunnel_ended(&mut self, number: u64, ended: &TunnelEnded) {
        self.tunnels.retain(|open| open.number != number);
        self.ended = Some(metrics::tunnel_ended(ended));
        let reason = if *ended == TunnelEnded::Restarted {
            CloseReason::Restarted
        } else if *ended == TunnelEnded::ClosedByPeer(CloseCode::Replaced) {
            CloseReason::Replaced
        } else {
            CloseReason::Other
        };
        self.carrier_choice.ended(Instant::now(), number, reason, random());
    }

    fn observe(&mut self) {
        let now = Instant::now();
        for OpenTunnel { number, tunnel, .. } in &self.tunnels {
            self.carrier_choice.observe(now, *number, tunnel.health(), tunnel.is_draining());
        }
        self.shared.connected.notify();
    }

    fn listing_changed(&mut self) {
        let now = Instant::now();
        if *self.is_listed.borrow_and_update() {
            self.usage_changed();
        } else {
            info!(server = %self.route.server.address, address = %self.route, "DNS no longer lists an address of the server");
            self.carrier_choice.stop(now);
        }
    }

    /// The address is dialed or not, and tunnels to some servers drain.
    fn usage_changed(&mut self) {
        let (now, usage) = (Instant::now(), self.usage.borrow_and_update().clone());
        if usage.dials && *self.is_listed.borrow() {
            self.carrier_choice.resume(now);
        } else {
            self.carrier_choice.stop(now);
        }
        self.drain(|server_id| !usage.keeps(server_id));
        self.searches = 0;
    }

    /// The address is used no more.
    fn retire(&mut self) {
        info!(server = %self.route.server.address, address = %self.route, "other servers have the tunnels now");
        self.is_retired = true;
        self.carrier_choice.stop(Instant::now());
        self.drain(|_| true);
    }

    /// Drains the tunnels to some servers, by their IDs.
    fn drain(&mut self, drains: impl Fn(&str) -> bool) {
        let now = Instant::now();
        for OpenTunnel { number, server_id, tunnel } in &self.tunnels {
            if drains(server_id) && !tunnel.is_draining() {
                info!(server = %self.route.server.address, server_id, "the tunnel moves to another server");
                tunnel.begin_drain();
                self.carrier_choice.observe(now, *number, tunnel.health(), true);
            }
        }
    }

    /// The tunnel by another address may have ended or turned silent. Or ours was silent, and one by another
    /// address was opened.
    fn look_for_duplicates(&mut self) {
        let (now, connected) = (Instant::now(), &self.shared.connected);
        if let Some(server) = connected.superseded(self.number) {
            info!(server = %self.route.server.address, address = %self.route, "reached by another address meanwhile");
            self.duplicate_of = Some(server);
            self.carrier_choice.yield_to_duplicate(now);
        } else if let Some(server) = &self.duplicate_of
            && !connected.reaches(server)
        {
            self.duplicate_of = None;
            self.searches = 0;
            self.carrier_choice.duplicate_gone(now);
        }
    }

    fn tunnel(&self, number: u64) -> Option<&Tunnel> {
        self.tunnels.iter().find(|open| open.number == number).map(|open| &open.tunnel)
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
