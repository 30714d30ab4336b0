//! Tests a tunnel over a link that goes dark, in one direction or both, and whose addresses change.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test's unwraps are claims, and it owns its tasks"
)]

use std::future::Future;
use std::time::{Duration, Instant};

use proto::session::{FULL_SIZE_EVERY_SUSPECT, Health, SILENCE_LEAST};
use proto::wire::{Assert, StreamOpen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use transport::{Endpoint, Tunnel, TunnelEnded, TunnelEvent, TunnelStream};

use crate::authority::Authority;
use crate::link::Link;

mod authority;
mod link;

/// No event of these tests is later than this, beside builds and other tests too.
const SOON: Duration = Duration::from_secs(120);

/// A path with these bytes for a packet of UDP, less than QUIC's least, carries heartbeats only.
const NARROW: usize = 1100;

/// Packets that a side sends into the dark in a few seconds, though its window is full. QUIC by itself
/// doubles its pauses and would take an hour.
const PROBES: u64 = 30;

/// Every byte arrives after the outage.
#[tokio::test]
async fn both_sides_probe_through_full_windows_during_an_outage() {
    let pair = Pair::greeted().await;
    let (there, here) = pair.stream().await;
    let ((there_read, there_write), (here_read, here_write)) =
        (tokio::io::split(there), tokio::io::split(here));
    let (up, down) = (pattern(3_000_000), pattern(2_000_000));
    let sending = [tokio::spawn(send(there_write, up.clone())), tokio::spawn(send(here_write, down.clone()))];
    let (received_up, received_down) = (Received::collect(here_read), Received::collect(there_read));
    soon(received_up.at_least(100_000)).await;
    soon(received_down.at_least(100_000)).await;

    pair.link.darken(true, true);
    soon(until(|| pair.healths() == [Health::Suspect; 2])).await;
    // What was under way when the link went dark is no probe.
    let (to_server, to_agent) = pair.link.swallowed();
    let has_probed = || {
        let (server, agent) = pair.link.swallowed();
        server >= to_server + PROBES && agent >= to_agent + PROBES
    };
    soon(until(has_probed)).await;
    assert_eq!(pair.healths(), [Health::Suspect; 2]);
    pair.link.darken(false, false);

    assert!(soon(received_up.all()).await == up);
    assert!(soon(received_down.all()).await == down);
    for sent in sending {
        soon(sent).await.unwrap();
    }
}

/// Both sides are live again once the path is back.
#[tokio::test]
async fn a_path_that_is_dark_in_one_direction_is_suspect_on_both_sides() {
    for (to_server, to_agent) in [(true, false), (false, true)] {
        let pair = Pair::greeted().await;
        let (mut there, mut here) = pair.stream().await;
        pair.link.darken(to_server, to_agent);
        soon(until(|| pair.healths() == [Health::Suspect; 2])).await;
        there.write_all(b"to the agent").await.unwrap();
        here.write_all(b"to the server").await.unwrap();

        pair.link.darken(false, false);

        soon(until(|| pair.healths() == [Health::Live; 2])).await;
        soon(here.read_exact(&mut [0; 12])).await.unwrap();
        soon(there.read_exact(&mut [0; 13])).await.unwrap();
    }
}

/// Heartbeats pass all the time, and bytes that were lost arrive once the path is back.
#[tokio::test]
async fn a_path_that_drops_full_size_packets_is_suspect_on_both_sides() {
    for (to_server, to_agent) in [(usize::MAX, NARROW), (NARROW, usize::MAX), (NARROW, NARROW)] {
        let pair = Pair::greeted().await;
        let (there, here) = pair.stream().await;
        let ((there_read, there_write), (here_read, here_write)) =
            (tokio::io::split(there), tokio::io::split(here));
        let bytes = pattern(2_000_000);
        let sending =
            [tokio::spawn(send(there_write, bytes.clone())), tokio::spawn(send(here_write, bytes.clone()))];
        let (received_here, received_there) = (Received::collect(here_read), Received::collect(there_read));
        soon(received_here.at_least(100_000)).await;
        soon(received_there.at_least(100_000)).await;

        pair.link.narrow(to_server, to_agent);
        soon(until(|| pair.healths() == [Health::Suspect; 2])).await;
        let flapped_at = pair.flapped_at();
        // Several times the interval of probes of a suspect tunnel.
        sleep(FULL_SIZE_EVERY_SUSPECT * 5).await;
        assert_eq!((pair.healths(), pair.flapped_at()), ([Health::Suspect; 2], flapped_at));
        pair.link.narrow(usize::MAX, usize::MAX);

        soon(until(|| pair.healths() == [Health::Live; 2])).await;
        assert!(soon(received_here.all()).await == bytes);
        assert!(soon(received_there.all()).await == bytes);
        for sent in sending {
            soon(sent).await.unwrap();
        }
    }
}

/// Data goes on in smaller packets then, as it always did.
#[tokio::test]
async fn a_path_that_carries_1200_bytes_and_no_more_stays_live() {
    let pair = Pair::greeted().await;
    let (mut there, here) = pair.stream().await;
    let (here_read, _here_write) = tokio::io::split(here);
    let received = Received::collect(here_read);
    let bytes = pattern(2_000_000);
    there.write_all(&bytes[..1_000_000]).await.unwrap();

    pair.link.narrow(1200, 1200);
    there.write_all(&bytes[1_000_000..]).await.unwrap();
    there.shutdown().await.unwrap();

    assert!(soon(received.all()).await == bytes);
    assert_eq!((pair.healths(), pair.flapped_at()), ([Health::Live; 2], [None; 2]));
}

#[tokio::test]
async fn a_nat_that_forgets_its_mapping_breaks_no_stream() {
    let pair = Pair::greeted().await;
    let (mut there, mut here) = pair.stream().await;
    for round in 0..20_u8 {
        let before = pair.server.peer_address();
        pair.link.remap(pair.endpoint_of_server.address().unwrap()).await;
        // The agent sends first, because the server still has its old address.
        here.write_all(&[round]).await.unwrap();
        assert_eq!(soon(there.read_u8()).await.unwrap(), round);
        there.write_all(&[round]).await.unwrap();
        assert_eq!(soon(here.read_u8()).await.unwrap(), round);
        assert_ne!(pair.server.peer_address(), before, "round {round}");
    }
}

#[tokio::test]
async fn an_agent_that_hears_nothing_comes_from_another_port_and_is_heard_again() {
    let pair = Pair::greeted().await;
    let (mut there, mut here) = pair.stream().await;
    let stale = pair.link.agent().unwrap();

    // The NAT keeps a stale mapping for as long as it is in use.
    pair.link.forget();
    soon(until(|| pair.healths() == [Health::Suspect; 2])).await;

    soon(until(|| pair.healths() == [Health::Live; 2])).await;
    assert_ne!(pair.link.agent(), Some(stale));
    here.write_all(b"still").await.unwrap();
    soon(there.read_exact(&mut [0; 5])).await.unwrap();
}

/// The streams of both sides end with an error.
#[tokio::test]
async fn a_path_that_stays_dark_is_lost_on_both_sides() {
    // The shorter limit applies, the server's or the agent's.
    let authority = Authority::new();
    let of_server =
        Pair::over(&authority, authority.server().with_silence_max(SILENCE_LEAST), Duration::ZERO);
    let of_agent = Pair::over(&authority, authority.server(), SILENCE_LEAST);
    let (of_server, of_agent) = tokio::join!(of_server, of_agent);
    tokio::join!(is_lost(of_server), is_lost(of_agent));
}

async fn is_lost(pair: Pair) {
    let (mut there, mut here) = pair.stream().await;
    pair.link.darken(true, true);

    assert!(soon(there.read_u8()).await.is_err());
    assert!(soon(here.read_u8()).await.is_err());
    for ended in pair.ended {
        assert_eq!(soon(ended).await.unwrap(), TunnelEnded::Lost);
    }
}

/// A tunnel over a link, both ends driven.
struct Pair {
    server: Tunnel,
    agent: Tunnel,
    link: Link,
    ended: [JoinHandle<TunnelEnded>; 2],
    endpoint_of_server: Endpoint,
    /// Held, because a closed endpoint closes its connections.
    _endpoint_of_agent: Endpoint,
}

impl Pair {
    async fn greeted() -> Self {
        let authority = Authority::new();
        let server = authority.server();
        Self::over(&authority, server, Duration::ZERO).await
    }

    async fn over(authority: &Authority, endpoint_of_server: Endpoint, agent_silence_max: Duration) -> Self {
        let link = Link::to(endpoint_of_server.address().unwrap()).await;
        let (endpoint, (server, driver), dialed) =
            soon(authority.greeted(&endpoint_of_server, link.address(), agent_silence_max)).await;
        let ignore = |_: TunnelEvent| {};
        let ended = [tokio::spawn(driver.run(ignore)), tokio::spawn(dialed.driver.run(ignore))];
        Self { server, agent: dialed.tunnel, link, ended, endpoint_of_server, _endpoint_of_agent: endpoint }
    }

    /// A stream, the server's end first.
    async fn stream(&self) -> (TunnelStream, TunnelStream) {
        let there = soon(self.server.open(&open())).await.unwrap();
        let mut here = soon(self.agent.accept()).await.unwrap();
        soon(here.read_open()).await.unwrap();
        (there, here)
    }

    fn healths(&self) -> [Health; 2] {
        [self.server.health(), self.agent.health()]
    }

    fn flapped_at(&self) -> [Option<Instant>; 2] {
        [self.server.flapped_at(), self.agent.flapped_at()]
    }
}

/// The bytes received on a stream so far.
struct Received {
    so_far: watch::Receiver<usize>,
    all: JoinHandle<Vec<u8>>,
}

impl Received {
    fn collect(mut from: impl AsyncReadExt + Unpin + Send + 'static) -> Self {
        let (tell, so_far) = watch::channel(0);
        let all = tokio::spawn(async move {
            let mut bytes = Vec::new();
            while from.read_buf(&mut bytes).await.unwrap() > 0 {
                tell.send_replace(bytes.len());
            }
            bytes
        });
        Self { so_far, all }
    }

    async fn at_least(&self, bytes: usize) {
        self.so_far.clone().wait_for(|so_far| *so_far >= bytes).await.unwrap();
    }

    async fn all(self) -> Vec<u8> {
        self.all.await.unwrap()
    }
}

async fn send(mut to: impl AsyncWriteExt + Unpin, bytes: Vec<u8>) {
    to.write_all(&bytes).await.unwrap();
    to.shutdown().await.unwrap();
}

/// Bytes of which none stands where another could.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)).to_le_bytes()[0]).collect()
}

fn open() -> StreamOpen {
    let alice = Assert { user: "alice".to_owned(), groups: Vec::new() };
    StreamOpen::http(alice, "audit".to_owned(), true)
}

async fn until(what: impl Fn() -> bool) {
    while !what() {
        sleep(Duration::from_millis(5)).await;
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(SOON, what).await.expect("soon")
}
