//! Writes over several tunnels of one agent process that go dark and come back, over thousands of seeded
//! schedules: each is carried out once at most, and its caller is told the truth.
//!
//! A server sends each write over a tunnel that seems live. If that tunnel is silent, it asks for the write's
//! fate over another one, and sends it again only if the agent has promised never to begin it. Everything that is
//! on the way may arrive much later: streams in any order, frames of a control stream in theirs. Every schedule
//! is its seed: a failure names it.

use std::time::{Duration, Instant};

use proto::inquiry::{Inquiry, StreamFate};
use proto::stream_ledger::StreamLedger;
use proto::wire::{StreamQuery, StreamReport};

use crate::rng::Rng;

/// Schedules of one run; each is two minutes of virtual time.
const SCHEDULES: u64 = 1500;
const TUNNELS: u64 = 3;
const STEP: Duration = Duration::from_millis(50);
const STEPS: u32 = 2400;
/// Steps after which all tunnels are well, so that everything comes to its end.
const SETTLED: u32 = 800;
/// A tunnel that hears nothing for this long is silent to its server.
const SILENT_AFTER: Duration = Duration::from_millis(2500);
/// A write is sent again this often at most.
const AGAIN_MAX: u32 = 2;

#[test]
fn no_write_is_carried_out_twice_over_thousands_of_bad_links() {
    let mut totals = Totals::default();
    for seed in 0..SCHEDULES {
        WritesSimulation::new(seed).run(&mut totals);
    }
    // The schedules try what they are for.
    let Totals { again, fenced_arrivals, unknown, acknowledged, not_done } = totals;
    assert!(again > SCHEDULES && fenced_arrivals > SCHEDULES && unknown > SCHEDULES / 10, "{totals:?}");
    assert!(acknowledged > 10 * SCHEDULES && not_done > 0, "{totals:?}");
}

#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    again: u64,
    fenced_arrivals: u64,
    unknown: u64,
    acknowledged: u64,
    not_done: u64,
}

/// Bytes on their way over a tunnel, in either direction.
#[derive(Debug, Clone)]
enum Message {
    Write { stream: u64, write: usize },
    Answer { stream: u64, write: usize },
    Fenced { stream: u64, write: usize },
    Query(StreamQuery),
    Report(StreamReport),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Acknowledged,
    /// Its caller is told that nobody knows.
    Unknown,
    /// Its caller is told that it was not carried out.
    NotDone,
}

struct Write {
    tunnel: u64,
    stream: u64,
    sent_again: u32,
    expected: bool,
    outcome: Option<Outcome>,
    carried_out: u32,
}

struct TunnelModel {
    dark_until: Instant,
    heard_at: Instant,
    next_stream: u64,
    ledger: StreamLedger,
    /// The instant of arrival, and the message. Frames of the control stream keep their order.
    on_the_way: Vec<(Instant, Message)>,
    control_until: Instant,
}

struct WritesSimulation {
    seed: u64,
    rng: Rng,
    now: Instant,
    tunnels: Vec<TunnelModel>,
    writes: Vec<Write>,
    inquiry: Inquiry,
}

