//! Sites without UDP: tunnels over TCP, through a proxy too, and back to QUIC when UDP returns.

mod dead_tunnel;
mod narrow_path;
mod silent_udp;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::caller::{Http2Caller, SOON, read_to_end};
use tests::fake_api::{Behaviour, FakeApi, FakeApiOptions, WatchFeed};
use tests::lab::{Lab, SERVER, Site, Uplink, trial};
use tests::network::NetworkNamespace;
use tests::process::{Invocation, run};
use tests::rig::{AGENT_TOKEN, Agent, ApiServer, ProcessEnvironment, Rig};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// The limit for one run of `nft`.
const NFT_MAX: Duration = Duration::from_secs(10);
/// The limit for a line to appear in a log. The slowest is a return to QUIC after a minute.
const LOGGED_MAX: Duration = Duration::from_secs(150);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// QUIC that failed must last at least this long before the tunnel over TCP is drained for it. The agent waits twice as
/// long since QUIC's last change of health.
const LASTS_MIN: Duration = Duration::from_secs(60);
/// The time that a watch goes on over TCP after QUIC is back, and the pause between two of its events.
const LIVES_ON: Duration = Duration::from_secs(600);
const EVENT_EVERY: Duration = Duration::from_secs(2);

/// The rule of most sites that block UDP.
const NO_UDP: &str = "add rule inet fault forward meta l4proto udp drop";

/// Faults of a node's UDP, as rules of its chain `forward`. Packets of a handshake have a long header, those
/// after it a short one (RFC 9000, section 17).
const FAULTS: [(&str, &str); 5] = [
    ("dropped both ways", NO_UDP),
    ("dropped towards the agent", "add rule inet fault forward udp sport $PORT drop"),
    ("rejected by ICMP", "add rule inet fault forward udp dport $PORT reject"),
    ("dropped beyond 1,000 bytes", "add rule inet fault forward udp length > 1008 drop"),
    ("dropped after the handshake", "add rule inet fault forward meta l4proto udp @th,64,1 0 drop"),
];

#[test]
fn an_agent_whose_udp_does_not_pass_serves_over_tcp_from_its_start() {
    trial("an_agent_whose_udp_does_not_pass_serves_over_tcp_from_its_start", async |lab| {
        let setup = CarrierSetup::build(lab).await;
        for (fault, rule) in FAULTS {
            setup.fault(rule).await;
            let began = Instant::now();
            let logged_bytes = setup.rig.agent_log("edge-a").len();
            let agent = setup.agent("").await;
            setup.logged_carrier(logged_bytes, "tunnel opened", "http2").await;
            println!("{fault}: a tunnel over TCP {:?} after the start", began.elapsed());
            setup.serves().await;
            println!("{fault}: answered {:?} after the start", began.elapsed());
            let ready = setup.site.probe(agent.probes, "/readyz").await;
            assert!(ready.contains(" 200 ") && ready.contains("degraded: on HTTP/2"), "{fault}: {ready}");
            setup.no_fault().await;
            drop(agent);
        }
    });
}

/// UDP ceases and comes back, small packets or all. Old streams stay where they are.
#[test]
fn an_agent_without_udp_serves_over_tcp_and_returns_to_quic() {
    trial("an_agent_without_udp_serves_over_tcp_and_returns_to_quic", async |lab| {
        let setup = CarrierSetup::build(lab).await;
        let feed = WatchFeed::new();
        setup.api.on("/watch", Behaviour::Watch(feed.clone()));

        for (fault, rule) in FAULTS {
            let started = setup.rig.agent_log("edge-a").len();
            let agent = setup.agent("").await;
            setup.logged_carrier(started, "tunnel opened", "quic").await;
            setup.serves().await;

            let logged_bytes = setup.rig.agent_log("edge-a").len();
            setup.fault(rule).await;
            let began = Instant::now();
            setup.logged_carrier(logged_bytes, "health=Suspect", "quic").await;
            let suspected = Instant::now();
            setup.logged_carrier(logged_bytes, "tunnel opened", "http2").await;
            println!(
                "{fault}: suspect after {:?}, over TCP {:?} later",
                suspected - began,
                suspected.elapsed()
            );
            setup.serves().await;
            println!("{fault}: answered {:?} after the suspicion", suspected.elapsed());
            let mut watcher = Http2Caller::dial(&setup.rig).await;
            let (answer, _) = watcher.send("GET", "/clusters/edge-a/watch", &[], true);
            let mut events = timeout(SOON, answer).await.expect("a head in time").unwrap().into_body();

            let logged_bytes = setup.rig.agent_log("edge-a").len();
            setup.no_fault().await;
            let returned = Instant::now();
            setup.returned(logged_bytes).await;
            println!("{fault}: QUIC again {:?} after UDP's return", returned.elapsed());
            setup.serves().await;
            let is_last = rule == FAULTS[FAULTS.len() - 1].1;
            if is_last {
                // QUIC has lasted. The one over TCP is kept for its watch, and for nothing else.
                setup.until("it drains", async || setup.drains("http2").await).await;
                let lasted = returned.elapsed();
                assert!(lasted > LASTS_MIN, "{fault}: drained {lasted:?} after UDP's return");
                setup.serves().await;
            }
            assert_eq!(feed.push("an event"), 1);
            let data =
                timeout(SOON, events.data()).await.expect("an event in time").expect("no end").unwrap();
            assert_eq!(data, "an event");
            feed.end();
            let (rest, end) = read_to_end(events).await;
            assert!(rest.is_empty() && end.is_ok(), "a clean end: {end:?}");
            if is_last {
                setup.logged_carrier(logged_bytes, "tunnel closed", "http2").await;
            }
            drop(agent);
        }
    });
}

