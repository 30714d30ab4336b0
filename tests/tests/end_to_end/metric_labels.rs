//! Metrics have no series with names that callers or unauthenticated clients choose.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use tests::caller::GATEWAY;
use tests::fake_api::{Answer, Behaviour, HttpVersion};
use tests::fake_edge::FakeEdge;
use tests::raw_http2::{RawHead, RawHttp2};
use tests::rig::{GROUP, TOKEN};
use tests::rng::Rng;

/// The catalogue has a million.
const REQUESTS: usize = 5_000;
/// The prefix of every random name.
const NAMED: &str = "zq";
/// On one connection, which a gateway closes after too many malformed ones.
const ON_ONE: usize = 250;
const AT_ONCE: usize = 50;
const USERS: u64 = 20;
const SERIES_MAX: usize = 2_000;

/// This holds for both daemons.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_metric_label_contains_hosts_paths_user_agents_or_users() {
    let edge = FakeEdge::start(HttpVersion::Http2).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    for status in [201, 404, 409, 418, 500, 599] {
        edge.fake.on(&format!("/api/{status}"), Behaviour::Answer(Answer::json(status, "{}")));
    }

    round(&edge, &mut Rng::new(1)).await;

    let series = series(&edge).await;
    // The random numbers decide which of our combinations appear. None contains a name from a client.
    let named: Vec<&String> = series.iter().filter(|series| series.to_lowercase().contains(NAMED)).collect();
    assert_eq!(named, Vec::<&String>::new());
    assert!(series.len() < SERIES_MAX && series.len() > 50, "{} series", series.len());
    assert!(edge.fake.requests().len() > REQUESTS / 10, "{} were served", edge.fake.requests().len());
}

/// A head with random names in every field that a caller chooses.
fn head(rng: &mut Rng) -> RawHead {
    let word = |rng: &mut Rng| format!("{NAMED}{:x}", rng.next_u64());
    let method = match rng.below(10) {
        0 => word(rng).to_uppercase(),
        1 => "DELETE".to_owned(),
        2 => "PATCH".to_owned(),
        _ => "GET".to_owned(),
    };
    let authority = match rng.below(6) {
        0 => format!("{}.clusters.test", word(rng)),
        1 => word(rng),
        _ => GATEWAY.to_owned(),
    };
    let path = match rng.below(8) {
        0 => format!("/{}/{}", word(rng), word(rng)),
        1 => format!("/clusters/{}/api/v1/{}", word(rng), word(rng)),
        2 => format!(
            "/clusters/edge-a/api/{}/{}",
            [201, 404, 409, 418, 500, 599][rng.below(6) as usize],
            word(rng)
        ),
        3 => format!(
            "/clusters/edge-a/apis/{}/v1/namespaces/{}/{}/{}",
            word(rng),
            word(rng),
            word(rng),
            word(rng)
        ),
        4 => format!("/clusters/edge-a/api/v1/namespaces/n/pods/p/{}?x={}", word(rng), word(rng)),
        _ => format!("/clusters/edge-a/{}?{}={}", word(rng), word(rng), word(rng)),
    };
    let mut head: Vec<(&str, String)> = vec![
        (":method", method),
        (":scheme", "https".to_owned()),
        (":authority", authority),
        (":path", path),
        ("user-agent", word(rng)),
    ];
    match rng.below(8) {
        0 => head.push(("authorization", format!("Bearer {}", word(rng)))),
        1 => head.push(("authorization", format!("{} {}", word(rng), word(rng)))),
        2 => head.push(("impersonate-user", word(rng))),
        3 => head.push(("origin", format!("https://{}.test", word(rng)))),
        _ => {}
    }
    if !head.iter().any(|(name, _)| *name == "authorization") && rng.below(4) > 0 {
        head.push(("authorization", format!("Bearer {TOKEN}")));
    }
    head.into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes())).collect()
}

async fn round(edge: &FakeEdge, rng: &mut Rng) {
    let mut left = REQUESTS;
    while left > 0 {
        let mut caller = RawHttp2::dial(&edge.rig, GATEWAY, None).await;
        for _ in 0..ON_ONE / AT_ONCE {
            let heads: Vec<RawHead> = (0..AT_ONCE).map(|_| head(rng)).collect();
            left = left.saturating_sub(AT_ONCE);
            if caller.ask(&heads).await.is_err() {
                break;
            }
        }
    }
    let end = SystemTime::now() + Duration::from_secs(3600);
    for _ in 0..USERS {
        let user = format!("{NAMED}-{:x}", rng.next_u64());
        let identity = edge.rig.caller_until(&user, &[GROUP], end);
        let heads: Vec<RawHead> = (0..5)
            .map(|_| {
                let mut head = head(rng);
                head.retain(|(name, _)| name != "authorization");
                head
            })
            .collect();
        // A connection that is closed is an answer, too.
        let _ = RawHttp2::dial(&edge.rig, GATEWAY, Some(&identity)).await.ask(&heads).await;
    }
}

/// The names of all series with their labels.
async fn series(edge: &FakeEdge) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for probes in [edge.rig.probes(), edge.agent.probes] {
        let text = edge.rig.metrics(probes).await;
        let lines =
            text.lines().skip_while(|line| !line.starts_with('#')).filter(|line| !line.starts_with('#'));
        all.extend(lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())));
    }
    all
}
