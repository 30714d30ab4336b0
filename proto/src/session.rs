//! The protocol state of one tunnel after its greeting: heartbeats, silence, drain.
//!
//! A state machine without I/O, after quinn-proto's contract. The code that drives it
//!
//! * passes in every frame (`handle_frame`), every sign of life (`heard`), the number of open streams whenever that
//!   changes (`streams_changed`) and the time when `poll_timeout` asks for it (`handle_timeout`),
//! * on a carrier that reports what the peer has received, also reports what awaits such an answer (`pinged`) and when it
//!   came (`answered`), because a path may be dark in one direction only,
//! * on a carrier of datagrams, also probes for full-size packets (`full_size_due` and what is beside it), because a path
//!   may lose those alone,
//! * then takes out frames (`poll_frame`) and events (`poll_event`) until there are none.
//!
//! Both sides run the same machine.

mod drain;
mod event;
mod frame_allowance;
mod frame_limits;
mod full_size;
mod heartbeat;
mod probing;
mod protocol;
mod violation;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::wire::{
    Drain, Drained, Endpoints, Extension, Heartbeat, Servers, StreamQuery, StreamReport, control_frame::Frame,
};
use drain::DrainState;
use full_size::FullSize;

pub use event::Event;
pub use frame_allowance::FrameAllowance;
pub use frame_limits::{
    FRAMES_BURST_MAX, FRAMES_PER_SECOND_MAX, PEER_FRAMES_BURST_MAX, PEER_FRAMES_PER_SECOND_MAX,
};
pub use full_size::{FULL_SIZE_ANSWER_MAX, FULL_SIZE_EVERY, FULL_SIZE_EVERY_SUSPECT};
pub use heartbeat::{HEARTBEAT_ACTIVE, HEARTBEAT_IDLE, HEARTBEAT_SLOWEST};
pub use probing::{PROBE_EVERY, PROBE_EVERY_IDLE, PROBE_FAST_FOR};
pub use protocol::{PEER_SILENCE_MAX, Protocol};
pub use violation::ProtocolViolation;

/// Default of the silence after which a tunnel is given up. Minutes, because a link that comes back within
/// them loses nothing.
pub const SILENCE_MAX: Duration = Duration::from_secs(300);

/// The shortest silence that may be agreed: three heartbeats of an idle tunnel.
pub const SILENCE_LEAST: Duration = Duration::from_secs(9);

/// The longest silence that may be agreed. With a longer one, the heartbeats of an outage could exceed the
/// frame limit.
pub const SILENCE_MOST: Duration = Duration::from_secs(600);

const _: () = assert!(HEARTBEAT_SLOWEST.as_millis() * 3 < SILENCE_MAX.as_millis());
const _: () = assert!(HEARTBEAT_IDLE.as_millis() * 3 <= SILENCE_LEAST.as_millis());
const _: () = assert!(SILENCE_MAX.as_millis() <= SILENCE_MOST.as_millis());
const _: () = assert!(SILENCE_MOST.as_millis() / HEARTBEAT_ACTIVE.as_millis() < FRAMES_BURST_MAX as u128);

/// The health of a tunnel, as far as this side can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Health {
    /// Heard within two and a half of the peer's heartbeats, and answered within one and a half of our own.
    /// Full-size packets pass both ways.
    Live,
    /// Silent for longer than that, or full-size packets do not pass; streams stay open and wait.
    Suspect,
    /// Silent for longer than was agreed; the tunnel is over.
    Lost,
}

/// One side of a greeted tunnel.
#[derive(Debug)]
pub struct Session {
    protocol: Protocol,
    silence_max: Duration,
    health: Health,
    heard_at: Instant,
    /// Since this instant something awaits an answer, on a carrier that reports answers.
    unanswered_since: Option<Instant>,
    /// The time that the last answer took.
    round_trip: Duration,
    /// The peer's promise: the longest time until its next heartbeat.
    peer_interval: Duration,
    last_heartbeat_at: Instant,
    /// Our promise in that heartbeat.
    promised_interval: Duration,
    streams_open: u32,
    /// `None` on a carrier whose packets are not ours.
    full_size: Option<FullSize>,
    /// The last time at which the tunnel turned from suspect to live.
    flapped_at: Option<Instant>,
    drain: DrainState,
    frame_allowance: FrameAllowance,
    /// At most one frame of each kind.
    outbox: VecDeque<Frame>,
    events: VecDeque<Event>,
}

