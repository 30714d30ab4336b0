//! Limits of callers and clusters: a caller that sends many requests makes no other wait or be refused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tests::caller::{GATEWAY, Http1Caller, Http2Caller, SOON, head};
use tests::dial::dial_name;
use tests::fake_api::{Answer, Behaviour, WatchFeed};
use tests::fake_edge::FakeEdge;
use tests::rig::{GROUP, Reply, TOKEN, ask};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Small, and each another number. Two thirds of a cluster's seats are all that one caller has at once.
const SMALL: &str = "limits:\n  \
    caller: { requests: 3, requestsPerSecond: 1000, watchesPerCluster: 2, upgrades: 4 }\n  \
    cluster: { requests: 20, watches: 5, upgrades: 6, queue: 0 }";

const UNANSWERED: &str = "/clusters/edge-a/silent";
const WATCH: &str = "/clusters/edge-a/api/v1/namespaces/n/configmaps?watch=1";
const EXEC: &str = "/clusters/edge-a/api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true";
const SLOW: &str = "/clusters/edge-a/slow";
const QUICK: &str = "/clusters/edge-a/quick";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

const EVENT: &str = "{\"type\":\"ADDED\",\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\
    \"name\":\"lives-on\",\"resourceVersion\":\"7\"}}}\n";

/// The API server's time for a request of the greedy caller. The caller's share of the seats is always taken,
/// and always becomes free.
const TAKES: Duration = Duration::from_millis(40);

/// Number of requests that a greedy caller has in flight on each of its connections.
const GREEDY_STREAMS: usize = 90;
const GREEDY_CONNECTIONS: usize = 4;

/// Number of its answers that it does not read: fewer than its share of the seats, which it would keep.
const UNREAD: usize = 8;

const MODEST_REQUESTS: usize = 200;

