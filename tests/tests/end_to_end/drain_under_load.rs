//! No byte is lost when a tunnel drains under load.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;
use tests::caller::{Http2Caller, SOON, read_to_end};
use tests::check::stream::Generator;
use tests::fake_api::{Answer, Behaviour, FakeApi};
use tests::rig::{Agent, ApiServer, Rig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Downloads that run at once.
const DOWNLOADS: usize = 50;
/// Number of callers that share the downloads.
const CALLERS: usize = 5;
/// A download, its pieces, and the pause before each: it lasts some seconds.
const DOWNLOAD_BYTES: usize = 256 * 1024;
const PIECE_BYTES: usize = 4 * 1024;
const PAUSE: Duration = Duration::from_millis(40);
/// Short requests that are made at least.
const SHORT_MIN: usize = 100;

/// Another agent of the cluster serves the new requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloads_from_a_stopping_agent_complete_and_new_requests_move() {
    let trial = DrainTrial::start().await;
    let mut leaving = trial.rig.agent_of_id("edge-a", "a", &trial.api_server, "").await;
    trial.rig.logged("server.log", 0, "tunnel opened agent=edge-a/a").await;
    let downloads = trial.download(&trial.rig).await;
    let _staying = trial.rig.agent_of_id("edge-a", "b", &trial.api_server, "").await;
    trial.rig.logged("server.log", 0, "tunnel opened agent=edge-a/b").await;

    leaving.process.signal(Signal::TERM).expect("the agent runs");
    trial.rig.logged("server.log", 0, "the agent is stopping").await;
    assert!(leaving.process.ended().is_none(), "it finishes its downloads");
    trial.short_requests_until(async || true).await;
    downloads.are_complete().await;

    assert_eq!(ended(&mut leaving).await, Some(0));
}

/// The new process has the same certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_replaced_by_a_new_process_finishes_its_downloads() {
    let trial = DrainTrial::start().await;
    let mut old = trial.rig.agent("edge-a", &trial.api_server).await;
    let downloads = trial.download(&trial.rig).await;
    let opened = trial.rig.server_log().len();
    let _new = trial.rig.agent_with("edge-a", &trial.api_server, "").await;
    trial.rig.logged("server.log", opened, "tunnel opened").await;

    trial.short_requests_until(async || true).await;
    old.process.signal(Signal::TERM).expect("the agent runs");
    trial.short_requests_until(async || trial.rig.server_log().contains("the agent is stopping")).await;
    downloads.are_complete().await;

    assert_eq!(ended(&mut old).await, Some(0));
}

/// No short request fails where another server is up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_server_finishes_its_downloads() {
    let mut trial = DrainTrial::start().await;
    let peer = trial.rig.peer("other", "").await;
    let servers = format!("servers: [\"{}\", \"{}\"]\n", trial.rig.gateway(), peer.gateway);
    let _agent = trial.rig.agent_with("edge-a", &trial.api_server, &servers).await;
    trial.rig.logged("server.log", 0, "tunnel opened").await;
    trial.rig.logged("other.log", 0, "tunnel opened").await;
    let downloads = trial.download(&trial.rig).await;

    trial.rig.server().signal(Signal::TERM).expect("the server runs");
    let mut asked = 0;
    while asked < SHORT_MIN || trial.rig.server().ended().is_none() {
        // What a load balancer does: the first server as long as it takes connections, and then the other.
        let reply = match trial.rig.try_ask_at(trial.rig.gateway(), "/clusters/edge-a/short").await {
            Ok(reply) if reply.status != 503 => reply,
            Ok(_) | Err(_) => trial.rig.ask_at(peer.gateway, "/clusters/edge-a/short").await,
        };
        assert_eq!(reply.status, 200, "{reply:?}");
        asked += 1;
    }
    downloads.are_complete().await;

    let code = trial.rig.server().wait(SOON).await.expect("it ends").code();
    assert_eq!(code, Some(0), "{}", trial.rig.server_log());
}