#[test]
#[ignore = "soak: ten minutes"]
fn a_watch_over_tcp_lives_on_for_ten_minutes_after_quic_is_back() {
    trial("a_watch_over_tcp_lives_on_for_ten_minutes_after_quic_is_back", async |lab| {
        let (setup, feed) = (CarrierSetup::build(lab).await, WatchFeed::new());
        setup.api.on("/watch", Behaviour::Watch(feed.clone()));
        setup.fault(NO_UDP).await;
        let _agent = setup.agent("").await;
        setup.logged_carrier(0, "tunnel opened", "http2").await;
        let mut watcher = Http2Caller::dial(&setup.rig).await;
        let (answer, _) = watcher.send("GET", "/clusters/edge-a/watch", &[], true);
        let mut events = timeout(SOON, answer).await.expect("a head in time").unwrap().into_body();

        setup.no_fault().await;
        setup.returned(0).await;
        setup.until("it drains", async || setup.drains("http2").await).await;

        let (returned, mut number) = (Instant::now(), 0);
        while returned.elapsed() < LIVES_ON {
            number += 1;
            let event = format!("event {number}");
            assert_eq!(feed.push(event.clone()), 1, "it is the only watch");
            let data =
                timeout(SOON, events.data()).await.expect("an event in time").expect("no end").unwrap();
            events.flow_control().release_capacity(data.len()).expect("it is open");
            assert_eq!(data, event);
            setup.serves().await;
            sleep(EVENT_EVERY).await;
        }
        assert!(setup.drains("http2").await, "it is still the tunnel over TCP");
        feed.end();
        assert!(read_to_end(events).await.1.is_ok(), "a clean end");
        setup.logged_carrier(0, "tunnel closed", "http2").await;
    });
}

#[test]
fn an_agent_behind_a_proxy_serves_and_does_not_leak_its_password() {
    trial("an_agent_behind_a_proxy_serves_and_does_not_leak_its_password", async |lab| {
        let setup = CarrierSetup::build(lab).await;
        let proxy = CloudProxy::start().await;
        // Nothing passes but what goes to the proxy.
        setup.fault("add rule inet fault forward ip daddr 192.0.2.1 tcp dport != $PROXY drop").await;
        setup.fault(NO_UDP).await;
        let url = format!("http://agent:s3cr3t-w0rd@{SERVER}:{}", proxy.address.port());
        let around = ProcessEnvironment {
            network_namespace: Some(setup.site.pod().path().to_owned()),
            variables: vec![("HTTPS_PROXY".to_owned(), url)],
            ..ProcessEnvironment::default()
        };
        let _agent = setup.rig.agent_amid(&around, "edge-a", &setup.api_server, GUARD).await;

        setup.logged_carrier(0, "tunnel opened", "http2").await;
        setup.serves().await;
        let heads = proxy.heads();
        assert!(heads.iter().all(|head| head.starts_with("CONNECT 192.0.2.1:")), "{heads:?}");
        // agent:s3cr3t-w0rd
        let credentials = "Proxy-Authorization: Basic YWdlbnQ6czNjcjN0LXcwcmQ=";
        assert!(heads.iter().any(|head| head.contains(credentials)), "{heads:?}");
        let log = setup.rig.agent_log("edge-a");
        assert!(!log.contains("s3cr3t-w0rd") && !log.contains("YWdlbnQ6"), "{log}");
    });
}

/// The identities that the agent may assert.
const GUARD: &str =
    "impersonation: { users: [\"*\"], groups: [\"*\"] }\nadvertise: [\"192.168.1.10:6443\"]\n";

/// A server in the cloud, a site, and its API server.
struct CarrierSetup {
    rig: Rig,
    site: Site,
    api: FakeApi,
    api_server: ApiServer,
    /// An agent that outlives the function that has started it.
    agent: Option<Agent>,
}

