//! Three agents of one cluster, one of which is killed every two seconds: no read fails whose answer had not
//! begun.

use std::cell::Cell;
use std::time::Duration;

use futures::future::join_all;
use tests::caller::Http2Caller;
use tests::fake_api::{Behaviour, FakeApi};
use tests::rig::{Agent, ApiServer, Rig};
use tests::rng::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use super::retried;

const SEED: &str = "TOMBOLO_TEST_SEED";
const SEED_DEFAULT: u64 = 0x706f_6f6c;

/// The interval at which agents are killed. It is part of the claim, and nothing waits for it.
const KILL_EVERY: Duration = Duration::from_secs(2);
/// Callers at the same time, and the pause of each between two reads: the machine builds other things
/// meanwhile.
const CALLERS: usize = 6;
const PAUSE: Duration = Duration::from_millis(20);

const AGENTS: [&str; 3] = ["a", "b", "c"];

#[tokio::test]
async fn no_read_fails_while_agents_are_killed_one_after_the_other() {
    killing(6).await;
}

#[tokio::test]
#[ignore = "soak: kills an agent every 2 s for two minutes"]
async fn no_read_fails_while_agents_are_killed_for_two_minutes() {
    killing(60).await;
}

/// The outcomes of the reads.
#[derive(Debug, Default)]
struct ReadCounts {
    answered: Cell<usize>,
    cut_off: Cell<usize>,
    longest: Cell<Duration>,
}

/// Kills an agent and starts it again, so often, while callers read.
async fn killing(times: u32) {
    let seed = std::env::var(SEED).map_or(SEED_DEFAULT, |seed| seed.parse().expect("a number"));
    println!("{SEED}={seed}");
    let rig = Rig::start_with("parking: { limitSeconds: 60 }").await;
    let mut places = Vec::new();
    for id in AGENTS {
        let api = FakeApi::start().await.expect("a fake starts");
        api.on("/api/v1/pods", Behaviour::json("{\"kind\":\"PodList\",\"items\":[]}"));
        let agent = rig.agent_of_id("edge-a", id, &ApiServer::of_fake(&rig, &api), "").await;
        rig.logged("server.log", 0, &format!("tunnel opened agent=edge-a/{id}")).await;
        places.push((id, api, agent));
    }
    let (counts, done) = (ReadCounts::default(), Cell::new(false));

    let callers = join_all((0..CALLERS).map(|_| read(&rig, &counts, &done)));
    let kills = async {
        kill(&rig, &mut places, times, Rng::new(seed)).await;
        done.set(true);
    };
    tokio::join!(callers, kills);

    let reads = |api: &FakeApi| api.requests().iter().filter(|one| one.target.contains("/pods")).count();
    let shares: Vec<usize> = places.iter().map(|(_, api, _)| reads(api)).collect();
    let retried = (retried(&rig, "lost").await, retried(&rig, "silent").await);
    println!("{counts:?}, by agent {shares:?}, sent once more (lost, silent) {retried:?}");
    assert!(counts.answered.get() > 0);
    assert!(shares.iter().all(|share| share * 10 > counts.answered.get()), "each has its share: {shares:?}");
    assert_eq!(rig.metric(rig.probes(), "tombolo_server_agent_keys_copied_total").await, 0.0);
}

/// Kills one that was not killed last time, and starts it again.
async fn kill(rig: &Rig, places: &mut [(&'static str, FakeApi, Agent)], times: u32, mut rng: Rng) {
    let (began, mut last) = (Instant::now(), 0);
    for turn in 1..=times {
        sleep_until(began + KILL_EVERY * turn).await;
        last = (last + 1 + rng.below(2) as usize) % places.len();
        let (id, api, agent) = &mut places[last];
        agent.process.kill();
        *agent = rig.agent_of_id("edge-a", id, &ApiServer::of_fake(rig, api), "").await;
    }
}

/// Reads until it is done, over a connection of its own.
async fn read(rig: &Rig, counts: &ReadCounts, done: &Cell<bool>) {
    let mut caller = Http2Caller::dial(rig).await;
    while !done.get() {
        let asked = Instant::now();
        let (answer, _) = caller.send("GET", "/clusters/edge-a/api/v1/pods", &[], true);
        let answer = answer.await.expect("the gateway lives");
        assert_eq!(answer.status(), 200, "after {:?}\n{}", asked.elapsed(), rig.server_log());
        counts.longest.set(counts.longest.get().max(asked.elapsed()));
        // What had begun when its agent was killed may be cut.
        match tests::caller::read_to_end(answer.into_body()).await.1 {
            Ok(()) => counts.answered.set(counts.answered.get() + 1),
            Err(_) => counts.cut_off.set(counts.cut_off.get() + 1),
        }
        sleep(PAUSE).await;
    }
}
