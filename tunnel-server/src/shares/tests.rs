//! Each limit at the limit and one beyond, of callers and of clusters, and who waits for whom.

use std::time::Duration;

use daemon::Rate;
use futures::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::config::{
    AgentLimits, CallerLimits, ClusterLimits, GatewayLimits, ListenerTotals, SourceLimitsConfig,
};

/// Small ones, each another number.
const LIMITS: LimitsConfig = LimitsConfig {
    source: SourceLimitsConfig { connections: 1, new: Rate { per_second: 1, burst: 1 }, failed_logins: 1 },
    caller: CallerLimits {
        requests: 3,
        rate: Rate { per_second: 10, burst: 20 },
        watches_per_cluster: 2,
        upgrades: 4,
    },
    cluster: ClusterLimits {
        requests: 5,
        watches: 6,
        upgrades: 7,
        queue: 2,
        queue_wait: Duration::from_secs(1),
    },
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
    listeners: LIMITS.listeners,
    source: LIMITS.source,
    caller: CallerLimits { requests: 10_000, watches_per_cluster: 10_000, upgrades: 10_000, ..LIMITS.caller },
    cluster: ClusterLimits { requests: 10_000, watches: 10_000, upgrades: 10_000, ..LIMITS.cluster },
};

#[test]
fn a_caller_has_its_share_and_not_one_more_and_others_have_theirs() {
    let (shares, edge) = (Shares::new(ROOMY), cluster("edge"));
    let (ann, ben) = (Caller::for_test("ann", &[]), Caller::for_test("ben", &["x"]));
    let take = |caller: &Caller| shares.take(caller, &edge, Kind::Request);

    let mut of_ann: Vec<Share> = (0..EXCHANGES_PER_CALLER_MAX).filter_map(|_| take(&ann).ok()).collect();

    assert_eq!(of_ann.len(), EXCHANGES_PER_CALLER_MAX);
    assert_eq!(take(&ann).err(), Some(Limit::CallerExchanges(EXCHANGES_PER_CALLER_MAX)), "one beyond");
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

#[test]
fn a_caller_has_as_many_of_each_kind_as_it_may_and_not_one_more_and_watches_for_each_cluster() {
    for (kind, max, limit) in [
        (Kind::Request, 3, Limit::CallerRequests(3)),
        (Kind::Watch, 2, Limit::CallerWatches(2)),
        (Kind::Upgrade, 4, Limit::CallerUpgrades(4)),
    ] {
        let (shares, [a, b]) = (Shares::new(LIMITS), ["a", "b"].map(cluster));
        let (ann, ben) = (Caller::for_test("ann", &[]), Caller::for_test("ben", &[]));
        let held: Vec<_> = (0..max).filter_map(|_| shares.take(&ann, &a, kind).ok()).collect();
        assert_eq!(held.len(), max, "{kind:?}");

        assert_eq!(shares.take(&ann, &a, kind).err(), Some(limit));
        assert_eq!(shares.take(&ann, &b, kind).is_ok(), kind == Kind::Watch, "{kind:?} of another cluster");
        assert!(shares.take(&ben, &a, kind).is_ok(), "{kind:?} of another caller");
        for other in [Kind::Request, Kind::Watch, Kind::Upgrade] {
            assert_eq!(shares.take(&ann, &a, other).is_ok(), other != kind, "{other:?} beside {kind:?}");
        }
        drop(held);
        assert!(shares.take(&ann, &a, kind).is_ok(), "what ended is free again");
    }
}

#[test]
fn a_cluster_has_as_much_that_runs_long_as_it_may_and_not_one_more() {
    for (kind, max, limit) in
        [(Kind::Watch, 6, Limit::ClusterWatches(6)), (Kind::Upgrade, 7, Limit::ClusterUpgrades(7))]
    {
        let (shares, [a, b]) = (Shares::new(LIMITS), ["a", "b"].map(cluster));
        let callers: Vec<Caller> = (0..8).map(|n| Caller::for_test(&format!("u{n}"), &[])).collect();
        let held: Vec<_> =
            callers.iter().take(max).filter_map(|caller| shares.take(caller, &a, kind).ok()).collect();
        assert_eq!(held.len(), max);

        assert_eq!(shares.take(&callers[7], &a, kind).err(), Some(limit));
        assert!(shares.take(&callers[7], &b, kind).is_ok(), "another cluster");
        drop(held);
        assert!(shares.take(&callers[7], &a, kind).is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn beyond_a_clusters_seats_as_many_wait_as_may_and_each_for_its_time() {
    let (shares, edge) = (Shares::new(LIMITS), cluster("edge"));
    let callers: Vec<Caller> = (0..8).map(|n| Caller::for_test(&format!("u{n}"), &[])).collect();
    let seated = |n: usize| shares.take(&callers[n], &edge, Kind::Request).unwrap().seated();
    let mut held = Vec::new();
    for n in 0..LIMITS.cluster.requests {
        held.push(seated(n).await.unwrap());
    }
    let (mut sixth, mut seventh) = (Box::pin(seated(5)), Box::pin(seated(6)));
    assert!(sixth.as_mut().now_or_never().is_none() && seventh.as_mut().now_or_never().is_none());

    assert_eq!(seated(7).await.err(), Some(Limit::ClusterQueue), "one beyond");
    held.pop();
    let (sixth, seventh) = tokio::join!(sixth, seventh);
    assert_eq!(sixth.is_ok(), seventh.is_err(), "one seat came free");
    assert_eq!(sixth.and(seventh).err(), Some(Limit::ClusterRequests(5)), "the other waited in vain");
    assert!(shares.take(&callers[7], &cluster("b"), Kind::Request).unwrap().seated().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_runs_long_gives_its_seat_up_once_it_has_begun_and_a_request_does_not() {
    let (shares, edge) = (Shares::new(LIMITS), cluster("edge"));
    let ann = Caller::for_test("ann", &[]);
    let used = || shares.uses().iter().find(|used| used.limit == "cluster_requests").unwrap().most;
    let mut held = Vec::new();
    for (kind, seats) in [(Kind::Watch, 0), (Kind::Upgrade, 0), (Kind::Request, 1)] {
        let mut share = shares.take(&ann, &edge, kind).unwrap().seated().await.unwrap();
        assert_eq!(used(), 1, "{kind:?} needs one at first");
        share.begun();
        assert_eq!(used(), seats, "{kind:?}");
        held.push(share);
    }
    drop(held);
    assert_eq!(used(), 0);
}

#[test]
fn a_caller_asks_as_fast_as_it_may_and_not_faster_and_others_are_not_slowed() {
    let shares = Shares::new(LIMITS);
    let (ann, ben) = (Caller::for_test("ann", &[]), Caller::for_test("ben", &[]));

    let (rate, began) = (LIMITS.caller.rate, Instant::now());
    let mut ledger = Ledger::default();
    let asked =
        |ledger: &mut Ledger, who, now| (0..100).filter(|_| ledger.ask(&holder(who), rate, now)).count();
    assert_eq!((asked(&mut ledger, &ann, began), asked(&mut ledger, &ben, began)), (20, 20));
    assert_eq!(asked(&mut ledger, &ann, began + Duration::from_secs(1)), 10);
    // And so does the door.
    assert!((0..100).any(|_| shares.ask(&ann) == Err(Limit::CallerRate(10))));
    assert_eq!(shares.ask(&ben), Ok(()));
}

#[test]
fn who_has_no_exchange_and_asked_nothing_of_late_is_forgotten_and_nobody_else() {
    let (mut ledger, edge, rate) = (Ledger::default(), cluster("edge"), Rate { per_second: 1, burst: 1 });
    let now = Instant::now();
    let named = |n: usize| (Method::StaticToken, format!("u{n}"), None);
    ledger.enter(&named(0), &edge, Kind::Watch, &ROOMY, now).unwrap();
    for n in 0..ledger::CALLERS_MAX + 10 {
        assert!(ledger.ask(&named(n), rate, now));
        assert!(ledger.len().0 <= ledger::CALLERS_MAX);
    }
    assert!(ledger.len().0 < ledger::CALLERS_MAX, "they were too many");
    assert!(!ledger.ask(&named(0), rate, now), "who has something running is not forgotten");

    for n in 0..ledger::CALLERS_MAX {
        let _ = ledger.ask(&named(n), rate, now + Duration::from_secs(10 + n as u64));
    }
    assert!(ledger.len().0 < 3_000, "{:?}", ledger.len());
    ledger.leave(&named(0), &edge, Kind::Watch);
    assert_eq!(ledger.len().1, 0, "nor is anything kept of a cluster");
}

#[test]
fn every_limit_has_a_word_that_is_told_from_the_start() {
    let limits = [
        Limit::SourceFailures(1),
        Limit::CallerExchanges(1),
        Limit::CallerRequests(1),
        Limit::CallerRate(1),
        Limit::CallerWatches(1),
        Limit::CallerUpgrades(1),
        Limit::EgressConnections(1),
        Limit::PassthroughConnections(1),
        Limit::PassthroughSource(1),
        Limit::VipConnections(1),
        Limit::VipSource(1),
        Limit::ClusterWatches(1),
        Limit::ClusterUpgrades(1),
        Limit::ClusterQueue,
        Limit::ClusterRequests(1),
    ];
    assert_eq!(limits.map(Limit::as_str), metrics::LIMITS);
    let told: Vec<_> = Shares::new(LIMITS).uses().iter().map(|used| used.limit).collect();
    assert!(
        told.iter().all(|limit| metrics::LIMITS.contains(limit)) && told.len() == metrics::LIMITS.len() - 7
    );
}

proptest! {
    /// What comes goes, in whatever order.
    #[test]
    fn nothing_is_counted_that_has_ended(
        came in vec((0_usize..3, 0_usize..3, 0_usize..3), 0..60),
        order in vec(any::<Index>(), 60),
    ) {
        let shares = Shares::new(LIMITS);
        let mut held = Vec::new();
        for (who, whose, kind) in came {
            let caller = Caller::for_test(["ann", "ben", "cid"][who], &[]);
            let kind = [Kind::Request, Kind::Watch, Kind::Upgrade][kind];
            held.extend(shares.take(&caller, &cluster(["a", "b", "c"][whose]), kind));
        }
        let mut order = order.iter();
        while let Some(which) = order.next().filter(|_| !held.is_empty()) {
            drop(held.swap_remove(which.index(held.len())));
        }
        drop(held);
        prop_assert!(shares.uses().iter().all(|used| used.most == 0));
        prop_assert_eq!(shares.lock().len().1, 0);
    }
}

fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}
