//! A daemon without file descriptors keeps serving running requests, and accepts new ones as soon as there
//! are descriptors.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tests::caller::{Http1Caller, Http2Caller, SOON, head};
use tests::fake_api::{Behaviour, HttpVersion, WatchFeed};
use tests::fake_edge::FakeEdge;
use tests::process::Process;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

/// Descriptors that are left; many times as many connections come.
const LEFT: u64 = 8;

/// A process that has closed some descriptors may find as many below its limit.
const HOLES_MAX: usize = 64;

const REFUSED: &str = "cannot accept connections for now";

/// It accepts callers again once there are descriptors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_descriptors_serves_what_runs_and_recovers() {
    let mut edge = FakeEdge::start(HttpVersion::Http2).await;
    let feed = WatchFeed::new();
    edge.fake.otherwise(Behaviour::json("{}"));
    edge.fake.on("/watch", Behaviour::Watch(feed.clone()));
    let mut watch = Http1Caller::dial(&edge.rig).await;
    watch.write(head("GET", "/clusters/edge-a/watch", "")).await;
    assert!(watch.read_head().await.starts_with("HTTP/1.1 200 "));
    feed.push("first\n");
    reads(&mut watch, "first\n").await;
    let mut open = Http2Caller::dial(&edge.rig).await;
    assert_eq!(open.ask("GET", PATH, &[]).await.unwrap().status(), 200);

    let before = leave(edge.rig.server(), LEFT);
    let mut idle = Vec::new();
    for _ in 0..16 * LEFT {
        idle.push(TcpStream::connect(edge.rig.gateway()).await.unwrap());
    }
    edge.rig.logged("server.log", 0, REFUSED).await;

    feed.push("under pressure\n");
    reads(&mut watch, "under pressure\n").await;
    for _ in 0..10 {
        assert_eq!(open.ask("GET", PATH, &[]).await.unwrap().status(), 200, "a stream needs no descriptor");
    }
    drop(idle);
    // Still with as few of them.
    for _ in 0..10 {
        assert_eq!(edge.rig.ask_with_token("GET", PATH, &[]).await.status, 200);
    }
    set(edge.rig.server(), before);
    assert_eq!(edge.rig.ask_with_token("GET", PATH, &[]).await.status, 200);
    feed.push("last\n");
    reads(&mut watch, "last\n").await;
    let log = edge.rig.server_log();
    assert_eq!(log.matches("tunnel opened agent=edge-a").count(), 1, "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

/// It refuses the requests that need a descriptor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_descriptors_refuses_requests_and_recovers() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    let feed = WatchFeed::new();
    edge.fake.otherwise(Behaviour::json("{}"));
    edge.fake.on("/watch", Behaviour::Watch(feed.clone()));
    edge.fake.on("/api/v1/namespaces/n/pods", Behaviour::upgrade());
    let mut watch = Http1Caller::dial(&edge.rig).await;
    watch.write(head("GET", "/clusters/edge-a/watch", "")).await;
    assert!(watch.read_head().await.starts_with("HTTP/1.1 200 "));

    // Each shell has a connection of its own to the API server.
    let before = leave(&edge.agent.process, 0);
    let mut held = Vec::new();
    loop {
        let (shell, status) = shell(&edge).await;
        match status.as_str() {
            "101" => held.push(shell),
            "502" | "503" => break,
            other => panic!("{other}"),
        }
        assert!(held.len() < HOLES_MAX, "every one found a descriptor");
    }
    feed.push("under pressure\n");
    reads(&mut watch, "under pressure\n").await;

    set(&edge.agent.process, before);
    let again = async {
        while shell(&edge).await.1 != "101" {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, again).await.expect("it serves again");
    let log = edge.rig.agent_log("edge-a");
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(edge.rig.server_log().matches("tunnel opened agent=edge-a").count(), 1);
}

/// Requests a shell, and returns the status of the answer.
async fn shell(edge: &FakeEdge) -> (Http1Caller, String) {
    let mut caller = Http1Caller::dial(&edge.rig).await;
    let path = "/clusters/edge-a/api/v1/namespaces/n/pods/p/exec?command=sh";
    caller.write(head("GET", path, "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n")).await;
    let head = caller.read_head().await;
    (caller, head.split(' ').nth(1).unwrap().to_owned())
}

/// Limits a process to this number of descriptors more than it has, and returns the limit before.
fn leave(process: &Process, more: u64) -> Rlimit {
    let open = fs::read_dir(format!("/proc/{}/fd", process.id().unwrap())).unwrap().count() as u64;
    let id = Pid::from_raw(process.id().unwrap().try_into().unwrap());
    let allowed = rustix::process::getrlimit(Resource::Nofile);
    // The hard limit stays, because only root could restore it.
    prlimit(id, Resource::Nofile, Rlimit { current: Some(open + more), maximum: allowed.maximum }).unwrap()
}

fn set(process: &Process, limit: Rlimit) {
    let id = Pid::from_raw(process.id().unwrap().try_into().unwrap());
    prlimit(id, Resource::Nofile, limit).unwrap();
}

/// Reads on until this text has come, in any chunks.
async fn reads(caller: &mut Http1Caller, text: &str) {
    let mut read = String::new();
    while !read.contains(text) {
        read.push_str(&String::from_utf8_lossy(&caller.read_exactly(1).await));
    }
}
