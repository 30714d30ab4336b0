//! Requests that come while a cluster is dark wait for it, within limits, and are sent once.

use std::time::Duration;

use serde_json::Value;
use tests::caller::{Disconnect, Http1Caller, Http2Caller, head};
use tests::fake_api::Behaviour;
use tests::rig::{ApiServer, Reply};
use tokio::time::timeout;

use super::{OutageTrial, SOON};

const PATH: &str = "/clusters/edge-a/api/v1/things";
const EXEC: &str = "/api/v1/namespaces/n/pods/p/exec";

/// Each of them reaches the API server once.
#[tokio::test]
async fn requests_during_an_outage_are_answered_when_the_link_returns() {
    let trial = OutageTrial::start("parking: { limitSeconds: 60 }").await;
    trial.api.otherwise(Behaviour::json("{}"));
    trial.dark().await;
    let asked = trial.api.requests().len();

    let ask = |method| trial.rig.ask_with_token(method, PATH, &[]);
    let all = async { tokio::join!(ask("GET"), ask("POST"), ask("PATCH"), ask("DELETE")) };
    let (replies, ()) = tokio::join!(all, async {
        trial.parked(4.0).await;
        assert_eq!(trial.api.requests().len(), asked, "nothing is sent into the dark");
        trial.bright();
    });

    let replies: [Reply; 4] = replies.into();
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    let mut methods: Vec<_> = trial.api.requests()[asked..].iter().map(|one| one.method.clone()).collect();
    methods.sort();
    assert_eq!(methods, ["DELETE", "GET", "PATCH", "POST"]);
    assert_eq!((trial.ended("served").await, trial.ended("gave_up").await), (4.0, 0.0));
}

#[tokio::test]
async fn parked_requests_are_answered_by_a_new_agent_too() {
    let mut trial = OutageTrial::start("parking: { limitSeconds: 60 }").await;
    trial.api.otherwise(Behaviour::json("{}"));
    trial.agent.process.kill();
    // By TCP it is gone at once, by QUIC it falls silent.
    trial
        .rig
        .listed("edge-a", |item| {
            item.contains("\"name\":\"edge-a\"") && !item.contains("\"health\":\"Live\"")
        })
        .await;

    let (reply, again) = tokio::join!(trial.rig.ask_with_token("POST", PATH, &[]), async {
        trial.parked(1.0).await;
        trial.rig.agent_with("edge-a", &ApiServer::of_fake(&trial.rig, &trial.api), "").await
    });

    assert_eq!(reply.status, 200, "{reply:?}");
    trial.agent = again;
}

/// No program is asked to repeat the request.
#[tokio::test]
async fn past_the_limit_the_error_names_when_the_cluster_was_last_seen() {
    let trial = OutageTrial::start("parking: { limitSeconds: 1 }").await;
    trial.dark().await;

    let reply = trial.rig.ask_with_token("POST", PATH, &[]).await;

    let status: Value = serde_json::from_str(&reply.body).expect("a Status");
    assert_eq!(
        (reply.status, status["details"]["causes"][0]["reason"].as_str()),
        (503, Some("ClusterNotConnected"))
    );
    let message = status["message"].as_str().expect("a message");
    assert!(message.contains("cluster edge-a is not connected and was last heard of at 20"), "{message}");
    assert_eq!(status["details"]["retryAfterSeconds"], 10);
    assert!(
        !reply.head.to_lowercase().contains("retry-after"),
        "client-go would repeat the write: {}",
        reply.head
    );
    assert_eq!(trial.ended("gave_up").await, 1.0);
    trial.parked(0.0).await;
}

