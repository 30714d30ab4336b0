//! A pair of sessions over a link that goes dark and comes back, in virtual time, over thousands of
//! schedules.
//!
//! The link keeps the promise of a carrier to the control stream: every frame arrives once and in order,
//! late.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test needs one instant to begin virtual time from, and its unwraps are claims"
)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proto::Session;
use proto::session::{Event, Health, SILENCE_MAX};
use proto::wire::control_frame::Frame;

/// An event from outside. A schedule gives each one a pause after the event before it.
#[derive(Debug, Clone)]
enum ExternalEvent {
    StreamOpens,
    StreamEnds,
    LinkGoesDark(Duration),
    Drain(Side),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Server,
    Agent,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn two_sessions_agree_in_the_end_and_never_close_over_an_open_stream(
        delay_ms in 1_u64..1500,
        script in prop::collection::vec((0_u64..20_000, event()), 0..40),
    ) {
        let mut pair = Pair::new(Duration::from_millis(delay_ms));
        for (pause_ms, event) in script {
            pair.run_for(Duration::from_millis(pause_ms));
            pair.apply(&event);
        }
        pair.end_streams();
        pair.apply(&ExternalEvent::Drain(Side::Agent));
        pair.run_for(SILENCE_MAX);

        for end in [&pair.server, &pair.agent] {
            prop_assert!(end.empty, "both sides know that the tunnel can be closed");
            prop_assert!(end.sent <= end.allowance(pair.now), "{} frames sent", end.sent);
        }
    }

    #[test]
    fn a_dark_link_makes_suspect_and_its_return_makes_live(dark_ms in 9_000_u64..170_000) {
        let mut pair = Pair::new(Duration::from_millis(20));
        pair.run_for(Duration::from_secs(10));
        pair.apply(&ExternalEvent::LinkGoesDark(Duration::from_millis(dark_ms)));

        pair.run_for(Duration::from_millis(dark_ms) - Duration::from_millis(20));
        prop_assert_eq!((pair.server.session.health(), pair.agent.session.health()), (Health::Suspect, Health::Suspect));

        pair.run_for(Duration::from_millis(1100));
        prop_assert_eq!((pair.server.session.health(), pair.agent.session.health()), (Health::Live, Health::Live));
    }

    #[test]
    fn a_link_that_stays_dark_is_lost_on_both_sides(delay_ms in 1_u64..1000) {
        let mut pair = Pair::new(Duration::from_millis(delay_ms));
        pair.apply(&ExternalEvent::LinkGoesDark(SILENCE_MAX * 2));
        pair.run_for(SILENCE_MAX + Duration::from_secs(2));
        prop_assert_eq!((pair.server.session.health(), pair.agent.session.health()), (Health::Lost, Health::Lost));
    }
}

fn event() -> impl Strategy<Value = ExternalEvent> {
    prop_oneof![
        4 => Just(ExternalEvent::StreamOpens),
        3 => Just(ExternalEvent::StreamEnds),
        2 => (100_u64..100_000).prop_map(|ms| ExternalEvent::LinkGoesDark(Duration::from_millis(ms))),
        1 => prop_oneof![Just(ExternalEvent::Drain(Side::Server)), Just(ExternalEvent::Drain(Side::Agent))],
    ]
}

/// One end: its session, and what is on the way to it.
struct End {
    session: Session,
    inbound: VecDeque<(Instant, Frame)>,
    began: Instant,
    sent: u32,
    empty: bool,
}

impl End {
    fn new(now: Instant) -> Self {
        Self {
            session: Session::new(now, SILENCE_MAX),
            inbound: VecDeque::new(),
            began: now,
            sent: 0,
            empty: false,
        }
    }

    /// One frame a second and the few of a drain: a session that sends in a loop would be far beyond.
    fn allowance(&self, now: Instant) -> u32 {
        u32::try_from((now - self.began).as_secs()).unwrap() + 10
    }
}

struct Pair {
    now: Instant,
    delay: Duration,
    dark_until: Instant,
    server: End,
    agent: End,
    /// Streams open at the server; the agent learns of each, and of its end, one delay later.
    streams: u32,
    agent_streams: VecDeque<(Instant, u32)>,
    streams_at_agent: u32,
}

