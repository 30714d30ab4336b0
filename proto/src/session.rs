//! The protocol state of one tunnel after its greeting: heartbeats, silence, drain.
//!
//! A state machine without I/O, after quinn-proto's contract. Its shell
//!
//! * gives it every frame (`handle_frame`), every sign of life (`heard`), the number of open streams whenever that
//!   changes (`streams_changed`) and the time when `poll_timeout` says so (`handle_timeout`),
//! * where its carrier tells that the peer has received something, says what awaits such an answer (`pinged`) and when it
//!   came (`answered`), because a path may be dark in one direction only,
//! * then takes out frames (`poll_frame`) and events (`poll_event`) until there are none.
//!
//! Both sides run the same machine.

mod drain;
mod probing;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::wire::{Drain, Drained, Endpoints, Extension, Heartbeat, control_frame::Frame};
use drain::DrainState;

pub use probing::{PROBE_EVERY, PROBE_EVERY_IDLE, PROBE_FAST_FOR};

/// How often a side speaks while the tunnel carries streams, or while the other side is silent.
pub const HEARTBEAT_ACTIVE: Duration = Duration::from_secs(1);

/// How often a side speaks while the tunnel is idle: about 0.23 kbit/s each way.
pub const HEARTBEAT_IDLE: Duration = Duration::from_secs(3);

/// The slowest heartbeat that a peer may promise: below the 30 s after which common NATs forget a UDP mapping.
pub const HEARTBEAT_SLOWEST: Duration = Duration::from_secs(25);

/// Where nothing else was configured: a tunnel that was silent for this long is given up. Minutes, because a link that
/// comes back within them loses nothing.
pub const SILENCE_MAX: Duration = Duration::from_secs(300);

/// The shortest silence that may be agreed: three heartbeats of an idle tunnel.
pub const SILENCE_LEAST: Duration = Duration::from_secs(9);

/// The longest: with more, heartbeats of an outage could pass for too many frames.
pub const SILENCE_MOST: Duration = Duration::from_secs(600);

/// Most control frames that a peer may send in a second, in the long run.
pub const FRAMES_PER_SECOND_MAX: u32 = 100;

/// Most control frames that may arrive at once: the heartbeats of a whole outage stand in the stream and come together
/// when the link returns.
pub const FRAMES_BURST_MAX: u32 = 1000;

const _: () = assert!(HEARTBEAT_ACTIVE.as_millis() < HEARTBEAT_IDLE.as_millis());
const _: () = assert!(HEARTBEAT_IDLE.as_millis() < HEARTBEAT_SLOWEST.as_millis());
const _: () = assert!(HEARTBEAT_SLOWEST.as_millis() * 3 < SILENCE_MAX.as_millis());
const _: () = assert!(HEARTBEAT_IDLE.as_millis() * 3 <= SILENCE_LEAST.as_millis());
const _: () = assert!(SILENCE_MAX.as_millis() <= SILENCE_MOST.as_millis());
const _: () = assert!(SILENCE_MOST.as_millis() / HEARTBEAT_ACTIVE.as_millis() < FRAMES_BURST_MAX as u128);

/// How a tunnel does, as far as this side can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Health {
    /// Heard within two and a half of the peer's heartbeats, and answered within one and a half of our own.
    Live,
    /// Silent for longer than that; streams are held.
    Suspect,
    /// Silent for longer than was agreed; the tunnel is over.
    Lost,
}

/// What the shell has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The health changed to this.
    Health(Health),
    /// The peer is stopping: begin nothing new.
    PeerDrains,
    /// The cluster's endpoints changed (only agents say so).
    Endpoints(Endpoints),
    /// A newer certificate takes the tunnel over, if its proof holds (only agents say so).
    Extension(Extension),
    /// After a drain: both sides have no open stream any more, so the tunnel can be closed without loss. Or this side
    /// asked for the drain, has none, and the other side is silent, so that there is nobody to wait for.
    Empty,
}

/// What a peer may not do. The tunnel is closed for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A frame of the greeting, after the greeting.
    #[error("a {0} frame came after the greeting")]
    LateGreeting(&'static str),
    /// More frames than a peer may send.
    #[error("more than {max} control frames a second", max = FRAMES_PER_SECOND_MAX)]
    TooManyFrames,
}

