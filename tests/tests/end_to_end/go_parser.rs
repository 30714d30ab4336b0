//! Go's `net/http` parses an agent's bytes to exactly the permitted requests.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use tests::audit_log::AuditLog;
use tests::caller::{Disconnect, Http1Caller};
use tests::fake_api::{Behaviour, HttpVersion, RecordedRequest};
use tests::fake_edge::FakeEdge;
use tests::kube::assets::second_parser;
use tests::process::{Invocation, run};
use tests::scratch::Scratch;
use tests::skip::skip;
use tokio::time::timeout;

mod generator;
mod request_info;
mod target_generator;

use generator::Generator;

const NAME: &str = "go_parses_exactly_the_permitted_requests";

/// Connections of callers, each with three requests behind each other; the catalogue has a million requests.
const CONNECTIONS: usize = 500;

/// A gateway that still waits for more of a request is not waited for. What it has passed on by then is
/// compared all the same.
const WAITS_MAX: Duration = Duration::from_secs(3);
const PARSER_MAX: Duration = Duration::from_secs(60);

/// Another seed gives other requests.
const SEED: &str = "TOMBOLO_TEST_SEED";
const SEED_DEFAULT: u64 = 0x676f_2067_6f00;

/// Headers that `net/http` keeps outside of its header map.
const ELSEWHERE: [&str; 3] = ["host", "transfer-encoding", "trailer"];

/// A request as `second-parser` prints it.
#[derive(Debug, Deserialize)]
struct ParsedRequest {
    method: String,
    target: String,
    host: String,
    headers: Vec<(String, String)>,
    body: String,
    complete: bool,
}

/// Go's parser sees each of them begin and end where the gateway does, and sees no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_parses_exactly_the_permitted_requests() {
    let parser = match second_parser() {
        Ok(parser) => parser,
        Err(missing) if std::env::var_os("KUBEBUILDER_ASSETS").is_some() => {
            return skip(NAME, &missing.to_string());
        }
        Err(missing) => panic!("{missing}"),
    };
    let mut edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    let seed = std::env::var(SEED).map_or(SEED_DEFAULT, |seed| seed.parse().expect("a number"));
    let mut generator = Generator::new(seed);

    for _ in 0..CONNECTIONS {
        let mut caller = Http1Caller::dial(&edge.rig).await;
        // Who refuses one of them may close before it has the next.
        let _ = caller.try_write(generator.connection()).await;
        if timeout(WAITS_MAX, caller.closed()).await.is_err() {
            caller.leave(Disconnect::Reset).await;
        }
    }
    // The agent finishes what it has begun, and says no more.
    edge.agent.process.signal(rustix::process::Signal::TERM).unwrap();
    edge.agent.process.wait(PARSER_MAX).await.unwrap();

    let scratch = Scratch::new("tombolo-second-").unwrap();
    let files: Vec<String> = edge
        .fake
        .connections()
        .iter()
        .map(|connection| {
            assert_eq!(connection.bytes.len() as u64, connection.received_bytes, "all of it was kept");
            let file = scratch.path().join(connection.id.to_string());
            fs::write(&file, &connection.bytes).unwrap();
            file.display().to_string()
        })
        .collect();
    let output = run(&Invocation::of(parser).arguments(files), PARSER_MAX).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let requests = edge.fake.requests();
    let log = AuditLog::of(&edge.rig);
    let mut counts = BTreeMap::<_, usize>::new();
    for (connection, line) in String::from_utf8(output.stdout).unwrap().lines().enumerate() {
        let mut read: Vec<ParsedRequest> = serde_json::from_str(line).unwrap();
        // The agent's own question, which is no request of a caller.
        read.retain(|request| request.target != "/version");
        let arrived: Vec<_> =
            requests.iter().filter(|request| request.connection == connection as u64).collect();
        assert_eq!(read.len(), arrived.len(), "seed {seed}: {read:#?}\n{arrived:#?}");
        for (read, arrived) in read.iter().zip(arrived) {
            are_one(read, arrived);
            is_the_one_permitted(arrived, &log);
            *counts.entry((read.method.clone(), read.complete, !read.body.is_empty())).or_default() += 1;
        }
    }
    eprintln!("seed {seed}: {} of {} requests arrived: {counts:?}", requests.len(), 3 * CONNECTIONS);
    assert_eq!(
        counts.values().sum::<usize>(),
        requests.len(),
        "every request was on a connection that was read"
    );
    // A table of refusals alone, or without any, would show nothing.
    assert!(
        requests.len() >= CONNECTIONS && requests.len() <= 3 * CONNECTIONS - CONNECTIONS / 2,
        "{counts:?}"
    );
    let with_a_body = counts.iter().filter(|((_, _, body), _)| *body).map(|(_, count)| count).sum::<usize>();
    assert!(with_a_body >= CONNECTIONS / 5, "{counts:?}");
    let permitted = log.intents().len();
    assert!(permitted >= requests.len(), "{permitted} intents for {}", requests.len());
}

/// Go and the fake read the same request out of the same bytes.
fn are_one(read: &ParsedRequest, arrived: &RecordedRequest) {
    assert_eq!((&read.method, &read.target), (&arrived.method, &arrived.target));
    assert_eq!(BASE64_STANDARD.decode(&read.body).unwrap(), arrived.body, "{arrived:?}");
    assert_eq!(read.complete, arrived.body_ended.is_some(), "{read:?} {arrived:?}");
    assert_eq!([read.host.as_str()], arrived.header("host")[..], "{arrived:?}");
    let sorted = |headers: &[(String, String)]| {
        let mut headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect();
        headers.retain(|(name, _)| !ELSEWHERE.contains(&name.as_str()));
        headers.sort();
        headers
    };
    assert_eq!(sorted(&read.headers), sorted(&arrived.headers), "{arrived:?}");
}

/// One intent was written of it, for this path.
fn is_the_one_permitted(arrived: &RecordedRequest, log: &AuditLog) {
    let [audit_id] = arrived.header("audit-id")[..] else { panic!("{arrived:?}") };
    let about = log.about(audit_id);
    let [intent] = about.intents()[..] else { panic!("{arrived:?}: {about:?}") };
    let uri = intent["requestURI"].as_str().unwrap();
    let path = |uri: &str| uri.split('?').next().unwrap_or_default().to_owned();
    assert_eq!(path(uri), format!("/clusters/edge-a{}", path(&arrived.target)), "{arrived:?}");
}
