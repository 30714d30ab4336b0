//! Tests of limits over several servers: the words that servers exchange, and what one caller gets of all of them.

use daemon::Rate;
use proto::peering::CallerDigest;

use super::*;
use crate::config::{CallerLimits, LimitsConfig};
use crate::identity::Caller;
use crate::limits::{LimitExceeded, LimitGuard};

/// The steps of a simulated second.
const STEPS: u32 = 20;
const STEP: Duration = Duration::from_millis(50);

const RATE: Rate = Rate { per_second: 40, burst: 40 };

#[test]
fn running_exchanges_and_connections_count_with_those_of_other_servers() {
    let (here, there, now) = (limiter(), limiter(), Instant::now());
    let (ann, edge) = (caller("ann"), cluster("edge"));
    let word = here.peer_joined("there".to_owned());
    for (kind, max, limit) in [
        (ExchangeKind::Request, 10, LimitExceeded::CallerRequests(10)),
        (ExchangeKind::Watch, 20, LimitExceeded::CallerWatches(20)),
        (ExchangeKind::Upgrade, 30, LimitExceeded::CallerUpgrades(30)),
    ] {
        let _there: Vec<LimitGuard> =
            (0..max - 2).filter_map(|_| there.admit_at(&ann, &edge, kind, now).ok()).collect();
        word.hear(there.take_shares(1, now), now);
        let take = || here.admit_at(&ann, &edge, kind, now);

        let _here = [take().unwrap(), take().unwrap()];

        assert_eq!(take().err(), Some(limit), "{kind:?}");
        assert!(here.admit_at(&caller("ben"), &edge, kind, now).is_ok(), "{kind:?} of another caller");
        let of_other_cluster = here.admit_at(&ann, &cluster("other"), kind, now).is_ok();
        assert_eq!(of_other_cluster, kind == ExchangeKind::Watch, "{kind:?} of another cluster");
        assert!(here.admit_at(&ann, &edge, kind, now + Duration::from_secs(5)).is_ok(), "{kind:?} later");
    }
    let _there: Vec<_> = (0..39).filter_map(|_| there.enter_connection(&ann).ok()).collect();
    // From a later clock than that of the connections below, so that it counts however slow the test is.
    word.hear(there.take_shares(1, now), now + Duration::from_secs(3_600));
    let _one = here.enter_connection(&ann).unwrap();
    assert_eq!(here.enter_connection(&ann).err(), Some(LimitExceeded::CallerConnections(40)));
    drop(word);
    assert!(here.enter_connection(&ann).is_ok(), "its session has ended");
}

/// Beyond four servers it is less, so that untold use stays small.
#[test]
fn a_caller_is_told_of_beyond_its_part_of_a_limit() {
    let (limiter, edge, now) = (limiter(), cluster("edge"), Instant::now());
    let ann = caller("ann");
    let held =
        |peers| -> Vec<u32> { limiter.take_shares(peers, now).iter().map(|share| share.held).collect() };
    let mut guards: Vec<LimitGuard> = Vec::new();
    let mut upgrade = || guards.push(limiter.admit_at(&ann, &edge, ExchangeKind::Upgrade, now).unwrap());

    (0..7).for_each(|_| upgrade());
    assert_eq!(
        (held(0), held(1), held(2)),
        (vec![], vec![7], vec![7]),
        "7 of 30: a fifth is 6, and a quarter 7.5"
    );
    upgrade();
    assert_eq!((held(0), held(1)), (vec![8], vec![8]));
    assert!(held(63).len() == 1);
}

#[test]
fn of_too_many_callers_the_largest_are_told_of_first() {
    let (limiter, edge, now) = (limiter(), cluster("edge"), Instant::now());
    let callers: Vec<Caller> = (0..USAGE_CALLERS_MAX + 50).map(|n| caller(&format!("u{n}"))).collect();
    let mut guards = Vec::new();
    for (n, caller) in callers.iter().enumerate() {
        for _ in 0..12 + n % 2 {
            guards.push(limiter.admit_at(caller, &edge, ExchangeKind::Upgrade, now).unwrap());
        }
    }
    // Of its limit this one uses more, though it is a smaller number.
    let requests = (0..9).map(|_| limiter.admit_at(&callers[0], &edge, ExchangeKind::Request, now).unwrap());
    guards.extend(requests);

    let shares = limiter.take_shares(1, now);

    assert_eq!(shares.len(), USAGE_CALLERS_MAX);
    let first = CallerShare { caller: digest(&callers[0]), kind: UsageKind::Requests, held: 9 };
    assert_eq!(shares[0], first);
    let held: Vec<u32> = shares[1..].iter().map(|share| share.held).collect();
    assert!(held.is_sorted_by(|a, b| a >= b) && held.iter().filter(|held| **held == 13).count() == 525);
}

