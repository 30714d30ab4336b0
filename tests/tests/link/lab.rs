//! The lab itself: separate sites, links that obey commands, and no leftovers.

use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tests::caller::{Http2Caller, SOON};
use tests::fake_api::{Behaviour, FakeApiOptions};
use tests::lab::{SERVER, Site, Uplink, trial};
use tokio::time::sleep;

/// The limit for the kernel to clean up after a process.
const CLEARED_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The limit for a datagram that passes, and the time that one is waited for that does not.
const DATAGRAM_MAX: Duration = Duration::from_secs(30);
const DATAGRAM_NEVER: Duration = Duration::from_millis(300);
/// The port at which the cloud receives datagrams.
const PORT: u16 = 7000;

#[test]
fn two_sites_with_the_same_addresses_are_two_clusters() {
    trial("two_sites_with_the_same_addresses_are_two_clusters", async |lab| {
        let rig = lab.rig("").await;
        let (a, b) = tokio::join!(
            lab.site("edge-a", Uplink::Cable),
            lab.site("edge-b", Uplink::simulated("delay=1ms"))
        );
        let mut agents = Vec::new();
        for site in [&a, &b] {
            let api = site.fake_api(FakeApiOptions::default()).await;
            api.otherwise(Behaviour::json(format!("\"{}\"", site.name())));
            agents.push((site.agent(&rig, &api, "").await, api));
        }

        for site in [&a, &b] {
            let mut caller = Http2Caller::dial(&rig).await;
            let answer = caller.ask("GET", &format!("/clusters/{}/x", site.name()), &[]).await.unwrap();
            assert_eq!(answer.body(), &format!("\"{}\"", site.name()));
            let pods = site.pod().ip("-brief addr show eth0").await.unwrap();
            assert!(pods.contains("10.42.0.2/24"), "{pods}");
        }
    });
}

/// Without a NAT it sees the node's own port.
#[test]
fn the_cloud_sees_the_nodes_address_and_a_port_that_the_nat_changes() {
    trial("the_cloud_sees_the_nodes_address_and_a_port_that_the_nat_changes", async |lab| {
        let site = lab.site("edge-a", Uplink::simulated("").with(&["--nat"])).await;
        let server = UdpSocket::bind((SERVER, PORT)).unwrap();
        server.set_read_timeout(Some(DATAGRAM_MAX)).unwrap();
        let sender = Sender::in_pod(&site).await;
        let seen = || sender.received_by(&server).expect("a datagram");

        let first = seen();
        assert_eq!((first.ip(), seen()), (site.address().into(), first));
        site.link().rebind(None).await;
        let second = seen();
        assert_eq!(second.ip(), first.ip());
        assert_ne!(second.port(), first.port());
        site.link().rebind(Some("100.127.0.1".parse().unwrap())).await;
        assert_eq!(seen().ip().to_string(), "100.127.0.1");
    });
}

#[test]
fn a_link_that_is_down_passes_nothing_and_says_when_it_was_opened() {
    trial("a_link_that_is_down_passes_nothing", async |lab| {
        let site = lab.site("edge-a", Uplink::simulated("")).await;
        let server = UdpSocket::bind((SERVER, PORT)).unwrap();
        let sender = Sender::in_pod(&site).await;
        server.set_read_timeout(Some(DATAGRAM_MAX)).unwrap();
        sender.received_by(&server).expect("a link that is up");

        let before = Instant::now();
        let down = site.link().down().await;
        server.set_read_timeout(Some(DATAGRAM_NEVER)).unwrap();
        assert_eq!(sender.received_by(&server), None);
        assert_eq!(site.link().stats().await["a_to_b"]["dropped_dark"], 1);
        let up = site.link().up().await;
        server.set_read_timeout(Some(DATAGRAM_MAX)).unwrap();
        assert!(sender.received_by(&server).is_some());
        assert!(before <= down && down < up && up <= Instant::now());
    });
}

#[test]
fn after_a_panic_no_process_and_no_namespace_is_left() {
    let left: Mutex<Vec<PathBuf>> = Mutex::default();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        trial("after_a_panic_no_process_and_no_namespace_is_left", async |lab| {
            let mut rig = lab.rig("").await;
            let site = lab.site("edge-a", Uplink::simulated("")).await;
            let api = site.fake_api(FakeApiOptions::default()).await;
            let agent = site.agent(&rig, &api, "").await;
            let ids = [site.link().id(), rig.server().id(), agent.process.id()];
            let processes = ids.map(|id| PathBuf::from(format!("/proc/{}", id.unwrap())));
            left.lock().unwrap().extend(processes);
            left.lock()
                .unwrap()
                .extend([site.pod(), site.node(), lab.cloud()].map(|it| it.path().to_owned()));
            panic!("on purpose");
        });
    }));

    let left = left.into_inner().unwrap();
    if panicked.is_ok() {
        return; // It was skipped, and that was counted.
    }
    assert_eq!(left.len(), 6, "the trial panicked before its time");
    let deadline = Instant::now() + CLEARED_MAX;
    while left.iter().any(|path| path.exists()) {
        assert!(
            Instant::now() < deadline,
            "{:?}",
            left.iter().filter(|path| path.exists()).collect::<Vec<_>>()
        );
        std::thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn an_unknown_link_option_is_refused_with_the_known_ones() {
    trial("an_unknown_link_option_is_refused_with_the_known_ones", async |lab| {
        let site = lab.site("edge-a", Uplink::simulated("")).await;
        site.link().set("a-to-b loss=5% delay=3ms").await;
        let stats = site.link().stats().await;
        assert_eq!(stats["a_to_b"]["impairment"], "delay=3ms loss=5%");
        assert_eq!(stats["b_to_a"]["impairment"], "nothing");
        let wrong = tokio::time::timeout(SOON, site.link().try_send("set loss=lots")).await.unwrap();
        assert!(wrong.unwrap_err().to_string().contains("no share"));
        sleep(Duration::ZERO).await;
    });
}

/// A socket in a site's pod that sends to the cloud.
struct Sender(UdpSocket);

impl Sender {
    async fn in_pod(site: &Site) -> Self {
        let socket = site.run(async { UdpSocket::bind("0.0.0.0:0").unwrap() }).await;
        socket.connect((SERVER, PORT)).unwrap();
        Self(socket)
    }

    /// Sends one datagram, and returns the source address that the server saw, if it arrived.
    fn received_by(&self, server: &UdpSocket) -> Option<SocketAddr> {
        self.0.send(b"heard?").unwrap();
        server.recv_from(&mut [0; 16]).ok().map(|(_, from)| from)
    }
}
