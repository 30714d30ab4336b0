//! Four minutes without etcd, under load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::KeyPair;
use tests::enroll::{self, AttestationClient, EnrollmentListener, token};
use tests::etcd::MEMBERS;
use tokio::time::sleep;

use super::client::{Balancer, KubeClient};
use super::load::{SteadyLoad, shell};
use super::watcher::Watchers;
use super::{ALONE, CONFIGMAPS, Spread, Trio};
use crate::until;

/// The members of etcd are gone for this long.
const GONE_FOR: Duration = Duration::from_secs(240);

/// The age of its memory from which a server refuses to enroll, and some time for the looks at it.
const REFUSES_AFTER: Duration = Duration::from_secs(3);
const REFUSED_MAX: Duration = Duration::from_secs(1);
const FRESH_MAX: Duration = Duration::from_secs(3);

const READS_EACH_SECOND: u32 = 10;
const WATCHES: usize = 10;
const EVENT_EVERY: Duration = Duration::from_millis(500);

/// Each server has reads, watches and a shell of its own callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: four minutes without etcd"]
async fn four_minutes_without_etcd_fail_no_exchange() {
    let _alone = ALONE.lock().await;
    let mut trio = Trio::start().await;
    let listener = enroll::open(&mut trio.rig).await;
    let (token, _) = token(&trio.rig, "edge-a").await;
    let servers = trio.servers();
    let _agent = trio.agent(&servers.map(|(gateway, _)| gateway)).await;
    let (mut watchers, mut reads, mut shells) = (Watchers::new(), Vec::new(), Vec::new());
    let (path, ca) = (format!("/clusters/edge-a{CONFIGMAPS}"), trio.rig.server_ca());
    for server in servers {
        let client = KubeClient::new(&Arc::new(Balancer::in_order(&[server])), ca.clone());
        (0..WATCHES).for_each(|_| watchers.begin(&client, path.clone()));
        reads.push(SteadyLoad::reads(vec![client], vec![format!("{path}/read")], READS_EACH_SECOND));
        shells.push(shell(server.0, ca.clone(), "edge-a").await);
    }
    until("every watcher has a watch", async || watchers.are_established()).await;

    (0..MEMBERS).for_each(|member| trio.etcd.kill_member(member));
    let (gone, mut refused) = (Instant::now(), Vec::new());
    while gone.elapsed() < GONE_FOR {
        trio.store.put("changed", "again");
        if gone.elapsed() >= REFUSES_AFTER {
            let (answered, took) = enrolls(&trio, &listener, &token).await;
            assert!(!answered, "an agent was enrolled without etcd");
            refused.push(took);
        }
        sleep(EVENT_EVERY).await;
    }
    trio.etcd.start_members().await;
    let back = Instant::now();
    while !enrolls(&trio, &listener, &token).await.0 {}
    let fresh = back.elapsed();
    sleep(REFUSES_AFTER).await;

    let watches = watchers.end(&trio.store.emitted()).await;
    let (mut served, mut failed, mut longest) = (0, Vec::new(), Duration::ZERO);
    for reads in reads {
        let figures = reads.end().await;
        figures.check();
        served += figures.served;
        failed.extend(figures.failed);
        longest = longest.max(figures.took.longest);
    }
    let ended = shells.iter().filter(|shell| shell.is_finished()).count();
    let refused = (refused.len(), Spread::of(refused));
    println!(
        "soak without-etcd: {} s, {served} reads, {} failed, longest {:.3} s; {} watches, {} lost, {} twice, {} broken; {ended} of {} shells \
         ended; {} enrollments refused, {}; an enrollment {:.3} s after etcd was back",
        GONE_FOR.as_secs(),
        failed.len(),
        longest.as_secs_f64(),
        watches.watchers,
        watches.lost,
        watches.twice,
        watches.ends.0 + watches.ends.1,
        shells.len(),
        refused.0,
        refused.1,
        fresh.as_secs_f64()
    );
    watches.check();
    assert_eq!((watches.ends, ended), ((0, 0), 0), "nothing that ran has ended");
    assert!(refused.1.longest <= REFUSED_MAX, "{}", refused.1);
    assert!(fresh <= FRESH_MAX, "{fresh:?}");
}

/// Asks for a certificate over a connection of its own. Returns whether it was issued, and how long that took.
async fn enrolls(trio: &Trio, listener: &EnrollmentListener, token: &str) -> (bool, Duration) {
    let (began, key) = (Instant::now(), KeyPair::generate().expect("a key"));
    let mut client = AttestationClient::connect(&trio.rig, listener).await;
    let answered = client.enroll(token, &key).await;
    (answered.is_ok(), began.elapsed())
}