impl Pair {
    fn new(delay: Duration) -> Self {
        let now = Instant::now();
        Self {
            now,
            delay,
            dark_until: now.checked_sub(Duration::from_secs(10)).unwrap(),
            server: End::new(now),
            agent: End::new(now),
            streams: 0,
            agent_streams: VecDeque::new(),
            streams_at_agent: 0,
        }
    }

    fn apply(&mut self, event: &ExternalEvent) {
        match event {
            // The server alone opens streams, and none once a drain was asked for.
            ExternalEvent::StreamOpens if !self.server.session.is_draining() => {
                self.set_streams(self.streams + 1)
            }
            ExternalEvent::StreamOpens => {}
            ExternalEvent::StreamEnds => self.set_streams(self.streams.saturating_sub(1)),
            // One outage at a time, with a breath between: together they would be longer than `SILENCE_MAX`.
            ExternalEvent::LinkGoesDark(_) if self.now < self.dark_until + Duration::from_secs(10) => {}
            ExternalEvent::LinkGoesDark(duration) => {
                self.dark_until = self.now + *duration;
                // Frames under way wait until the link returns.
                for at in self.server.inbound.iter_mut().chain(&mut self.agent.inbound).map(|(at, _)| at) {
                    *at = (*at).max(self.dark_until);
                }
                for (at, _) in &mut self.agent_streams {
                    *at = (*at).max(self.dark_until);
                }
            }
            ExternalEvent::Drain(Side::Server) => self.server.session.begin_drain(),
            ExternalEvent::Drain(Side::Agent) => self.agent.session.begin_drain(),
        }
        self.exchange();
    }

    fn end_streams(&mut self) {
        while self.streams > 0 {
            self.apply(&ExternalEvent::StreamEnds);
        }
    }

    fn set_streams(&mut self, streams: u32) {
        self.streams = streams;
        self.server.session.streams_changed(self.now, streams);
        self.agent_streams.push_back((self.arrival(), streams));
    }

    fn arrival(&self) -> Instant {
        (self.now + self.delay).max(self.dark_until)
    }

    fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(next) = self.next_instant().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            self.deliver();
            self.server.session.handle_timeout(self.now);
            self.agent.session.handle_timeout(self.now);
            self.exchange();
        }
        self.now = end;
    }

    fn next_instant(&self) -> Option<Instant> {
        [
            self.server.session.poll_timeout(),
            self.agent.session.poll_timeout(),
            self.server.inbound.front().map(|(at, _)| *at),
            self.agent.inbound.front().map(|(at, _)| *at),
            self.agent_streams.front().map(|(at, _)| *at),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn deliver(&mut self) {
        while self.agent_streams.front().is_some_and(|(at, _)| *at <= self.now) {
            (_, self.streams_at_agent) = self.agent_streams.pop_front().unwrap();
            self.agent.session.streams_changed(self.now, self.streams_at_agent);
        }
        for end in [&mut self.server, &mut self.agent] {
            while end.inbound.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, frame) = end.inbound.pop_front().unwrap();
                end.session
                    .handle_frame(self.now, Some(frame))
                    .expect("a session never violates its own protocol");
            }
        }
    }

    /// Takes frames and events out of the sessions, and checks the events.
    fn exchange(&mut self) {
        let arrival = self.arrival();
        deliver(&mut self.server, &mut self.agent, arrival, self.streams);
        deliver(&mut self.agent, &mut self.server, arrival, self.streams);
    }
}

fn deliver(from: &mut End, to: &mut End, arrival: Instant, streams: u32) {
    while let Some(frame) = from.session.poll_frame() {
        from.sent += 1;
        to.inbound.push_back((arrival, frame));
    }
    while let Some(event) = from.session.poll_event() {
        if event == Event::Empty {
            assert!(!from.empty, "a tunnel is emptied once");
            // A side that stops gives up waiting for a silent peer; what that one has open has not arrived.
            let agreed = from.session.health() == Health::Live;
            assert!(streams == 0 || !agreed, "no stream is open where a side would close the tunnel");
            from.empty = true;
        }
    }
}
