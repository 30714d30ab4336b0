//! Callers that flood an HTTP/2 connection: the connection ends or tolerates it, and no other is affected.
//!
//! The waves are fewer than an attacker's. Each bound here is reached within a few waves, or never.

use std::time::Duration;

use rustix::process::Signal;
use tests::caller::{GATEWAY, SOON};
use tests::check::bystanders::Bystander;
use tests::fake_api::{Behaviour, HttpVersion};
use tests::fake_edge::FakeEdge;
use tests::raw_http2::{
    Block, END_HEADERS, END_STREAM, FRAME_BYTES, Flood, Flooded, RawHead, RawHttp2, kind,
};
use tests::rig::{GROUP, TOKEN, ask};
use tokio::time::{sleep, timeout};
use transport::STREAM_WINDOW_BYTES;

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";
const DEAF: &str = "/clusters/edge-a/deaf";

/// The memory that all floods may cost each daemon at the worst moment, allocators included.
const MEMORY_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Number of answers that are never read.
const UNREAD: usize = 100;

/// The memory of the unread streams until they are cut off, beside the floods: a stream window each at the
/// server. At the agent, a window of HTTP/2, hyper's write buffer and a part of the tunnel's send window are
/// less.
const UNREAD_BYTES_MAX: u64 = UNREAD as u64 * STREAM_WINDOW_BYTES as u64;

/// Exchanges of one caller, which reach the API server although they are taken back.
const EXCHANGES_PER_CALLER_MAX: usize = 2_500;

