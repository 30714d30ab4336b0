//! Tests of each limit at its value and one beyond, for callers and clusters, and of the order of waiting
//! requests.

use std::time::Duration;

use daemon::Rate;
use futures::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::config::{
    AgentLimits, CallerLimits, ClusterLimits, GatewayLimits, ListenerTotals, ServerLimits, SourceLimitsConfig,
};

/// Small limits, each with a value of its own.
const LIMITS: LimitsConfig = LimitsConfig {
    source: SourceLimitsConfig { connections: 1, new: Rate { per_second: 1, burst: 1 }, failed_logins: 1 },
    caller: CallerLimits {
        requests: 3,
        rate: Rate { per_second: 10, burst: 20 },
        watches_per_cluster: 2,
        upgrades: 4,
        connections: 2,
    },
    cluster: ClusterLimits {
        requests: 5,
        watches: 6,
        upgrades: 7,
        queue: 2,
        queue_wait: Duration::from_secs(1),
    },
    server: ServerLimits { requests: 400, clusters: 1, tunnels: 1 },
    listeners: ListenerTotals {
        gateway: GatewayLimits { connections: 1, handshakes: 1 },
        agents: AgentLimits {
            handshakes: 1,
            unproved: 1,
            unproved_rate: Rate { per_second: 1, burst: 1 },
            unproved_rate_of_network: Rate { per_second: 1, burst: 1 },
        },
    },
};

const ROOMY: LimitsConfig = LimitsConfig {
    server: LIMITS.server,
    listeners: LIMITS.listeners,
    source: LIMITS.source,
    caller: CallerLimits { requests: 10_000, watches_per_cluster: 10_000, upgrades: 10_000, ..LIMITS.caller },
    cluster: ClusterLimits { requests: 10_000, watches: 10_000, upgrades: 10_000, ..LIMITS.cluster },
};

/// A quarter of all requests that the server serves at once.
const OF_ONE_CALLER_MAX: usize = 100;

#[test]
fn the_limit_on_a_callers_exchanges_does_not_affect_others() {
    let (limiter, edge) = (Limiter::new(ROOMY), cluster("edge"));
    let (ann, ben) = (Caller::for_test("ann", &[]), Caller::for_test("ben", &["x"]));
    let take = |caller: &Caller| limiter.admit(caller, &edge, ExchangeKind::Request);

    let mut of_ann: Vec<LimitGuard> = (0..OF_ONE_CALLER_MAX).filter_map(|_| take(&ann).ok()).collect();

    assert_eq!(of_ann.len(), OF_ONE_CALLER_MAX);
    assert_eq!(take(&ann).err(), Some(LimitExceeded::CallerExchanges(OF_ONE_CALLER_MAX)), "one beyond");
    assert!(take(&ann).is_err(), "and it is not counted");
    assert!(take(&ben).is_ok());
    assert!(
        take(&ann.clone().with_certificate_method()).is_ok(),
        "the same name, proved in another way, is another's"
    );
    of_ann.pop();
    let again = take(&ann);
    assert!(again.is_ok() && take(&ann).is_err());
}

/// The limit on watches applies to each cluster.
#[test]
fn each_kind_of_exchange_has_a_limit_of_its_own_for_each_caller() {
    for (kind, max, limit) in [
        (ExchangeKind::Request, 3, LimitExceeded::CallerRequests(3)),
        (ExchangeKind::Watch, 2, LimitExceeded::CallerWatches(2)),
        (ExchangeKind::Upgrade, 4, LimitExceeded::CallerUpgrades(4)),
    ] {
        let (limiter, [a, b]) = (Limiter::new(LIMITS), ["a", "b"].map(cluster));
        let (ann, ben) = (Caller::for_test("ann", &[]), Caller::for_test("ben", &[]));
        let guards: Vec<_> = (0..max).filter_map(|_| limiter.admit(&ann, &a, kind).ok()).collect();
        assert_eq!(guards.len(), max, "{kind:?}");

        assert_eq!(limiter.admit(&ann, &a, kind).err(), Some(limit));
        assert_eq!(
            limiter.admit(&ann, &b, kind).is_ok(),
            kind == ExchangeKind::Watch,
            "{kind:?} of another cluster"
        );
        assert!(limiter.admit(&ben, &a, kind).is_ok(), "{kind:?} of another caller");
        for other in [ExchangeKind::Request, ExchangeKind::Watch, ExchangeKind::Upgrade] {
            assert_eq!(limiter.admit(&ann, &a, other).is_ok(), other != kind, "{other:?} beside {kind:?}");
        }
        drop(guards);
        assert!(limiter.admit(&ann, &a, kind).is_ok(), "what ended is free again");
    }
}