impl Session {
    /// Starts the session of an agent's tunnel now, with the silence that was agreed. Zero means the default; the
    /// lower bound keeps a peer from making the tunnel brittle.
    #[must_use]
    pub fn new(now: Instant, silence_max: Duration) -> Self {
        Self::with_protocol(Protocol::Agent, now, silence_max)
    }

    /// The same for a session of either protocol.
    #[must_use]
    pub fn with_protocol(protocol: Protocol, now: Instant, silence_max: Duration) -> Self {
        let silence_max =
            if silence_max.is_zero() { SILENCE_MAX } else { silence_max.clamp(SILENCE_LEAST, SILENCE_MOST) };
        Self {
            protocol,
            silence_max,
            health: Health::Live,
            heard_at: now,
            unanswered_since: None,
            round_trip: Duration::ZERO,
            peer_interval: HEARTBEAT_IDLE,
            last_heartbeat_at: now,
            promised_interval: HEARTBEAT_IDLE,
            streams_open: 0,
            full_size: None,
            flapped_at: None,
            drain: DrainState::default(),
            frame_allowance: FrameAllowance::of(protocol, now),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The protocol that both sides speak.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The tunnel's health as of the last event.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// Time since the last sign of life from the peer, or since the oldest unanswered ping, whichever is
    /// longer.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.silent_since())
    }

    /// Returns true if this side or the other asked for a drain: no new stream may be opened.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_asked()
    }

    /// Handles a frame of the peer.
    ///
    /// # Errors
    /// `ProtocolViolation`, upon which the tunnel has to be closed.
    pub fn handle_frame(&mut self, now: Instant, frame: Option<Frame>) -> Result<(), ProtocolViolation> {
        if !self.frame_allowance.take(now, 1) {
            return Err(match self.protocol {
                Protocol::Agent => ProtocolViolation::TooManyFrames,
                Protocol::Peer => ProtocolViolation::TooManyPeerFrames,
            });
        }
        frame.as_ref().map_or(Ok(()), |frame| self.protocol.check(frame))?;
        let wants_probe = match (&frame, &mut self.full_size) {
            (Some(Frame::Heartbeat(heartbeat)), Some(full_size)) => full_size.peer_said(now, heartbeat),
            _ => false,
        };
        self.heard(now);
        match frame {
            Some(Frame::Heartbeat(heartbeat)) => {
                let promised = Duration::from_millis(heartbeat.interval_ms.into());
                self.peer_interval = promised.clamp(HEARTBEAT_ACTIVE, HEARTBEAT_SLOWEST);
                if wants_probe && self.health != Health::Lost {
                    self.send_heartbeat(now);
                }
                if !self.full_size_passes(now) {
                    self.suspect(now);
                }
            }
            Some(Frame::Drain(Drain {})) => {
                if self.drain.peer_asked() {
                    self.events.push_back(Event::PeerDrains);
                }
                self.advance_drain();
            }
            Some(Frame::Drained(Drained {})) => {
                self.drain.peer_drained();
                self.advance_drain();
            }
            Some(Frame::Endpoints(endpoints)) => self.replace_event(Event::Endpoints(endpoints)),
            Some(Frame::Extension(extension)) => self.replace_event(Event::Extension(extension)),
            Some(Frame::StreamQuery(query)) => self.replace_event(Event::StreamQuery(query)),
            Some(Frame::StreamReport(report)) => self.replace_event(Event::StreamReport(report)),
            Some(Frame::Servers(servers)) => self.replace_event(Event::Servers(servers)),
            Some(Frame::Peer(message)) => self.events.push_back(Event::Peer(message)),
            // A newer peer's frame. All others were refused above.
            None
            | Some(
                Frame::Hello(_)
                | Frame::Welcome(_)
                | Frame::Refused(_)
                | Frame::PeerHello(_)
                | Frame::PeerWelcome(_),
            ) => {}
        }
        Ok(())
    }

    /// Notes a sign of life that is no frame: a packet of the carrier, authenticated by it.
    pub fn heard(&mut self, now: Instant) {
        if self.health == Health::Lost {
            return;
        }
        self.heard_at = self.heard_at.max(now);
        self.answer_at_once(now);
        let is_answered =
            self.silence(now) < self.silence_max && self.unanswered_for(now) < self.answer_timeout();
        if is_answered && self.full_size_passes(now) {
            self.trust(now);
        }
    }

    /// Notes that something was sent now. The carrier will report its arrival by `answered`.
    pub fn pinged(&mut self, now: Instant) {
        self.unanswered_since.get_or_insert(now);
    }

