//! Two servers that share their records and publish in one host cluster: each keeps slices of its own, and the elected one keeps
//! the Services.

use std::time::{Duration, SystemTime};

use daemon::Scope;
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::caller::SOON;
use tests::etcd::EtcdCluster;
use tests::lab::{Lab, trial};
use tests::members::{join_first, join_with, prepare};
use tests::rig::{Peer, Rig};
use tokio::time::{Instant, sleep, timeout};
use tunnel_server::directory::{ClusterSpecUpdate, Directory};

use super::host_cluster::Host;

/// The beginning of the servers' keys in etcd, by default.
const PREFIX: &str = "/tombolo/tombolo/";

/// The mark of the leader in its metrics.
const LEADS: &str = "tombolo_server_leader{election=\"publisher\"}";

/// The second server's account in the host cluster, in its audit log.
const SECOND: &str = "system:serviceaccount:tombolo-system:second";

/// A server is stopped for this long: three times its lease.
const STOPPED_FOR: Duration = Duration::from_secs(30);

/// After it goes on, the stopped server does whatever it would do within this time.
const AWAKE_FOR: Duration = Duration::from_secs(5);

const SERVICES: [&str; 3] = ["edge-a", "edge-b", "edge-d"];
const SLICES_OF_BOTH: [&str; 3] = ["edge-a.first", "edge-a.second", "edge-b.second"];

/// Its Service stays when the first server begins to share its records, and when that server is killed.
#[test]
fn a_cluster_is_one_service_with_a_slice_of_each_server() {
    trial("a_cluster_is_one_service_with_a_slice_of_each_server", async |lab| {
        let mut servers = Servers::start(lab).await;
        for (slice, address) in [
            ("edge-a.first", "100.100.0.1"),
            ("edge-a.second", "100.100.1.1"),
            ("edge-b.second", "100.100.1.2"),
        ] {
            let slice = servers.host.get(&["endpointslice", slice]).await;
            assert_eq!(slice["endpoints"][0]["addresses"], json!([address]), "{slice}");
        }
        let third = servers.overlapping_third(lab).await;
        for named in
            ["first", "third", "vip.entryPoints[0].range.network", "100.100.0.128/25", "100.100.0.0/24"]
        {
            assert!(third.contains(named), "{named}: {third}");
        }

        servers.rig.kill_server();

        servers.host.has_slices(&SERVICES, &["edge-a.second", "edge-b.second"]).await;
        assert_eq!(servers.uid().await, servers.uid);
        servers.second_leads().await;
        servers.rig.start_server().await;
        servers.host.has_slices(&SERVICES, &SLICES_OF_BOTH).await;
        assert!(servers.rig.metric(servers.rig.probes(), LEADS).await < 0.5, "the second goes on");

        // A server that stops leaves at once, and not when its lease ends.
        let process = servers.second.process.as_mut().expect("it runs");
        assert_eq!(Rig::ends_with(process, Signal::TERM).await, Some(0));
        let slices = servers.host.get(&["endpointslices"]).await;
        let names: Vec<&Value> =
            slices["items"].as_array().unwrap().iter().map(|one| &one["metadata"]["name"]).collect();
        assert_eq!(names, [&json!("edge-a.first")]);
        servers.rig.measured(LEADS, |leads| leads > 0.5).await;
        servers.host.foreign_is_untouched().await;
    });
}

/// While it is stopped, another server is elected. Only what is its own is written again, once it is registered again.
#[test]
fn a_stopped_leader_writes_nothing_of_all_servers_when_it_goes_on() {
    trial("a_stopped_leader_writes_nothing_of_all_servers_when_it_goes_on", async |lab| {
        let mut servers = Servers::start(lab).await;
        servers.rig.kill_server();
        servers.second_leads().await;
        servers.rig.start_server().await;
        servers.host.has_slices(&SERVICES, &SLICES_OF_BOTH).await;
        servers.signal(Signal::STOP);
        let woken = Instant::now() + STOPPED_FOR;
        servers.host.has_slices(&SERVICES, &["edge-a.first"]).await;
        // A change that the stopped leader does not know, and would undo.
        tests::enroll::at(&servers.rig, &["cluster", "delete", "edge-b", "--yes"]).await;
        servers.host.has_slices(&["edge-a", "edge-d"], &["edge-a.first"]).await;
        tokio::time::sleep_until(woken).await;
        let before = servers.writes_of_second();

        servers.signal(Signal::CONT);

        sleep(AWAKE_FOR).await;
        servers.host.has_slices(&["edge-a", "edge-d"], &["edge-a.first", "edge-a.second"]).await;
        let since = servers.writes_of_second().split_off(before.len());
        let of_all: Vec<&String> = since.iter().filter(|write| !is_of_second(write)).collect();
        assert_eq!(of_all, Vec::<&String>::new(), "{since:?}");
        assert!(servers.rig.metric(servers.rig.probes(), LEADS).await > 0.5);
        assert_eq!(servers.uid().await, servers.uid);
    });
}

