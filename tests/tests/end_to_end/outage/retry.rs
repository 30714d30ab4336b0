//! Reads whose tunnel is lost, or silent beside a live one, are sent again, twice at most. Nothing else is
//! ever sent twice.

use futures::future::join_all;
use rustix::process::Signal;
use tests::fake_api::{Behaviour, FakeApi, RecordedRequest};
use tests::rig::{ApiServer, Reply, Rig};

use super::{SOON, retried, retried_in_all};

const PODS: &str = "/clusters/edge-a/api/v1/pods";
const WATCH: &str = "/clusters/edge-a/api/v1/pods?watch=1&resourceVersion=7";
const POD: &str = "/clusters/edge-a/api/v1/namespaces/default/pods/x";

/// The requests that may be sent twice, each with the name that it has in every log.
const READS: &[(&str, &str, &str)] = &[
    ("GET", PODS, "list"),
    ("GET", WATCH, "watch"),
    ("GET", POD, "get"),
    ("HEAD", POD, "head"),
    ("GET", "/clusters/edge-a/version", "version"),
];

/// Nothing else is sent twice.
#[tokio::test]
async fn reads_on_a_silent_tunnel_are_answered_over_a_live_one() {
    let (rig, silent, answers) = (Rig::start().await, fake().await, fake().await);
    silent.otherwise(Behaviour::NeverAnswer);
    answers.otherwise(Behaviour::json("{}"));
    let mut first = rig.agent_of_id("edge-a", "a", &ApiServer::of_fake(&rig, &silent), "").await;
    rig.logged("server.log", 0, "tunnel opened agent=edge-a/a").await;
    let proxy = format!("{POD}/proxy/");
    let others = [
        ("POST", PODS, "post"),
        ("PATCH", POD, "patch"),
        ("DELETE", POD, "delete"),
        ("GET", proxy.as_str(), "proxy"),
        ("OPTIONS", PODS, "options"),
    ];

    let (replies, (lost, agents)) = tokio::join!(ask_all(&rig, READS), async {
        let asked = ask_all(&rig, &others);
        let outage = async {
            for (_, _, name) in READS.iter().chain(&others) {
                silent.wait_for_request(SOON, |one| has(one, name)).await.expect("it arrives");
            }
            let second = rig.agent_of_id("edge-a", "b", &ApiServer::of_fake(&rig, &answers), "").await;
            rig.logged("server.log", 0, "tunnel opened agent=edge-a/b").await;
            first.process.signal(Signal::STOP).expect("the agent runs");
            for (_, _, name) in READS {
                answers.wait_for_request(SOON, |one| has(one, name)).await.expect("it is sent once more");
            }
            assert_eq!(came(&answers), READS.len(), "and nothing else is");
            // Only now is the first agent's tunnel lost, and with it what could not be sent twice.
            first.process.kill();
            let again = rig.agent_of_id("edge-a", "a", &ApiServer::of_fake(&rig, &answers), "").await;
            (second, again)
        };
        tokio::join!(asked, outage)
    });

    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    let unknown =
        |reply: &Reply| reply.status == 504 && reply.body.contains("outcome of this request is not known");
    assert!(lost.iter().all(unknown), "{lost:?}");
    assert_eq!(came(&answers), READS.len(), "nothing else was sent twice");
    assert_eq!(came(&silent), READS.len() + others.len(), "and nothing more than once to either");
    let retried = retried(&rig, "silent").await;
    assert_eq!(retried, READS.len() as f64);
    drop(agents);
}

#[tokio::test]
async fn reads_of_a_killed_agent_are_answered_by_its_replacement() {
    let (rig, silent, answers) = (Rig::start().await, fake().await, fake().await);
    silent.otherwise(Behaviour::NeverAnswer);
    answers.otherwise(Behaviour::json("{}"));
    let mut killed = rig.agent("edge-a", &ApiServer::of_fake(&rig, &silent)).await;

    let (replies, again) = tokio::join!(ask_all(&rig, READS), async {
        for (_, _, name) in READS {
            silent.wait_for_request(SOON, |one| has(one, name)).await.expect("it arrives");
        }
        killed.process.kill();
        rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &answers), "").await
    });

    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    for (_, _, name) in READS {
        let named = |api: &FakeApi| api.requests().iter().filter(|one| has(one, name)).count();
        assert_eq!((named(&silent), named(&answers)), (1, 1), "{name} bears its name both times");
    }
    let retried = retried_in_all(&rig).await;
    assert_eq!(retried, READS.len() as f64);
    drop(again);
}

