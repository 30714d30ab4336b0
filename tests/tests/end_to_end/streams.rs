//! Many streams at once on one cluster: no request waits for another's stream, neither of the tunnel nor at
//! the API server.

use h2::RecvStream;
use serde_json::Value;
use tests::caller::{GATEWAY, Http2Caller, SOON};
use tests::fake_api::{Answer, Behaviour, FakeApiOptions, HttpVersion, WatchFeed};
use tests::fake_edge::FakeEdge;
use tests::kube::EdgeCluster;
use tests::rig::{ApiServer, GROUP, Rig};
use tests::sockets;
use tokio::task::JoinSet;
use tokio::time::timeout;

const WATCHES: usize = 300;
const GETS: usize = 100;

/// On one connection of a caller; the gateway grants 250.
const WATCHES_PER_CALLER: usize = 150;

/// Enough for all that a caller's watches may have unread.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// The maximum of streams that the agent itself puts on a connection.
const AGENT_STREAMS_MAX: usize = 90;

/// The API server grants a hundred streams, and all are used at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_streams_of_an_api_server_are_used_over_several_connections() {
    all_at_once(100).await;
}

/// The API server grants ten streams for each connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_streams_of_an_api_server_are_used_over_several_connections() {
    all_at_once(10).await;
}

/// Every watch is and stays open while every get is answered. No request waits for the API server's limit of
/// streams.
async fn all_at_once(granted: u32) {
    let options = FakeApiOptions {
        versions: vec![HttpVersion::Http2],
        concurrent_streams_max: granted,
        ..FakeApiOptions::default()
    };
    let edge = FakeEdge::start_with(options).await;
    let feed = WatchFeed::new();
    edge.fake.on("/watch", Behaviour::Watch(feed.clone()));
    edge.fake.on("/get", Behaviour::Answer(Answer::json(200, "got")));

    let mut watches = Watches::open(&edge.rig, |number| format!("/clusters/edge-a/watch/{number}")).await;
    get_at_once(&edge.rig, "/clusters/edge-a/get", |body| body == b"got").await;

    assert_eq!(feed.push("event\n"), WATCHES, "all watches are open");
    watches.each(|line| (line == "event").then_some(())).await;
    assert!(edge.fake.streams_open_max() <= granted as usize, "{}", edge.fake.streams_open_max());
    let connections = edge.fake.connections().len();
    assert!(connections >= WATCHES.div_ceil((granted as usize).min(AGENT_STREAMS_MAX)), "{connections}");
    assert_eq!(edge.fake.requests().len(), WATCHES + GETS);
}

/// The agent uses four connections or more for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_api_server_serves_300_watches_and_100_gets_at_once() {
    let cluster = EdgeCluster::start().await.expect("a cluster starts");
    let account = cluster.create_agent_account().await.expect("an account for the agent");
    let rig = Rig::start().await;
    cluster.make_admins(&format!("token:{GROUP}")).await;
    let agent = rig.agent("edge-a", &ApiServer::of(&cluster, &account)).await;
    let before = watches_served(&cluster).await;

    let path = "/clusters/edge-a/api/v1/namespaces/default/configmaps";
    let mut watches = Watches::open(&rig, |_| format!("{path}?watch=1&timeoutSeconds=600")).await;
    get_at_once(&rig, path, |body| serde_json::from_slice::<Value>(body).unwrap()["kind"] == "ConfigMapList")
        .await;

    // At the API server all of them run beside what its own controllers watch; and one more get finds its
    // way.
    assert!(watches_served(&cluster).await >= before + WATCHES);
    cluster.admin().stdout(&["create", "configmap", "seen-by-all"]).await;
    let versions = watches.each(|line| version_of(line, "seen-by-all")).await;
    assert!(versions.windows(2).all(|pair| pair[0] == pair[1]), "one event, the same to all");
    let connections = sockets::established(agent.process.id().unwrap(), cluster.address());
    eprintln!("{WATCHES} watches and {GETS} gets went over {connections} connections");
    assert!(connections >= WATCHES.div_ceil(AGENT_STREAMS_MAX), "{connections}");
    get_at_once(&rig, path, |body| !body.is_empty()).await;
}

