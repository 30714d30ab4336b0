//! A server with a wrong clock beside others.

use tests::clock::Shift;
use tests::etcd::EtcdCluster;
use tests::members::{join, join_first};
use tests::rig::{Peer, Rig};

use crate::until;

const WITHHELD: &str = "tombolo_server_certificates_withheld";
const DIFFERENCE: &str = "tombolo_server_clock_difference_seconds";

#[tokio::test]
async fn a_lone_wrong_clock_issues_no_certificates_and_both_sides_say_so() {
    let (etcd, mut rig) = (EtcdCluster::start().await, Rig::start().await);
    join_first(&mut rig, &etcd).await;
    let second = join(&rig, &etcd, "second").await;
    rig.take_clocks();
    rig.set_clocks(Shift::minutes(1));
    let wrong = join(&rig, &etcd, "wrong").await;

    rig.logged("server.log", 0, "clock of another server is far from this one's").await;
    rig.logged("wrong.log", 0, "clock of another server is far from this one's").await;
    until("it sees both others", async || rig.metric(wrong.probes, WITHHELD).await == 1.0).await;
    for right in [rig.probes(), second.probes] {
        let is_seen = async || rig.metric(right, DIFFERENCE).await > 50.0;
        until("the difference is seen", is_seen).await;
        until("it goes on", async || rig.metric(right, WITHHELD).await == 0.0).await;
    }

    rig.set_clocks(Shift::minutes(0));
    until("it is right again", async || rig.metric(wrong.probes, WITHHELD).await == 0.0).await;
    rig.logged("wrong.log", 0, "agrees with this one's again").await;
}

#[tokio::test]
async fn of_two_servers_whose_clocks_differ_neither_issues_certificates() {
    let (etcd, mut rig) = (EtcdCluster::start().await, Rig::start().await);
    join_first(&mut rig, &etcd).await;
    rig.take_clocks();
    rig.set_clocks(Shift::minutes(-1));
    let wrong: Peer = join(&rig, &etcd, "wrong").await;

    for probes in [rig.probes(), wrong.probes] {
        until("it withholds", async || rig.metric(probes, WITHHELD).await == 1.0).await;
    }
}
