//! Happy eyeballs over networks that fail in every manner, in virtual time.

use transport::Carrier::{Http2, Quic};

use super::*;

const RTT: Duration = Duration::from_millis(40);
const QUIC_DIAL_MAX: Duration = Duration::from_secs(3);
const SUSPECT_AFTER: Duration = Duration::from_millis(2500);
const TICK: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// The network's treatment of UDP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Udp {
    Passes,
    Dropped,
    /// Handshake and greeting pass, and no packet after them.
    DroppedAfterTheGreeting,
}

#[test]
fn where_udp_passes_nothing_else_is_dialed() {
    let mut world = World::new(&[Quic, Http2]);
    world.run(100 * SECOND);
    assert_eq!(world.dialed, [Quic]);
    assert_eq!(world.reachability(), Reachability::Preferred);
}

#[test]
fn a_tunnel_works_within_5_s_of_the_start_whatever_udp_does() {
    for udp in [Udp::Passes, Udp::Dropped, Udp::DroppedAfterTheGreeting] {
        let mut world = World::new(&[Quic, Http2]);
        world.udp = udp;
        let took = world.run_until(World::is_working);
        assert!(took <= 5 * SECOND, "{udp:?}: {took:?}");
    }
}

#[test]
fn a_silent_tunnel_is_kept_and_has_a_working_one_within_5_s() {
    for udp in [Udp::Dropped, Udp::DroppedAfterTheGreeting] {
        let mut world = World::new(&[Quic, Http2]);
        world.run(30 * SECOND);
        world.udp = udp;
        world.tunnels[0].passes = false;
        world.run_until(|world| world.reachability() == Reachability::Silent);
        let took = world.run_until(World::is_working);
        assert!(took <= 5 * SECOND, "{udp:?}: {took:?}");
        assert!(world.tunnels.iter().any(|tunnel| tunnel.number == 1 && !tunnel.is_draining), "{udp:?}");
    }
}

#[test]
fn quic_is_used_within_60_s_of_udps_return_and_http2_drained_later() {
    for away in [5, 20, 45, 300] {
        let mut world = World::new(&[Quic, Http2]);
        world.udp = Udp::Dropped;
        world.run(away * SECOND);
        assert_eq!(world.reachability(), Reachability::Fallback);
        world.udp = Udp::Passes;

        let took = world.run_until(|world| world.reachability() == Reachability::Preferred);
        assert!(took <= 60 * SECOND, "{took:?}");
        let is_draining =
            |world: &World| world.tunnels.iter().any(|tunnel| tunnel.carrier == Http2 && tunnel.is_draining);
        assert!(!is_draining(&world));
        let took = world.run_until(is_draining);
        assert!(took >= STABLE_AFTER - SECOND && took <= STABLE_AFTER + SECOND, "{took:?}");
    }
}

#[test]
fn a_silent_tunnel_that_is_heard_again_ends_the_dials() {
    let mut world = World::new(&[Quic, Http2]);
    world.run(30 * SECOND);
    world.tunnels[0].passes = false;
    world.udp = Udp::Dropped;
    world.run_until(|world| world.dialed.len() > 1);
    world.tunnels[0].passes = true;
    world.run(60 * SECOND);
    assert_eq!((world.reachability(), world.tunnels.len()), (Reachability::Preferred, 1));
}

#[test]
fn no_healthy_tunnel_is_drained_for_one_that_flapped_within_two_minutes() {
    let mut world = World::new(&[Quic, Http2]);
    world.run(30 * SECOND);
    (world.udp, world.tunnels[0].passes) = (Udp::Dropped, false);
    world.run_until(|world| world.reachability() == Reachability::Fallback);
    let is_drained =
        |world: &World| world.tunnels.iter().any(|tunnel| tunnel.carrier == Http2 && tunnel.is_draining);
    for passes in [true, false].into_iter().cycle().take(40) {
        world.tunnels[0].passes = passes;
        world.run(STABLE_AFTER + 4 * SECOND);
        assert!(!is_drained(&world), "{:?}", world.tunnels.len());
    }

    // A tunnel is kept that has flapped, and then lasted.
    (world.udp, world.tunnels[0].passes) = (Udp::Passes, true);
    world.run_until(|world| world.reachability() == Reachability::Preferred);
    let took = world.run_until(is_drained);
    assert!(took >= STEADY_AFTER - SECOND && took <= STEADY_AFTER + SECOND, "{took:?}");
}