/// One side of a greeted tunnel.
#[derive(Debug)]
pub struct Session {
    silence_max: Duration,
    health: Health,
    heard_at: Instant,
    /// Since when something awaits an answer, where the carrier tells of answers.
    unanswered_since: Option<Instant>,
    /// How long the last answer took.
    round_trip: Duration,
    /// The peer's promise: how long until it speaks again.
    peer_interval: Duration,
    spoke_at: Instant,
    streams_open: u32,
    drain: DrainState,
    /// How many frames the peer may send at once, and since when that is so.
    frames_allowed: (Instant, u32),
    /// At most one frame of each kind.
    outbox: VecDeque<Frame>,
    events: VecDeque<Event>,
}

impl Session {
    /// A session that begins now, with the silence that was agreed. Zero means the default; the bound from below keeps
    /// a peer from making the tunnel brittle.
    #[must_use]
    pub fn new(now: Instant, silence_max: Duration) -> Self {
        let silence_max =
            if silence_max.is_zero() { SILENCE_MAX } else { silence_max.clamp(SILENCE_LEAST, SILENCE_MOST) };
        Self {
            silence_max,
            health: Health::Live,
            heard_at: now,
            unanswered_since: None,
            round_trip: Duration::ZERO,
            peer_interval: HEARTBEAT_IDLE,
            spoke_at: now,
            streams_open: 0,
            drain: DrainState::default(),
            frames_allowed: (now, FRAMES_BURST_MAX),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// How the tunnel does.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// For how long nothing has been heard of the peer, or nothing that was sent to it has been answered.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.silent_since())
    }

    /// Whether this side or the other asked for a drain: no new stream may be opened.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_asked()
    }

    /// Takes a frame of the peer.
    ///
    /// # Errors
    /// `Violation`, upon which the tunnel has to be closed.
    pub fn handle_frame(&mut self, now: Instant, frame: Option<Frame>) -> Result<(), Violation> {
        self.count_frame(now)?;
        self.heard(now);
        match frame {
            Some(Frame::Heartbeat(heartbeat)) => {
                let promised = Duration::from_millis(heartbeat.interval_ms.into());
                self.peer_interval = promised.clamp(HEARTBEAT_ACTIVE, HEARTBEAT_SLOWEST);
            }
            Some(Frame::Drain(Drain {})) => {
                if self.drain.peer_asked() {
                    self.events.push_back(Event::PeerDrains);
                }
                self.settle();
            }
            Some(Frame::Drained(Drained {})) => {
                self.drain.peer_drained();
                self.settle();
            }
            Some(Frame::Endpoints(endpoints)) => {
                self.events.retain(|event| !matches!(event, Event::Endpoints(_)));
                self.events.push_back(Event::Endpoints(endpoints));
            }
            Some(Frame::Extension(extension)) => {
                self.events.retain(|event| !matches!(event, Event::Extension(_)));
                self.events.push_back(Event::Extension(extension));
            }
            Some(Frame::Hello(_)) => return Err(Violation::LateGreeting("Hello")),
            Some(Frame::Welcome(_)) => return Err(Violation::LateGreeting("Welcome")),
            Some(Frame::Refused(_)) => return Err(Violation::LateGreeting("Refused")),
            // A newer peer's frame.
            None => {}
        }
        Ok(())
    }

    /// Notes a sign of life that is no frame: a packet of the carrier, authenticated by it.
    pub fn heard(&mut self, now: Instant) {
        if self.health == Health::Lost {
            return;
        }
        self.heard_at = self.heard_at.max(now);
        self.speak_back(now);
        if self.silence(now) < self.silence_max && self.unanswered_for(now) < self.patience() {
            self.change_health(Health::Live);
        }
    }

    /// Notes that something was sent now whose arrival the carrier will tell of by `answered`.
    pub fn pinged(&mut self, now: Instant) {
        self.unanswered_since.get_or_insert(now);
    }

    /// Notes that the peer has received what awaited an answer, which took so long.
    pub fn answered(&mut self, now: Instant, round_trip: Duration) {
        self.unanswered_since = None;
        self.round_trip = round_trip;
        self.heard(now);
    }