/// Those that came before go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_limit_of_each_kind_refuses_one_more_with_429() {
    let edge = FakeEdge::start_server_with(SMALL).await;
    let feed = WatchFeed::new();
    edge.fake.otherwise(Behaviour::json("{}"));
    edge.fake.on("/silent", Behaviour::NeverAnswer);
    edge.fake.on("/api/v1/namespaces/n/configmaps", Behaviour::Watch(feed.clone()));
    edge.fake.on("/api/v1/namespaces/n/pods/p/exec", Behaviour::upgrade());
    let mut requests = callers(&edge, 3, &head("GET", UNANSWERED, "")).await;
    edge.fake.wait_for_request(SOON, |request| request.id == 2).await.unwrap();
    let mut watches = callers(&edge, 2, &head("GET", WATCH, "")).await;
    let mut shells = callers(&edge, 4, &head("POST", EXEC, UPGRADE)).await;
    for watch in &mut watches {
        assert!(watch.read_head().await.starts_with("HTTP/1.1 200 "));
    }
    for shell in &mut shells {
        assert!(shell.read_head().await.starts_with("HTTP/1.1 101 "));
    }
    let seen = edge.fake.requests().len();

    for (path, limit) in
        [(UNANSWERED, "caller_requests"), (WATCH, "caller_watches"), (EXEC, "caller_upgrades")]
    {
        let refused = one_more(&edge, path).await;
        assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("CallerBusy"), "{path}: {refused}");
        assert!(refused.to_lowercase().contains("retry-after: 1\r\n"), "{path}: {refused}");
        let counted = format!("tombolo_server_limited_total{{limit=\"{limit}\"}}");
        assert_eq!(edge.rig.metric(edge.rig.probes(), &counted).await, 1.0, "{limit}");
    }

    assert_eq!(edge.fake.requests().len(), seen, "the API server sees nothing of them");
    let alice = as_alice(&edge, "/clusters/edge-a/api/v1/namespaces").await;
    assert_eq!(alice.status, 200, "{alice:?}");
    feed.push(EVENT);
    for watch in &mut watches {
        reads_until(watch, "lives-on").await;
    }
    for shell in &mut shells {
        shell.write("echo").await;
        assert_eq!(shell.read_exactly(4).await, b"echo");
    }
    // What ends makes place.
    drop(requests.pop());
    edge.rig.measured("tombolo_server_limit_used{limit=\"caller_requests\"}", |used| used < 3.0).await;
    assert_eq!(edge.rig.ask_with_token("GET", QUICK, &[]).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clusters_limits_count_all_callers_and_one_more_is_429() {
    let edge = FakeEdge::start_server_with(
        "limits:\n  caller: { requests: 100 }\n  cluster: { requests: 3, watches: 2, queue: 0 }",
    )
    .await;
    edge.fake.otherwise(Behaviour::json("{}"));
    edge.fake.on("/silent", Behaviour::NeverAnswer);
    edge.fake.on("/api/v1/namespaces/n/configmaps", Behaviour::Watch(WatchFeed::new()));
    let mut watches = callers(&edge, 2, &head("GET", WATCH, "")).await;
    for watch in &mut watches {
        assert!(watch.read_head().await.starts_with("HTTP/1.1 200 "), "it needs no seat once it has begun");
    }
    // One alone has not all of them.
    let _requests = callers(&edge, 2, &head("GET", UNANSWERED, "")).await;
    edge.fake.wait_for_request(SOON, |request| request.id == 3).await.unwrap();
    let refused = one_more(&edge, UNANSWERED).await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("ClusterFull"), "{refused}");
    let ben = edge.rig.caller("ben", &[GROUP]).await;
    let mut ben = Http2Caller::dial_name(&edge.rig, GATEWAY, Some(&ben)).await;
    let _last = ben.send("GET", UNANSWERED, &[], true);
    edge.fake.wait_for_request(SOON, |request| request.id == 4).await.unwrap();

    for (path, limit, times) in [(WATCH, "cluster_watches", 1.0), (QUICK, "cluster_queue", 2.0)] {
        let refused = as_alice(&edge, path).await;
        assert_eq!(refused.status, 429, "{path}: {refused:?}");
        assert!(refused.body.contains("ClusterFull"), "{path}: {refused:?}");
        assert!(refused.head.to_lowercase().contains("retry-after: 1"), "{path}: {refused:?}");
        let counted = format!("tombolo_server_limited_total{{limit=\"{limit}\"}}");
        assert_eq!(edge.rig.metric(edge.rig.probes(), &counted).await, times, "{limit}");
    }
    assert_eq!(edge.fake.requests().len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_caller_that_asks_too_fast_gets_429() {
    let edge = FakeEdge::start_server_with("limits: { caller: { requestsPerSecond: 1, burst: 2 } }").await;
    edge.fake.otherwise(Behaviour::json("{}"));
    // Fast enough for as many seconds as that takes.
    let mut caller = Http2Caller::dial(&edge.rig).await;
    let answers = join_all((0..90).map(|_| caller.send("GET", QUICK, &[], true).0)).await;
    let statuses: Vec<u16> = answers.into_iter().map(|answer| answer.unwrap().status().as_u16()).collect();

    assert!(statuses.contains(&429), "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert_eq!(as_alice(&edge, QUICK).await.status, 200);
    let refusals = "tombolo_server_refusals_total{reason=\"CallerTooFast\"}";
    assert!(edge.rig.metric(edge.rig.probes(), refusals).await >= 1.0);
}

/// The greedy caller fills all seats of the cluster, and all requests of the modest one are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_greedy_caller_on_a_clusters_limit_refuses_no_modest_one() {
    let edge = FakeEdge::start_server_with(
        "limits:\n  caller: { requests: 2000, requestsPerSecond: 100000 }\n  \
         cluster: { requests: 16, queue: 100, queueSeconds: 30 }",
    )
    .await;
    a_greedy_and_a_modest_caller(&edge, "ClusterFull").await;
}

/// The greedy caller fills all seats of the agent, and all requests of the modest one are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_greedy_caller_on_an_agents_limit_refuses_no_modest_one() {
    let limits = "limits: { requests: 16, queue: 100, queueSeconds: 30 }";
    let edge = FakeEdge::start_both_with("", limits).await;
    a_greedy_and_a_modest_caller(&edge, "AgentBusy").await;
}

/// Credentials that were valid before pass. Others from the address are asked to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_logins_throttle_an_address_and_no_known_caller() {
    let edge = FakeEdge::start_server_with("limits: { source: { failedLoginsPerMinute: 5 } }").await;
    edge.fake.otherwise(Behaviour::json("{}"));
    let (gateway, ca) = (edge.rig.gateway(), edge.rig.server_ca());
    let with = async |token: &str| {
        let headers = [("Authorization", format!("Bearer {token}"))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        ask(gateway, &ca, None, "GET", QUICK, &headers).await.unwrap()
    };
    assert_eq!(with(TOKEN).await.status, 200);
    for _ in 0..5 {
        assert_eq!(with("wrong").await.status, 401);
    }

    let beyond = with("wrong").await;

    assert_eq!(beyond.status, 429, "{beyond:?}");
    assert!(beyond.body.contains("TooManyFailedLogins"), "{beyond:?}");
    assert!(beyond.head.to_lowercase().contains("retry-after: 10"), "{beyond:?}");
    assert_eq!(with(TOKEN).await.status, 200, "a token that was good before");
    assert_eq!(as_alice(&edge, QUICK).await.status, 200, "a certificate");
    let counted = "tombolo_server_limited_total{limit=\"source_failures\"}";
    assert!(edge.rig.metric(edge.rig.probes(), counted).await >= 1.0);
}

/// A client with a certificate gets in from the same address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flooding_address_is_closed_out_except_with_a_certificate() {
    let edge = FakeEdge::start_server_with(
        "limits: { source: { connections: 20, newPerSecond: 1000, failedLoginsPerMinute: 100000 } }",
    )
    .await;
    edge.fake.otherwise(Behaviour::json("{}"));
    let alice = edge.rig.caller("alice", &[GROUP]).await;
    let mut before = Http2Caller::dial_name(&edge.rig, GATEWAY, Some(&alice)).await;
    // More than the source may have, and its lane beyond, and none of them says a word.
    let mut silent = Vec::new();
    for _ in 0..700 {
        silent.push(TcpStream::connect(edge.rig.gateway()).await.unwrap());
    }
    let limited = "tombolo_server_connections_total{outcome=\"source_limited\"}";
    edge.rig.measured(limited, |count| count >= 1.0).await;

    let came_in = async {
        loop {
            let ca = edge.rig.server_ca();
            let tried = dial_name(edge.rig.gateway(), GATEWAY, &ca, &["h2"], Some(&alice)).await;
            if let Ok(stream) = tried {
                return stream;
            }
        }
    };
    timeout(SOON, came_in).await.expect("who shows a certificate comes in");

    assert_eq!(before.ask("GET", QUICK, &[]).await.unwrap().status(), 200, "who was in is not touched");
    drop(silent);
}

