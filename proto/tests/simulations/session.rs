//! Two sessions over a link that loses, delays, goes dark and stops their clocks, over thousands of seeded
//! schedules.
//!
//! `session_chaos` lets a script happen to a perfect link; here the link itself is bad. A lost frame is sent
//! again, so that it and all behind it arrive late, in order and once, as a carrier promises for the control
//! stream. A side's process may be stopped and go on later, which is a step of its clock. Every schedule is
//! its seed: a failure names it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proto::Session;
use proto::session::{Event, HEARTBEAT_ACTIVE, Health};
use proto::wire::control_frame::Frame;

use crate::rng::Rng;

/// Schedules of one run; each is some minutes of virtual time.
const SCHEDULES: u64 = 4000;

/// A tunnel in use that hears nothing is suspect by then, and one that is idle by [`SUSPECT_IDLE_MAX`].
const SUSPECT_MAX: Duration = Duration::from_secs(3);
const SUSPECT_IDLE_MAX: Duration = Duration::from_secs(8);

/// A link that is well again has emptied a drain by then: two ways and a heartbeat each.
const SETTLED_MAX: Duration = Duration::from_secs(30);

#[test]
fn sessions_keep_their_promises_over_thousands_of_bad_links() {
    let mut settled = 0;
    for seed in 0..SCHEDULES {
        let mut simulation = Simulation::new(seed);
        // A side that has lost its tunnel closes it, so that there is nothing left to agree on.
        while simulation.now < simulation.ends_at && !simulation.is_over() {
            simulation.step();
        }
        if !simulation.is_over() {
            simulation.settle();
            settled += 1;
        }
    }
    assert!(settled > SCHEDULES / 2, "only {settled} schedules came to a drain");
}

/// They all arrive together at its end.
#[test]
fn the_heartbeats_of_the_longest_outage_violate_no_limit() {
    for seed in 0..200 {
        let mut simulation = Simulation::new(seed);
        (simulation.loss_per_cent, simulation.jitter_ms) = (0, 0);
        simulation.run_for(Duration::from_secs(20));
        // A little less than the limit: all heartbeats of the outage arrive at once.
        simulation.go_dark(simulation.silence_max - Duration::from_secs(5));
        simulation.run_for(simulation.silence_max);
        assert_eq!(simulation.healths(), [Health::Live; 2], "seed {seed}");
    }
}

/// One side and what is on the way to it.
struct Side {
    session: Session,
    inbound: VecDeque<(Instant, Frame)>,
    /// Until this instant its process is stopped.
    stopped_until: Instant,
    heard_at: Instant,
    /// True if the peer has promised to send every [`HEARTBEAT_ACTIVE`].
    in_use: bool,
    streams: u32,
    is_empty: bool,
    is_lost: bool,
}

