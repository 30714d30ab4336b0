//! The servers' entries and their numbers.

use std::collections::BTreeSet;
use std::time::SystemTime;

use futures::future::join_all;
use tests::etcd::EtcdCluster;
use tests::rig::Rig;
use tunnel_server::directory::{Directory, RegisteredServer, RegistrationOutcome};

use crate::directory::servers;
use crate::until;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_known_to_the_others_while_it_keeps_its_entry() {
    let (_etcd, [one, two, _]) = servers().await;
    let mut entry = one.registration("server-1", entry("first", "keys-1")).expect("it is shared");
    let known = |name: &'static str| two.servers().get(name).cloned();

    assert_eq!(entry.keep().await.unwrap(), RegistrationOutcome::Registered);
    until("it is known", async || known("server-1").is_some_and(|entry| !entry.draining)).await;
    entry.drain().await.unwrap();
    until("it drains", async || known("server-1").is_some_and(|entry| entry.draining)).await;
    entry.end().await.unwrap();
    until("it is gone", async || known("server-1").is_none()).await;

    // The lease ends by itself.
    assert_eq!(entry.keep().await.unwrap(), RegistrationOutcome::Registered);
    until("it is known again", async || known("server-1").is_some()).await;
    until("it has fallen silent", async || known("server-1").is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_process_with_the_same_keys_takes_an_entry_over() {
    let (_etcd, [one, two, _]) = servers().await;
    let mut first = one.registration("server-1", entry("first", "keys-1")).expect("it is shared");
    let mut namesake = two.registration("server-1", entry("namesake", "keys-2")).expect("it is shared");
    let mut successor = two.registration("server-1", entry("successor", "keys-1")).expect("it is shared");
    let epoch = || two.servers().get("server-1").map(|entry| entry.epoch.clone());

    assert_eq!(first.keep().await.unwrap(), RegistrationOutcome::Registered);
    let RegistrationOutcome::Taken(other) = namesake.keep().await.unwrap() else { panic!("it is taken") };
    assert_eq!(other.epoch, "first");
    assert_eq!(successor.keep().await.unwrap(), RegistrationOutcome::Registered);

    until("the successor is known", async || epoch().as_deref() == Some("successor")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_together_get_different_numbers_for_good() {
    let (etcd, directories) = servers().await;
    let numbers = async |directories: &[Directory]| {
        let asked = (0..9).map(|number| {
            let directory = directories[number % directories.len()].clone();
            async move { directory.server_number(&format!("server-{number}")).await.unwrap() }
        });
        join_all(asked).await
    };

    let first = numbers(&directories).await;

    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 9, "{first:?}");
    assert_eq!(numbers(&directories).await, first);
    let late = crate::directory::open(&etcd).await;
    assert_eq!(numbers(&[late]).await, first, "a server that starts later knows them");
}

#[tokio::test]
async fn a_second_server_on_the_same_state_directory_does_not_start() {
    let etcd = EtcdCluster::start().await;
    // The audit log has a lock of its own.
    let rig = Rig::start_with(&format!("{}audit: {{ sink: off }}\n", etcd.section(""))).await;
    let second = std::fs::read_to_string(rig.path().join("server.yaml")).expect("a configuration");
    let other_ports = second.replace(&rig.gateway().port().to_string(), "0");
    let other_ports = other_ports.replace(&rig.probes().port().to_string(), "0");
    rig.write("second.yaml", &other_ports);

    let error = rig.server_fails("second.yaml").await;

    assert!(error.contains("is in use by another process"), "{error}");
}

pub(crate) fn entry(epoch: &str, keys_mark: &str) -> RegisteredServer {
    RegisteredServer {
        level: 1,
        epoch: epoch.to_owned(),
        keys_mark: keys_mark.to_owned(),
        software: "tunnel-server/test".to_owned(),
        started: SystemTime::now().into(),
        addresses: Vec::new(),
        peering: None,
        draining: false,
        stale_limit_seconds: None,
    }
}
