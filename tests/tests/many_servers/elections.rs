//! Elections among servers, and the ranges of addresses that each server has alone.

use std::collections::BTreeSet;
use std::time::{Instant, SystemTime};

use rustix::process::Signal;
use tests::rig::Rig;
use tunnel_server::directory::{
    AddressRange, Directory, Election, RangeError, RegisteredServer, ServerRange, ServerRanges,
    ServerRegistration,
};

use crate::directory::{cluster, servers};
use crate::hop::HopTrial;
use crate::servers::entry;
use crate::until;

type Registration = ServerRegistration<RegisteredServer>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_candidate_leads_until_it_resigns_and_then_another_one() {
    let (_etcd, [one, two, _]) = servers().await;
    let (mut first, mut first_entry) = candidate(&one, "first");
    let (mut second, mut second_entry) = candidate(&two, "second");
    assert!(!first.campaign().await.unwrap(), "it is not registered");
    assert_eq!(first.registered_until(), None);
    let _ = (first_entry.keep().await.unwrap(), second_entry.keep().await.unwrap());

    assert!(first.campaign().await.unwrap() && first.leads_until().is_some());
    assert!(!second.campaign().await.unwrap());
    assert!(first.campaign().await.unwrap(), "it goes on");
    until("the second knows of it", async || two.leader("janitor").as_deref() == Some("first")).await;

    first.resign().await.unwrap();
    assert_eq!(first.leads_until(), None);
    until("the second leads", async || second.campaign().await.unwrap()).await;
    assert!(!first.campaign().await.unwrap());
}

