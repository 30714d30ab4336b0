//! The differences that are changes, and the beginning and end of a watch.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use proto::admin::{Measurements, Tunnel};
use tokio::sync::Semaphore;
use tonic::Code;

use super::*;

#[test]
fn only_clusters_that_differ_are_sent_again() {
    let mut sent = BTreeMap::new();
    let before = vec![cluster("a", &["x"], 0), cluster("b", &[], 0)];
    assert_eq!(differences(&mut sent, before.clone(), true), events_for(&before));
    assert_eq!(differences(&mut sent, before, true), []);

    let now = vec![cluster("a", &["x"], 0), cluster("b", &["y"], 0), cluster("c", &[], 0)];
    assert_eq!(differences(&mut sent, now.clone(), false), events_for(&now[1..]));
    assert_eq!(differences(&mut sent, now, false), []);
}

#[test]
fn a_deleted_cluster_is_reported_once_and_again_when_it_is_back() {
    let mut sent = BTreeMap::new();
    let there = vec![cluster("a", &[], 0)];
    let _ = differences(&mut sent, there.clone(), false);

    assert_eq!(differences(&mut sent, Vec::new(), false), [Event::Deleted("a".to_owned())]);
    assert_eq!(differences(&mut sent, Vec::new(), false), []);
    assert_eq!(differences(&mut sent, there.clone(), false), events_for(&there));
}

#[test]
fn measurements_alone_are_a_change_only_where_they_are_asked_for() {
    let mut sent = BTreeMap::new();
    let _ = differences(&mut sent, vec![cluster("a", &["x"], 1)], true);
    let measured = vec![cluster("a", &["x"], 2)];

    assert_eq!(differences(&mut sent, measured.clone(), false), []);
    assert_eq!(differences(&mut sent, measured.clone(), true), events_for(&measured));
}

#[test]
fn a_change_brings_the_measurements_of_its_time() {
    let mut sent = BTreeMap::new();
    let _ = differences(&mut sent, vec![cluster("a", &["x"], 1)], false);
    let changed = vec![cluster("a", &["x", "y"], 2)];

    assert_eq!(differences(&mut sent, changed.clone(), false), events_for(&changed));
    assert_eq!(differences(&mut sent, changed, true), []);
}

#[tokio::test(start_paused = true)]
async fn a_watch_lists_everything_then_changes_and_ends_with_the_drain() {
    let seen = Arc::new(Mutex::new(vec![cluster("a", &[], 0)]));
    let changes = watch::Sender::new(());
    let scope = Scope::here();
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let list = Arc::clone(&seen);
    let list = move || list.lock().unwrap().clone();
    let watch = ClusterWatch {
        list,
        changes: changes.subscribe(),
        measurements: false,
        scope: scope.clone(),
        _permit: permit,
    };
    let mut events = watch.events();

    assert_eq!(next(&mut events).await, Ok(Event::Cluster(cluster("a", &[], 0).into())));
    assert_eq!(next(&mut events).await, Ok(Event::InitialEnd(InitialEnd {})));

    *seen.lock().unwrap() = vec![cluster("a", &["x"], 0)];
    changes.send_replace(());
    assert_eq!(next(&mut events).await, Ok(Event::Cluster(cluster("a", &["x"], 0).into())));

    // A change that is not announced is found by the next listing.
    *seen.lock().unwrap() = vec![cluster("a", &["y"], 0)];
    assert_eq!(next(&mut events).await, Ok(Event::Cluster(cluster("a", &["y"], 0).into())));

    scope.begin_drain();
    assert_eq!(next(&mut events).await, Err(Code::Unavailable));
    assert!(events.next().await.is_none());
}

fn events_for(clusters: &[Cluster]) -> Vec<Event> {
    clusters.iter().cloned().map(Box::new).map(Event::Cluster).collect()
}

async fn next(events: &mut Events) -> Result<Event, Code> {
    // The clock is paused, so that an hour passes at once if nothing else happens.
    let event = tokio::time::timeout(Duration::from_secs(3600), events.next()).await;
    let event = event.expect("something is sent").unwrap();
    event.map(|response| response.event.unwrap()).map_err(|status| status.code())
}

fn cluster(name: &str, agents: &[&str], streams_open: u32) -> Cluster {
    let tunnel = |agent: &&str| Tunnel {
        agent: (*agent).to_owned(),
        measurements: Some(Measurements { streams_open, ..Measurements::default() }),
        ..Tunnel::default()
    };
    let tunnels = agents.iter().map(tunnel).collect();
    Cluster { name: name.to_owned(), connected: !agents.is_empty(), tunnels, ..Cluster::default() }
}