/// Two servers and their host cluster.
struct Servers {
    host: Host,
    etcd: EtcdCluster,
    rig: Rig,
    second: Peer,
    /// The UID of the Service `edge-a`.
    uid: Value,
}

impl Servers {
    /// The first server publishes alone at first, and has `edge-a` only. The second has `edge-b`, too.
    async fn start(lab: &Lab) -> Self {
        let host = Host::start(lab).await;
        let etcd = EtcdCluster::start_in(lab.cloud()).await;
        let mut rig = lab.rig(&format!("serverId: first\n{}", host.vip(&["edge-a"]))).await;
        tests::enroll::at(&rig, &["cluster", "create", "edge-a"]).await;
        host.has_slices(&["edge-a", "edge-d"], &["edge-a"]).await;
        let uid = host.service("edge-a").await["metadata"]["uid"].clone();

        create(&etcd, &["edge-a", "edge-b"]).await;
        join_first(&mut rig, &etcd).await;
        host.has_slices(&["edge-a", "edge-d"], &["edge-a.first"]).await;
        assert_eq!(host.service("edge-a").await["metadata"]["uid"], uid);

        let token = host.account(lab, "second").await;
        let vip = host.vip_at("tombolo1", "100.100.1.0/24", &token, &["edge-a", "edge-b"]);
        let second = join_with(&rig, &etcd, "second", &vip).await;
        host.has_slices(&SERVICES, &SLICES_OF_BOTH).await;
        Self { host, etcd, rig, second, uid }
    }

    async fn uid(&self) -> Value {
        self.host.service("edge-a").await["metadata"]["uid"].clone()
    }

    async fn second_leads(&self) {
        let leads = async {
            while self.rig.metric(self.second.probes, LEADS).await < 0.5 {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(SOON, leads).await.expect("another server is elected");
    }

    /// The error of a third server, whose range is a part of the first one's.
    async fn overlapping_third(&self, lab: &Lab) -> String {
        let token = lab.path().join("second.token");
        let vip = self.host.vip_at("tombolo2", "100.100.0.128/25", &token, &["edge-a"]);
        let _third = prepare(&self.rig, &self.etcd, "third", &vip).await;
        self.rig.server_fails("third.yaml").await
    }

    fn signal(&mut self, signal: Signal) {
        self.second.process.as_mut().expect("it runs").signal(signal).expect("it runs");
    }

    /// The changes in the host cluster by the second server, in their order.
    fn writes_of_second(&self) -> Vec<String> {
        let events = self.host.cluster.audit().expect("an audit log").into_iter();
        let is_write = |verb: &str| matches!(verb, "create" | "patch" | "update" | "delete");
        events
            .filter(|event| event.user.username == SECOND && is_write(&event.verb))
            .map(|event| format!("{} {}", event.verb, event.request_uri))
            .collect()
    }
}

/// A change of a slice, and not of a Service. A creation does not name the slice.
fn is_of_second(write: &str) -> bool {
    write.contains("/endpointslices/edge-a.second")
        || write.contains("create ") && write.contains("/endpointslices?")
}

/// Makes clusters in etcd before the servers come there.
async fn create(etcd: &EtcdCluster, clusters: &[&str]) {
    let scope = Scope::here();
    let opened =
        Directory::open_shared(etcd.client(&scope), PREFIX.to_owned(), Duration::from_secs(300), scope).await;
    let directory = opened.expect("etcd answers");
    for cluster in clusters {
        let cluster = cluster.parse().expect("a name");
        let made = directory.create_cluster(cluster, ClusterSpecUpdate::default(), SystemTime::now());
        made.await.expect("it is made");
    }
}