#[tokio::test]
async fn a_caller_may_wait_for_less_and_not_for_more() {
    let trial = OutageTrial::start("parking: { limitSeconds: 300 }").await;
    trial.dark().await;

    for headers in [&[("Tombolo-Park-Limit", "0")][..], &[("tombolo-park-limit", "1")]] {
        let reply = trial.rig.ask_with_token("GET", PATH, headers).await;
        assert!(reply.status == 503 && reply.body.contains("ClusterNotConnected"), "{reply:?}");
    }
    // As client-go says it for --request-timeout, and as a list says it.
    for query in ["timeout=1s", "timeoutSeconds=1"] {
        let reply = trial.rig.ask_with_token("GET", &format!("{PATH}?{query}"), &[]).await;
        assert!(reply.status == 503 && reply.body.contains("ClusterNotConnected"), "{reply:?}");
    }
    let reply = trial.rig.ask_with_token("GET", PATH, &[("Tombolo-Park-Limit", "301")]).await;
    assert!(reply.status == 400 && reply.body.contains("from 0 to 300"), "{reply:?}");

    trial.bright();
    trial.api.on("/api/v1/things", Behaviour::json("{}"));
    let reply = trial.rig.ask_with_token("GET", PATH, &[("Tombolo-Park-Limit", "60")]).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let (_, last) = (reply, trial.api.requests().pop().expect("it arrived"));
    let passed = last.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("tombolo-park-limit"));
    assert!(!passed, "what was meant for the gateway goes no further: {:?}", last.headers);
}

/// It never waits beyond its own timeout.
#[tokio::test]
async fn a_caller_may_wait_longer_where_the_server_allows_it() {
    let trial = OutageTrial::start("parking: { limitSeconds: 0, callerLimitSeconds: 60 }").await;
    trial.api.otherwise(Behaviour::json("{}"));
    trial.dark().await;

    let unasked = trial.rig.ask_with_token("GET", PATH, &[]).await;
    assert_eq!(unasked.status, 503, "{unasked:?}");
    let longest = [("Tombolo-Park-Limit", "60")];
    let timed = trial.rig.ask_with_token("GET", &format!("{PATH}?timeout=1s"), &longest).await;
    assert!(timed.status == 503 && timed.body.contains("ClusterNotConnected"), "{timed:?}");
    let beyond = trial.rig.ask_with_token("GET", PATH, &[("Tombolo-Park-Limit", "61")]).await;
    assert!(beyond.status == 400 && beyond.body.contains("from 0 to 60"), "{beyond:?}");

    let (served, ()) = tokio::join!(trial.rig.ask_with_token("POST", PATH, &longest), async {
        trial.parked(1.0).await;
        trial.bright();
    });

    assert_eq!(served.status, 200, "{served:?}");
}

