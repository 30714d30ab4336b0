//! Two sessions over a carrier of datagrams, whose path loses packets by their size, in virtual time.
//!
//! Each heartbeat is a datagram, and each datagram is acknowledged. Full-size probes are datagrams that the
//! path may lose although small ones pass, in one direction or both.

use std::time::{Duration, Instant};

use proto::Session;
use proto::session::{Event, FULL_SIZE_EVERY, Health, PROBE_EVERY};
use proto::wire::control_frame::Frame;

use crate::rng::Rng;

const SECOND: Duration = Duration::from_secs(1);
const SILENCE_MAX: Duration = Duration::from_secs(300);
const TICK: Duration = Duration::from_millis(5);

/// Each direction alone, and both.
const DIRECTIONS: [[bool; 2]; 3] = [[false, true], [true, false], [false, false]];

/// A tunnel on which data waits is suspect on both sides by then: a heartbeat until the first probe, the wait
/// for its answer, and the way of the heartbeat that says so.
const SUSPECT_MAX: Duration = Duration::from_secs(4);

/// A path that is well again makes the tunnel live on both sides by then.
const LIVE_MAX: Duration = Duration::from_secs(3);

#[test]
fn a_path_that_loses_full_size_packets_is_suspect_on_both_sides() {
    for full_size_passes in DIRECTIONS {
        let mut path = Path::new(Duration::from_millis(40));
        path.run(20 * SECOND);
        assert_eq!(path.healths(), [Health::Live; 2]);

        path.full_size_passes = full_size_passes;
        let took = path.run_until(|path| path.healths() == [Health::Suspect; 2]);

        assert!(took <= FULL_SIZE_EVERY + SUSPECT_MAX, "{full_size_passes:?}: {took:?}");
    }
}

#[test]
fn lost_data_makes_suspect_without_waiting_for_the_next_probe() {
    for (full_size_passes, side) in [([false, true], 0), ([true, false], 1)] {
        let mut path = Path::new(Duration::from_millis(40));
        path.streams_changed(1);
        path.run(20 * SECOND);
        path.full_size_passes = full_size_passes;
        path.sides[side].data_since = Some(path.now);

        let took = path.run_until(|path| path.healths() == [Health::Suspect; 2]);

        assert!(took <= SUSPECT_MAX, "side {side}: {took:?}");
    }
}

/// Heartbeats pass all the time.
#[test]
fn a_path_that_loses_full_size_packets_is_never_live_and_lost_in_the_end() {
    for full_size_passes in DIRECTIONS {
        let mut path = Path::new(Duration::from_millis(40));
        path.streams_changed(1);
        path.run(20 * SECOND);
        path.full_size_passes = full_size_passes;
        path.run_until(|path| path.healths() == [Health::Suspect; 2]);
        let flaps = path.flaps;

        path.run_until(|path| path.healths().contains(&Health::Lost));

        assert_eq!(path.flaps, flaps, "{full_size_passes:?}");
        let lasted = path.now - path.began;
        assert!(lasted >= SILENCE_MAX && lasted <= SILENCE_MAX + 60 * SECOND, "{lasted:?}");
    }
}

#[test]
fn a_path_that_carries_full_size_packets_again_is_live_on_both_sides() {
    for full_size_passes in DIRECTIONS {
        for streams in [0, 3] {
            let mut path = Path::new(Duration::from_millis(40));
            path.streams_changed(streams);
            path.run(20 * SECOND);
            path.full_size_passes = full_size_passes;
            path.run_until(|path| path.healths() == [Health::Suspect; 2]);
            path.run(90 * SECOND);
            let probes = path.probes_received;

            path.full_size_passes = [true; 2];
            let took = path.run_until(|path| path.healths() == [Health::Live; 2]);

            assert!(took <= LIVE_MAX, "{full_size_passes:?}, {streams} streams: {took:?}");
            let carried = [0, 1].map(|side| path.probes_received[side] > probes[side]);
            assert_eq!(carried, [true; 2], "a probe in each direction first");

            let flaps = path.flaps;
            path.run(600 * SECOND);
            assert_eq!((path.healths(), path.flaps), ([Health::Live; 2], flaps), "{streams} streams");
        }
    }
}

