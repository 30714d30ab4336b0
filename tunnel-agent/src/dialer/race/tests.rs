//! The race over ways that fail in every manner, in virtual time.

use transport::Carrier::{Http2, Quic};

use super::*;

const RTT: Duration = Duration::from_millis(40);
const QUIC_DIAL_MAX: Duration = Duration::from_secs(3);
const SUSPECT_AFTER: Duration = Duration::from_millis(2500);
const TICK: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// What becomes of UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Udp {
    Passes,
    Dropped,
    /// Handshake and greeting pass, and nothing after them.
    DroppedAfterTheGreeting,
}

#[test]
fn where_udp_passes_nothing_else_is_dialed() {
    let mut world = World::new(&[Quic, Http2]);
    world.run(100 * SECOND);
    assert_eq!(world.dialed, [Quic]);
    assert_eq!(world.standing(), Standing::Serves);
}

#[test]
fn an_agent_has_a_tunnel_that_works_within_5_s_of_its_start_whatever_becomes_of_udp() {
    for udp in [Udp::Passes, Udp::Dropped, Udp::DroppedAfterTheGreeting] {
        let mut world = World::new(&[Quic, Http2]);
        world.udp = udp;
        let took = world.run_until(World::works);
        assert!(took <= 5 * SECOND, "{udp:?}: {took:?}");
    }
}

#[test]
fn a_tunnel_that_turns_silent_has_a_working_one_beside_it_within_5_s_and_is_kept() {
    for udp in [Udp::Dropped, Udp::DroppedAfterTheGreeting] {
        let mut world = World::new(&[Quic, Http2]);
        world.run(30 * SECOND);
        world.udp = udp;
        world.tunnels[0].passes = false;
        world.run_until(|world| world.standing() == Standing::Silent);
        let took = world.run_until(World::works);
        assert!(took <= 5 * SECOND, "{udp:?}: {took:?}");
        assert!(world.tunnels.iter().any(|tunnel| tunnel.number == 1 && !tunnel.drains), "{udp:?}");
    }
}

#[test]
fn udp_is_taken_again_within_60_s_of_its_return_and_http2_ends_once_it_has_held() {
    for away in [5, 20, 45, 300] {
        let mut world = World::new(&[Quic, Http2]);
        world.udp = Udp::Dropped;
        world.run(away * SECOND);
        assert_eq!(world.standing(), Standing::Lesser);
        world.udp = Udp::Passes;

        let took = world.run_until(|world| world.standing() == Standing::Serves);
        assert!(took <= 60 * SECOND, "{took:?}");
        let drains =
            |world: &World| world.tunnels.iter().any(|tunnel| tunnel.carrier == Http2 && tunnel.drains);
        assert!(!drains(&world));
        let took = world.run_until(drains);
        assert!(took >= HELD_MIN - SECOND && took <= HELD_MIN + SECOND, "{took:?}");
    }
}

#[test]
fn a_silent_tunnel_that_is_heard_again_ends_the_race() {
    let mut world = World::new(&[Quic, Http2]);
    world.run(30 * SECOND);
    world.tunnels[0].passes = false;
    world.udp = Udp::Dropped;
    world.run_until(|world| world.dialed.len() > 1);
    world.tunnels[0].passes = true;
    world.run(60 * SECOND);
    assert_eq!((world.standing(), world.tunnels.len()), (Standing::Serves, 1));
}

#[test]
fn the_successor_of_a_silent_tunnel_has_it_drained_and_not_closed() {
    let mut world = World::new(&[Quic]);
    world.run(30 * SECOND);
    // The old connection's path is dead, as behind a NAT that has forgotten it; a new one's works.
    world.tunnels[0].passes = false;
    world.run_until(|world| world.tunnels.len() > 1);
    world.run(SECOND);
    assert!(world.tunnels[0].drains && !world.tunnels[1].drains);
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

    let took = world.run_until(World::works);
    assert!(took < SECOND, "{took:?}");
}

#[test]
fn a_server_that_drains_is_dialed_again_before_its_tunnel_ends() {
    let mut world = World::new(&[Quic]);
    world.run(30 * SECOND);
    world.tunnels[0].drains = true;
    world.run_until(|world| world.tunnels.len() > 1);
    assert_eq!(world.standing(), Standing::Serves);
}

#[test]
fn a_refused_certificate_is_dialed_twice_a_minute_at_most() {
    let mut world = World::new(&[Quic]);
    world.setback = Some(Setback::Refused);
    world.run(120 * SECOND);
    assert!((2..=5).contains(&world.dialed.len()), "{}", world.dialed.len());
}

#[test]
fn as_long_as_a_server_has_told_it_is_dialed_by_no_carrier() {
    let mut world = World::new(&[Quic, Http2]);
    world.setback = Some(Setback::Told(20 * SECOND));
    world.run(20 * SECOND);
    assert_eq!(world.dialed, [Quic]);
}

#[test]
fn who_was_replaced_by_a_later_process_does_not_come_back_at_once_by_any_carrier() {
    let now = Instant::now();
    for held in [SECOND, 3600 * SECOND] {
        let mut race = Race::new(now, &[Quic, Http2]);
        assert_eq!(race.poll_step(), Some(Step::Dial(Quic)));
        let number = race.greeted(now, Quic);
        race.ended(now + held, number, Ending::Replaced, 0);
        let before = now + held + 29 * SECOND;
        race.handle_timeout(before);
        assert_eq!(race.poll_step(), None);
        race.handle_timeout(before + SECOND);
        assert_eq!(race.poll_step(), Some(Step::Dial(Quic)));
    }
}