/// Number of watches of ConfigMaps that the API server reports.
async fn watches_served(cluster: &EdgeCluster) -> usize {
    let metrics = cluster.admin().stdout(&["get", "--raw=/metrics"]).await;
    let lines = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && line.contains("resource=\"configmaps\"")
            && line.contains("verb=\"WATCH\"")
    });
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}

/// The version of an ADDED event's object, if it has this name.
fn version_of(line: &str, name: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line).unwrap();
    let metadata = &event["object"]["metadata"];
    let is_it = event["type"] == "ADDED" && metadata["name"] == name;
    is_it.then(|| metadata["resourceVersion"].as_str().unwrap().to_owned())
}

/// All gets on one more connection, sent before the first is answered.
async fn get_at_once(rig: &Rig, path: &str, wanted: impl Fn(&[u8]) -> bool) {
    let mut caller = caller(rig).await;
    let answers: Vec<_> = (0..GETS).map(|_| caller.send("GET", path, &[], true).0).collect();
    for answer in answers {
        let answer = timeout(SOON, answer).await.expect("an answer while all watches are open").unwrap();
        assert_eq!(answer.status(), 200);
        let (body, end) = tests::caller::read_to_end(answer.into_body()).await;
        end.unwrap();
        assert!(wanted(&body), "{}", String::from_utf8_lossy(&body));
    }
}

async fn caller(rig: &Rig) -> Http2Caller {
    Http2Caller::dial_windows(rig, GATEWAY, None, STREAM_WINDOW_BYTES, CONNECTION_WINDOW_BYTES)
        .await
        .with_token()
}

/// Open watches, with the connections that they are on.
struct Watches {
    _callers: Vec<Http2Caller>,
    bodies: Vec<RecvStream>,
}

impl Watches {
    /// Opens all of them at once and returns when each has its head.
    async fn open(rig: &Rig, path: impl Fn(usize) -> String) -> Self {
        let (mut callers, mut answers) = (Vec::new(), Vec::new());
        for first in (0..WATCHES).step_by(WATCHES_PER_CALLER) {
            let mut caller = caller(rig).await;
            for number in first..first + WATCHES_PER_CALLER {
                answers.push(caller.send("GET", &path(number), &[], true).0);
            }
            callers.push(caller);
        }
        let mut bodies = Vec::new();
        for answer in answers {
            let answer = timeout(SOON, answer).await.expect("a head in time").unwrap();
            assert_eq!(answer.status(), 200);
            bodies.push(answer.into_body());
        }
        Self { _callers: callers, bodies }
    }

    /// Reads on each of them until a line is what is wanted.
    async fn each<T: Send + 'static>(
        &mut self,
        wanted: impl Fn(&str) -> Option<T> + Clone + Send + 'static,
    ) -> Vec<T> {
        let mut reading = JoinSet::new();
        for mut body in self.bodies.drain(..) {
            let wanted = wanted.clone();
            reading.spawn(async move {
                let mut text = Vec::new();
                loop {
                    let data = timeout(SOON, body.data()).await.expect("more in time").unwrap().unwrap();
                    let _ = body.flow_control().release_capacity(data.len()); // Fails only where the stream is gone.
                    text.extend_from_slice(&data);
                    while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = text.drain(..=end).collect();
                        if let Some(found) = wanted(std::str::from_utf8(&line[..end]).unwrap()) {
                            return (found, body);
                        }
                    }
                }
            });
        }
        let (found, bodies) = reading.join_all().await.into_iter().unzip();
        self.bodies = bodies;
        found
    }
}

const _: () = assert!(WATCHES.is_multiple_of(WATCHES_PER_CALLER));