#[test]
fn an_outage_of_one_side_is_over_once_both_directions_carried_a_probe() {
    for passes in DIRECTIONS {
        let mut path = Path::new(Duration::from_millis(40));
        path.streams_changed(1);
        path.run(20 * SECOND);
        path.passes = passes;
        path.run_until(|path| path.healths() == [Health::Suspect; 2]);
        path.run(30 * SECOND);
        let probes = path.probes_received;

        path.passes = [true; 2];
        let took = path.run_until(|path| path.healths() == [Health::Live; 2]);

        assert!(took <= SECOND, "{passes:?}: {took:?}");
        let carried = [0, 1].map(|side| path.probes_received[side] > probes[side]);
        assert_eq!(carried, [true; 2], "{passes:?}");

        let flaps = path.flaps;
        path.streams_changed(0);
        path.run(600 * SECOND);
        assert_eq!((path.healths(), path.flaps), ([Health::Live; 2], flaps), "{passes:?}");
    }
}

/// Heartbeats are rarer then, and the last one of each side promised the next one sooner.
#[test]
fn a_tunnel_whose_last_stream_ends_is_not_suspect() {
    for after in [10, 500, 990, 1700] {
        let mut path = Path::new(Duration::from_millis(40));
        for _ in 0..20 {
            path.streams_changed(1);
            path.run(Duration::from_millis(10_000 + after));
            path.streams_changed(0);
            path.run(10 * SECOND);
        }
        assert_eq!((path.healths(), path.flaps), ([Health::Live; 2], 0), "{after} ms");
    }
}

#[test]
fn probes_of_a_healthy_path_are_rare_and_none_is_sent_into_the_dark() {
    for (streams, rtt) in [(0, 40), (2, 40), (0, 700), (2, 700)] {
        let mut path = Path::new(Duration::from_millis(rtt));
        path.streams_changed(streams);
        path.run(600 * SECOND);
        // The first is sent again until the round trip is known.
        let most = 600 / FULL_SIZE_EVERY.as_secs() + 4;
        assert!(path.probes_sent.iter().all(|sent| *sent <= most), "{:?} in ten minutes", path.probes_sent);
        assert_eq!(path.flaps, 0);

        path.passes = [false; 2];
        path.run_until(|path| path.healths() == [Health::Suspect; 2]);
        let before = path.probes_sent;
        path.run(200 * SECOND);
        assert_eq!(path.probes_sent, before);
    }
}

/// A probe is sent again several times before its loss means anything.
#[test]
fn random_loss_is_no_black_hole() {
    let mut flaps = 0;
    for seed in 0..40 {
        let mut path = Path::new(Duration::from_millis(40));
        (path.loss_per_cent, path.rng) = (5, Rng(seed));
        path.run(600 * SECOND);
        flaps += path.flaps;
    }
    // Nearly seven hours.
    assert_eq!(flaps, 0);
}

/// The side's session, and what it cannot know.
struct PathSide {
    session: Session,
    /// The time of the oldest data that was sent and is lost, if there is any.
    data_since: Option<Instant>,
}

/// A packet of a side that is under way.
enum Packet {
    Heartbeat {
        frame: Frame,
        is_full_size: bool,
    },
    /// The acknowledgement of a heartbeat that was sent then.
    Ack {
        sent: Instant,
        is_full_size: bool,
    },
}