/// The identifier of the setting `SETTINGS_INITIAL_WINDOW_SIZE`.
const INITIAL_WINDOW: u16 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_resets_close_the_connection_and_affect_no_other() {
    let mut setup = FloodSetup::start().await;
    for _ in 0..20 {
        setup
            .ends("opened and taken back", 100, |_, flood| {
                for _ in 0..100 {
                    let stream = flood.head(&asked("GET", PATH), END_STREAM);
                    flood.frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
                }
            })
            .await;
    }
    setup
        .ends("a window that grows by nothing", 100, |_, flood| {
            for _ in 0..100 {
                let stream = flood.head(&asked("POST", DEAF), 0);
                flood.frame(kind::WINDOW_UPDATE, 0, stream, &[0; 4]);
            }
        })
        .await;
    setup
        .ends("more of a body than was announced", 100, |_, flood| {
            for _ in 0..100 {
                let mut head = asked("POST", DEAF);
                head.push(("content-length".to_owned(), b"1".to_vec()));
                let stream = flood.head(&head, 0);
                flood.frame(kind::DATA, 0, stream, b"much more");
            }
        })
        .await;
    setup
        .ends("a body behind its end", 100, |_, flood| {
            for _ in 0..100 {
                let stream = flood.head(&asked("GET", PATH), END_STREAM);
                flood.frame(kind::DATA, 0, stream, b"more");
            }
        })
        .await;
    setup
        .ends("a window beyond what there can be", 100, |_, flood| {
            for _ in 0..100 {
                let stream = flood.head(&asked("POST", DEAF), 0);
                flood.frame(kind::WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
            }
        })
        .await;
    setup.is_tolerated().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_header_blocks_close_the_connection_and_affect_no_other() {
    let mut setup = FloodSetup::start().await;
    let begin = |flood: &mut Flood| {
        let stream = flood.stream();
        flood.frame(kind::HEADERS, END_STREAM, stream, &Block::of(&asked("GET", PATH)).into_bytes());
    };
    let large = vec![0_u8; FRAME_BYTES];
    let mut tiny = Block::default();
    (0..FRAME_BYTES / 4).for_each(|_| tiny.literal("x", b""));
    let tiny = tiny.into_bytes();
    let pieces: [(&str, &[u8], usize); 3] =
        [("large pieces", &large, 64), ("pieces of tiny headers", &tiny, 64), ("empty pieces", &[], 4096)];
    for (name, piece, at_once) in pieces {
        setup
            .ends(name, 128, |wave, flood| {
                if wave == 0 {
                    begin(flood);
                }
                (0..at_once).for_each(|_| flood.frame(kind::CONTINUATION, 0, 1, piece));
            })
            .await;
    }

    // One entry of the table and sixteen thousand bytes that each repeat it: 60 MiB of headers in one frame.
    let mut bomb = Block::of(&asked("GET", PATH));
    bomb.remember("x", &[b'v'; 3900]);
    (0..FRAME_BYTES - 5000).for_each(|_| bomb.newest());
    let bomb = bomb.into_bytes();
    let met = setup
        .flood("a table's entry repeated", 20, true, |_, flood| {
            for _ in 0..10 {
                let stream = flood.stream();
                flood.frame(kind::HEADERS, END_STREAM | END_HEADERS, stream, &bomb);
            }
        })
        .await;
    assert_ne!(met, Flooded::Unread);
    assert!(setup.requests_of_floods().is_empty(), "{:?}", setup.requests_of_floods());
    setup.is_tolerated().await;
}

/// No other connection is affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_empty_frames_are_tolerated_or_close_the_connection() {
    let mut setup = FloodSetup::start().await;
    // What the agent's window and the API server's sockets hold is let through, and then nothing moves.
    let begin = |flood: &mut Flood| flood.head(&asked("POST", DEAF), 0);
    setup
        .flood("an upload of nothing that nobody reads", 100, true, |wave, flood| {
            if wave == 0 {
                begin(flood);
            }
            (0..10_000).for_each(|_| flood.frame(kind::DATA, 0, 1, &[]));
        })
        .await;
    // Of a stopped agent not even what the windows hold is taken.
    setup.edge.agent.process.signal(Signal::STOP).unwrap();
    let met = setup
        .flood_alone("the same towards an agent that has stopped", 100, true, |wave, flood| {
            if wave == 0 {
                begin(flood);
            }
            (0..10_000).for_each(|_| flood.frame(kind::DATA, 0, 1, &[]));
        })
        .await;
    setup.edge.agent.process.signal(Signal::CONT).unwrap();
    assert_ne!(met, Flooded::Unread);
    setup
        .flood("padding without a body", 100, true, |wave, flood| {
            const PADDED: u8 = 8;
            if wave == 0 {
                begin(flood);
            }
            // What padding takes of the windows is given back, or it ends there.
            (0..10).for_each(|_| flood.frame(kind::DATA, PADDED, 1, &[&[9_u8][..], &[0; 9]].concat()));
        })
        .await;
    setup.is_tolerated().await;
}

/// The test also sends windows of size zero. No other connection is affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_control_frames_are_tolerated_or_close_the_connection() {
    const AT_ONCE: usize = 5_000;
    let mut setup = FloodSetup::start().await;
    let setting = [&INITIAL_WINDOW.to_be_bytes()[..], &1_u32.to_be_bytes()].concat();
    let table = [&1_u16.to_be_bytes()[..], &4096_u32.to_be_bytes()].concat();
    let frames: [(&str, u8, u8, &[u8]); 7] = [
        ("PING", kind::PING, 0, b"question"),
        ("answers to no PING", kind::PING, 1, b"question"),
        ("SETTINGS", kind::SETTINGS, 0, &setting),
        ("SETTINGS of the table", kind::SETTINGS, 0, &table),
        ("empty SETTINGS", kind::SETTINGS, 0, &[]),
        ("windows that grow by one", kind::WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
        ("frames of no known type", kind::UNKNOWN, 0, b"nothing"),
    ];
    for reads in [true, false] {
        for (name, kind, flags, payload) in frames {
            setup
                .flood(name, 40, reads, |_, flood| {
                    (0..AT_ONCE).for_each(|_| flood.frame(kind, flags, 0, payload));
                })
                .await;
        }
        // Each change of the window is a change of all streams.
        setup
            .flood("windows of 200 streams changed", 10, reads, |wave, flood| {
                if wave == 0 {
                    for _ in 0..200 {
                        flood.head(&asked("POST", DEAF), 0);
                    }
                }
                for n in 0..500_u32 {
                    let setting =
                        [&INITIAL_WINDOW.to_be_bytes()[..], &(65_535 + n % 2).to_be_bytes()].concat();
                    flood.frame(kind::SETTINGS, 0, 0, &setting);
                }
            })
            .await;
        setup
            .flood("weights of streams that nobody opened", 20, reads, |_, flood| {
                for _ in 0..AT_ONCE {
                    let stream = flood.stream();
                    flood.frame(kind::PRIORITY, 0, stream, &[0, 0, 0, 0, 16]);
                }
            })
            .await;
    }

    setup.is_tolerated().await;

    // Answers without end, of which not one byte may be sent.
    let mut caller = RawHttp2::dial_saying(&setup.edge.rig, GATEWAY, None, &[(INITIAL_WINDOW, 0)]).await;
    let before = setup.edge.fake.requests().len();
    caller.send(&vec![asked("GET", "/clusters/edge-a/endless"); UNREAD]).await.unwrap();
    let last = (before + UNREAD - 1) as u64;
    setup.edge.fake.wait_for_request(SOON, |request| request.id == last).await.unwrap();
    setup.is_tolerated_within(MEMORY_BYTES_MAX + UNREAD_BYTES_MAX).await;
}

/// A gateway that is flooded, its memory from before, and a bystander that sends requests all the time.
struct FloodSetup {
    edge: FakeEdge,
    server_bytes: u64,
    agent_bytes: u64,
    bystander: Bystander,
}

impl FloodSetup {
    async fn start() -> Self {
        let mut edge = FakeEdge::start(HttpVersion::Http2).await;
        edge.fake.otherwise(Behaviour::json("{}"));
        edge.fake.on("/deaf", Behaviour::Deaf);
        edge.fake.on("/endless", Behaviour::Endless("more ".repeat(1024).into()));
        let alice = edge.rig.caller("alice", &[GROUP]).await;
        let (gateway, ca) = (edge.rig.gateway(), edge.rig.server_ca());
        let bystander = Bystander::start(move || {
            let (ca, alice) = (ca.clone(), alice.clone());
            async move {
                let answer = ask(gateway, &ca, Some(&alice), "GET", &format!("{PATH}/honest"), &[]).await;
                answer.is_ok_and(|answer| answer.status == 200)
            }
        });
        let (server_bytes, agent_bytes) =
            (edge.rig.server().resident_bytes(), edge.agent.process.resident_bytes());
        bystander.the_fault_begins();
        Self { edge, server_bytes, agent_bytes, bystander }
    }

    /// Floods on a connection of its own, while the bystander is answered.
    async fn flood(
        &mut self,
        name: &str,
        waves: usize,
        reads: bool,
        write: impl FnMut(usize, &mut Flood),
    ) -> Flooded {
        let answered = self.bystander.noticed().during.0;
        let met = self.flood_alone(name, waves, reads, write).await;
        // Requests before and after the flood's begin were answered.
        let two_more = async {
            while self.bystander.noticed().during.0 < answered + 2 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, two_more).await.expect("others are answered");
        assert_eq!(self.bystander.noticed().failed, 0, "{name}: others were not answered");
        met
    }

    /// The same without a look at the bystander.
    async fn flood_alone(
        &mut self,
        name: &str,
        waves: usize,
        reads: bool,
        write: impl FnMut(usize, &mut Flood),
    ) -> Flooded {
        let caller = RawHttp2::dial(&self.edge.rig, GATEWAY, None).await;
        let met = caller.flood(waves, reads, write).await;
        let (server, agent) = self.memory();
        eprintln!("{name}: {met:?}; at most {server} and {agent} KiB more than before");
        assert!(server.max(agent) * 1024 < MEMORY_BYTES_MAX, "{name}: {server} and {agent} KiB");
        met
    }

    /// Floods in a way that the gateway ends.
    async fn ends(&mut self, name: &str, waves: usize, write: impl FnMut(usize, &mut Flood)) {
        let before = self.edge.fake.requests().len();
        assert_eq!(self.flood(name, waves, true, write).await, Flooded::Ended, "{name}");
        let arrived = self.edge.fake.requests().len() - before;
        assert!(arrived < EXCHANGES_PER_CALLER_MAX, "{name}: {arrived} requests arrived");
    }

    /// The memory that the floods have cost the server and the agent at the worst moment, in KiB.
    fn memory(&mut self) -> (u64, u64) {
        let over = |now: u64, before: u64| now.saturating_sub(before) / 1024;
        let server = over(self.edge.rig.server().peak_bytes(), self.server_bytes);
        (server, over(self.edge.agent.process.peak_bytes(), self.agent_bytes))
    }

    /// The requests at the API server that are not the bystander's.
    fn requests_of_floods(&self) -> Vec<String> {
        let requests = self.edge.fake.requests().into_iter().map(|request| request.target);
        requests.filter(|target| !target.contains("honest")).collect()
    }

    /// The flooding caller is served as before on another connection, and so is everybody else.
    async fn is_tolerated(&mut self) {
        self.is_tolerated_within(MEMORY_BYTES_MAX).await;
    }

    async fn is_tolerated_within(&mut self, bytes_max: u64) {
        assert_eq!(self.edge.rig.ask_with_token("GET", PATH, &[]).await.status, 200);
        let (server, agent) = self.memory();
        assert!(server.max(agent) * 1024 < bytes_max, "{server} and {agent} KiB");
        assert_eq!(self.bystander.noticed().failed, 0);
        assert!(!self.edge.rig.server_log().contains("panicked"));
    }
}

fn asked(method: &str, path: &str) -> RawHead {
    let authorization = format!("Bearer {TOKEN}");
    [
        (":method", method),
        (":scheme", "https"),
        (":authority", GATEWAY),
        (":path", path),
        ("authorization", &authorization),
    ]
    .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
    .into()
}