    /// Notes that the peer has received what awaited an answer, after this round trip.
    pub fn answered(&mut self, now: Instant, round_trip: Duration) {
        let was_dark = self.unanswered_for(now) >= self.answer_timeout();
        self.unanswered_since = None;
        self.round_trip = round_trip;
        if was_dark
            && self.health != Health::Lost
            && let Some(full_size) = &mut self.full_size
        {
            // Small packets pass again; the next thing to know is whether others do.
            full_size.ask();
            self.send_heartbeat(now);
        }
        self.heard(now);
    }

    /// Since this instant something awaits an answer; `None` on a carrier that does not report answers.
    #[must_use]
    pub fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered_since
    }

    /// Notes how many streams this side counts as open.
    pub fn streams_changed(&mut self, now: Instant, streams_open: u32) {
        self.streams_open = streams_open;
        self.advance_drain();
        self.send_heartbeat_if_due(now);
    }

    /// Sends a heartbeat now, so that a peer that is alive answers soon.
    pub fn nudge(&mut self, now: Instant) {
        if self.health != Health::Lost {
            self.full_size.iter_mut().for_each(FullSize::ask);
            self.send_heartbeat(now);
        }
    }

    /// Sends changed endpoints to the peer.
    pub fn advertise(&mut self, endpoints: Endpoints) {
        self.queue(Frame::Endpoints(endpoints));
    }

    /// Presents a newer certificate to the peer.
    pub fn extend(&mut self, extension: Extension) {
        self.queue(Frame::Extension(extension));
    }

    /// Asks the peer for streams of another tunnel.
    pub fn ask(&mut self, query: StreamQuery) {
        self.queue(Frame::StreamQuery(query));
    }

    /// Answers a question of the peer about streams.
    pub fn report(&mut self, report: StreamReport) {
        self.queue(Frame::StreamReport(report));
    }

    /// Tells an agent which servers there are.
    pub fn tell_servers(&mut self, servers: Servers) {
        self.queue(Frame::Servers(servers));
    }

    /// Begins a drain: the peer is notified, and `Event::Empty` follows once no stream is open on either
    /// side.
    pub fn begin_drain(&mut self) {
        if self.drain.ask() {
            self.queue(Frame::Drain(Drain {}));
        }
        self.advance_drain();
    }

    /// Does what is due by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.health == Health::Lost {
            return;
        }
        if self.silence(now) >= self.silence_max {
            self.change_health(Health::Lost);
            return;
        }
        let heard_for = now.saturating_duration_since(self.heard_at);
        let is_silent =
            heard_for >= self.suspect_after() || self.unanswered_for(now) >= self.answer_timeout();
        if is_silent || !self.full_size_passes(now) {
            self.suspect(now);
        }
        if is_silent {
            // Only here, where the health is up to date: a stream may end in the very moment in which the
            // peer is back.
            if self.drain.is_alone(self.streams_open) {
                self.events.push_back(Event::Empty);
            }
        }
        self.send_heartbeat_if_due(now);
    }

    /// The time at which `handle_timeout` wants to be called next; `None` once the tunnel is lost.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent_since = self.silent_since();
        let lost = silent_since + self.silence_max;
        let suspect = match self.health {
            Health::Live => {
                let unanswered = self.unanswered_since.map(|since| since + self.answer_timeout());
                let full_size =
                    self.full_size.as_ref().and_then(|it| it.lost_at(self.full_size_answer_max()));
                let silent = self.heard_at + self.suspect_after();
                unanswered.into_iter().chain(full_size).fold(silent, Instant::min)
            }
            Health::Suspect => lost,
            Health::Lost => return None,
        };
        Some(suspect.min(lost).min(self.next_heartbeat_at()))
    }

    /// The next frame to send.
    pub fn poll_frame(&mut self) -> Option<Frame> {
        self.outbox.pop_front()
    }

    /// Returns true if there is a frame to send.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Takes the heartbeat out of the frames to send, for a driver that does not let it wait behind other
    /// frames.
    pub fn poll_heartbeat(&mut self) -> Option<Frame> {
        let at = self.outbox.iter().position(|frame| matches!(frame, Frame::Heartbeat(_)))?;
        self.outbox.remove(at)
    }

    /// Takes the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Silence after which a tunnel is suspect: two and a half of the heartbeats that the peer promised.
    fn suspect_after(&self) -> Duration {
        self.peer_interval * 5 / 2
    }

    /// The time that something may await its answer before the tunnel is suspect. One and a half of our
    /// heartbeats, so that together with the pause before it a dark path is noticed after two and a half;
    /// longer on a path that is itself so slow.
    fn answer_timeout(&self) -> Duration {
        (self.heartbeat_interval() * 3 / 2).max(self.round_trip * 2)
    }

    fn unanswered_for(&self, now: Instant) -> Duration {
        self.unanswered_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// The instant since which at least one direction is dark, or dark to full-size packets, as far as this
    /// side can tell.
    fn silent_since(&self) -> Instant {
        let full_size = self.full_size.as_ref().and_then(FullSize::unanswered_since);
        self.unanswered_since.into_iter().chain(full_size).fold(self.heard_at, Instant::min)
    }

    /// The interval at which this side sends heartbeats now.
    fn heartbeat_interval(&self) -> Duration {
        if self.streams_open > 0 || self.health != Health::Live { HEARTBEAT_ACTIVE } else { HEARTBEAT_IDLE }
    }

    /// The time of the next heartbeat: one interval after the last, or sooner while the peer does not answer.
    fn next_heartbeat_at(&self) -> Instant {
        // A promise is kept although the interval has become longer since: the peer would take the rest for
        // silence.
        let next = self.last_heartbeat_at + self.heartbeat_interval().min(self.promised_interval);
        // A suspect tunnel's full-size probes go with its heartbeats.
        let full_size = self.full_size.as_ref().filter(|_| self.health == Health::Live);
        let unanswered = [self.unanswered_since, full_size.and_then(FullSize::unanswered_since)];
        let Some(since) = unanswered.into_iter().flatten().min() else {
            return next;
        };
        let is_idle = self.streams_open == 0;
        next.min(probing::next_probe_at(since, self.last_heartbeat_at, self.round_trip, is_idle))
    }

    /// Sends a heartbeat at once, because the peer was heard on a path that had seemed dark.
    fn answer_at_once(&mut self, now: Instant) {
        let expected = probing::answer_expected(self.round_trip);
        let is_dark = self.unanswered_since.is_some_and(|since| now >= since + expected);
        let is_due = now >= self.last_heartbeat_at + probing::ANSWER_EVERY_MIN;
        if is_dark && self.health != Health::Lost && is_due {
            self.send_heartbeat(now);
        }
    }

    fn send_heartbeat_if_due(&mut self, now: Instant) {
        if self.health != Health::Lost && now >= self.next_heartbeat_at() {
            self.send_heartbeat(now);
        }
    }

    fn send_heartbeat(&mut self, now: Instant) {
        (self.last_heartbeat_at, self.promised_interval) = (now, self.heartbeat_interval());
        let interval_ms = u32::try_from(self.promised_interval.as_millis()).unwrap_or(u32::MAX);
        let mut heartbeat =
            Heartbeat { interval_ms, streams_open: self.streams_open, ..Heartbeat::default() };
        let answer_max = self.full_size_answer_max();
        if let Some(full_size) = &mut self.full_size {
            full_size.say(now, answer_max, &mut heartbeat);
        }
        self.queue(Frame::Heartbeat(heartbeat));
    }

    fn change_health(&mut self, health: Health) {
        if self.health != health {
            self.health = health;
            self.events.push_back(Event::Health(health));
        }
    }

    /// Sends `Drained` once no stream is open here, and reports `Empty` once that holds on both sides.
    fn advance_drain(&mut self) {
        if self.drain.may_say_drained(self.streams_open) {
            self.queue(Frame::Drained(Drained {}));
        }
        if self.drain.is_newly_empty(self.streams_open) {
            self.events.push_back(Event::Empty);
        }
    }

    /// Reports an event in place of one of its kind that was not taken yet, so that a peer fills no queue.
    /// Changes of the health are all reported, and not by this.
    fn replace_event(&mut self, event: Event) {
        let kind = std::mem::discriminant(&event);
        self.events.retain(|queued| std::mem::discriminant(queued) != kind);
        self.events.push_back(event);
    }

    /// Queues a frame in place of one of its kind that was not sent yet, so that a blocked carrier fills no
    /// queue.
    fn queue(&mut self, frame: Frame) {
        let kind = std::mem::discriminant(&frame);
        self.outbox.retain(|queued| std::mem::discriminant(queued) != kind);
        self.outbox.push_back(frame);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test needs one instant to begin virtual time from")]
mod tests;
