//! The MTU of a path falls below QUIC's smallest packet in mid-life: requests go over TCP, which passes, and
//! QUIC is left alone until it carries full-size packets again.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tests::caller::{Http2Caller, SOON, read_to_end, send_all};
use tests::fake_api::{Answer, Behaviour};
use tests::lab::{Lab, trial};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::{CarrierSetup, nft};

/// The MTU of the path. A packet of QUIC that has 1,200 bytes needs 1,228.
const MTU: u16 = 1100;
/// The time that the path is narrow: several of the times after which a tunnel would be trusted again.
const NARROW_FOR: Duration = Duration::from_secs(45);
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Answers that come later than the path is wide again, and than any deadline, do not come.
const ANSWERED_MAX: Duration = Duration::from_secs(150);

const ENDLESS: &str = "/api/v1/namespaces/default/pods/a/log";
const READ: &str = "/api/v1/namespaces/default/configmaps/read";
const WRITTEN: &str = "/api/v1/namespaces/default/secrets";
const READ_BYTES: usize = 100_000;
const WRITTEN_BYTES: usize = 3_000;

/// Nobody is told that packets are too long. TCP's segments are made smaller on the way, as a PPPoE router does.
const ICMP_LOST: [&str; 3] = [
    "add chain inet fault output { type filter hook output priority 0; }",
    "add rule inet fault output icmp type destination-unreachable drop",
    "add rule inet fault forward tcp flags syn tcp option maxseg size set 1060",
];

#[test]
fn below_quics_smallest_packet_requests_go_over_tcp_and_return() {
    trial("below_quics_smallest_packet_requests_go_over_tcp_and_return", async |lab| {
        let setup = narrow_for_a_while(lab, &ICMP_LOST).await;
        // QUIC has lasted for some minutes then, and nothing runs over TCP any more.
        setup.logged_carrier(0, "tunnel closed", "http2").await;
        setup.serves().await;
    });
}

#[test]
fn a_narrow_path_that_says_so_is_left_for_tcp_all_the_same() {
    trial("a_narrow_path_that_says_so_is_left_for_tcp_all_the_same", async |lab| {
        drop(narrow_for_a_while(lab, &[]).await);
    });
}