/// A greedy caller fills its share of the seats and the queue, gets 429, does not read some of its answers,
/// and tries to log in by wrong tokens without a pause; a modest one asks beside it, one thing after the
/// other.
async fn a_greedy_and_a_modest_caller(edge: &FakeEdge, case: &str) {
    edge.fake.otherwise(Behaviour::json("{}"));
    edge.fake.on("/slow", Behaviour::Slow { answer: Answer::json(200, "{}"), piece_bytes: 2, pause: TAKES });
    let alice = edge.rig.caller("alice", &[GROUP]).await;
    let mut modest = Http2Caller::dial_name(&edge.rig, GATEWAY, Some(&alice)).await;
    let is_over = AtomicBool::new(false);
    edge.fake.on("/endless", Behaviour::Endless(vec![b'x'; 16 * 1024].into()));
    let mut careless = Http2Caller::dial(&edge.rig).await;
    let mut unread = Vec::new();
    for _ in 0..UNREAD {
        unread.push(careless.send("GET", "/clusters/edge-a/endless", &[], true).0.await.unwrap());
    }
    let fails = async {
        let mut caller = Http2Caller::dial_name(&edge.rig, GATEWAY, None).await;
        let mut statuses = BTreeMap::<u16, usize>::new();
        while !is_over.load(Ordering::Relaxed) {
            let wrong = [("authorization", "Bearer wrong")];
            let asked: Vec<_> =
                (0..GREEDY_STREAMS).map(|_| caller.send("GET", QUICK, &wrong, true).0).collect();
            for answer in join_all(asked).await {
                let answer = answer.expect("the gateway answers");
                *statuses.entry(answer.status().as_u16()).or_default() += 1;
                let (_, complete) = tests::caller::read_to_end(answer.into_body()).await;
                complete.expect("and to the end");
            }
        }
        statuses
    };
    let asks_much = async || {
        let mut caller = Http2Caller::dial(&edge.rig).await;
        let mut statuses = BTreeMap::<u16, usize>::new();
        while !is_over.load(Ordering::Relaxed) {
            let asked: Vec<_> = (0..GREEDY_STREAMS).map(|_| caller.send("GET", SLOW, &[], true).0).collect();
            for answer in join_all(asked).await {
                let answer = answer.expect("the gateway answers");
                *statuses.entry(answer.status().as_u16()).or_default() += 1;
                let (_, complete) = tests::caller::read_to_end(answer.into_body()).await;
                complete.expect("and to the end");
            }
        }
        statuses
    };
    let asks_little = async {
        // From when on there is something to suffer from.
        let refused = format!("tombolo_server_refusals_total{{reason=\"{case}\"}}");
        edge.rig.measured(&refused, |count| count >= 1.0).await;
        let mut answers = Vec::new();
        for _ in 0..MODEST_REQUESTS {
            answers.push(modest.ask("GET", QUICK, &[]).await.map(|answer| answer.status().as_u16()));
        }
        is_over.store(true, Ordering::Relaxed);
        answers
    };

    let greedy = join_all((0..GREEDY_CONNECTIONS).map(|_| asks_much()));
    let (greedy, failing, modest) = tokio::join!(greedy, fails, asks_little);

    let modest: Vec<u16> = modest.into_iter().map(|status| status.expect("an answer")).collect();
    assert_eq!(modest, vec![200; MODEST_REQUESTS], "beside {greedy:?}");
    assert!(failing.keys().all(|status| [401, 429].contains(status)), "{failing:?}");
    for statuses in greedy {
        assert!(statuses.keys().all(|status| [200, 429].contains(status)), "{statuses:?}");
        assert!(statuses.get(&200).is_some_and(|served| *served > 0), "it is served, too: {statuses:?}");
    }
}

/// This number of callers with one token, each of which has written this.
async fn callers(edge: &FakeEdge, count: usize, written: &str) -> Vec<Http1Caller> {
    let mut callers = Vec::new();
    for _ in 0..count {
        let mut caller = Http1Caller::dial(&edge.rig).await;
        caller.write(written).await;
        callers.push(caller);
    }
    callers
}

/// The answer to one request more, head and body.
async fn one_more(edge: &FakeEdge, path: &str) -> String {
    let (method, lines) = if path == EXEC { ("POST", UPGRADE) } else { ("GET", "Connection: close\r\n") };
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head(method, path, lines)).await;
    let (answer, _) = caller.read_to_end().await;
    String::from_utf8(answer).unwrap()
}

async fn as_alice(edge: &FakeEdge, path: &str) -> Reply {
    let alice = edge.rig.caller("alice", &[GROUP]).await;
    ask(edge.rig.gateway(), &edge.rig.server_ca(), Some(&alice), "GET", path, &[]).await.unwrap()
}

async fn reads_until(caller: &mut Http1Caller, text: &str) {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        read.extend(caller.read_exactly(1).await);
    }
}
