//! Keeps a tunnel to one address of a server: does what the race decides, and tells it what came of that.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use daemon::chain;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use proto::CloseCode;
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use transport::{Carrier, Tunnel, TunnelEnded};

use super::log_throttle::LogThrottle;
use super::dial::{Greeted, Route, TunnelDialError, dial};
use super::tunnel_task::{hold, is_heard};
use super::readiness::Seat;
use super::happy_eyeballs::{CloseReason, HappyEyeballs, Step};
use super::connected_servers::{Registration, Server};
use super::{Kit, random};
use crate::metrics;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What came of a dial by a carrier; `None` of one that was abandoned.
type Outcome = (Carrier, Option<Result<Greeted, TunnelDialError>>);

/// Keeps a tunnel to one address.
pub(super) struct Supervisor {
    kit: Arc<Kit>,
    route: Arc<Route>,
    number: u64,
    /// Whether the address is one of the server's, as far as is known.
    is_listed: watch::Receiver<bool>,
    /// Told before each dial, because the server's addresses may have changed.
    redials: Arc<Notify>,
    race: HappyEyeballs,
    seat: Seat,
    /// Dials under way.
    dials: FuturesUnordered<Boxed<Outcome>>,
    abandon: Vec<(Carrier, CancellationToken)>,
    attempts: u32,
    tunnels: Vec<(u64, Tunnel)>,
    holds: FuturesUnordered<Boxed<(u64, TunnelEnded)>>,
    proofs: FuturesUnordered<Boxed<Option<u64>>>,
    /// Told when a tunnel does otherwise than before.
    changed: Arc<Notify>,
    /// The server that is reached by another address.
    double_of: Option<Server>,
    /// How the last tunnel ended; `None` before the first.
    ended: Option<&'static str>,
    /// Of QUIC, and of HTTP/2.
    complaints: [LogThrottle; 2],
}

impl Supervisor {
    /// A supervisor of this address, which bears a number of its own.
    pub(super) fn new(
        kit: Arc<Kit>,
        route: Route,
        number: u64,
        is_listed: watch::Receiver<bool>,
        redials: Arc<Notify>,
    ) -> Self {
        let carriers = kit.carriers.iter().copied();
        // Without an address there is nowhere to send a datagram to.
        let carriers = carriers.filter(|carrier| route.address.is_some() || *carrier == Carrier::Http2);
        let race = HappyEyeballs::new(Instant::now(), &carriers.collect::<Vec<_>>());
        Self {
            seat: kit.presence.seat(number),
            kit,
            route: Arc::new(route),
            number,
            is_listed,
            redials,
            race,
            dials: FuturesUnordered::new(),
            abandon: Vec::new(),
            attempts: 0,
            tunnels: Vec::new(),
            holds: FuturesUnordered::new(),
            proofs: FuturesUnordered::new(),
            changed: Arc::new(Notify::new()),
            double_of: None,
            ended: None,
            complaints: [LogThrottle::default(), LogThrottle::default()],
        }
    }

    /// Runs until the agent stops or the address is the server's no more, and then until every tunnel has ended.
    pub(super) async fn run(mut self) {
        let (draining, mut drains) = (self.kit.scope.draining(), false);
        tokio::pin!(draining);
        let mut roll_changed = self.kit.roll.changed();
        loop {
            self.take_steps();
            self.seat.set(self.race.reachability());
            if self.race.is_finished() && self.holds.is_empty() {
                return;
            }
            let due = self.race.poll_timeout();
            // All arms are cancel-safe: what runs is kept in the sets, a notification and a change that came are kept,
            // and a sleep has nothing to lose.
            tokio::select! {
                Some((carrier, dialed)) = self.dials.next() => self.dialed(carrier, dialed),
                Some((number, ended)) = self.holds.next() => self.has_ended(number, &ended),
                Some(heard) = self.proofs.next() => if let Some(number) = heard {
                    self.race.heard(Instant::now(), number);
                },
                () = self.changed.notified() => self.observe(),
                () = until(due) => self.race.handle_timeout(Instant::now()),
                Ok(()) = self.is_listed.changed(), if !drains => self.list(),
                Ok(()) = roll_changed.changed() => self.look_for_doubles(),
                () = &mut draining, if !drains => {
                    drains = true;
                    self.race.stop(Instant::now());
                }
            }
        }
    }