impl WritesSimulation {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let tunnel = |_| TunnelModel {
            dark_until: now,
            heard_at: now,
            next_stream: 1,
            ledger: StreamLedger::default(),
            on_the_way: Vec::new(),
            control_until: now,
        };
        let tunnels = (0..TUNNELS).map(tunnel).collect();
        Self { seed, rng: Rng(seed), now, tunnels, writes: Vec::new(), inquiry: Inquiry::default() }
    }

    fn run(mut self, totals: &mut Totals) {
        for step in 0..STEPS {
            self.now += STEP;
            if step < STEPS - SETTLED {
                self.mishap();
                if self.rng.one_in(40)
                    && let Some(tunnel) = self.live_tunnel(None)
                {
                    self.writes.push(Write {
                        tunnel,
                        stream: 0,
                        sent_again: 0,
                        expected: false,
                        outcome: None,
                        carried_out: 0,
                    });
                    self.send(self.writes.len() - 1, tunnel);
                }
            }
            self.deliver(totals);
            self.look_after_writes(totals);
            self.ask();
            self.check();
        }
        for write in &self.writes {
            match write.outcome {
                Some(Outcome::Acknowledged) => totals.acknowledged += 1,
                Some(Outcome::Unknown) => totals.unknown += 1,
                Some(Outcome::NotDone) => totals.not_done += 1,
                None => panic!("seed {}: a write has no outcome", self.seed),
            }
        }
    }

    /// A tunnel goes dark, mostly for seconds.
    fn mishap(&mut self) {
        if self.rng.one_in(60) {
            let (tunnel, seconds) = (self.rng.below(TUNNELS) as usize, 1 + self.rng.below(20));
            self.tunnels[tunnel].dark_until = self.now + Duration::from_secs(seconds);
        }
    }

    fn is_live(&self, tunnel: u64) -> bool {
        self.now - self.tunnels[tunnel as usize].heard_at < SILENT_AFTER
    }

    fn live_tunnel(&mut self, besides: Option<u64>) -> Option<u64> {
        let live: Vec<u64> =
            (0..TUNNELS).filter(|tunnel| Some(*tunnel) != besides && self.is_live(*tunnel)).collect();
        let at = self.rng.below(live.len().max(1) as u64) as usize;
        live.get(at).copied()
    }

    fn send(&mut self, write: usize, tunnel: u64) {
        let model = &mut self.tunnels[tunnel as usize];
        let stream = model.next_stream;
        model.next_stream += 1;
        let state = &mut self.writes[write];
        (state.tunnel, state.stream, state.expected) = (tunnel, stream, false);
        self.post(tunnel, Message::Write { stream, write });
    }

    /// Puts a message on its way. What meets darkness is sent again when the path is back.
    fn post(&mut self, tunnel: u64, message: Message) {
        let delay = Duration::from_millis(5 + self.rng.below(400));
        let now = self.now;
        let model = &mut self.tunnels[tunnel as usize];
        let mut at = now.max(model.dark_until) + delay;
        if matches!(message, Message::Query(_) | Message::Report(_)) {
            at = at.max(model.control_until);
            model.control_until = at;
        }
        model.on_the_way.push((at, message));
    }

    fn deliver(&mut self, totals: &mut Totals) {
        for tunnel in 0..TUNNELS {
            let (now, model) = (self.now, &mut self.tunnels[tunnel as usize]);
            if model.dark_until > now {
                continue;
            }
            model.heard_at = now;
            let mut arrived = Vec::new();
            model.on_the_way.retain(|(at, message)| {
                let is_on_the_way = *at > now;
                if !is_on_the_way {
                    arrived.push(message.clone());
                }
                is_on_the_way
            });
            for message in arrived {
                self.arrive(tunnel, message, totals);
            }
        }
    }

    fn arrive(&mut self, tunnel: u64, message: Message, totals: &mut Totals) {
        match message {
            Message::Write { stream, write } => {
                let answer = if self.tunnels[tunnel as usize].ledger.begin(stream).is_ok() {
                    self.writes[write].carried_out += 1;
                    Message::Answer { stream, write }
                } else {
                    totals.fenced_arrivals += 1;
                    Message::Fenced { stream, write }
                };
                self.post(tunnel, answer);
            }
            Message::Answer { stream, write } => {
                let state = &mut self.writes[write];
                if (state.tunnel, state.stream) == (tunnel, stream) && state.outcome.is_none() {
                    state.outcome = Some(Outcome::Acknowledged);
                }
            }
            Message::Fenced { stream, write } => {
                let state = &self.writes[write];
                if (state.tunnel, state.stream) == (tunnel, stream) && state.outcome.is_none() {
                    self.never_begun(write, totals);
                }
            }
            Message::Query(query) => {
                let report = self.tunnels[query.tunnel as usize].ledger.answer(&query);
                self.post(tunnel, Message::Report(report));
            }
            Message::Report(report) => self.inquiry.handle_report(&report),
        }
    }

    /// The agent has promised that it will not carry the write out as it was sent.
    fn never_begun(&mut self, write: usize, totals: &mut Totals) {
        let Write { tunnel, sent_again, .. } = self.writes[write];
        match self.live_tunnel(Some(tunnel)) {
            Some(other) if sent_again < AGAIN_MAX => {
                totals.again += 1;
                self.writes[write].sent_again += 1;
                self.send(write, other);
            }
            Some(_) | None => self.writes[write].outcome = Some(Outcome::NotDone),
        }
    }

    fn look_after_writes(&mut self, totals: &mut Totals) {
        for write in 0..self.writes.len() {
            let Write { tunnel, stream, expected, outcome, .. } = self.writes[write];
            if outcome.is_some() || self.is_live(tunnel) {
                if expected {
                    self.inquiry.forget(tunnel, stream);
                    self.writes[write].expected = false;
                }
                continue;
            }
            self.inquiry.expect(tunnel, stream);
            self.writes[write].expected = true;
            match self.inquiry.fate(tunnel, stream) {
                None => {}
                Some(fate) => {
                    self.inquiry.forget(tunnel, stream);
                    match fate {
                        StreamFate::NeverBegun => self.never_begun(write, totals),
                        // Some callers wait for the tunnel to come back, and some do not.
                        StreamFate::MayHaveBegun if self.rng.one_in(20) => {
                            self.writes[write].outcome = Some(Outcome::Unknown);
                        }
                        StreamFate::MayHaveBegun => self.writes[write].expected = false,
                    }
                }
            }
        }
    }

    fn ask(&mut self) {
        for tunnel in 0..TUNNELS {
            if self.is_live(tunnel)
                && let Some(query) = self.inquiry.poll_query(self.now, tunnel)
            {
                self.post(tunnel, Message::Query(query));
            }
        }
    }

    fn check(&self) {
        for write in &self.writes {
            let (seed, times) = (self.seed, write.carried_out);
            assert!(times <= 1, "seed {seed}: a write was carried out {times} times");
            match write.outcome {
                Some(Outcome::Acknowledged) => assert_eq!(times, 1, "seed {seed}: acknowledged"),
                Some(Outcome::NotDone) => assert_eq!(times, 0, "seed {seed}: said not to be done"),
                Some(Outcome::Unknown) | None => {}
            }
        }
    }
}
