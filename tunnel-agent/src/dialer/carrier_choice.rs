//! The choice between QUIC and TCP: decides which carrier is dialed when, and which tunnel to one address is used.
//!
//! A state machine without I/O, in the manner of RFC 8305. Its shell reports events, takes steps out by
//! `poll_step` until there is none, and comes again at `poll_timeout`.
//!
//! The preferred carrier is dialed whenever none of its tunnels works. The fallback is dialed
//! [`ATTEMPT_DELAY`] later, and the first tunnel to be greeted serves. A tunnel that turned silent is kept:
//! its streams wait for its return. Once a tunnel of the preferred carrier has been stable for a while,
//! tunnels of the fallback are drained, and their streams end there. While tunnels of the preferred carrier
//! turn silent and return, no tunnel that is well is drained for them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proto::session::Health;
use transport::Carrier;

use super::backoff::{DialBackoff, DialFailure, STABLE_AFTER, STEADY_AFTER};

/// Time for which only the preferred carrier is dialed. Where it works, its tunnel is greeted by then.
const ATTEMPT_DELAY: Duration = Duration::from_secs(1);

/// Pause after a failed dial of the preferred carrier while a fallback serves: at least the first, at most
/// both together.
const RETRY_WHILE_SERVED_MIN: Duration = Duration::from_secs(10);
const RETRY_WHILE_SERVED_SPREAD: Duration = Duration::from_secs(20);

/// An address whose server is reached by another address is dialed again after this time in any case.
pub(super) const DUPLICATE_RECHECK_AFTER: Duration = Duration::from_secs(300);

/// Most tunnels to one address: one that serves, and others that drain.
pub(super) const TUNNELS_MAX: usize = 4;

/// An instruction to the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Begin a dial by this carrier, by which no other dial is under way.
    Dial(Carrier),
    /// Drop the dial by this carrier that is under way.
    Abandon(Carrier),
    /// Open no new streams on this tunnel, and let it end when it is empty.
    Drain(u64),
    /// Close this tunnel at once.
    Close(u64),
}

/// The reachability of the server by one address. The greater value is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reachability {
    /// No tunnel can take new streams.
    Unreachable,
    /// Nothing is received, and streams wait.
    Silent,
    /// A tunnel of a fallback carrier serves.
    Fallback,
    /// A tunnel of the preferred carrier serves.
    Preferred,
}

/// The state of one address.
#[derive(Debug)]
pub(super) struct CarrierScheduler {
    /// The carriers to choose from, the preferred one first.
    carriers: Vec<CarrierState>,
    /// The tunnels that are open, in the order in which they were greeted.
    tunnels: Vec<TunnelState>,
    tunnels_opened: u64,
    /// Time since which no tunnel of the preferred carrier is proven to work.
    unproven_since: Option<Instant>,
    /// Until then, the server counts as reached by another address.
    duplicate_until: Option<Instant>,
    /// The address is no longer one of the server's, or the agent stops.
    is_stopped: bool,
    steps: VecDeque<Step>,
}

/// The reason for which a tunnel ended, as far as the next dial depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// Its server was restarted, and so it is up again.
    Restarted,
    /// The server prefers a later process with the same certificate. If this process came back at once it
    /// would be the later one, and both would replace each other for ever.
    Replaced,
    /// It ended for any other reason.
    Other,
}

#[derive(Debug)]
struct CarrierState {
    carrier: Carrier,
    backoff: DialBackoff,
    is_dialing: bool,
    /// Earliest next dial while the server is not reached.
    not_before: Instant,
    /// Earliest next dial while a fallback carrier serves.
    not_before_while_served: Instant,
    /// The last time at which a tunnel of it turned silent, or was heard again.
    flapped_at: Option<Instant>,
}

#[derive(Debug)]
struct TunnelState {
    number: u64,
    carrier: Carrier,
    greeted_at: Instant,
    health: Health,
    /// Time since which it is `Live`, if it is.
    live_since: Instant,
    /// The last time at which it turned silent, or was heard again.
    flapped_at: Option<Instant>,
    /// Something arrived on it that was sent after its greeting, so packets pass both ways.
    is_proven: bool,
    /// It drains because either side asked for that.
    is_draining: bool,
    /// The shell was told to close it.
    is_closed: bool,
}