/// Its own clock says so, whatever etcd would say if it were asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_leader_stops_before_another_one_leads() {
    let (_etcd, [one, two, _]) = servers().await;
    let (mut silent, mut silent_entry) = candidate(&one, "silent");
    let (mut other, mut other_entry) = candidate(&two, "other");
    let _ = silent_entry.keep().await.unwrap();
    assert!(silent.campaign().await.unwrap());

    let mut ended = None;
    until("another one leads", async || {
        if ended.is_none() && silent.leads_until().is_none() {
            ended = Some(Instant::now());
        }
        let _ = other_entry.keep().await.unwrap();
        other.campaign().await.unwrap()
    })
    .await;

    assert!(ended.is_some(), "both led at once");
    // Its next registration is another one, with another lease.
    let _ = silent_entry.keep().await.unwrap();
    assert!(!silent.campaign().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_is_another_candidate_than_before() {
    let (_etcd, [one, two, _]) = servers().await;
    let (mut before, mut before_entry) = candidate(&one, "first");
    let _ = before_entry.keep().await.unwrap();
    assert!(before.campaign().await.unwrap());

    let (mut after, mut after_entry) = candidate(&two, "first");
    let _ = after_entry.keep().await.unwrap();

    assert!(!after.campaign().await.unwrap(), "the key is bound to the earlier lease");
    until("the earlier lease ends", async || {
        let _ = after_entry.keep().await.unwrap();
        after.campaign().await.unwrap()
    })
    .await;
    assert_eq!(before.leads_until(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_of_two_servers_that_run_have_no_address_in_common() {
    let (_etcd, [one, two, three]) = servers().await;
    let (mut west, mut east) = (registration(&one, "west"), registration(&two, "east"));
    let _ = (west.keep().await.unwrap(), east.keep().await.unwrap());
    one.claim_ranges("west", ranges("100.100.0.0/24")).await.unwrap();
    one.claim_ranges("west", ranges("100.100.0.0/24")).await.unwrap();
    two.claim_ranges("east", ranges("100.100.1.0/24")).await.unwrap();

    let refused = two.claim_ranges("east", ranges("100.100.0.128/25")).await.unwrap_err();

    assert!(matches!(refused, RangeError::Overlap(_)), "{refused:?}");
    let message = refused.to_string();
    for named in ["east", "west", "vip.entryPoints[0].range.network", "100.100.0.128/25", "100.100.0.0/24"] {
        assert!(message.contains(named), "{named}: {message}");
    }
    let kept = three.server_ranges().await.unwrap();
    assert_eq!(kept["east"], ranges("100.100.1.0/24"), "nothing is changed");

    // A server that runs no more is in nobody's way.
    west.end().await.unwrap();
    two.claim_ranges("east", ranges("100.100.0.128/25")).await.unwrap();
    let kept: Vec<String> = three.server_ranges().await.unwrap().into_keys().collect();
    assert_eq!(kept, ["east"]);
    two.claim_ranges("east", ServerRanges::default()).await.unwrap();
    assert!(three.server_ranges().await.unwrap().is_empty());
}

/// Of servers that start together at most one has the range.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_together_do_not_both_get_a_range() {
    let (_etcd, [one, two, _]) = servers().await;
    let (mut west, mut east) = (registration(&one, "west"), registration(&two, "east"));
    let _ = (west.keep().await.unwrap(), east.keep().await.unwrap());

    let (first, second) = tokio::join!(
        one.claim_ranges("west", ranges("100.100.0.0/24")),
        two.claim_ranges("east", ranges("100.100.0.0/16"))
    );

    assert_eq!([first.is_ok(), second.is_ok()].into_iter().filter(|is_ok| *is_ok).count(), 1);
}

/// The other server's configuration may list the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_frees_no_address_of_another_ones_range() {
    let (_etcd, [one, two, _]) = servers().await;
    let (own, others) = ("100.100.0.0/24", "100.100.1.0/24");
    let assign = async |directory: &Directory, network: &str, name: &str| {
        let clusters = BTreeSet::from([cluster(name)]);
        let range = AddressRange { network: network.parse().unwrap(), clusters };
        let given = directory.assign_addresses(vec![range], SystemTime::now()).await.unwrap();
        given[&cluster(name)]
    };
    one.claim_ranges("west", ranges(own)).await.unwrap();
    let before = assign(&one, own, "edge-a").await;

    // Nobody has made the cluster, and the other server does not list it.
    assign(&two, others, "edge-b").await;

    let again = assign(&one, own, "edge-a").await;
    assert_eq!((before.is_new, again.is_new, again.address), (true, false, before.address));
}

#[tokio::test]
async fn one_of_two_servers_removes_expired_records() {
    const LEADS: &str = "tombolo_server_leader{election=\"janitor\"}";
    let mut trial = HopTrial::start().await;
    let (rig, probes) = (&trial.rig, [trial.rig.probes(), trial.other.probes]);
    let leading = async |rig: &Rig| {
        let (one, other) = (rig.metric(probes[0], LEADS).await, rig.metric(probes[1], LEADS).await);
        (one > 0.5, other > 0.5)
    };
    until("one leads", async || matches!(leading(rig).await, (true, false) | (false, true))).await;
    if leading(rig).await.1 {
        let process = trial.other.process.as_mut().expect("it runs");
        assert_eq!(Rig::ends_with(process, Signal::TERM).await, Some(0));
        trial.rig.measured(LEADS, |leads| leads > 0.5).await;
    } else {
        trial.rig.kill_server();
        let (rig, other) = (&trial.rig, trial.other.probes);
        until("the other one leads", async || rig.metric(other, LEADS).await > 0.5).await;
    }
}

fn candidate(directory: &Directory, id: &str) -> (Election, Registration) {
    (directory.election("janitor", id), registration(directory, id))
}

fn registration(directory: &Directory, id: &str) -> Registration {
    directory.registration(id, entry(id, &format!("keys-{id}"))).expect("it is shared")
}

fn ranges(network: &str) -> ServerRanges {
    let range = ServerRange {
        key: "vip.entryPoints[0].range.network".to_owned(),
        network: network.to_owned(),
        port: 443,
        clusters: vec!["edge-a".to_owned()],
    };
    ServerRanges { ranges: vec![range], published_at: None }
}