#[test]
fn requests_are_told_of_by_the_second_with_those_that_were_refused() {
    let (limiter, edge, now) = (limiter(), cluster("edge"), Instant::now());
    let ann = caller("ann");
    let share = |kind, held| CallerShare { caller: digest(&ann), kind, held };
    assert!(limiter.take_shares(2, now).is_empty());
    for _ in 0..200 {
        let _ = limiter.check_rate_at(&ann, now);
    }
    let later = now + Duration::from_secs(2);

    assert_eq!(limiter.take_shares(2, later), [share(UsageKind::Rate, 100)]);
    assert!(limiter.take_shares(2, later).is_empty(), "each request is told of once");

    let running: Vec<_> =
        (0..13).map(|_| limiter.admit_at(&ann, &edge, ExchangeKind::Request, now)).collect();
    let told = limiter.take_shares(2, later);
    assert_eq!(told, [share(UsageKind::RequestsWanted, 13), share(UsageKind::Requests, 10)]);
    drop(running);
    assert!(limiter.take_shares(2, later).is_empty());
}

/// All servers are asked for more than the whole rate, or one of them, and the others for less than is told.
#[test]
fn three_servers_give_a_caller_its_rate_after_two_seconds() {
    for demand in [[60, 60, 60], [60, 3, 3], [60, 20, 0], [12, 12, 12]] {
        let (mut fleet, ann) = (Fleet::new(), caller("ann"));
        let mut served = 0;
        for second in 0..12 {
            for step in 0..STEPS {
                for (server, demand) in demand.iter().enumerate() {
                    let asked = demand * (step + 1) / STEPS - demand * step / STEPS;
                    let admitted = (0..asked)
                        .filter(|_| fleet.limiters[server].check_rate_at(&ann, fleet.now).is_ok())
                        .count();
                    // Bursts of the beginning are over at the latest then.
                    served += if second >= 2 { admitted } else { 0 };
                }
                fleet.now += STEP;
            }
            fleet.tell();
        }

        let most = f64::from(demand.iter().sum::<u32>().min(RATE.per_second));
        let ratio = served as f64 / (10.0 * most);
        assert!((0.8..1.2).contains(&ratio), "{demand:?}: {ratio}");
    }
}

/// Each request takes one or four steps, or as long as the test. In these, all servers want more than the limit, or one of them.
#[test]
fn three_servers_run_no_more_of_a_callers_requests_than_the_limit() {
    for lasts in [1, 4, 1_000] {
        for wanted in [[10, 10, 10], [10, 2, 1], [10, 10, 0]] {
            let (mut fleet, ann, edge) = (Fleet::new(), caller("ann"), cluster("edge"));
            let mut running: [Vec<(u32, LimitGuard)>; 3] = [vec![], vec![], vec![]];
            let (mut most, mut sum, mut step) = (0, 0, 0);
            // One server is first, so that not all of them begin within one second.
            for second in 0..12 {
                for _ in 0..STEPS {
                    step += 1;
                    for (server, running) in running.iter_mut().enumerate() {
                        running.retain(|(ends, _)| *ends > step);
                        let late = second < server * 2;
                        while !late && running.len() < wanted[server] {
                            let kind = ExchangeKind::Request;
                            let Ok(guard) = fleet.limiters[server].admit_at(&ann, &edge, kind, fleet.now)
                            else {
                                break;
                            };
                            running.push((step + lasts, guard));
                        }
                    }
                    let now: usize = running.iter().map(Vec::len).sum();
                    if second >= 6 {
                        (most, sum) = (now.max(most), sum + now);
                    }
                    fleet.now += STEP;
                }
                fleet.tell();
            }

            assert!(most <= 12, "{wanted:?}, {lasts} steps: {most} of 10 run");
            let average = sum as f64 / f64::from(6 * STEPS);
            assert!(average >= 7.0, "{wanted:?}, {lasts} steps: {average} of 10 run");
        }
    }
}

/// Three servers that tell each other of their callers.
struct Fleet {
    limiters: [Limiter; 3],
    words: Vec<(usize, usize, PeerUsage)>,
    now: Instant,
}

impl Fleet {
    fn new() -> Self {
        let limiters = [limiter(), limiter(), limiter()];
        let mut words = Vec::new();
        for (at, limiter) in limiters.iter().enumerate() {
            for other in (0..limiters.len()).filter(|other| *other != at) {
                words.push((at, other, limiter.peer_joined(format!("server-{other}"))));
            }
        }
        Self { limiters, words, now: Instant::now() }
    }

    fn tell(&self) {
        for (teller, limiter) in self.limiters.iter().enumerate() {
            let shares = limiter.take_shares(2, self.now);
            for (_, _, word) in self.words.iter().filter(|(_, other, _)| *other == teller) {
                word.hear(shares.clone(), self.now);
            }
        }
    }
}

fn limiter() -> Limiter {
    let default = LimitsConfig::default();
    let caller =
        CallerLimits { requests: 10, rate: RATE, watches_per_cluster: 20, upgrades: 30, connections: 40 };
    let mut cluster = default.cluster;
    cluster.upgrades = 100_000;
    Limiter::new(LimitsConfig { caller, cluster, ..default })
}

fn caller(user: &str) -> Caller {
    Caller::for_test(user, &[])
}

fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

fn digest(caller: &Caller) -> CallerDigest {
    caller_digest(&crate::limits::key(caller), None)
}