impl CarrierScheduler {
    /// Begins `now` with these carriers, the preferred one first.
    pub(super) fn new(now: Instant, carriers: &[Carrier]) -> Self {
        let state = |carrier: &Carrier| CarrierState {
            carrier: *carrier,
            backoff: DialBackoff::default(),
            is_dialing: false,
            not_before: now,
            not_before_while_served: now,
            flapped_at: None,
        };
        let mut this = Self {
            carriers: carriers.iter().map(state).collect(),
            tunnels: Vec::new(),
            tunnels_opened: 0,
            unproven_since: None,
            duplicate_until: None,
            is_stopped: false,
            steps: VecDeque::new(),
        };
        this.update(now);
        this
    }

    /// A dial by `carrier` has led to a tunnel. Returns the tunnel's number.
    pub(super) fn greeted(&mut self, now: Instant, carrier: Carrier) -> u64 {
        let number = self.add(now, carrier, false);
        self.update(now);
        number
    }

    /// A dial by `carrier` has failed. Returns the wait before the next one. `random` is evenly distributed,
    /// here and below.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        carrier: Carrier,
        failure: DialFailure,
        random: u64,
    ) -> Duration {
        let state = self.state(carrier);
        state.is_dialing = false;
        let wait = state.backoff.after_failure(failure, random);
        state.wait(now, wait, random);
        if matches!(failure, DialFailure::RetryAfter(_)) {
            // The server itself asked for this wait, so it counts for every carrier.
            self.delay_all_until(now + wait);
        }
        self.update(now);
        wait
    }

    /// A dial by `carrier` has found a server that is reached by another address. The next one begins after `recheck`.
    /// Returns the number of the tunnel, which is being drained.
    pub(super) fn found_duplicate(&mut self, now: Instant, carrier: Carrier, recheck: Duration) -> u64 {
        self.duplicate_until = Some(now + recheck);
        let number = self.add(now, carrier, true);
        self.update(now);
        number
    }

    /// The server is reached by another address since a tunnel here was silent, and that tunnel serves again.
    /// Tunnels that serve are drained, and silent ones are kept.
    pub(super) fn yield_to_duplicate(&mut self, now: Instant) {
        self.duplicate_until = Some(now + DUPLICATE_RECHECK_AFTER);
        for tunnel in self.tunnels.iter_mut().filter(|tunnel| tunnel.serves()) {
            tunnel.is_draining = true;
            self.steps.push_back(Step::Drain(tunnel.number));
        }
        self.update(now);
    }

    /// The server may no longer be reached by the other address.
    pub(super) fn duplicate_gone(&mut self, now: Instant) {
        self.duplicate_until = None;
        self.update(now);
    }

    /// A tunnel's health or draining may have changed.
    pub(super) fn observe(&mut self, now: Instant, number: u64, health: Health, drains: bool) {
        if let Some(tunnel) = self.tunnels.iter_mut().find(|tunnel| tunnel.number == number) {
            if tunnel.health != Health::Live && health == Health::Live {
                // It was silent and is heard again, so packets pass on the path as it is now.
                (tunnel.live_since, tunnel.is_proven) = (now, true);
            }
            let has_flapped = tunnel.health != health;
            tunnel.health = health;
            tunnel.is_draining |= drains;
            if has_flapped {
                tunnel.flapped_at = Some(now);
                let carrier = tunnel.carrier;
                self.state(carrier).flapped_at = Some(now);
            }
        }
        self.update(now);
    }

    /// Something arrived on a tunnel that was sent after its greeting.
    pub(super) fn proven(&mut self, now: Instant, number: u64) {
        if let Some(tunnel) = self.tunnels.iter_mut().find(|tunnel| tunnel.number == number) {
            tunnel.is_proven = true;
        }
        self.update(now);
    }

    /// A tunnel has ended for this reason.
    pub(super) fn ended(&mut self, now: Instant, number: u64, reason: CloseReason, random: u64) {
        let Some(index) = self.tunnels.iter().position(|tunnel| tunnel.number == number) else { return };
        let tunnel = self.tunnels.remove(index);
        let (state, lasted) = (self.state(tunnel.carrier), now.saturating_duration_since(tunnel.greeted_at));
        let wait = match reason {
            CloseReason::Replaced => state.backoff.after_failure(DialFailure::Refused, random),
            CloseReason::Restarted | CloseReason::Other => state.backoff.after_tunnel(lasted, random),
        };
        state.wait(now, wait, random);
        match reason {
            // Dials that began while the server was down would retransmit late.
            CloseReason::Restarted => self.abandon_all(),
            // The later process would be replaced by a tunnel of any carrier.
            CloseReason::Replaced => self.delay_all_until(now + wait),
            CloseReason::Other => {}
        }
        self.update(now);
    }

    /// Dials no more from now on.
    pub(super) fn stop(&mut self, now: Instant) {
        self.is_stopped = true;
        self.update(now);
    }

    /// The address is one of the server's again.
    pub(super) fn resume(&mut self, now: Instant) {
        self.is_stopped = false;
        self.update(now);
    }

    /// Returns true if dialing is stopped and no tunnel is left.
    pub(super) fn is_finished(&self) -> bool {
        self.is_stopped && self.tunnels.is_empty()
    }

    /// Takes the decisions that are due by `now`.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.update(now);
    }

    /// Time at which `handle_timeout` has to be called next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.is_stopped {
            return None;
        }
        if let Some(until) = self.duplicate_until {
            return Some(until);
        }
        let dials = self.missing().filter(|(state, _)| !state.is_dialing).map(|(_, due)| due);
        dials.chain(self.drain_replaced_at()).min()
    }

    /// Takes out the next step, if there is one.
    pub(super) fn poll_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// The reachability of the server now.
    pub(super) fn reachability(&self) -> Reachability {
        let mut carriers = self.carriers.iter().map(|state| self.is_served_by(state.carrier));
        if carriers.next().unwrap_or_default() {
            Reachability::Preferred
        } else if carriers.any(|is_served| is_served) {
            Reachability::Fallback
        } else if self.tunnels.iter().any(|tunnel| !tunnel.is_draining) {
            Reachability::Silent
        } else {
            Reachability::Unreachable
        }
    }

    fn add(&mut self, now: Instant, carrier: Carrier, is_draining: bool) -> u64 {
        self.state(carrier).is_dialing = false;
        self.close_surplus();
        self.tunnels_opened += 1;
        self.tunnels.push(TunnelState {
            number: self.tunnels_opened,
            carrier,
            greeted_at: now,
            health: Health::Live,
            live_since: now,
            flapped_at: None,
            is_proven: false,
            is_draining,
            is_closed: false,
        });
        self.tunnels_opened
    }

    fn update(&mut self, now: Instant) {
        if self.duplicate_until.is_some_and(|until| until <= now) {
            self.duplicate_until = None;
        }
        if self.is_stopped || self.duplicate_until.is_some() {
            self.abandon_all();
            return;
        }
        if self.proven_tunnel().is_some() {
            self.unproven_since = None;
            self.abandon_all();
            self.drain_replaced(now);
            return;
        }
        self.unproven_since.get_or_insert(now);
        let due: Vec<Carrier> = self
            .missing()
            .filter(|(state, due)| !state.is_dialing && *due <= now)
            .map(|(state, _)| state.carrier)
            .collect();
        for carrier in due {
            self.state(carrier).is_dialing = true;
            self.steps.push_back(Step::Dial(carrier));
        }
    }

    /// The carriers without a tunnel that serves, each with the time from which it may be dialed.
    fn missing(&self) -> impl Iterator<Item = (&CarrierState, Instant)> {
        let is_proven = self.proven_tunnel().is_some();
        let carriers = self
            .carriers
            .iter()
            .enumerate()
            .filter(move |(_, state)| !is_proven && !self.is_served_by(state.carrier));
        carriers.map(|(rank, state)| {
            let fallback_serves =
                self.carriers[rank + 1..].iter().any(|fallback| self.is_served_by(fallback.carrier));
            let due = if fallback_serves { state.not_before_while_served } else { state.not_before };
            let start = self.unproven_since.map_or(due, |since| since + ATTEMPT_DELAY * rank as u32);
            (state, due.max(start))
        })
    }

    /// Drains the tunnels that the newest proven tunnel of the preferred carrier has replaced by now.
    fn drain_replaced(&mut self, now: Instant) {
        let replaced = self.replaced().filter(|(_, due)| *due <= now).map(|(number, _)| number);
        for number in replaced.collect::<Vec<_>>() {
            self.tunnels.iter_mut().filter(|one| one.number == number).for_each(|one| one.is_draining = true);
            self.steps.push_back(Step::Drain(number));
        }
    }

    /// Time at which the next tunnel is drained that another one replaces.
    fn drain_replaced_at(&self) -> Option<Instant> {
        self.replaced().map(|(_, due)| due).min()
    }

    /// The tunnels that the newest proven tunnel of the preferred carrier replaces, each with the time at
    /// which it is drained. A tunnel that is well is drained for none that has just flapped.
    fn replaced(&self) -> impl Iterator<Item = (u64, Instant)> {
        let kept = self.proven_tunnel();
        let flapped_at = self.carriers.first().and_then(|preferred| preferred.flapped_at);
        kept.into_iter().flat_map(move |kept| {
            let others = self.tunnels.iter().filter(|other| !other.is_draining);
            others.filter_map(move |other| Some((other.number, kept.replaces_at(other, flapped_at)?)))
        })
    }

    /// The newest tunnel of the preferred carrier that is proven to work.
    fn proven_tunnel(&self) -> Option<&TunnelState> {
        let best = self.carriers.first()?.carrier;
        self.tunnels.iter().rev().find(|tunnel| tunnel.carrier == best && tunnel.serves() && tunnel.is_proven)
    }

    fn is_served_by(&self, carrier: Carrier) -> bool {
        self.tunnels.iter().any(|tunnel| tunnel.carrier == carrier && tunnel.serves())
    }

    fn abandon_all(&mut self) {
        for state in self.carriers.iter_mut().filter(|state| state.is_dialing) {
            state.is_dialing = false;
            self.steps.push_back(Step::Abandon(state.carrier));
        }
    }

    /// Closes the oldest tunnel that drains, or else the oldest of all, if there are too many.
    fn close_surplus(&mut self) {
        if self.tunnels.iter().filter(|tunnel| !tunnel.is_closed).count() < TUNNELS_MAX {
            return;
        }
        let any = || self.tunnels.iter().position(|tunnel| !tunnel.is_closed);
        let draining = self.tunnels.iter().position(|tunnel| tunnel.is_draining && !tunnel.is_closed);
        let Some(index) = draining.or_else(any) else { return };
        let tunnel = &mut self.tunnels[index];
        // It stays here until its end is reported.
        (tunnel.is_draining, tunnel.is_closed) = (true, true);
        self.steps.push_back(Step::Close(tunnel.number));
    }

    /// Dials no carrier before this time.
    fn delay_all_until(&mut self, due: Instant) {
        self.carriers.iter_mut().for_each(|state| state.delay_until(due));
    }

    fn state(&mut self, carrier: Carrier) -> &mut CarrierState {
        let index = self.carriers.iter().position(|state| state.carrier == carrier).unwrap_or_default();
        &mut self.carriers[index]
    }
}

