//! A server that breaks its own limits, and what the agent takes from it.

use std::net::{Ipv4Addr, SocketAddr};

use proto::spiffe::AgentId;
use proto::wire::{Assert, StreamOpen};
use tests::fake_api::{Behaviour, FakeApi};
use tests::rig::{Agent, ApiServer, Rig};
use tests::rogue::{host, material, spawner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::{Endpoint, EndpointKeys, ServerNumber, Tunnel};

/// As the agent has them: headers of a head, and its bytes.
const HEADERS_MAX: usize = 200;
const HEAD_BYTES_MAX: usize = 128 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_takes_as_many_headers_as_it_may_and_not_one_more() {
    let rogue = RogueServer::start().await;

    assert_eq!(rogue.status_of(&head(HEADERS_MAX, 0)).await, "200");
    assert_eq!(rogue.served(), 1);
    assert_eq!(rogue.status_of(&head(HEADERS_MAX + 1, 0)).await, "431");
    assert_eq!(rogue.served(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_takes_a_large_head_and_none_beyond_its_buffer() {
    let rogue = RogueServer::start().await;

    assert_eq!(rogue.status_of(&head(2, HEAD_BYTES_MAX / 2)).await, "200");
    assert_eq!(rogue.served(), 1);
    // hyper looks when its buffer is full, and one read may go beyond.
    assert_eq!(rogue.status_of(&head(2, 2 * HEAD_BYTES_MAX)).await, "431");
    assert_eq!(rogue.served(), 1);
}

/// A tunnel to a real agent, held by a server that sends what it likes.
struct RogueServer {
    tunnel: Tunnel,
    fake: FakeApi,
    _endpoint: Endpoint,
    _agent: Agent,
    _rig: Rig,
}

impl RogueServer {
    async fn start() -> Self {
        let rig = Rig::start().await;
        let fake = FakeApi::start().await.unwrap();
        fake.otherwise(Behaviour::json("{}"));
        let (free, keys) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), EndpointKeys::generate().unwrap());
        let endpoint = Endpoint::serve(free, material(&rig), &keys, ServerNumber(7), spawner()).unwrap();
        let more =
            format!("servers: [\"{}\"]\nimpersonation: {{ users: [\"*\"] }}\n", endpoint.address().unwrap());
        let agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &fake), &more).await;
        let arrived = endpoint.accept().await.unwrap().shake_hands().await.unwrap();
        let id = AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/any", "tombolo").unwrap();
        let (tunnel, driver, _) = arrived.greet(&id, &host("rogue", &keys), |_| Ok(())).await.unwrap();
        tokio::spawn(driver.run(|_| {}));
        Self { tunnel, fake, _endpoint: endpoint, _agent: agent, _rig: rig }
    }

    /// How many requests on behalf of callers have reached the API server; the agent's own bear no audit id.
    fn served(&self) -> usize {
        self.fake.requests().iter().filter(|request| !request.header("audit-id").is_empty()).count()
    }

    /// The status that the agent answers to this head on a stream of its own.
    async fn status_of(&self, head: &str) -> String {
        let identity = Assert { user: "ann".to_owned(), groups: vec![] };
        let open = StreamOpen::http(identity, "0198f1de-58c5-7000-8000-000000000000".to_owned(), false);
        let mut stream = self.tunnel.open(&open).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer["HTTP/1.1 ".len()..]).into_owned()
    }
}

/// A head of so many headers, one of them with a value of so many bytes.
fn head(headers: usize, bytes: usize) -> String {
    let others: String = (2..headers).map(|number| format!("x-{number}: 1\r\n")).collect();
    format!("GET /api/v1/pods HTTP/1.1\r\nhost: a\r\nx: {}\r\n{others}\r\n", "v".repeat(bytes))
}