// A balancer goes by whether the port takes connections, so the one that a stopping server has for agents
// must not.
/// Both servers are behind one address, and the stopping one finishes its downloads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tcp_the_next_tunnel_avoids_a_stopping_server() {
    let mut trial = DrainTrial::start().await;
    let peer = trial.rig.peer("other", "").await;
    let balancer = balance([trial.rig.gateway(), peer.gateway]).await;
    let more = format!("servers: [\"{balancer}\"]\ncarrier: http2\n");
    let _agent = trial.rig.agent_with("edge-a", &trial.api_server, &more).await;
    trial.rig.logged("server.log", 0, "tunnel opened").await;
    let downloads = trial.download(&trial.rig).await;

    trial.rig.server().signal(Signal::TERM).expect("the server runs");
    trial.rig.logged("other.log", 0, "tunnel opened").await;
    let reply = trial.rig.ask_at(peer.gateway, "/clusters/edge-a/short").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    downloads.are_complete().await;

    let code = trial.rig.server().wait(SOON).await.expect("it ends").code();
    assert_eq!(code, Some(0), "{}", trial.rig.server_log());
}

/// Leads every connection to the first of these that takes it.
async fn balance(servers: [SocketAddr; 2]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut local, _)) = listener.accept().await {
            tokio::spawn(async move {
                for server in servers {
                    if let Ok(mut far) = TcpStream::connect(server).await {
                        return drop(copy_bidirectional(&mut local, &mut far).await);
                    }
                }
            });
        }
    });
    address
}

/// A server, and an API server for agents.
struct DrainTrial {
    rig: Rig,
    api: FakeApi,
    api_server: ApiServer,
    bytes: Bytes,
}

/// Downloads that are in flight.
struct Downloads {
    running: JoinSet<(Vec<u8>, Result<(), String>)>,
    expected: Bytes,
    _callers: Vec<Http2Caller>,
}

impl DrainTrial {
    async fn start() -> Self {
        let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
        let bytes: Bytes = Generator::new(7).take(DOWNLOAD_BYTES).into();
        let answer = Answer { status: 200, headers: Vec::new(), body: bytes.clone() };
        api.on("/download", Behaviour::Slow { answer, piece_bytes: PIECE_BYTES, pause: PAUSE });
        api.on("/short", Behaviour::json("{}"));
        let api_server = ApiServer::of_fake(&rig, &api);
        Self { rig, api, api_server, bytes }
    }

    /// Begins downloads, and returns when the API server has all of them.
    async fn download(&self, rig: &Rig) -> Downloads {
        let (mut running, mut callers) = (JoinSet::new(), Vec::new());
        for _ in 0..CALLERS {
            let mut caller = Http2Caller::dial(rig).await;
            for _ in 0..DOWNLOADS / CALLERS {
                let (answer, _) = caller.send("GET", "/clusters/edge-a/download", &[], true);
                running.spawn(async move {
                    let answer = timeout(SOON, answer).await.expect("a head in time");
                    let Ok(answer) = answer else { return (Vec::new(), Err(format!("{answer:?}"))) };
                    let (bytes, end) = read_to_end(answer.into_body()).await;
                    (bytes, end.map_err(|error| error.to_string()))
                });
            }
            callers.push(caller);
        }
        let has_come =
            || self.api.requests().iter().filter(|request| request.target.contains("download")).count();
        let all = async {
            while has_come() < DOWNLOADS {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, all).await.expect("all downloads begin");
        Downloads { running, expected: self.bytes.clone(), _callers: callers }
    }

    /// Makes short requests, none of which fails, until something is so.
    async fn short_requests_until(&self, is_so: impl AsyncFn() -> bool) {
        let mut asked = 0;
        while asked < SHORT_MIN || !is_so().await {
            let reply = self.rig.ask_with_token("GET", "/clusters/edge-a/short", &[]).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            asked += 1;
        }
    }
}

impl Downloads {
    async fn are_complete(mut self) {
        let mut complete = 0;
        while let Some(download) = self.running.join_next().await {
            let (bytes, end) = download.expect("a download ends");
            let got = bytes.len();
            assert_eq!(end, Ok(()), "after {got} bytes");
            assert!(self.expected == bytes, "{got} bytes that are not what was sent");
            complete += 1;
        }
        assert_eq!(complete, DOWNLOADS);
    }
}

async fn ended(agent: &mut Agent) -> Option<i32> {
    agent.process.wait(SOON).await.unwrap_or_else(|error| panic!("{error}")).code()
}