impl CarrierState {
    fn wait(&mut self, now: Instant, wait: Duration, random: u64) {
        self.not_before = now + wait;
        let more = RETRY_WHILE_SERVED_SPREAD.mul_f64(random as f64 / u64::MAX as f64);
        self.not_before_while_served = now + wait.max(RETRY_WHILE_SERVED_MIN + more);
    }

    fn delay_until(&mut self, due: Instant) {
        (self.not_before, self.not_before_while_served) =
            (self.not_before.max(due), self.not_before_while_served.max(due));
    }
}

impl TunnelState {
    /// Returns true if the tunnel takes new streams.
    fn serves(&self) -> bool {
        !self.is_draining && self.health == Health::Live
    }

    /// Time at which this tunnel of the preferred carrier replaces another one. `flapped_at` is the last time
    /// at which any tunnel of that carrier flapped.
    fn replaces_at(&self, other: &Self, flapped_at: Option<Instant>) -> Option<Instant> {
        let steady_at = |flapped_at: Option<Instant>| flapped_at.map(|at| at + STEADY_AFTER);
        if other.carrier == self.carrier {
            // Its predecessors are or were silent. One that has been well since this one flapped is not.
            let is_better = other.serves() && other.flapped_at < self.flapped_at;
            let steady_at = steady_at(self.flapped_at.filter(|_| is_better));
            return (other.number < self.number).then(|| steady_at.unwrap_or(self.live_since));
        }
        let stable_at = self.live_since + STABLE_AFTER;
        let steady_at = steady_at(flapped_at.filter(|_| other.serves()));
        Some(steady_at.map_or(stable_at, |at| at.max(stable_at)))
    }
}

#[cfg(test)]
mod tests;