/// A proxy in the cloud that opens any connection for clients with the password.
struct CloudProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl CarrierSetup {
    async fn build(lab: &Lab) -> Self {
        let rig = lab.rig("").await;
        let site = lab.site("edge-a", Uplink::Cable).await;
        let api = site.fake_api(FakeApiOptions::default()).await;
        api.on("/api", Behaviour::json("{}"));
        let kubeconfig = rig.path().join("edge-a.kubeconfig");
        api.write_kubeconfig(&kubeconfig, AGENT_TOKEN).expect("a file can be written");
        let api_server = ApiServer::Kubeconfig(kubeconfig);
        nft(site.node(), "add table inet fault").await;
        nft(site.node(), "add chain inet fault forward { type filter hook forward priority 0; }").await;
        Self { rig, site, api, api_server, agent: None }
    }

    async fn agent(&self, more: &str) -> Agent {
        self.site.agent_of(&self.rig, "edge-a", &self.api_server, more).await
    }

    async fn fault(&self, rule: &str) {
        let port = self.rig.dialed().port().to_string();
        let rule = rule.replace("$PORT", &port).replace("$PROXY", PROXY_PORT);
        nft(self.site.node(), &rule).await;
    }

    async fn no_fault(&self) {
        nft(self.site.node(), "flush chain inet fault forward").await;
    }

    /// A request that is made at once is answered.
    async fn serves(&self) {
        let mut caller = Http2Caller::dial(&self.rig).await;
        let answer = caller.ask("GET", "/clusters/edge-a/api", &[]).await.unwrap();
        assert_eq!(answer.status(), 200, "{answer:?}\n{}", self.rig.agent_log("edge-a"));
    }

    /// Waits until the agent has logged this of a tunnel over this carrier.
    async fn logged_carrier(&self, from: usize, words: &str, carrier: &str) {
        let carrier = format!("carrier=\"{carrier}\"");
        let is_logged = |line: &str| line.contains(words) && line.contains(&carrier);
        let has = async || self.rig.agent_log("edge-a")[from..].lines().any(is_logged);
        self.until(&format!("{words} {carrier}"), has).await;
    }

    /// Waits until QUIC serves again, by its old tunnel or a new one.
    async fn returned(&self, from: usize) {
        let is_back = |line: &str| {
            line.contains("carrier=\"quic\"")
                && (line.contains("tunnel opened") || line.contains("health=Live"))
        };
        self.until("QUIC is back", async || self.rig.agent_log("edge-a")[from..].lines().any(is_back)).await;
    }

    /// Returns true if the server has a tunnel over this carrier that only ends what runs on it.
    async fn drains(&self, carrier: &str) -> bool {
        let words = ["clusters", "--socket", "admin/admin.sock", "-o", "json"];
        let list: Value = serde_json::from_str(&self.rig.tombolo(&words).await).expect("JSON");
        let tunnels = list["items"][0]["status"]["tunnels"].as_array().expect("a list of tunnels").clone();
        tunnels.iter().any(|tunnel| tunnel["carrier"] == carrier && tunnel["draining"] == true)
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + LOGGED_MAX;
        while !is_so().await {
            assert!(Instant::now() < deadline, "never: {what}\n{}", self.rig.agent_log("edge-a"));
            sleep(LOOK_EVERY).await;
        }
    }
}

/// The port of the proxy.
const PROXY_PORT: &str = "3128";

impl CloudProxy {
    async fn start() -> Self {
        let listener = TcpListener::bind(format!("{SERVER}:{PROXY_PORT}")).await.expect("a free port");
        let (address, heads) = (listener.local_addr().expect("an address"), Arc::default());
        let noted = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connect(stream, Arc::clone(&noted)));
            }
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn connect(stream: TcpStream, heads: Arc<Mutex<Vec<String>>>) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    heads.lock().unwrap().push(head.clone());
    let target = head.split(' ').nth(1).expect("CONNECT TARGET");
    if !head.contains("Proxy-Authorization:") {
        let _ = stream.write_all(b"HTTP/1.1 407 Who asks?\r\nContent-Length: 0\r\n\r\n").await;
        return;
    }
    let mut beyond = TcpStream::connect(target).await.expect("the server listens");
    let _ = stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await;
    let _ = copy_bidirectional(&mut stream, &mut beyond).await;
}

async fn nft(namespace: &NetworkNamespace, words: &str) {
    let nft = Invocation::of("nft").arguments([words]);
    let output = run(&nft.in_network_namespace(Some(namespace.path().to_owned())), NFT_MAX).await;
    let output = output.expect("nft runs");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}