/// Two downloads run, and reads and writes begin all the time. The agent is still connected afterwards.
async fn narrow_for_a_while(lab: &Lab, rules: &[&str]) -> CarrierSetup {
    let mut setup = CarrierSetup::build(lab).await;
    let read = Answer { body: vec![b' '; READ_BYTES].into(), ..Answer::json(200, "") };
    setup.api.on(READ, Behaviour::Answer(read));
    setup.api.on(WRITTEN, Behaviour::Answer(Answer::json(201, "{}")));
    setup.api.on(ENDLESS, Behaviour::Endless(Bytes::from_static(&[b'x'; 10_000])));
    let agent = setup.agent("").await;
    setup.logged_carrier(0, "tunnel opened", "quic").await;
    setup.serves().await;
    let _downloads = [download(&setup).await, download(&setup).await];

    let logged_bytes = setup.rig.agent_log("edge-a").len();
    for rule in rules {
        setup.fault(rule).await;
    }
    setup.narrow(Some(MTU)).await;
    let asking = Asking::begin(&setup).await;
    setup.logged_carrier(logged_bytes, "health=Suspect", "quic").await;
    setup.logged_carrier(logged_bytes, "tunnel opened", "http2").await;
    setup.serves().await;
    let switched = Instant::now();
    println!("narrow: over TCP {:?} later", switched - asking.began);
    sleep(NARROW_FOR.saturating_sub(asking.began.elapsed())).await;
    let is_drained = setup.drains("http2").await;
    let log = setup.rig.agent_log("edge-a");
    let tunnels = log[logged_bytes..].lines().filter(|line| line.contains("tunnel"));
    let log: Vec<&str> = tunnels.filter(|line| line.contains("carrier=")).collect();

    let widened_at = setup.rig.agent_log("edge-a").len();
    setup.narrow(None).await;
    for chain in ["forward", "output"].into_iter().take(rules.len()) {
        nft(setup.site.node(), &format!("flush chain inet fault {chain}")).await;
    }
    setup.returned(widened_at).await;
    setup.serves().await;

    let answers = asking.end().await;
    let slow = |answer: &&Asked| answer.took > Duration::from_secs(2);
    let failed = |answer: &&Asked| answer.wrong.is_some();
    for method in ["GET", "POST"] {
        let of = || answers.iter().filter(|answer| answer.method == method);
        let (all, slow, failed) = (of().count(), of().filter(slow).count(), of().filter(failed).count());
        let longest = of().map(|answer| answer.took).max().unwrap_or_default();
        println!("{method}: {all} asked, {slow} took over 2 s, {failed} failed, {longest:?} at most");
    }
    let later: Vec<_> = answers.iter().filter(|answer| answer.began > switched).collect();
    assert!(later.len() > 20, "{} asked after the switch", later.len());
    let wrong: Vec<_> = later.iter().filter(|answer| answer.wrong.is_some() || answer.took > SOON).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{log:#?}");
    let is_flap = |line: &&&str| line.contains("health=Live") && line.contains("carrier=\"quic\"");
    assert_eq!(log.iter().filter(is_flap).count(), 0, "{log:#?}");
    let is_end = |line: &&&str| line.contains("tunnel closed") && line.contains("carrier=\"http2\"");
    assert!(!is_drained && log.iter().filter(is_end).count() == 0, "{log:#?}");
    setup.agent = Some(agent);
    setup
}

impl CarrierSetup {
    /// Sets the MTU of the site's node for what it forwards, in both directions.
    async fn narrow(&self, mtu: Option<u16>) {
        let near = Ipv4Addr::from_bits(self.site.address().to_bits() - 1);
        let limit = mtu.map_or_else(String::new, |mtu| format!(" mtu lock {mtu}"));
        for route in [
            format!("default via {near} dev uplink"),
            "10.42.0.0/24 dev pod proto kernel scope link src 10.42.0.1".to_owned(),
        ] {
            let replaced = self.site.node().ip(&format!("route replace {route}{limit}")).await;
            replaced.expect("a route can be replaced");
        }
    }
}

/// One read or write of [`Asking`], once it is answered or has failed.
#[derive(Debug)]
struct Asked {
    method: &'static str,
    began: Instant,
    took: Duration,
    /// The error or the wrong answer, if it is one.
    wrong: Option<String>,
}

/// Reads and writes that begin all the time.
struct Asking {
    began: Instant,
    task: JoinHandle<Vec<Asked>>,
}

impl Asking {
    async fn begin(setup: &CarrierSetup) -> Self {
        let mut caller = Http2Caller::dial(&setup.rig).await;
        let began = Instant::now();
        let task = tokio::spawn(async move {
            let mut asked = JoinSet::new();
            while began.elapsed() < NARROW_FOR {
                for method in ["GET", "POST"] {
                    asked.spawn(ask(&mut caller, method));
                }
                sleep(ASK_EVERY).await;
            }
            asked.join_all().await
        });
        Self { began, task }
    }

    async fn end(self) -> Vec<Asked> {
        self.task.await.expect("no panic")
    }
}

fn ask(caller: &mut Http2Caller, method: &'static str) -> impl Future<Output = Asked> + Send + use<> {
    let path = if method == "GET" { READ } else { WRITTEN };
    let (answer, mut body) = caller.send(method, &format!("/clusters/edge-a{path}"), &[], method == "GET");
    let began = Instant::now();
    let answered = async move {
        if method == "POST" {
            let sent = send_all(&mut body, vec![b'x'; WRITTEN_BYTES].into(), true).await;
            sent.map_err(|error| error.to_string())?;
        }
        let answer = answer.await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let (body, end) = read_to_end(answer.into_body()).await;
        end.map_err(|error| error.to_string())?;
        if !status.is_success() {
            return Err(format!("{status} {}", String::from_utf8_lossy(&body)));
        }
        let is_whole = method == "POST" || body.len() == READ_BYTES;
        is_whole.then_some(()).ok_or_else(|| format!("{} bytes", body.len()))
    };
    async move {
        let answered =
            timeout(ANSWERED_MAX, answered).await.unwrap_or_else(|_| Err("nothing came".to_owned()));
        Asked { method, began, took: began.elapsed(), wrong: answered.err() }
    }
}

/// A download that goes on for as long as it is carried.
async fn download(setup: &CarrierSetup) -> JoinHandle<()> {
    let mut caller = Http2Caller::dial(&setup.rig).await;
    let (answer, _) = caller.send("GET", &format!("/clusters/edge-a{ENDLESS}?follow=1"), &[], true);
    let mut body = timeout(SOON, answer).await.expect("a head in time").expect("a head").into_body();
    tokio::spawn(async move {
        let _caller = caller;
        while let Some(Ok(data)) = body.data().await {
            let _ = body.flow_control().release_capacity(data.len());
        }
    })
}