/// The path may fail again at once, whatever tunnel is on it.
#[test]
fn a_new_tunnel_on_a_path_that_flapped_replaces_the_fallback_later() {
    let now = Instant::now();
    let mut carrier_choice = CarrierScheduler::new(now, &[Quic, Http2]);
    let first = carrier_choice.greeted(now, Quic);
    carrier_choice.proven(now, first);
    carrier_choice.observe(now, first, Health::Suspect, false);
    let fallback = carrier_choice.greeted(now, Http2);
    carrier_choice.proven(now, fallback);
    let second = carrier_choice.greeted(now + SECOND, Quic);
    carrier_choice.proven(now + SECOND, second);
    let drained = |carrier_choice: &mut CarrierScheduler| {
        let steps = std::iter::from_fn(|| carrier_choice.poll_step());
        steps.filter(|step| matches!(step, Step::Drain(_))).collect::<Vec<_>>()
    };
    assert_eq!(drained(&mut carrier_choice), [Step::Drain(first)], "it is still silent");

    carrier_choice.handle_timeout(now + STEADY_AFTER - SECOND);
    assert!(drained(&mut carrier_choice).is_empty());

    assert_eq!(carrier_choice.poll_timeout(), Some(now + STEADY_AFTER));
    carrier_choice.handle_timeout(now + STEADY_AFTER);
    assert_eq!(drained(&mut carrier_choice), [Step::Drain(fallback)]);
}

#[test]
fn of_two_tunnels_of_a_carrier_the_one_that_flapped_later_waits() {
    let now = Instant::now();
    let mut carrier_choice = CarrierScheduler::new(now, &[Quic]);
    let [elder, younger] = [(); 2].map(|()| carrier_choice.greeted(now, Quic));
    carrier_choice.observe(now, elder, Health::Suspect, false);
    carrier_choice.observe(now, younger, Health::Suspect, false);
    carrier_choice.observe(now + SECOND, elder, Health::Live, false);
    carrier_choice.observe(now + 9 * SECOND, younger, Health::Live, false);
    while carrier_choice.poll_step().is_some() {}

    carrier_choice.handle_timeout(now + STEADY_AFTER);
    assert_eq!(carrier_choice.poll_step(), None);

    carrier_choice.handle_timeout(now + 9 * SECOND + STEADY_AFTER);
    assert_eq!(carrier_choice.poll_step(), Some(Step::Drain(elder)));
}

#[test]
fn the_successor_of_a_silent_tunnel_has_it_drained_and_not_closed() {
    let mut world = World::new(&[Quic]);
    world.run(30 * SECOND);
    // The old connection's path is dead, as behind a NAT that has forgotten it; a new one's is_working.
    world.tunnels[0].passes = false;
    world.run_until(|world| world.tunnels.len() > 1);
    world.run(SECOND);
    assert!(world.tunnels[0].is_draining && !world.tunnels[1].is_draining);
    assert_eq!(world.closed, 0);
}

#[test]
fn a_restarted_server_is_dialed_anew_at_once_although_a_dial_is_under_way() {
    let mut world = World::new(&[Quic]);
    world.run(30 * SECOND);
    world.tunnels[0].passes = false;
    world.udp = Udp::Dropped;
    world.run_until(|world| world.dialed.len() > 1);
    world.udp = Udp::Passes;

    world.end(0, true);

    let took = world.run_until(World::is_working);
    assert!(took < SECOND, "{took:?}");
}

#[test]
fn a_server_that_drains_is_dialed_again_before_its_tunnel_ends() {
    let mut world = World::new(&[Quic]);
    world.run(30 * SECOND);
    world.tunnels[0].is_draining = true;
    world.run_until(|world| world.tunnels.len() > 1);
    assert_eq!(world.reachability(), Reachability::Preferred);
}

#[test]
fn a_refused_certificate_is_dialed_twice_a_minute_at_most() {
    let mut world = World::new(&[Quic]);
    world.failure = Some(DialFailure::Refused);
    world.run(120 * SECOND);
    assert!((2..=5).contains(&world.dialed.len()), "{}", world.dialed.len());
}

#[test]
fn until_a_servers_retry_after_it_is_dialed_by_no_carrier() {
    let mut world = World::new(&[Quic, Http2]);
    world.failure = Some(DialFailure::RetryAfter(20 * SECOND));
    world.run(20 * SECOND);
    assert_eq!(world.dialed, [Quic]);
}

