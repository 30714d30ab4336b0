//! Thousands of generated requests, by path and by host name: the result of each must be what an oracle
//! expects.

use std::collections::BTreeMap;
use std::time::Instant;

use tests::caller::{GATEWAY, Http1Caller};
use tests::fake_api::{Behaviour, FakeApi, HttpVersion};
use tests::fake_edge::add_cluster;
use tests::pki::Issued;
use tests::raw_http2::{RawHead, RawHttp2, RequestOutcome};
use tests::rig::policy::allow_all;
use tests::rig::{GROUP, Rig};

mod generator;
mod oracle;

use generator::{Case, ClusterSelection, Version, XorshiftRng};
use oracle::{Verdict, expected_outcome};

/// Cluster's own targets; each is asked for by path and by host name.
const TARGETS: usize = 10_000;

/// Every so many are asked for over HTTP/1.1 too, where a refusal costs a connection.
const OVER_HTTP1_EVERY: usize = 16;

/// Requests on one HTTP/2 connection, which a gateway closes after too many malformed ones, and at once.
const REQUESTS_PER_CONNECTION: usize = 500;
const REQUESTS_AT_ONCE: usize = 50;

/// A header with the number of the case, which identifies the request where it arrives.
const NUMBER: &str = "x-number";

/// Another seed gives another table.
const SEED: &str = "TOMBOLO_TEST_SEED";
const SEED_DEFAULT: u64 = 0x7061_7468_7300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authorized_cluster_and_path_are_what_the_request_reaches() {
    let (began, setup) = (Instant::now(), PathTableSetup::start().await);
    let seed = std::env::var(SEED).map_or(SEED_DEFAULT, |seed| seed.parse().expect("a number"));
    let cases = table(seed);

    let answered = setup.ask_all(&cases).await;

    let mut arrived = setup.arrived();
    let mut counts = BTreeMap::<_, usize>::new();
    for (number, (version, case)) in cases.iter().enumerate() {
        let (verdict, arrivals) = (expected_outcome(case), arrived.remove(&number).unwrap_or_default());
        assert!(
            verdict.allows(answered[number], &arrivals),
            "seed {seed}, {version:?} {case:?} must be {verdict:?}; answered with 200: {}, arrived: {arrivals:?}",
            answered[number]
        );
        let forwarded = !matches!(verdict, Verdict::Refused);
        *counts.entry((format!("{version:?}"), forwarded)).or_default() += 1;
    }
    assert!(arrived.is_empty(), "requests that nobody has sent: {arrived:?}");
    assert!(setup.forbidden.requests().is_empty(), "a request reached the cluster that is not allowed");
    eprintln!("seed {seed}: {} requests in {:?}: {counts:?}", cases.len(), began.elapsed());
    // A table of refusals alone, or without any, would show nothing.
    assert!(cases.len() >= 2 * TARGETS && counts.values().all(|count| *count >= 400), "{counts:?}");
}

/// The same table for the same seed, without a target twice.
fn table(seed: u64) -> Vec<(Version, Case)> {
    let mut rng = XorshiftRng::new(seed);
    let mut targets = std::collections::BTreeSet::new();
    while targets.len() < TARGETS {
        targets.insert(rng.own_target());
    }
    let mut cases = Vec::new();
    for (number, target) in targets.iter().enumerate() {
        for selection in [ClusterSelection::ByPath, ClusterSelection::ByHost] {
            cases.push((Version::Http2, rng.case(selection, Version::Http2, target)));
            if number % OVER_HTTP1_EVERY == 0 {
                cases.push((Version::Http1, rng.case(selection, Version::Http1, target)));
            }
        }
    }
    cases
}