    fn take_steps(&mut self) {
        while let Some(step) = self.race.poll_step() {
            match step {
                Step::Dial(carrier) => self.dial(carrier),
                Step::Abandon(carrier) => {
                    let abandoned = self.abandon.extract_if(.., |(of, _)| *of == carrier);
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
        self.abandon.push((carrier, token.clone()));
        let dialing = dial(Arc::clone(&self.kit), Arc::clone(&self.route), carrier, self.attempts);
        self.attempts = self.attempts.wrapping_add(u32::from(carrier == Carrier::Quic));
        let dialing = async move { (carrier, token.run_until_cancelled_owned(dialing).await) };
        self.dials.push(Box::pin(dialing));
    }

    fn dialed(&mut self, carrier: Carrier, dialed: Option<Result<Greeted, TunnelDialError>>) {
        let Some(dialed) = dialed else { return };
        self.abandon.retain(|(of, _)| *of != carrier);
        match dialed {
            Ok(greeted) => self.greeted(carrier, greeted),
            Err(vain) => self.failed(carrier, &vain),
        }
    }

    fn greeted(&mut self, carrier: Carrier, greeted: Greeted) {
        self.attempts = 0;
        self.complaints[usize::from(carrier != Carrier::Quic)].settle();
        if let Some(ended) = self.ended.take() {
            metrics::reconnected(ended);
        }
        let (now, server, tunnel) = (Instant::now(), Server::of(&greeted.welcome), greeted.tunnel.clone());
        let asked = tunnel.clone();
        let serves = move || asked.health() == proto::session::Health::Live && !asked.is_draining();
        let number = match self.kit.roll.enter(self.number, server.clone(), serves) {
            Some(listed) => {
                let number = self.race.greeted(now, carrier);
                self.prove(number, carrier, &tunnel);
                self.hold(number, greeted, Some(listed));
                number
            }
            None => {
                let (server, address) = (&self.route.server.address, &self.route);
                info!(%server, %address, server_id = greeted.welcome.server_id, "reached by another address already");
                self.double_of = Some(Server::of(&greeted.welcome));
                let number = self.race.found_duplicate(now, carrier);
                tunnel.begin_drain();
                self.hold(number, greeted, None);
                number
            }
        };
        self.tunnels.push((number, tunnel));
    }

    fn prove(&mut self, number: u64, carrier: Carrier, tunnel: &Tunnel) {
        match carrier {
            Carrier::Quic => {
                let proof = is_heard(tunnel.clone(), self.kit.control_plane.clone());
                self.proofs.push(Box::pin(async move { proof.await.then_some(number) }));
            }
            // What passes TCP's handshake and TLS's passes.
            Carrier::Http2 => self.race.heard(Instant::now(), number),
        }
    }

    fn hold(&mut self, number: u64, greeted: Greeted, listed: Option<Registration>) {
        let (kit, route, changed) =
            (Arc::clone(&self.kit), Arc::clone(&self.route), Arc::clone(&self.changed));
        let holding = hold(kit, route, greeted, listed, changed);
        self.holds.push(Box::pin(async move { (number, holding.await) }));
    }

    fn failed(&mut self, carrier: Carrier, vain: &TunnelDialError) {
        vain.count();
        let now = Instant::now();
        let wait = self.race.failed(now, carrier, vain.setback(), random());
        let (server, address, error) = (&self.route.server.address, &self.route, chain(vain).to_string());
        let (carrier, complaint) =
            (carrier.as_str(), &mut self.complaints[usize::from(carrier != Carrier::Quic)]);
        if complaint.is_news(now, &error) {
            warn!(%server, %address, carrier, error, next = ?wait, "no tunnel");
        } else {
            debug!(%server, %address, carrier, error, next = ?wait, "no tunnel");
        }
    }

    fn has_ended(&mut self, number: u64, ended: &TunnelEnded) {
        self.tunnels.retain(|(of, _)| *of != number);
        self.ended = Some(metrics::tunnel_ended(ended));
        let ending = if *ended == TunnelEnded::Restarted {
            CloseReason::Restarted
        } else if *ended == TunnelEnded::ClosedByPeer(CloseCode::Replaced) {
            CloseReason::Replaced
        } else {
            CloseReason::Other
        };
        self.race.ended(Instant::now(), number, ending, random());
    }

    fn observe(&mut self) {
        let now = Instant::now();
        for (number, tunnel) in &self.tunnels {
            self.race.observe(now, *number, tunnel.health(), tunnel.is_draining());
        }
        self.kit.roll.tell();
    }

    fn list(&mut self) {
        let now = Instant::now();
        if *self.is_listed.borrow_and_update() {
            self.race.resume(now);
        } else {
            info!(server = %self.route.server.address, address = %self.route, "an address of the server is gone");
            self.race.stop(now);
        }
    }

    /// The tunnel by another address may have ended, or be silent; or ours was, and one by another address has come meanwhile.
    fn look_for_doubles(&mut self) {
        let (now, roll) = (Instant::now(), &self.kit.roll);
        if let Some(server) = roll.yield_to_duplicate(self.number) {
            info!(server = %self.route.server.address, address = %self.route, "reached by another address meanwhile");
            self.double_of = Some(server);
            self.race.yield_to_duplicate(now);
        } else if let Some(server) = &self.double_of
            && !roll.reaches(server)
        {
            self.double_of = None;
            self.race.duplicate_gone(now);
        }
    }

    fn tunnel(&self, number: u64) -> Option<&Tunnel> {
        self.tunnels.iter().find(|(of, _)| *of == number).map(|(_, tunnel)| tunnel)
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