#[test]
fn a_replaced_process_does_not_come_back_at_once_by_any_carrier() {
    let now = Instant::now();
    for held in [SECOND, 3600 * SECOND] {
        let mut carrier_choice = CarrierScheduler::new(now, &[Quic, Http2]);
        assert_eq!(carrier_choice.poll_step(), Some(Step::Dial(Quic)));
        let number = carrier_choice.greeted(now, Quic);
        carrier_choice.ended(now + held, number, CloseReason::Replaced, 0);
        let before = now + held + 29 * SECOND;
        carrier_choice.handle_timeout(before);
        assert_eq!(carrier_choice.poll_step(), None);
        carrier_choice.handle_timeout(before + SECOND);
        assert_eq!(carrier_choice.poll_step(), Some(Step::Dial(Quic)));
    }
}

#[test]
fn a_duplicate_is_not_dialed_until_the_other_address_is_gone() {
    let now = Instant::now();
    let mut carrier_choice = CarrierScheduler::new(now, &[Quic]);
    assert_eq!(carrier_choice.poll_step(), Some(Step::Dial(Quic)));
    let number = carrier_choice.found_duplicate(now, Quic, DUPLICATE_RECHECK_AFTER);
    carrier_choice.ended(now, number, CloseReason::Other, u64::MAX);
    let later = now + DUPLICATE_RECHECK_AFTER - SECOND;
    carrier_choice.handle_timeout(later);
    assert_eq!(
        (carrier_choice.poll_step(), carrier_choice.poll_timeout()),
        (None, Some(now + DUPLICATE_RECHECK_AFTER))
    );

    carrier_choice.duplicate_gone(later);
    assert_eq!(carrier_choice.poll_step(), Some(Step::Dial(Quic)));
}

#[test]
fn a_superseded_tunnel_is_drained_once_and_a_silent_one_kept() {
    let now = Instant::now();
    let mut carrier_choice = CarrierScheduler::new(now, &[Quic, Http2]);
    let silent = carrier_choice.greeted(now, Quic);
    carrier_choice.observe(now, silent, Health::Suspect, false);
    let serves = carrier_choice.greeted(now, Quic);
    while carrier_choice.poll_step().is_some() {}

    carrier_choice.yield_to_duplicate(now);
    carrier_choice.yield_to_duplicate(now);

    assert_eq!((carrier_choice.poll_step(), carrier_choice.poll_step()), (Some(Step::Drain(serves)), None));
    assert_eq!(carrier_choice.poll_timeout(), Some(now + DUPLICATE_RECHECK_AFTER));
    carrier_choice.observe(now, silent, Health::Live, false);
    carrier_choice.yield_to_duplicate(now);
    assert_eq!(carrier_choice.poll_step(), Some(Step::Drain(silent)));
}

#[test]
fn an_address_that_is_gone_is_left_once_its_tunnel_has_ended() {
    let mut world = World::new(&[Quic]);
    world.run(SECOND);
    world.carrier_choice.stop(world.now);
    world.run(SECOND);
    assert!(!world.carrier_choice.is_finished());
    world.end(0, false);
    assert!(world.carrier_choice.is_finished());
    world.run(60 * SECOND);
    assert_eq!(world.dialed, [Quic]);
}

#[test]
fn no_carrier_is_dialed_twice_at_once_and_tunnels_are_bounded() {
    for seed in 0..30 {
        let mut world = World::new(&[Quic, Http2]);
        let mut rng_state = seed;
        for _ in 0..40 {
            rng_state = next_random(rng_state);
            match rng_state % 6 {
                0 => world.udp = Udp::Passes,
                1 => world.udp = Udp::Dropped,
                2 => world.udp = Udp::DroppedAfterTheGreeting,
                3 => world.tcp = !world.tcp,
                4 => world.tunnels.iter_mut().for_each(|tunnel| tunnel.passes = rng_state & 64 == 0),
                _ => world.end(0, rng_state & 64 == 0),
            }
            world.run(TICK * ((rng_state >> 32) as u32 % 1500));
            assert!(world.tunnels.len() <= TUNNELS_MAX, "seed {seed}");
        }
        (world.udp, world.tcp) = (Udp::Passes, true);
        world.tunnels.iter_mut().for_each(|tunnel| tunnel.passes = true);
        world.run(90 * SECOND);
        assert_eq!(world.reachability(), Reachability::Preferred, "seed {seed}");
    }
}