#[test]
fn a_double_rests_until_the_other_way_is_gone() {
    let now = Instant::now();
    let mut race = Race::new(now, &[Quic]);
    assert_eq!(race.poll_step(), Some(Step::Dial(Quic)));
    let number = race.found_double(now, Quic);
    race.ended(now, number, Ending::Otherwise, u64::MAX);
    let later = now + REST_MAX - SECOND;
    race.handle_timeout(later);
    assert_eq!((race.poll_step(), race.poll_timeout()), (None, Some(now + REST_MAX)));

    race.rested(later);
    assert_eq!(race.poll_step(), Some(Step::Dial(Quic)));
}

#[test]
fn what_gives_way_is_drained_once_and_what_is_silent_is_kept() {
    let now = Instant::now();
    let mut race = Race::new(now, &[Quic, Http2]);
    let silent = race.greeted(now, Quic);
    race.observed(now, silent, Health::Suspect, false);
    let serves = race.greeted(now, Quic);
    while race.poll_step().is_some() {}

    race.gives_way(now);
    race.gives_way(now);

    assert_eq!((race.poll_step(), race.poll_step()), (Some(Step::Drain(serves)), None));
    assert_eq!(race.poll_timeout(), Some(now + REST_MAX));
    race.observed(now, silent, Health::Live, false);
    race.gives_way(now);
    assert_eq!(race.poll_step(), Some(Step::Drain(silent)));
}

#[test]
fn an_address_that_is_gone_is_left_once_its_tunnel_has_ended() {
    let mut world = World::new(&[Quic]);
    world.run(SECOND);
    world.race.stop(world.now);
    world.run(SECOND);
    assert!(!world.race.is_over());
    world.end(0, false);
    assert!(world.race.is_over());
    world.run(60 * SECOND);
    assert_eq!(world.dialed, [Quic]);
}

#[test]
fn no_carrier_is_dialed_twice_at_once_and_no_more_tunnels_are_held_than_may_be() {
    for seed in 0..30 {
        let mut world = World::new(&[Quic, Http2]);
        let mut dice = seed;
        for _ in 0..40 {
            dice = chance(dice);
            match dice % 6 {
                0 => world.udp = Udp::Passes,
                1 => world.udp = Udp::Dropped,
                2 => world.udp = Udp::DroppedAfterTheGreeting,
                3 => world.tcp = !world.tcp,
                4 => world.tunnels.iter_mut().for_each(|tunnel| tunnel.passes = dice & 64 == 0),
                _ => world.end(0, dice & 64 == 0),
            }
            world.run(TICK * ((dice >> 32) as u32 % 1500));
            assert!(world.tunnels.len() <= TUNNELS_MAX, "seed {seed}");
        }
        (world.udp, world.tcp) = (Udp::Passes, true);
        world.tunnels.iter_mut().for_each(|tunnel| tunnel.passes = true);
        world.run(90 * SECOND);
        assert_eq!(world.standing(), Standing::Serves, "seed {seed}");
    }
}

/// An agent, a server, and what is between.
struct World {
    race: Race,
    now: Instant,
    udp: Udp,
    tcp: bool,
    /// What every dial comes to instead.
    setback: Option<Setback>,
    /// Under way: when each ends, and whether in a tunnel.
    dials: Vec<(Carrier, Instant, bool)>,
    tunnels: Vec<Tunnel>,
    dialed: Vec<Carrier>,
    closed: usize,
    dice: u64,
}

struct Tunnel {
    number: u64,
    carrier: Carrier,
    greeted: Instant,
    heard: Instant,
    passes: bool,
    drains: bool,
}

impl World {
    fn new(carriers: &[Carrier]) -> Self {
        let now = Instant::now();
        Self {
            race: Race::new(now, carriers),
            now,
            udp: Udp::Passes,
            tcp: true,
            setback: None,
            dials: Vec::new(),
            tunnels: Vec::new(),
            dialed: Vec::new(),
            closed: 0,
            dice: 1,
        }
    }

    fn standing(&self) -> Standing {
        self.race.standing()
    }

    /// Whether a tunnel is chosen that carries what comes.
    fn works(&self) -> bool {
        self.tunnels.iter().any(|tunnel| tunnel.passes && !tunnel.drains)
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.tick();
        }
    }

    /// Runs until this is so, and says how long that took.
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
            let ending = if restarted { Ending::Restarted } else { Ending::Otherwise };
            self.race.ended(self.now, tunnel.number, ending, chance(self.dice));
        }
    }

    fn tick(&mut self) {
        self.now += TICK;
        self.dice = chance(self.dice);
        self.end_dials();
        self.look_at_tunnels();
        if self.race.poll_timeout().is_some_and(|due| due <= self.now) {
            self.race.handle_timeout(self.now);
        }
        while let Some(step) = self.race.poll_step() {
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
                tunnel.expect("a tunnel that is there").drains = true;
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
            if let Some(setback) = self.setback.or_else(|| (!passes).then_some(Setback::Unanswered)) {
                self.race.failed(now, carrier, setback, self.dice);
                continue;
            }
            let number = self.race.greeted(now, carrier);
            let passes = carrier == Http2 || self.udp == Udp::Passes;
            self.tunnels.push(Tunnel { number, carrier, greeted: now, heard: now, passes, drains: false });
        }
    }

    fn look_at_tunnels(&mut self) {
        for tunnel in &mut self.tunnels {
            if tunnel.passes {
                tunnel.heard = self.now;
            }
            if tunnel.passes && self.now >= tunnel.greeted + RTT * 3 {
                self.race.heard(self.now, tunnel.number);
            }
            let silence = self.now - tunnel.heard;
            let health = if silence < SUSPECT_AFTER { Health::Live } else { Health::Suspect };
            self.race.observed(self.now, tunnel.number, health, tunnel.drains);
        }
    }
}

fn chance(dice: u64) -> u64 {
    // SplitMix64.
    let mixed = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