struct Simulation {
    seed: u64,
    rng: Rng,
    now: Instant,
    ends_at: Instant,
    silence_max: Duration,
    delay: Duration,
    jitter_ms: u64,
    loss_per_cent: u64,
    dark_until: Instant,
    sides: [Side; 2],
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let now = Instant::now();
        let silence_max = rng.millis(30_000, 300_000);
        let side = || Side {
            session: Session::new(now, silence_max),
            inbound: VecDeque::new(),
            stopped_until: now,
            heard_at: now,
            in_use: false,
            streams: 0,
            is_empty: false,
            is_lost: false,
        };
        let sides = [side(), side()];
        let lasts = rng.millis(60_000, 600_000);
        Self {
            seed,
            silence_max,
            delay: rng.millis(1, 400),
            jitter_ms: rng.below(200),
            loss_per_cent: rng.below(30),
            dark_until: now,
            ends_at: now + lasts,
            rng,
            now,
            sides,
        }
    }

    /// Applies one random event, or none, and then lets time pass.
    fn step(&mut self) {
        match self.rng.below(12) {
            0 => {
                let outage = self.rng.millis(100, 100_000);
                self.go_dark(outage);
            }
            1 => {
                let which = usize::try_from(self.rng.below(2)).unwrap();
                let stop = self.rng.millis(100, 20_000);
                self.sides[which].stopped_until = self.now + stop;
            }
            2..=4 => {
                let streams = u32::try_from(self.rng.below(4)).unwrap();
                for side in &mut self.sides {
                    if !side.session.is_draining() {
                        side.streams = streams;
                        side.session.streams_changed(self.now, streams);
                    }
                }
            }
            _ => {}
        }
        let pause = self.rng.millis(1, 15_000);
        self.run_for(pause);
    }

    /// The link heals, streams end, one side asks for a drain: it must come to its end.
    fn settle(&mut self) {
        self.loss_per_cent = 0;
        let well = self.sides.iter().map(|side| side.stopped_until).max().unwrap().max(self.dark_until);
        self.run_for(well.saturating_duration_since(self.now) + SETTLED_MAX);
        if self.is_over() {
            return;
        }
        let drains = usize::try_from(self.rng.below(2)).unwrap();
        self.sides[drains].session.begin_drain();
        for side in &mut self.sides {
            side.streams = 0;
            side.session.streams_changed(self.now, 0);
        }
        self.exchange();
        self.run_for(SETTLED_MAX);
        for side in &self.sides {
            assert!(side.is_empty, "seed {}: a drain never ended", self.seed);
        }
    }

    fn is_over(&self) -> bool {
        self.sides.iter().any(|side| side.is_lost)
    }

    fn go_dark(&mut self, outage: Duration) {
        self.dark_until = self.dark_until.max(self.now + outage);
        for side in &mut self.sides {
            for (at, _) in &mut side.inbound {
                *at = (*at).max(self.dark_until);
            }
        }
    }

    fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            for which in 0..self.sides.len() {
                self.turn(which);
            }
            self.exchange();
        }
        self.now = end;
    }

    /// The time at which anything is due next, at a side that is not stopped.
    fn next(&self) -> Option<Instant> {
        let due = |side: &Side| {
            let arrival = side.inbound.front().map(|(at, _)| *at);
            let due = side.session.poll_timeout().into_iter().chain(arrival).min()?;
            Some(due.max(side.stopped_until))
        };
        self.sides.iter().filter_map(due).min()
    }

    /// Lets one side handle its frames and timeouts, in a random order.
    fn turn(&mut self, which: usize) {
        let (seed, now, silence_max) = (self.seed, self.now, self.silence_max);
        let timeout_first = self.rng.below(2) == 0;
        let side = &mut self.sides[which];
        if now < side.stopped_until {
            return;
        }
        if timeout_first {
            side.session.handle_timeout(now);
        }
        while side.inbound.front().is_some_and(|(at, _)| *at <= now) {
            let (_, frame) = side.inbound.pop_front().unwrap();
            if let Frame::Heartbeat(heartbeat) = &frame {
                side.in_use = Duration::from_millis(heartbeat.interval_ms.into()) <= HEARTBEAT_ACTIVE;
            }
            let was_lost = side.session.health() == Health::Lost;
            side.session
                .handle_frame(now, Some(frame))
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if !was_lost {
                side.heard_at = now;
                assert_eq!(side.session.health(), Health::Live, "seed {seed}: the first sign of life counts");
            }
        }
        side.session.handle_timeout(now);
        let silence = now - side.heard_at;
        let bound = if side.in_use { SUSPECT_MAX } else { SUSPECT_IDLE_MAX };
        match side.session.health() {
            Health::Live => assert!(silence <= bound, "seed {seed}: live after {silence:?} of silence"),
            Health::Suspect => assert!(silence >= HEARTBEAT_ACTIVE, "seed {seed}: suspect after {silence:?}"),
            Health::Lost => {
                assert!(side.is_lost || silence >= silence_max, "seed {seed}: lost after {silence:?}");
                side.is_lost = true;
            }
        }
        let next = side.session.poll_timeout();
        assert!(next.is_none_or(|next| next > now), "seed {seed}: a side is never due at once again");
    }

    /// Takes frames and events out of the sessions. A stopped side sends nothing.
    fn exchange(&mut self) {
        for which in 0..self.sides.len() {
            while self.sides[which].stopped_until <= self.now
                && let Some(frame) = self.sides[which].session.poll_frame()
            {
                let arrival = self.arrival(which);
                self.sides[1 - which].inbound.push_back((arrival, frame));
            }
            let side = &mut self.sides[which];
            while let Some(event) = side.session.poll_event() {
                if event == Event::Empty {
                    assert!(!side.is_empty && side.streams == 0, "seed {}: emptied wrongly", self.seed);
                    side.is_empty = true;
                }
            }
        }
    }

    /// The time at which a frame that is sent now arrives: late by the delay, its jitter and its losses, and
    /// never before an earlier frame.
    fn arrival(&mut self, from: usize) -> Instant {
        let mut at = self.now.max(self.dark_until) + self.delay;
        at += Duration::from_millis(self.rng.below(self.jitter_ms + 1));
        while self.rng.below(100) < self.loss_per_cent {
            at += self.delay * 2 + Duration::from_millis(50);
        }
        let earlier = self.sides[1 - from].inbound.back().map(|(at, _)| *at);
        earlier.map_or(at, |earlier| at.max(earlier))
    }

    fn healths(&self) -> [Health; 2] {
        [self.sides[0].session.health(), self.sides[1].session.health()]
    }
}
