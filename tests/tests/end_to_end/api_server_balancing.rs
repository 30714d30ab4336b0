//! Two real API servers of one cluster behind one agent: one joins, one freezes, one dies, and the others
//! keep answering.

use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use rustix::process::Signal;
use tests::caller::{Http1Caller, SOON, head};
use tests::enroll::at;
use tests::kube::EdgeCluster;
use tests::rig::policy::{allow_all, may_dial};
use tests::rig::{Agent, ApiServer, GROUP, Rig};
use tokio::time::{Instant, sleep, timeout};

const CLUSTER: &str = "edge-a";

/// A path that every caller may request.
const VERSION: &str = "/clusters/edge-a/version";

/// Callers at the same time, and the pause of each between two requests.
const CALLERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(20);

/// Requests that have to succeed after each change.
const REQUESTS: usize = 100;

/// A GET: when it began, and what became of it.
type GetResult = (Instant, Option<u16>);

/// Only the requests in flight at an API server that dies may fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_get_fails_while_api_servers_join_freeze_and_die() {
    let mut cluster = EdgeCluster::start().await.unwrap();
    let account = cluster.create_agent_account().await.unwrap();
    let rig = Rig::start().await;
    let further = cluster.address_of_further_apiserver().unwrap();
    let api_server = ApiServer::of_several(&cluster, &account, &[cluster.address(), further]);
    let target = cluster.address().to_string();
    let agent = rig.agent_with(CLUSTER, &api_server, &format!("targets: [{target:?}]\n")).await;
    rig.connected(CLUSTER).await;
    let callers = format!("token:{GROUP}");
    let callers = ("token", callers.as_str());
    rig.put_policy(&[allow_all("all", callers, &["*"]), may_dial("dialers", callers, &[CLUSTER])]).await;
    at(&rig, &["cluster", "update", CLUSTER, "--advertise", &target]).await;
    ready(&rig, &agent, 1).await;

    let begun = Instant::now();
    let process = cluster.start_further_apiserver(further).await.unwrap();
    ready(&rig, &agent, 2).await;
    println!("an API server was used {:?} after its process began", begun.elapsed());
    served(&rig, &agent, 2, "one joined", async {}).await;
    // Both are asked: what each audits is in a file of its own.
    for path in [cluster.audit_path(), cluster.audit_path_of_further()] {
        let is_asked =
            || std::fs::read_to_string(&path).is_ok_and(|log| log.contains("\"requestURI\":\"/version\""));
        while !is_asked() {
            assert_eq!(get(&rig).await.1, Some(200));
        }
    }

    process.signal(Signal::STOP).unwrap();
    served(&rig, &agent, 1, "one stands still", ready(&rig, &agent, 1)).await;
    process.signal(Signal::CONT).unwrap();
    ready(&rig, &agent, 2).await;
    // The one that the agent's credential names.
    served(&rig, &agent, 1, "one died", async {
        cluster.kill_apiserver();
        ready(&rig, &agent, 1).await;
    })
    .await;
    // A caller that dials the API server of the agent's credential is connected to a live one.
    let connected = timeout(SOON, async {
        let mut answer = String::new();
        while !answer.starts_with("HTTP/1.1 200") {
            // As long as it is late with an answer, that is nobody.
            ready(&rig, &agent, 1).await;
            let mut caller = Http1Caller::dial(&rig).await;
            caller.write(head("CONNECT", &target, &format!("Tombolo-Cluster: {CLUSTER}\r\n"))).await;
            answer = caller.read_head().await;
        }
    });
    assert!(connected.await.is_ok(), "{}", rig.agent_log(CLUSTER));
}

/// Callers send requests all the time while `change` happens, after which `count` API servers are ready. No
/// request that begins after it fails.
async fn served(rig: &Rig, agent: &Agent, count: usize, what: &str, change: impl Future<Output = ()>) {
    let (asked, over) = (Mutex::new(Vec::<GetResult>::new()), AtomicBool::new(false));
    let caller = async || {
        while !over.load(Ordering::SeqCst) {
            // A request in flight waits for a frozen API server, and this test does not wait for that.
            let began = Instant::now();
            let answered = tokio::select! {
                asked = get(rig) => asked,
                () = until(&over) => (began, None),
            };
            asked.lock().unwrap().push(answered);
            sleep(PAUSE).await;
        }
    };
    let act = async {
        let began = Instant::now();
        change.await;
        let changed = Instant::now();
        println!("{what}: known after {:?}", changed - began);
        // On a machine that is busy an API server that lives may be late with an answer, and is not asked for
        // a moment.
        let lost = || rig.agent_log(CLUSTER).matches("it gets no more requests").count();
        let served = timeout(SOON, async {
            loop {
                ready(rig, agent, count).await;
                let before = lost();
                let mut statuses = Vec::new();
                for _ in 0..REQUESTS {
                    statuses.push(get(rig).await.1);
                }
                if statuses.iter().all(|status| *status == Some(200)) {
                    return;
                }
                assert!(lost() > before, "{what}: {statuses:?}");
            }
        });
        assert!(served.await.is_ok(), "{what}: {}", rig.agent_log(CLUSTER));
        over.store(true, Ordering::SeqCst);
        let asked = asked.lock().unwrap();
        let failed = asked.iter().filter(|(_, status)| status.is_some_and(|status| status != 200));
        println!("{what}: {} of {} failed in flight", failed.count(), asked.len());
    };
    tokio::join!(join_all((0..CALLERS).map(|_| caller())), act);
}

async fn until(over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        sleep(PAUSE).await;
    }
}

async fn get(rig: &Rig) -> GetResult {
    let began = Instant::now();
    let reply = rig.ask_with_token("GET", VERSION, &[]).await;
    (began, Some(reply.status))
}

/// Waits until the agent knows of so many API servers that are ready.
async fn ready(rig: &Rig, agent: &Agent, count: usize) {
    let series = "tombolo_agent_apiserver_endpoints{state=\"ready\"}";
    let known = timeout(SOON, async {
        while rig.metric(agent.probes, series).await != count as f64 {
            sleep(PAUSE).await;
        }
    });
    assert!(known.await.is_ok(), "never {count}: {}", rig.agent_log(CLUSTER));
}