    /// Since when something awaits an answer. Nothing does on a carrier that does not tell.
    #[must_use]
    pub fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered_since
    }

    /// Notes how many streams this side counts as open.
    pub fn streams_changed(&mut self, now: Instant, streams_open: u32) {
        self.streams_open = streams_open;
        self.settle();
        self.speak_if_due(now);
    }

    /// Says something now, so that a peer that lives answers soon.
    pub fn nudge(&mut self, now: Instant) {
        if self.health != Health::Lost {
            self.speak(now);
        }
    }

    /// Tells the peer of other endpoints.
    pub fn advertise(&mut self, endpoints: Endpoints) {
        self.put(Frame::Endpoints(endpoints));
    }

    /// Shows the peer a newer certificate.
    pub fn extend(&mut self, extension: Extension) {
        self.put(Frame::Extension(extension));
    }

    /// Begins a drain: the peer is told, and `Event::Empty` follows once no stream is open on either side.
    pub fn begin_drain(&mut self) {
        if self.drain.ask() {
            self.put(Frame::Drain(Drain {}));
        }
        self.settle();
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
        if heard_for >= self.suspect_after() || self.unanswered_for(now) >= self.patience() {
            self.change_health(Health::Suspect);
            // Only here, where the clock was looked at: a stream may end in the very moment in which the peer is back.
            if self.drain.is_alone(self.streams_open) {
                self.events.push_back(Event::Empty);
            }
        }
        self.speak_if_due(now);
    }

    /// When `handle_timeout` wants to be called next; `None` once the tunnel is lost.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent_since = self.silent_since();
        let lost = silent_since + self.silence_max;
        let suspect = match (self.health, self.unanswered_since) {
            (Health::Live, Some(since)) => {
                (self.heard_at + self.suspect_after()).min(since + self.patience())
            }
            (Health::Live, None) => self.heard_at + self.suspect_after(),
            (Health::Suspect, _) => lost,
            (Health::Lost, _) => return None,
        };
        Some(suspect.min(lost).min(self.speaks_at()))
    }

    /// The next frame to send.
    pub fn poll_frame(&mut self) -> Option<Frame> {
        self.outbox.pop_front()
    }

    /// Whether there is a frame to send.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The heartbeat among the frames to send, for a shell that does not let it wait behind other frames.
    pub fn poll_heartbeat(&mut self) -> Option<Frame> {
        let at = self.outbox.iter().position(|frame| matches!(frame, Frame::Heartbeat(_)))?;
        self.outbox.remove(at)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Silence that makes a tunnel suspect: two and a half of the heartbeats that the peer promised.
    fn suspect_after(&self) -> Duration {
        self.peer_interval * 5 / 2
    }

    /// How long something may await its answer: one and a half of our heartbeats, so that together with the pause before it
    /// a dark path is noticed after two and a half; longer on a path that is itself so slow.
    fn patience(&self) -> Duration {
        (self.pace() * 3 / 2).max(self.round_trip * 2)
    }

    fn unanswered_for(&self, now: Instant) -> Duration {
        self.unanswered_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Since when one direction at least is dark, as far as this side can tell.
    fn silent_since(&self) -> Instant {
        self.unanswered_since.map_or(self.heard_at, |since| since.min(self.heard_at))
    }

    /// How often this side speaks now.
    fn pace(&self) -> Duration {
        if self.streams_open > 0 || self.health != Health::Live { HEARTBEAT_ACTIVE } else { HEARTBEAT_IDLE }
    }

    fn speak_if_due(&mut self, now: Instant) {
        if self.health != Health::Lost && now >= self.speaks_at() {
            self.speak(now);
        }
    }

    fn speak(&mut self, now: Instant) {
        self.spoke_at = now;
        let interval_ms = u32::try_from(self.pace().as_millis()).unwrap_or(u32::MAX);
        self.put(Frame::Heartbeat(Heartbeat { interval_ms, streams_open: self.streams_open }));
    }

    fn change_health(&mut self, health: Health) {
        if self.health != health {
            self.health = health;
            self.events.push_back(Event::Health(health));
        }
    }

    /// Says `Drained` once nothing is open here, and `Empty` once that holds on both sides.
    fn settle(&mut self) {
        if self.drain.may_say_drained(self.streams_open) {
            self.put(Frame::Drained(Drained {}));
        }
        if self.drain.is_newly_empty(self.streams_open) {
            self.events.push_back(Event::Empty);
        }
    }

    /// Queues a frame in place of one of its kind that was not sent yet, so that a blocked carrier fills no queue.
    fn put(&mut self, frame: Frame) {
        let kind = std::mem::discriminant(&frame);
        self.outbox.retain(|queued| std::mem::discriminant(queued) != kind);
        self.outbox.push_back(frame);
    }

    fn count_frame(&mut self, now: Instant) -> Result<(), Violation> {
        let (since, allowed) = &mut self.frames_allowed;
        let seconds = now.saturating_duration_since(*since).as_secs();
        if seconds > 0 {
            let earned = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(FRAMES_PER_SECOND_MAX);
            (*since, *allowed) = (now, allowed.saturating_add(earned).min(FRAMES_BURST_MAX));
        }
        *allowed = allowed.checked_sub(1).ok_or(Violation::TooManyFrames)?;
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test needs one instant to begin virtual time from")]
mod tests;
