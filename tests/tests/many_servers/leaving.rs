//! A server that stops: it says so first, and nobody loses a request or a watch.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use tests::caller::{Http1Caller, head};
use tests::fake_api::{Behaviour, WatchFeed};
use tests::rig::{ApiServer, Reply, Rig, TOKEN, ask, is_ready};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::hop::HopTrial;
use crate::{PATH, SERVED, until};

/// A balancer's look at its servers. Until the next one it sends callers to a server that has just stopped.
const BALANCER_LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Callers that send one request after the other.
const CALLERS: usize = 4;

/// The pause of a caller between two requests.
const CALLERS_PAUSE: Duration = Duration::from_millis(20);

#[tokio::test]
async fn a_stopping_server_serves_on_while_balancers_learn_of_it() {
    let mut trial = HopTrial::start().await;

    trial.rig.server().signal(Signal::TERM).expect("it runs");

    trial.rig.draining(trial.rig.probes()).await;
    assert_eq!(trial.rig.ask_at(trial.rig.gateway(), PATH).await.status, SERVED);
    let ended = trial.rig.server().wait(crate::DONE_MAX).await.expect("it ends");
    assert_eq!(ended.code(), Some(0));
}

/// Its caller goes on at another server from the last event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_cleanly_when_its_server_leaves_others_behind() {
    let mut trial = HopTrial::start().await;
    let feed = WatchFeed::default();
    trial.api.otherwise(Behaviour::Watch(feed.clone()));
    let mut watch = Http1Caller::dial(&trial.rig).await;
    let target = "/clusters/edge-a/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=1";
    watch.write(head("GET", target, "Connection: close\r\n")).await;
    let answered = watch.read_head().await;
    assert!(answered.starts_with("HTTP/1.1 200 "), "{answered}");
    let event =
        r#"{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"2"}}}"#;
    feed.push(format!("{event}\n"));
    watch.read_until("\"a\"").await;

    trial.rig.server().signal(Signal::TERM).expect("it runs");

    let (rest, end) = watch.read_to_end().await;
    let text = String::from_utf8_lossy(&rest).into_owned();
    assert!(end.is_ok() && text.ends_with("0\r\n\r\n") && !text.contains("ERROR"), "{end:?}: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_each_server_restarts_in_turn() {
    let mut trial = HopTrial::start().await;
    let mut third = trial.peer("third").await;
    let servers = [
        (trial.rig.gateway(), trial.rig.probes()),
        (trial.other.gateway, trial.other.probes),
        (third.gateway, third.probes),
    ];
    let names = servers.map(|(gateway, _)| format!("\"{gateway}\"")).join(", ");
    let api = ApiServer::of_fake(&trial.rig, &trial.api);
    let _agent = trial.rig.agent_of_id("edge-a", "everywhere", &api, &format!("servers: [{names}]\n")).await;
    let callers = Callers::begin(servers, trial.rig.server_ca());
    callers.until_served_again().await;

    assert_eq!(Rig::ends_with(trial.rig.server(), Signal::TERM).await, Some(0));
    trial.rig.start_server().await;
    callers.until_served_again().await;
    for peer in [&mut trial.other, &mut third] {
        let process = peer.process.as_mut().expect("it runs");
        assert_eq!(Rig::ends_with(process, Signal::TERM).await, Some(0));
        peer.start(&trial.rig).await;
        callers.until_served_again().await;
    }

    let (served, failed) = callers.end().await;
    assert_eq!(failed, Vec::<String>::new(), "of {served} requests");
}

/// Callers behind a balancer, which sends each request to the next server that said it was ready.
struct Callers {
    shared: Arc<SharedCallers>,
    tasks: JoinSet<()>,
}

struct SharedCallers {
    servers: [(SocketAddr, SocketAddr); 3],
    ca: String,
    ready: [AtomicBool; 3],
    turn: AtomicUsize,
    served: AtomicUsize,
    failed: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Callers {
    fn begin(servers: [(SocketAddr, SocketAddr); 3], ca: String) -> Self {
        let shared = Arc::new(SharedCallers {
            servers,
            ca,
            ready: [true; 3].map(AtomicBool::new),
            turn: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            failed: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&shared).balance());
        for number in 0..CALLERS {
            tasks.spawn(Arc::clone(&shared).call(number));
        }
        Self { shared, tasks }
    }

    /// Waits for some more answers from every server.
    async fn until_served_again(&self) {
        let before = self.shared.served.load(Ordering::Relaxed);
        let all_ready = || self.shared.ready.iter().all(|ready| ready.load(Ordering::Relaxed));
        until("all are ready", async || all_ready()).await;
        until("requests are served", async || self.shared.served.load(Ordering::Relaxed) > before + 50).await;
    }

    async fn end(mut self) -> (usize, Vec<String>) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        let failed = std::mem::take(&mut *self.shared.failed.lock().expect("no caller panicked"));
        (self.shared.served.load(Ordering::Relaxed), failed)
    }
}

impl SharedCallers {
    async fn balance(self: Arc<Self>) {
        while !self.is_over.load(Ordering::Relaxed) {
            for ((_, probes), ready) in self.servers.iter().zip(&self.ready) {
                let is_ready = is_ready(*probes).await;
                ready.store(is_ready, Ordering::Relaxed);
            }
            sleep(BALANCER_LOOKS_EVERY).await;
        }
    }

    async fn call(self: Arc<Self>, number: usize) {
        // Every other caller writes.
        let method = ["GET", "POST"][number % 2];
        while !self.is_over.load(Ordering::Relaxed) {
            // Also where no server is ready, so that the balancer gets its turn.
            sleep(CALLERS_PAUSE).await;
            let Some(gateway) = self.next_ready() else { continue };
            let authorization = format!("Bearer {TOKEN}");
            let headers = [("Authorization", authorization.as_str())];
            match ask(gateway, &self.ca, None, method, PATH, &headers).await {
                Ok(Reply { status: SERVED, .. }) => {
                    self.served.fetch_add(1, Ordering::Relaxed);
                }
                other => {
                    let what = format!("{method} at {gateway}: {other:?}");
                    self.failed.lock().expect("no caller panicked").push(what);
                }
            }
        }
    }

    fn next_ready(&self) -> Option<SocketAddr> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut in_turn = (0..3).map(|n| (turn + n) % 3);
        in_turn.find(|n| self.ready[*n].load(Ordering::Relaxed)).map(|n| self.servers[n].0)
    }
}