#[test]
fn a_clusters_long_running_exchanges_are_limited() {
    for (kind, max, limit) in [
        (ExchangeKind::Watch, 6, LimitExceeded::ClusterWatches(6)),
        (ExchangeKind::Upgrade, 7, LimitExceeded::ClusterUpgrades(7)),
    ] {
        let (limiter, [a, b]) = (Limiter::new(LIMITS), ["a", "b"].map(cluster));
        let callers: Vec<Caller> = (0..8).map(|n| Caller::for_test(&format!("u{n}"), &[])).collect();
        let guards: Vec<_> =
            callers.iter().take(max).filter_map(|caller| limiter.admit(caller, &a, kind).ok()).collect();
        assert_eq!(guards.len(), max);

        assert_eq!(limiter.admit(&callers[7], &a, kind).err(), Some(limit));
        assert!(limiter.admit(&callers[7], &b, kind).is_ok(), "another cluster");
        drop(guards);
        assert!(limiter.admit(&callers[7], &a, kind).is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn beyond_a_clusters_seats_a_bounded_queue_waits_a_bounded_time() {
    let (limiter, edge) = (Limiter::new(LIMITS), cluster("edge"));
    let callers: Vec<Caller> = (0..8).map(|n| Caller::for_test(&format!("u{n}"), &[])).collect();
    let wait_for_seat =
        |n: usize| limiter.admit(&callers[n], &edge, ExchangeKind::Request).unwrap().wait_for_seat();
    let mut guards = Vec::new();
    for n in 0..LIMITS.cluster.requests {
        guards.push(wait_for_seat(n).await.unwrap());
    }
    let (mut sixth, mut seventh) = (Box::pin(wait_for_seat(5)), Box::pin(wait_for_seat(6)));
    assert!(sixth.as_mut().now_or_never().is_none() && seventh.as_mut().now_or_never().is_none());

    assert_eq!(wait_for_seat(7).await.err(), Some(LimitExceeded::ClusterQueue), "one beyond");
    guards.pop();
    let (sixth, seventh) = tokio::join!(sixth, seventh);
    assert_eq!(sixth.is_ok(), seventh.is_err(), "one seat came free");
    assert_eq!(
        sixth.and(seventh).err(),
        Some(LimitExceeded::ClusterRequests(5)),
        "the other waited for nothing"
    );
    assert!(
        limiter
            .admit(&callers[7], &cluster("b"), ExchangeKind::Request)
            .unwrap()
            .wait_for_seat()
            .await
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_running_exchange_returns_its_seat_when_it_starts() {
    let (limiter, edge) = (Limiter::new(LIMITS), cluster("edge"));
    let ann = Caller::for_test("ann", &[]);
    let used = || limiter.usage().iter().find(|used| used.limit == "cluster_requests").unwrap().most;
    let mut guards = Vec::new();
    for (kind, seats) in [(ExchangeKind::Watch, 0), (ExchangeKind::Upgrade, 0), (ExchangeKind::Request, 1)] {
        let mut guard = limiter.admit(&ann, &edge, kind).unwrap().wait_for_seat().await.unwrap();
        assert_eq!(used(), 1, "{kind:?} needs one at first");
        guard.response_started();
        assert_eq!(used(), seats, "{kind:?}");
        guards.push(guard);
    }
    drop(guards);
    assert_eq!(used(), 0);
}

#[test]
fn the_rate_of_one_caller_does_not_slow_others() {
    let limiter = Limiter::new(LIMITS);
    let (ann, ben) = (Caller::for_test("ann", &[]), Caller::for_test("ben", &[]));

    let (rate, began) = (LIMITS.caller.rate, Instant::now());
    let mut ledger = Ledger::default();
    let asked = |ledger: &mut Ledger, who, now| {
        (0..100).filter(|_| ledger.check_rate(&key(who), rate, rate.interval(), now)).count()
    };
    assert_eq!((asked(&mut ledger, &ann, began), asked(&mut ledger, &ben, began)), (20, 20));
    assert_eq!(asked(&mut ledger, &ann, began + Duration::from_secs(1)), 10);
    // The limiter applies the same rate.
    assert!((0..100).any(|_| limiter.check_rate(&ann) == Err(LimitExceeded::CallerRate(10))));
    assert_eq!(limiter.check_rate(&ben), Ok(()));
}

#[test]
fn only_idle_callers_are_forgotten() {
    let (mut ledger, edge, rate) = (Ledger::default(), cluster("edge"), Rate { per_second: 1, burst: 1 });
    let now = Instant::now();
    let named = |n: usize| (Method::StaticToken, format!("u{n}"), None);
    ledger.enter(&named(0), &edge, ExchangeKind::Watch, &ROOMY, usize::MAX, now).unwrap();
    for n in 0..ledger::CALLERS_MAX + 10 {
        assert!(ledger.check_rate(&named(n), rate, rate.interval(), now));
        assert!(ledger.len().0 <= ledger::CALLERS_MAX);
    }
    assert!(ledger.len().0 < ledger::CALLERS_MAX, "they were too many");
    assert!(
        !ledger.check_rate(&named(0), rate, rate.interval(), now),
        "who has something running is not forgotten"
    );

    for n in 0..ledger::CALLERS_MAX {
        let _ = ledger.check_rate(&named(n), rate, rate.interval(), now + Duration::from_secs(10 + n as u64));
    }
    assert!(ledger.len().0 < 3_000, "{:?}", ledger.len());
    ledger.leave(&named(0), &edge, ExchangeKind::Watch);
    assert_eq!(ledger.len().1, 0, "and nothing is kept about a cluster");
}

#[test]
fn a_caller_has_as_many_reads_of_sets_as_it_may_and_not_one_more() {
    let limiter = Limiter::new(LIMITS);
    let (ann, bob) = (Caller::for_test("ann", &[]), Caller::for_test("bob", &[]));
    let mut guards: Vec<_> = (0..SET_READS_MAX).map(|_| limiter.enter_set_read(&ann).ok().unwrap()).collect();
    let beyond = limiter.enter_set_read(&ann).err();
    assert_eq!(beyond, Some(LimitExceeded::CallerSetReads(SET_READS_MAX)));
    assert!(limiter.enter_set_read(&bob).is_ok(), "others are not concerned");
    guards.pop();
    assert!(limiter.enter_set_read(&ann).is_ok());
}

#[test]
fn watches_of_the_list_have_a_limit_for_each_caller_and_for_all() {
    let limiter = Limiter::new(LIMITS);
    let enter = |user: usize| limiter.enter_list_watch(&Caller::for_test(&format!("user-{user}"), &[]));
    let mut guards: Vec<_> = (0..LIST_WATCHES_PER_CALLER_MAX).map(|_| enter(0).ok().unwrap()).collect();
    let of_caller = LimitExceeded::CallerListWatches(LIST_WATCHES_PER_CALLER_MAX);
    assert_eq!(enter(0).err(), Some(of_caller));
    guards.pop();
    assert!(enter(0).is_ok(), "the guard of the watch that has ended was dropped");

    guards.extend((guards.len()..LIST_WATCHES_MAX).map(|user| enter(user).ok().unwrap()));
    assert_eq!(enter(LIST_WATCHES_MAX).err(), Some(LimitExceeded::ListWatches(LIST_WATCHES_MAX)));
    let used = limiter.usage();
    let used = |name| used.iter().find(|used| used.limit == name).map(|used| (used.most, used.max));
    assert_eq!(used("list_watches"), Some((LIST_WATCHES_MAX, LIST_WATCHES_MAX)));
    guards.clear();
    assert!(enter(LIST_WATCHES_MAX).is_ok());
}

#[test]
fn a_part_of_a_set_read_takes_a_seat_and_counts_for_no_caller() {
    let limiter = Limiter::new(LIMITS);
    let cluster = |number| format!("edge-{number}").parse().unwrap();
    let ann = Caller::for_test("ann", &[]);
    let parts: Vec<_> = (0..200)
        .map(|number| limiter.admit(&ann, &cluster(number), ExchangeKind::SetMember).ok().unwrap())
        .collect();
    let most = limiter.lock().most();
    assert_eq!((most.caller_exchanges, most.caller_requests), (0, 0));
    drop(parts);
    assert_eq!(limiter.lock().len().1, 0, "nothing is kept about a cluster");
}

#[test]
fn every_limit_has_a_name_that_is_reported_from_the_start() {
    let limits = [
        LimitExceeded::SourceFailures(1),
        LimitExceeded::CallerExchanges(1),
        LimitExceeded::CallerRequests(1),
        LimitExceeded::CallerRate(1),
        LimitExceeded::CallerWatches(1),
        LimitExceeded::CallerUpgrades(1),
        LimitExceeded::CallerConnections(1),
        LimitExceeded::CallerSetReads(1),
        LimitExceeded::CallerListWatches(1),
        LimitExceeded::ListWatches(1),
        LimitExceeded::EgressConnections(1),
        LimitExceeded::PassthroughConnections(1),
        LimitExceeded::PassthroughSource(1),
        LimitExceeded::VipConnections(1),
        LimitExceeded::VipSource(1),
        LimitExceeded::ClusterWatches(1),
        LimitExceeded::ClusterUpgrades(1),
        LimitExceeded::ClusterQueue,
        LimitExceeded::ClusterRequests(1),
    ];
    assert_eq!(limits.map(LimitExceeded::as_str), LimitExceeded::NAMES);
    let reported: Vec<_> = Limiter::new(LIMITS).usage().iter().map(|used| used.limit).collect();
    assert!(
        reported.iter().all(|limit| LimitExceeded::NAMES.contains(limit))
            && reported.len() == LimitExceeded::NAMES.len() - 7
    );
}

proptest! {
    /// The exchanges end in any order.
    #[test]
    fn ended_exchanges_do_not_count(
        started in vec((0_usize..3, 0_usize..3, 0_usize..3), 0..60),
        order in vec(any::<Index>(), 60),
    ) {
        let limiter = Limiter::new(LIMITS);
        let mut guards = Vec::new();
        for (who, whose, kind) in started {
            let caller = Caller::for_test(["ann", "ben", "cid"][who], &[]);
            let kind = [ExchangeKind::Request, ExchangeKind::Watch, ExchangeKind::Upgrade][kind];
            guards.extend(limiter.admit(&caller, &cluster(["a", "b", "c"][whose]), kind));
        }
        let mut order = order.iter();
        while let Some(which) = order.next().filter(|_| !guards.is_empty()) {
            drop(guards.swap_remove(which.index(guards.len())));
        }
        drop(guards);
        prop_assert!(limiter.usage().iter().all(|used| used.most == 0));
        prop_assert_eq!(limiter.lock().len().1, 0);
    }
}

fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

#[test]
fn connections_are_limited_for_each_caller_and_return_with_their_guards() {
    let limiter = Limiter::new(LIMITS);
    let [alice, bob] = ["alice", "bob"].map(|user| Caller::for_test(user, &[]));
    let held = [limiter.enter_connection(&alice).unwrap(), limiter.enter_connection(&alice).unwrap()];

    assert_eq!(limiter.enter_connection(&alice).err(), Some(LimitExceeded::CallerConnections(2)));
    let other = limiter.enter_connection(&bob).unwrap();
    // A name counts only together with the method that proved it.
    let certified = Caller::for_test("alice", &[]).with_certificate_method();
    let third = limiter.enter_connection(&certified).unwrap();

    drop(held);
    assert!(limiter.enter_connection(&alice).is_ok());
    drop((other, third));
    assert!(limiter.connections().is_empty(), "callers without a connection are forgotten");
}