#[tokio::test]
async fn a_read_is_resent_twice_at_most() {
    let (rig, silent) = (Rig::start().await, fake().await);
    silent.otherwise(Behaviour::NeverAnswer);
    let api_server = ApiServer::of_fake(&rig, &silent);
    let mut agent = rig.agent("edge-a", &api_server).await;

    let (replies, agent) = tokio::join!(ask_all(&rig, &READS[..1]), async {
        let mut before = 0;
        for _ in 0..3 {
            let is_new = |one: &RecordedRequest| one.id >= before && has(one, "list");
            before = silent.wait_for_request(SOON, is_new).await.expect("it arrives").id + 1;
            agent.process.kill();
            agent = rig.agent_with("edge-a", &api_server, "").await;
        }
        agent
    });

    assert_eq!(replies[0].status, 504, "{replies:?}");
    assert!(replies[0].head.contains("application/json"), "{replies:?}");
    assert_eq!(came(&silent), 3);
    let retried = retried_in_all(&rig).await;
    assert_eq!(retried, 2.0);
    drop(agent);
}

/// The new agent connects while the other one is silent.
#[tokio::test]
async fn a_read_is_resent_to_a_new_agent_and_not_to_a_silent_one() {
    let (rig, silent, answers) = (Rig::start().await, fake().await, fake().await);
    silent.otherwise(Behaviour::NeverAnswer);
    answers.otherwise(Behaviour::json("{}"));
    let api = ApiServer::of_fake(&rig, &silent);
    // It cuts off what it has as soon as it may.
    let mut stops = rig.agent_of_id("edge-a", "a", &api, "drainGraceSeconds: 1").await;
    rig.logged("server.log", 0, "tunnel opened agent=edge-a/a").await;

    let (replies, agents) = tokio::join!(ask_all(&rig, &READS[..1]), async {
        silent.wait_for_request(SOON, |one| has(one, "list")).await.expect("it arrives");
        let silent = rig.agent_of_id("edge-a", "b", &api, "").await;
        rig.logged("server.log", 0, "tunnel opened agent=edge-a/b").await;
        // Idle, it counts as live for some more seconds.
        silent.process.signal(Signal::STOP).expect("the agent runs");
        assert_eq!(Rig::ends_with(&mut stops.process, Signal::TERM).await, Some(3));
        rig.logged("server.log", 0, "tunnel's health changed agent=edge-a/b health=Suspect").await;
        (silent, rig.agent_of_id("edge-a", "c", &ApiServer::of_fake(&rig, &answers), "").await)
    });

    assert_eq!(replies[0].status, 200, "{replies:?}");
    assert_eq!([retried(&rig, "lost").await, retried(&rig, "silent").await], [1.0, 0.0]);
    assert_eq!([&silent, &answers].map(came), [1, 1]);
    drop(agents);
}

/// Their replacements die in the same way, and the reads are still answered.
#[tokio::test]
async fn reads_survive_the_death_of_all_agents_at_once() {
    let (rig, silent, silent_too, answers) = (Rig::start().await, fake().await, fake().await, fake().await);
    [&silent, &silent_too].iter().for_each(|api| api.otherwise(Behaviour::NeverAnswer));
    answers.otherwise(Behaviour::json("{}"));
    let start_both = async |api: &FakeApi| {
        let output = rig.server_log().len();
        let api = ApiServer::of_fake(&rig, api);
        let both = [
            ("a", rig.agent_of_id("edge-a", "a", &api, "").await),
            ("b", rig.agent_of_id("edge-a", "b", &api, "").await),
        ];
        for (id, _) in &both {
            rig.logged("server.log", output, &format!("tunnel opened agent=edge-a/{id}")).await;
        }
        both
    };
    let mut both = start_both(&silent).await;

    let (replies, both) = tokio::join!(ask_all(&rig, READS), async {
        for (here, next) in [(&silent, &silent_too), (&silent_too, &answers)] {
            for (_, _, name) in READS {
                here.wait_for_request(SOON, |one| has(one, name)).await.expect("it arrives");
            }
            both.iter_mut().for_each(|(_, agent)| agent.process.kill());
            both = start_both(next).await;
        }
        both
    });

    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    assert_eq!([&silent, &silent_too, &answers].map(came), [READS.len(); 3]);
    drop(both);
}

async fn fake() -> FakeApi {
    FakeApi::start().await.expect("a fake starts")
}

/// Asks them all at once.
async fn ask_all(rig: &Rig, requests: &[(&str, &str, &str)]) -> Vec<Reply> {
    let ask = |(method, path, name): &(&str, &str, &str)| {
        let (method, path, name) = ((*method).to_owned(), (*path).to_owned(), (*name).to_owned());
        async move { rig.ask_with_token(&method, &path, &[("Audit-ID", &name)]).await }
    };
    join_all(requests.iter().map(ask)).await
}

/// Number of our requests that have arrived. Agents send some of their own.
fn came(api: &FakeApi) -> usize {
    api.requests().iter().filter(|one| audit_id(one).is_some()).count()
}

fn has(request: &RecordedRequest, name: &str) -> bool {
    audit_id(request) == Some(name)
}

fn audit_id(request: &RecordedRequest) -> Option<&str> {
    let header = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("audit-id"));
    header.map(|(_, value)| value.as_str())
}