/// A simulated agent, a server, and the network between them.
struct World {
    carrier_choice: CarrierScheduler,
    now: Instant,
    udp: Udp,
    tcp: bool,
    /// The failure that every dial ends with, if any.
    failure: Option<DialFailure>,
    /// Dials under way: when each ends, and whether with a tunnel.
    dials: Vec<(Carrier, Instant, bool)>,
    tunnels: Vec<SimTunnel>,
    dialed: Vec<Carrier>,
    closed: usize,
    rng_state: u64,
}

struct SimTunnel {
    number: u64,
    carrier: Carrier,
    greeted: Instant,
    heard: Instant,
    passes: bool,
    is_draining: bool,
}

impl World {
    fn new(carriers: &[Carrier]) -> Self {
        let now = Instant::now();
        Self {
            carrier_choice: CarrierScheduler::new(now, carriers),
            now,
            udp: Udp::Passes,
            tcp: true,
            failure: None,
            dials: Vec::new(),
            tunnels: Vec::new(),
            dialed: Vec::new(),
            closed: 0,
            rng_state: 1,
        }
    }

    fn reachability(&self) -> Reachability {
        self.carrier_choice.reachability()
    }

    /// Returns true if a tunnel takes new streams and its packets pass.
    fn is_working(&self) -> bool {
        self.tunnels.iter().any(|tunnel| tunnel.passes && !tunnel.is_draining)
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
            assert!(self.now < began + 600 * SECOND, "never");
            self.tick();
        }
        self.now - began
    }

    fn end(&mut self, index: usize, restarted: bool) {
        if index < self.tunnels.len() {
            let tunnel = self.tunnels.remove(index);
            let ending = if restarted { CloseReason::Restarted } else { CloseReason::Other };
            self.carrier_choice.ended(self.now, tunnel.number, ending, next_random(self.rng_state));
        }
    }

    fn tick(&mut self) {
        self.now += TICK;
        self.rng_state = next_random(self.rng_state);
        self.end_dials();
        self.look_at_tunnels();
        if self.carrier_choice.poll_timeout().is_some_and(|due| due <= self.now) {
            self.carrier_choice.handle_timeout(self.now);
        }
        while let Some(step) = self.carrier_choice.poll_step() {
            self.take(step);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Dial(carrier) => {
                assert!(self.dials.iter().all(|(other, ..)| *other != carrier), "twice at once");
                self.dialed.push(carrier);
                let passes = if carrier == Quic { self.udp != Udp::Dropped } else { self.tcp };
                let takes = if passes { RTT * 3 } else { QUIC_DIAL_MAX };
                self.dials.push((carrier, self.now + takes, passes));
            }
            Step::Abandon(carrier) => self.dials.retain(|(other, ..)| *other != carrier),
            Step::Drain(number) => {
                let tunnel = self.tunnels.iter_mut().find(|tunnel| tunnel.number == number);
                tunnel.expect("a tunnel that is there").is_draining = true;
            }
            Step::Close(number) => {
                self.closed += 1;
                let index = self.tunnels.iter().position(|tunnel| tunnel.number == number);
                self.end(index.expect("a tunnel that is there"), false);
            }
        }
    }

    fn end_dials(&mut self) {
        let now = self.now;
        let ended: Vec<_> = self.dials.extract_if(.., |(_, at, _)| *at <= now).collect();
        for (carrier, _, passes) in ended {
            if let Some(failure) = self.failure.or_else(|| (!passes).then_some(DialFailure::Unanswered)) {
                self.carrier_choice.failed(now, carrier, failure, self.rng_state);
                continue;
            }
            let number = self.carrier_choice.greeted(now, carrier);
            let passes = carrier == Http2 || self.udp == Udp::Passes;
            self.tunnels.push(SimTunnel {
                number,
                carrier,
                greeted: now,
                heard: now,
                passes,
                is_draining: false,
            });
        }
    }

    fn look_at_tunnels(&mut self) {
        for tunnel in &mut self.tunnels {
            if tunnel.passes {
                tunnel.heard = self.now;
            }
            if tunnel.passes && self.now >= tunnel.greeted + RTT * 3 {
                self.carrier_choice.proven(self.now, tunnel.number);
            }
            let silence = self.now - tunnel.heard;
            let health = if silence < SUSPECT_AFTER { Health::Live } else { Health::Suspect };
            self.carrier_choice.observe(self.now, tunnel.number, health, tunnel.is_draining);
        }
    }
}

fn next_random(rng_state: u64) -> u64 {
    // SplitMix64.
    let mixed = rng_state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
