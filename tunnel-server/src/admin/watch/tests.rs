//! What counts as a change, and how a watch begins and ends.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use proto::admin::{Measurements, Tunnel};
use tokio::sync::Semaphore;
use tonic::Code;

use super::*;

#[test]
fn only_clusters_that_differ_are_said_again() {
    let mut said = BTreeMap::new();
    let before = vec![cluster("a", &["x"], 0), cluster("b", &[], 0)];
    assert_eq!(differences(&mut said, before.clone(), true), told(&before));
    assert_eq!(differences(&mut said, before, true), []);

    let now = vec![cluster("a", &["x"], 0), cluster("b", &["y"], 0), cluster("c", &[], 0)];
    assert_eq!(differences(&mut said, now.clone(), false), told(&now[1..]));
    assert_eq!(differences(&mut said, now, false), []);
}

#[test]
fn a_cluster_that_is_gone_is_told_once_and_told_anew_when_it_is_back() {
    let mut said = BTreeMap::new();
    let there = vec![cluster("a", &[], 0)];
    let _ = differences(&mut said, there.clone(), false);

    assert_eq!(differences(&mut said, Vec::new(), false), [Event::Deleted("a".to_owned())]);
    assert_eq!(differences(&mut said, Vec::new(), false), []);
    assert_eq!(differences(&mut said, there.clone(), false), told(&there));
}

#[test]
fn measurements_alone_are_a_change_only_where_they_are_asked_for() {
    let mut said = BTreeMap::new();
    let _ = differences(&mut said, vec![cluster("a", &["x"], 1)], true);
    let measured = vec![cluster("a", &["x"], 2)];

    assert_eq!(differences(&mut said, measured.clone(), false), []);
    assert_eq!(differences(&mut said, measured.clone(), true), told(&measured));
}

#[test]
fn a_change_brings_the_measurements_of_its_time() {
    let mut said = BTreeMap::new();
    let _ = differences(&mut said, vec![cluster("a", &["x"], 1)], false);
    let changed = vec![cluster("a", &["x", "y"], 2)];

    assert_eq!(differences(&mut said, changed.clone(), false), told(&changed));
    assert_eq!(differences(&mut said, changed, true), []);
}

#[tokio::test(start_paused = true)]
async fn a_watch_says_everything_then_changes_and_ends_with_the_drain() {
    let seen = Arc::new(Mutex::new(vec![cluster("a", &[], 0)]));
    let changes = watch::Sender::new(());
    let scope = Scope::here();
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let look = Arc::clone(&seen);
    let look = move || look.lock().unwrap().clone();
    let watch = Watch {
        look,
        changes: changes.subscribe(),
        measurements: false,
        scope: scope.clone(),
        _place: place,
    };
    let mut events = watch.events();

    assert_eq!(next(&mut events).await, Ok(Event::Cluster(cluster("a", &[], 0))));
    assert_eq!(next(&mut events).await, Ok(Event::InitialEnd(InitialEnd {})));

    *seen.lock().unwrap() = vec![cluster("a", &["x"], 0)];
    changes.send_replace(());
    assert_eq!(next(&mut events).await, Ok(Event::Cluster(cluster("a", &["x"], 0))));

    // What nobody announces is found by the next look.
    *seen.lock().unwrap() = vec![cluster("a", &["y"], 0)];
    assert_eq!(next(&mut events).await, Ok(Event::Cluster(cluster("a", &["y"], 0))));

    scope.begin_drain();
    assert_eq!(next(&mut events).await, Err(Code::Unavailable));
    assert!(events.next().await.is_none());
}

fn told(clusters: &[Cluster]) -> Vec<Event> {
    clusters.iter().cloned().map(Event::Cluster).collect()
}

async fn next(events: &mut Events) -> Result<Event, Code> {
    // The clock is paused: an hour passes at once where nothing else is to happen.
    let event = tokio::time::timeout(Duration::from_secs(3600), events.next()).await;
    let event = event.expect("something is said").unwrap();
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