/// Two clusters that alice may reach, and one that she may not.
struct PathTableSetup {
    rig: Rig,
    reached: [(&'static str, FakeApi); 2],
    forbidden: FakeApi,
    alice: Issued,
    _agents: [tests::rig::Agent; 3],
}

impl PathTableSetup {
    async fn start() -> Self {
        let rig = Rig::start().await;
        let holders = format!("token:{GROUP}");
        rig.put_policy(&[
            allow_all("holders", ("token", &holders), &["*"]),
            allow_all("two", ("client-certificate", "two"), &["edge-a", "edge-b"]),
        ])
        .await;
        let (a, agent_a) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
        let (b, agent_b) = add_cluster(&rig, "edge-b", HttpVersion::Http2).await;
        let (forbidden, agent_c) = add_cluster(&rig, "edge-c", HttpVersion::Http2).await;
        for fake in [&a, &b, &forbidden] {
            fake.otherwise(Behaviour::json("{}"));
        }
        let alice = rig.caller("alice", &["two"]).await;
        let reached = [("edge-a", a), ("edge-b", b)];
        Self { rig, reached, forbidden, alice, _agents: [agent_a, agent_b, agent_c] }
    }

    /// Sends every case, and returns which were answered with 200.
    async fn ask_all(&self, cases: &[(Version, Case)]) -> Vec<bool> {
        let of = |wanted| {
            let numbered = cases.iter().enumerate();
            numbered
                .filter(move |(_, (version, _))| *version == wanted)
                .map(|(n, (_, case))| (n, case))
                .collect()
        };
        let (http1, http2): (Vec<_>, Vec<_>) = (of(Version::Http1), of(Version::Http2));
        let answered = tokio::join!(self.ask_http1(&http1), self.ask_http2(&http2));
        let mut all = vec![false; cases.len()];
        for number in answered.0.into_iter().chain(answered.1) {
            all[number] = true;
        }
        all
    }

    async fn ask_http1(&self, cases: &[(usize, &Case)]) -> Vec<usize> {
        let mut answered = Vec::new();
        let mut open: Option<Http1Caller> = None;
        for (number, case) in cases {
            let mut caller = match open.take() {
                Some(caller) => caller,
                None => Http1Caller::dial_name(&self.rig, GATEWAY, Some(&self.alice)).await,
            };
            let host = case.host.as_deref().unwrap_or_default();
            caller
                .write(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{NUMBER}: {number}\r\n\r\n", case.target))
                .await;
            let head = caller.read_head().await.to_lowercase();
            if head.starts_with("http/1.1 200 ") {
                answered.push(*number);
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if let Some(length) = length.filter(|_| !head.contains("connection: close")) {
                caller.read_exactly(length).await;
                open = Some(caller);
            }
        }
        answered
    }

    async fn ask_http2(&self, cases: &[(usize, &Case)]) -> Vec<usize> {
        let mut answered = Vec::new();
        for on_one in cases.chunks(REQUESTS_PER_CONNECTION) {
            let mut caller = RawHttp2::dial(&self.rig, GATEWAY, Some(&self.alice)).await;
            for at_once in on_one.chunks(REQUESTS_AT_ONCE) {
                let heads: Vec<RawHead> = at_once.iter().map(|(number, case)| head(*number, case)).collect();
                let outcomes = caller.ask(&heads).await.unwrap();
                let of_each = at_once.iter().zip(outcomes);
                answered.extend(
                    of_each.filter(|(_, outcome)| *outcome == RequestOutcome::Ok).map(|((n, _), _)| *n),
                );
            }
        }
        answered
    }

    /// The requests that have arrived, by the number of the case: the cluster and the target.
    fn arrived(&self) -> BTreeMap<usize, Vec<(String, String)>> {
        let mut arrived = BTreeMap::<_, Vec<_>>::new();
        for (cluster, fake) in &self.reached {
            for request in fake.requests() {
                let number = request.header(NUMBER)[0].parse().unwrap();
                arrived.entry(number).or_default().push(((*cluster).to_owned(), request.target));
            }
        }
        arrived
    }
}

fn head(number: usize, case: &Case) -> RawHead {
    let authority = case.authority.as_deref().unwrap_or_default();
    let pseudo =
        [(":method", "GET"), (":scheme", "https"), (":authority", authority), (":path", &case.target)];
    let mut head: RawHead =
        pseudo.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
    head.extend(case.host.iter().map(|host| ("host".to_owned(), host.as_bytes().to_vec())));
    head.push((NUMBER.to_owned(), number.to_string().into_bytes()));
    head
}