struct Path {
    began: Instant,
    now: Instant,
    rtt: Duration,
    sides: [PathSide; 2],
    /// Packets to each side, with the times of their arrival.
    under_way: [Vec<(Instant, Instant, Packet)>; 2],
    /// True if anything passes that a side sends.
    passes: [bool; 2],
    /// The same for full-size packets.
    full_size_passes: [bool; 2],
    loss_per_cent: u64,
    rng: Rng,
    probes_sent: [u64; 2],
    probes_received: [u64; 2],
    /// Changes from suspect to live.
    flaps: u32,
}

impl Path {
    fn new(rtt: Duration) -> Self {
        let now = Instant::now();
        let side = || {
            let mut session = Session::new(now, SILENCE_MAX);
            session.require_full_size(now);
            PathSide { session, data_since: None }
        };
        Self {
            began: now,
            now,
            rtt,
            sides: [side(), side()],
            under_way: [Vec::new(), Vec::new()],
            passes: [true; 2],
            full_size_passes: [true; 2],
            loss_per_cent: 0,
            rng: Rng(1),
            probes_sent: [0; 2],
            probes_received: [0; 2],
            flaps: 0,
        }
    }

    fn healths(&self) -> [Health; 2] {
        [self.sides[0].session.health(), self.sides[1].session.health()]
    }

    fn streams_changed(&mut self, streams: u32) {
        let now = self.now;
        self.sides.iter_mut().for_each(|side| side.session.streams_changed(now, streams));
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.tick();
        }
    }

    /// Runs until this is so, and returns how long that took.
    fn run_until(&mut self, is_so: impl Fn(&Self) -> bool) -> Duration {
        let began = self.now;
        while !is_so(self) {
            assert!(self.now < began + 600 * SECOND, "never; {:?}", self.healths());
            self.tick();
        }
        self.now - began
    }

    fn tick(&mut self) {
        self.now += TICK;
        for which in 0..2 {
            self.receive(which);
            let (now, session) = (self.now, &mut self.sides[which].session);
            if session.poll_timeout().is_some_and(|due| due <= now) {
                session.handle_timeout(now);
                let next = session.poll_timeout();
                assert!(next.is_none_or(|next| next > now), "a side is never due at once again");
            }
            self.send(which);
        }
    }

    fn receive(&mut self, which: usize) {
        let now = self.now;
        let arrived: Vec<_> = self.under_way[which].extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, sent, packet) in arrived {
            let session = &mut self.sides[which].session;
            match packet {
                Packet::Heartbeat { frame, is_full_size } => {
                    session.handle_frame(now, Some(frame)).unwrap();
                    if is_full_size {
                        session.full_size_heard(now);
                        self.probes_received[which] += 1;
                    }
                    self.put(which, Packet::Ack { sent, is_full_size });
                }
                Packet::Ack { sent, is_full_size } => {
                    session.answered(now, now - sent);
                    if is_full_size {
                        session.full_size_answered(now, sent);
                    }
                }
            }
        }
    }

    fn send(&mut self, which: usize) {
        let (now, side) = (self.now, &mut self.sides[which]);
        while let Some(event) = side.session.poll_event() {
            self.flaps += u32::from(event == Event::Health(Health::Live));
        }
        let Some(frame) = side.session.poll_heartbeat() else { return };
        let is_full_size = side.session.full_size_due(now, side.data_since);
        if is_full_size {
            side.session.full_size_sent(now);
            self.probes_sent[which] += 1;
        }
        side.session.pinged(now);
        self.put(which, Packet::Heartbeat { frame, is_full_size });
    }

    /// Puts a packet of this side on its way, unless the path loses it.
    fn put(&mut self, from: usize, packet: Packet) {
        let is_full_size = matches!(packet, Packet::Heartbeat { is_full_size: true, .. });
        let is_lost = self.rng.below(100) < self.loss_per_cent;
        if self.passes[from] && !is_lost && (!is_full_size || self.full_size_passes[from]) {
            self.under_way[1 - from].push((self.now + self.rtt / 2, self.now, packet));
        }
    }
}

const _: () = assert!(TICK.as_millis() < PROBE_EVERY.as_millis());
