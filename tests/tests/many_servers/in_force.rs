//! The servers at which a revocation is in force, as the command that revokes says.

use rustix::process::Signal;
use tests::etcd::EtcdCluster;
use tests::members::{join, join_first};
use tests::rig::{Peer, Rig};

use crate::{SOCKET, until};

const EVERYWHERE: &str = "in force on 3 of 3 servers";

#[tokio::test]
async fn a_revocation_is_in_force_on_all_servers_within_a_second() {
    let trial = ThreeServers::start().await;

    for number in 0..20 {
        let name = format!("user-{number}");
        let said = trial.rig.tombolo(&words(&["user", "revoke", "--name", &name])).await;
        assert!(said.contains(EVERYWHERE), "{said}");
    }
    let said = trial.rig.tombolo(&words(&["agent", "revoke", "--serial", "4f:a2"])).await;
    assert!(said.contains(EVERYWHERE), "{said}");
}

/// A frozen server has the old records in its memory. It is named until it is too old to serve.
#[tokio::test]
async fn a_server_that_does_not_confirm_a_revocation_is_named() {
    let mut trial = ThreeServers::start().await;
    let (rig, process) = (&trial.rig, trial.third.process.as_mut().expect("it runs"));
    process.signal(Signal::STOP).expect("it runs");

    let frozen = rig.tombolo_writes(&words(&["user", "revoke", "--name", "ann"])).await;

    assert!(frozen.contains("in force on 2 of 3 servers"), "{frozen}");
    assert!(
        frozen.contains("server third has not confirmed") && frozen.contains("it refuses everybody"),
        "{frozen}"
    );
    // It is not registered any more, and would still serve if it went on now.
    let third = rig.path().join("server.log");
    let ended =
        || std::fs::read_to_string(&third).is_ok_and(|log| log.contains("session of another server ended"));
    until("its session ends", async || ended()).await;
    let gone = rig.tombolo_fails(&words(&["user", "revoke", "--name", "ben"])).await;
    assert_eq!(gone, "", "the answer is no error of the program");
    let process = trial.third.process.as_mut().expect("it runs");
    process.signal(Signal::CONT).expect("it runs");
    let again = words(&["user", "revoke", "--name", "ann"]);
    until("it confirms", async || rig.tombolo_writes(&again).await.contains(EVERYWHERE)).await;
}

/// Three servers with sessions between all.
struct ThreeServers {
    rig: Rig,
    _second: Peer,
    third: Peer,
    _etcd: EtcdCluster,
}

impl ThreeServers {
    async fn start() -> Self {
        let (etcd, mut rig) = (EtcdCluster::start().await, Rig::start().await);
        join_first(&mut rig, &etcd).await;
        let second = join(&rig, &etcd, "second").await;
        let third = join(&rig, &etcd, "third").await;
        let probe = words(&["user", "revoke", "--name", "nobody"]);
        until("all are joined", async || rig.tombolo_writes(&probe).await.contains(EVERYWHERE)).await;
        Self { rig, _second: second, third, _etcd: etcd }
    }
}

fn words<'w>(words: &[&'w str]) -> Vec<&'w str> {
    [words, &SOCKET].concat()
}