/// Past the limit it is refused.
#[tokio::test]
async fn an_upgrade_asked_for_in_an_outage_is_made_when_the_link_returns() {
    for (upgrade, limit) in [("SPDY/3.1", 60), ("websocket", 60), ("SPDY/3.1", 1), ("websocket", 1)] {
        let trial = OutageTrial::start(&format!("parking: {{ limitSeconds: {limit} }}")).await;
        trial.api.on(EXEC, Behaviour::upgrade());
        trial.dark().await;
        // The agent asks for endpoints of its own accord, whenever it does.
        let execs = || trial.api.requests().iter().filter(|request| request.target.starts_with(EXEC)).count();
        let (method, lines) = match upgrade {
            "websocket" => {
                ("GET", "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
            }
            _ => ("POST", ""),
        };
        let lines = format!("Connection: Upgrade\r\nUpgrade: {upgrade}\r\n{lines}");
        let mut caller = Http1Caller::dial(&trial.rig).await;
        caller.write(head(method, &format!("/clusters/edge-a{EXEC}?command=sh&stdin=true"), &lines)).await;

        if limit > 1 {
            trial.parked(1.0).await;
            assert_eq!(execs(), 0, "nothing is sent into the dark");
            trial.bright();
            let answer = caller.read_head().await;
            if !answer.starts_with("HTTP/1.1 101 ") {
                let (body, _) = caller.read_to_end().await;
                let body = String::from_utf8_lossy(&body).into_owned();
                panic!("{upgrade}: {answer}{body}\n{}", trial.rig.server_log());
            }
            caller.write("said").await;
            assert_eq!(caller.read_exactly(4).await, b"said");
            assert_eq!(execs(), 1, "once");
        } else {
            let (answer, _) = caller.read_to_end().await;
            let answer = String::from_utf8_lossy(&answer).to_lowercase();
            assert!(
                answer.starts_with("http/1.1 503 ") && answer.contains("clusternotconnected"),
                "{answer}"
            );
            assert!(answer.contains("connection: close") && !answer.contains("retry-after:"), "{answer}");
            assert_eq!(execs(), 0, "never sent");
        }
    }
}

#[tokio::test]
async fn parked_requests_are_limited_and_one_more_gets_retry_after() {
    let trial = OutageTrial::start("parking: { limitSeconds: 60, perCluster: 2 }").await;
    trial.api.otherwise(Behaviour::json("{}"));
    trial.dark().await;

    let ask = || trial.rig.ask_with_token("POST", PATH, &[]);
    let (first, second, beyond) = tokio::join!(ask(), ask(), async {
        trial.parked(2.0).await;
        let beyond = ask().await;
        trial.bright();
        beyond
    });

    assert_eq!((first.status, second.status), (200, 200));
    assert!(beyond.status == 503 && beyond.body.contains("ClusterCrowded"), "{beyond:?}");
    // Not one byte of it reached anybody, so that a program may repeat it.
    assert!(beyond.head.to_lowercase().contains("retry-after: 1"), "{}", beyond.head);
    assert_eq!(trial.ended("turned_away").await, 1.0);
}

#[tokio::test]
async fn a_caller_that_disconnects_while_parked_leaves_nothing_behind() {
    let trial = OutageTrial::start("parking: { limitSeconds: 300 }").await;
    trial.dark().await;

    for how in [Disconnect::Close, Disconnect::CloseNotify, Disconnect::Reset] {
        let mut caller = Http1Caller::dial(&trial.rig).await;
        caller.write(head("GET", PATH, "")).await;
        trial.parked(1.0).await;
        let still_open = caller.leave(how).await;
        trial.parked(0.0).await;
        drop(still_open);
    }
    let mut caller = Http2Caller::dial(&trial.rig).await;
    let waiting = [caller.send("GET", PATH, &[], true), caller.send("POST", PATH, &[], false)];
    trial.parked(2.0).await;
    let [get, (_answer, mut post)] = waiting;
    drop(get);
    trial.parked(1.0).await;
    post.send_reset(h2::Reason::CANCEL);
    trial.parked(0.0).await;

    assert_eq!(trial.ended("hung_up").await, 5.0);
    let active = |verb| format!("tombolo_server_requests_active{{verb=\"{verb}\"}}");
    for verb in ["list", "create"] {
        trial.rig.measured(&active(verb), |now| now == 0.0).await;
    }
}

#[tokio::test]
async fn after_one_park_timeout_a_connections_next_requests_do_not_wait() {
    let trial = OutageTrial::start("parking: { limitSeconds: 2 }").await;
    trial.dark().await;
    let mut caller = Http2Caller::dial(&trial.rig).await;

    for _ in 0..5 {
        let reply = caller.ask("GET", PATH, &[]).await.expect("an answer");
        assert_eq!(reply.status(), 503);
    }

    assert_eq!(trial.ended("gave_up").await, 1.0, "its user waits once, not five times");
}

#[tokio::test]
async fn another_agents_live_tunnel_serves_at_once() {
    let trial = OutageTrial::start("parking: { limitSeconds: 300 }").await;
    let other = trial.rig.agent_of_id("edge-a", "b", &ApiServer::of_fake(&trial.rig, &trial.api), "").await;
    trial.rig.logged("server.log", 0, "tunnel opened agent=edge-a/b").await;
    trial.api.otherwise(Behaviour::json("{}"));
    trial.dark_beside_another().await;

    for _ in 0..20 {
        let reply = timeout(SOON, trial.rig.ask_with_token("POST", PATH, &[])).await.expect("an answer");
        assert_eq!(reply.status, 200, "{reply:?}");
    }

    let waited = trial.ended("served").await + trial.ended("gave_up").await + trial.ended("hung_up").await;
    assert_eq!(waited, 0.0, "nobody waited");
    drop(other);
}

#[tokio::test]
async fn a_cluster_that_was_never_seen_is_not_waited_for() {
    let trial = OutageTrial::start("parking: { limitSeconds: 300 }").await;

    let asked = trial.rig.ask_with_token("GET", "/clusters/edge-z/api", &[]);
    let reply = timeout(Duration::from_secs(100), asked).await.expect("an answer before the limit");

    assert!(reply.status == 503 && reply.body.contains("ClusterNeverSeen"), "{reply:?}");
}
