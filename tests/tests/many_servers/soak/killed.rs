//! A server that is killed under load: the one that the callers are at, and the one with the tunnel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::client::{Balancer, KubeClient};
use super::load::{LoadFigures, ShellEnd, SteadyLoad, shell};
use super::watcher::{WatchFigures, Watchers};
use super::{ALONE, CONFIGMAPS, HANGS_AFTER, Spread, Trio};
use crate::until;

const WATCHES: usize = 500;
const SHELLS: usize = 20;
const READS_EACH_SECOND: u32 = 50;

/// Clients with a connection each, which share the watches.
const CLIENTS: usize = 25;

const EVENT_EVERY: Duration = Duration::from_millis(500);

/// The time in which servers tell each other of their open streams, and more.
const TOLD_AFTER: Duration = Duration::from_millis(150);

/// The load goes on for this long before the server is killed, and for as long as a session may stay silent and more afterwards.
const BEFORE: Duration = Duration::from_secs(5);
const AFTER: Duration = Duration::from_secs(25);

/// A shell over the killed server's tunnel ends when the session with that server is lost, after 14 s of silence.
const SHELL_ENDS_MAX: Duration = Duration::from_secs(16);

/// The time within which every watch has its next event. Five seconds are promised to a machine that has time for it, and less than
/// this passes before the session with a killed server is lost.
const RESUMED_MAX: Duration = Duration::from_secs(10);

/// Watches, shells and reads through one server.
struct Load {
    watchers: Watchers,
    shells: Vec<JoinHandle<ShellEnd>>,
    reads: SteadyLoad,
}

struct Figures {
    watches: WatchFigures,
    reads: LoadFigures,
    /// The times from the kill to the end of each shell that ended, and those that ended as if all were well.
    ended: Vec<Duration>,
    clean: usize,
    /// The shells that went on.
    alive: usize,
}

/// The agent has no tunnel to the killed server, so every request went on by a hop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: 500 watches, 20 shells and 50 reads a second for half a minute"]
async fn callers_of_a_killed_server_go_on_at_the_next_one() {
    let _alone = ALONE.lock().await;
    let mut trio = Trio::start().await;
    let [first, second, third] = trio.servers();
    let _agent = trio.agent(&[first.0, third.0]).await;
    let load = Load::begin(&trio, &[second, first, third]).await;

    trio.go_on(BEFORE).await;
    let killed = Instant::now();
    trio.second.kill();
    trio.go_on(AFTER).await;

    let figures = load.end(&trio, killed).await;
    println!("soak killed-callers-server: {figures}");
    figures.check();
    assert_eq!(figures.alive, 0, "a shell outlived the connection to its server");
}

/// The callers' server carries requests to the two servers with a tunnel, and the one that it prefers is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: 500 watches, 20 shells and 50 reads a second for half a minute"]
async fn requests_over_a_killed_servers_tunnel_go_on_over_the_next_one() {
    let _alone = ALONE.lock().await;
    let mut trio = Trio::start().await;
    let [first, second, third] = trio.servers();
    let _agent = trio.agent(&[second.0, third.0]).await;
    let load = Load::begin(&trio, &[first, second, third]).await;

    trio.go_on(BEFORE).await;
    let relayed = async |probes| trio.rig.metric(probes, "tombolo_server_relayed_requests_total").await;
    let (by_second, by_third) = (relayed(second.1).await, relayed(third.1).await);
    let killed = Instant::now();
    if by_second > by_third {
        trio.second.kill()
    } else {
        trio.third.kill()
    }
    trio.go_on(AFTER).await;

    let resumed = trio.rig.metric(first.1, "tombolo_server_watches_resumed_total").await;
    let figures = load.end(&trio, killed).await;
    println!(
        "soak killed-tunnels-server: {} of {} streams were at the killed server; {resumed} watches resumed by their own server; \
         {figures}",
        by_second.max(by_third),
        by_second + by_third
    );
    figures.check();
    assert!(
        !figures.ended.is_empty(),
        "no shell was at the killed server, so the trial shows nothing of them"
    );
    assert_eq!(figures.reads.repeated, 0, "the callers' server lives, so no connection ended");
}

impl Trio {
    /// Changes an object again and again.
    async fn go_on(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.store.put("changed", "again");
            sleep(EVENT_EVERY).await;
        }
    }
}

impl Load {
    /// Begins all of it at the first of these servers. The clients try the others in their order.
    async fn begin(trio: &Trio, order: &[(SocketAddr, SocketAddr)]) -> Self {
        let (balancer, ca) = (Arc::new(Balancer::in_order(order)), trio.rig.server_ca());
        let mut shells = Vec::new();
        for _ in 0..SHELLS {
            shells.push(shell(order[0].0, ca.clone(), "edge-a").await);
            // Servers tell of their open streams with a delay, and the next shell takes the other way.
            sleep(TOLD_AFTER).await;
        }
        let mut watchers = Watchers::new();
        let path = format!("/clusters/edge-a{CONFIGMAPS}");
        for client in KubeClient::several(CLIENTS, &balancer, &ca) {
            for _ in 0..WATCHES / CLIENTS {
                watchers.begin(&client, path.clone());
            }
        }
        until("every watcher has a watch", async || watchers.are_established()).await;
        let clients = KubeClient::several(CLIENTS, &balancer, &ca);
        let reads = SteadyLoad::reads(clients, vec![format!("{path}/read")], READS_EACH_SECOND);
        Self { watchers, shells, reads }
    }

    async fn end(self, trio: &Trio, killed: Instant) -> Figures {
        let watches = self.watchers.end(&trio.store.emitted()).await;
        let reads = self.reads.end().await;
        let (mut ended, mut clean, mut alive) = (Vec::new(), 0, 0);
        for shell in self.shells {
            if !shell.is_finished() {
                alive += 1;
                shell.abort();
                continue;
            }
            let end = timeout(HANGS_AFTER, shell).await.expect("it has ended").expect("no shell panics");
            assert!(end.echoed_bytes > 0, "a shell that never echoed shows nothing");
            ended.push(end.at.saturating_duration_since(killed));
            clean += usize::from(end.is_clean);
        }
        Figures { watches, reads, ended, clean, alive }
    }
}

impl Figures {
    fn check(&self) {
        self.watches.check();
        self.reads.check();
        assert_eq!(self.clean, 0, "a shell ended as if all were well");
        let longest = Spread::of(self.ended.clone()).longest;
        assert!(longest <= SHELL_ENDS_MAX, "a shell hung for {longest:?}");
        let silence = self.watches.silences.longest;
        assert!(silence <= RESUMED_MAX, "a watch was silent for {silence:?}");
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} watches, {} lost, {} twice, {} listed anew, silent {}; {} reads, {} failed, {} sent again, {}; \
             {} shells ended ({}), {} went on",
            self.watches.watchers,
            self.watches.lost,
            self.watches.twice,
            self.watches.lists,
            self.watches.silences,
            self.reads.served + self.reads.failed.len(),
            self.reads.failed.len(),
            self.reads.repeated,
            self.reads.took,
            self.ended.len(),
            Spread::of(self.ended.clone()),
            self.alive
        )
    }
}
