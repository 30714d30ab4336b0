//! A server that exceeds its own limits, and an agent's limits against it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use proto::AbortCode;
use proto::greeting::{BootNonce, refuse};
use proto::spiffe::AgentId;
use proto::wire::refused::Reason;
use proto::wire::{Assert, StreamOpen};
use tests::caller::SOON;
use tests::carrier::is_not_quic;
use tests::fake_api::{Behaviour, FakeApi};
use tests::rig::{Agent, ApiServer, Rig};
use tests::rogue_server::{host, material, spawner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use transport::{Endpoint, EndpointKeys, GreetError, ServerNumber, Tunnel};

/// As the agent has them: headers of a head, and its bytes.
const HEADERS_MAX: usize = 200;
const HEAD_BYTES_MAX: usize = 128 * 1024;

pub(crate) const ROGUE_SPEAKS: &str =
    "the rogue does not listen on TCP, and what it sends is the same on either carrier";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_takes_as_many_headers_as_it_may_and_not_one_more() {
    if is_not_quic("an_agent_takes_as_many_headers_as_it_may_and_not_one_more", ROGUE_SPEAKS) {
        return;
    }
    let rogue = RogueServer::start().await;

    assert_eq!(rogue.status_of(&head(HEADERS_MAX, 0)).await, "200");
    assert_eq!(rogue.served(), 1);
    assert_eq!(rogue.status_of(&head(HEADERS_MAX + 1, 0)).await, "431");
    assert_eq!(rogue.served(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_takes_a_large_head_and_none_beyond_its_buffer() {
    if is_not_quic("an_agent_takes_a_large_head_and_none_beyond_its_buffer", ROGUE_SPEAKS) {
        return;
    }
    let rogue = RogueServer::start().await;

    assert_eq!(rogue.status_of(&head(2, HEAD_BYTES_MAX / 2)).await, "200");
    assert_eq!(rogue.served(), 1);
    // hyper looks when its buffer is full, and one read may go beyond.
    assert_eq!(rogue.status_of(&head(2, 2 * HEAD_BYTES_MAX)).await, "431");
    assert_eq!(rogue.served(), 1);
}

/// It does not connect before that time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_waits_as_long_as_a_server_asks_and_then_connects() {
    if is_not_quic("an_agent_waits_as_long_as_a_server_asks_and_then_connects", ROGUE_SPEAKS) {
        return;
    }
    let rig = Rig::start().await;
    let fake = FakeApi::start().await.unwrap();
    let keys = EndpointKeys::generate().unwrap();
    let endpoint = endpoint(&rig, &keys);
    let _agent = agent_of(&rig, &fake, &endpoint, "impersonation: {}\ncarrier: quic\n").await;

    // As long as the real server says while it stops.
    let retry_after = Duration::from_millis(refuse(Reason::Draining, String::new()).retry_after_ms.into());
    let mut earliest = Instant::now();
    for _ in 0..3 {
        let arrived = endpoint.accept().await.unwrap().handshake().await.unwrap();
        assert!(Instant::now() >= earliest, "{:?} too soon", earliest - Instant::now());
        earliest = Instant::now() + retry_after;
        let stops = |_: BootNonce| Err((Reason::Draining, "not now".to_owned()));
        let greeted = arrived.greet(&agent_id(), &host("rogue", &keys), stops).await;
        assert!(matches!(greeted, Err(GreetError::Refused(_))));
    }
    let arrived = endpoint.accept().await.unwrap().handshake().await.unwrap();
    let greeted = arrived.greet(&agent_id(), &host("rogue", &keys), |_| Ok(())).await;
    assert!(greeted.is_ok(), "it comes as if nothing had been");
}

/// The name of every exchange.
pub(crate) const AUDIT_ID: &str = "0198f1de-58c5-7000-8000-000000000000";

/// A tunnel to a real agent, held by a server that sends what it likes.
pub(crate) struct RogueServer {
    tunnel: Tunnel,
    fake: FakeApi,
    _endpoint: Endpoint,
    _agent: Agent,
    _rig: Rig,
}

impl RogueServer {
    async fn start() -> Self {
        Self::guarded("impersonation: { users: [\"*\"] }\n").await
    }

    /// The same with an agent whose own file has this list of identities.
    pub(crate) async fn guarded(guard: &str) -> Self {
        let rig = Rig::start().await;
        let fake = FakeApi::start().await.unwrap();
        fake.otherwise(Behaviour::json("{}"));
        let keys = EndpointKeys::generate().unwrap();
        let endpoint = endpoint(&rig, &keys);
        let agent = agent_of(&rig, &fake, &endpoint, guard).await;
        let arrived = endpoint.accept().await.unwrap().handshake().await.unwrap();
        let (tunnel, driver, _) =
            arrived.greet(&agent_id(), &host("rogue", &keys), |_| Ok(())).await.unwrap();
        tokio::spawn(driver.run(|_| {}));
        Self { tunnel, fake, _endpoint: endpoint, _agent: agent, _rig: rig }
    }

    /// Number of callers' requests that have reached the API server. The agent's own have no audit ID.
    pub(crate) fn served(&self) -> usize {
        self.fake.requests().iter().filter(|request| !request.header("audit-id").is_empty()).count()
    }

    /// The status that the agent answers to this head on a stream of its own.
    async fn status_of(&self, head: &str) -> String {
        self.answer(Assert { user: "ann".to_owned(), groups: vec![] }, head).await
    }

    /// The status that the agent answers to a request on behalf of `identity`.
    pub(crate) async fn status_as(&self, identity: Assert) -> String {
        self.answer(identity, &head(2, 1)).await
    }

    /// With which code the agent aborts a stream that begins so; `None` if it answers.
    pub(crate) async fn refusal_of(&self, open: &StreamOpen) -> Option<AbortCode> {
        self.refusal(open, &head(2, 1)).await
    }

    /// The same where this head follows.
    pub(crate) async fn refusal(&self, open: &StreamOpen, head: &str) -> Option<AbortCode> {
        let mut stream = self.tunnel.open(open).await.unwrap();
        let verdict = stream.abort_codes();
        // The agent may have aborted already.
        let _ = stream.write_all(head.as_bytes()).await;
        let answered = timeout(SOON, stream.read_exact(&mut [0; 12])).await.expect("an answer or an end");
        answered.err().and_then(|_| verdict.peer_code())
    }

    /// The users and groups that the API server was asked to impersonate, in order.
    pub(crate) fn asserted(&self) -> Vec<(String, Vec<String>)> {
        let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let requests = self.fake.requests();
        let callers = requests.iter().filter(|request| !request.header("audit-id").is_empty());
        callers
            .map(|request| {
                (
                    owned(request.header("impersonate-user")).join("|"),
                    owned(request.header("impersonate-group")),
                )
            })
            .collect()
    }

    async fn answer(&self, identity: Assert, head: &str) -> String {
        let open = StreamOpen::http(identity, AUDIT_ID.to_owned(), false);
        let mut stream = self.tunnel.open(&open).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer["HTTP/1.1 ".len()..]).into_owned()
    }
}

/// The endpoint of the rogue server.
fn endpoint(rig: &Rig, keys: &EndpointKeys) -> Endpoint {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Endpoint::serve(free, material(rig), keys, ServerNumber(7), spawner()).unwrap()
}

/// A real agent that dials it; its configuration ends with `more`.
async fn agent_of(rig: &Rig, fake: &FakeApi, endpoint: &Endpoint, more: &str) -> Agent {
    let address = endpoint.address().unwrap();
    let more = format!("servers: [\"{address}\"]\n{more}");
    rig.agent_with("edge-a", &ApiServer::of_fake(rig, fake), &more).await
}

/// The agent that its certificate names.
fn agent_id() -> AgentId {
    AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/any", "tombolo").unwrap()
}

/// A head of so many headers, one of them with a value of so many bytes.
fn head(headers: usize, bytes: usize) -> String {
    let others: String = (2..headers).map(|number| format!("x-{number}: 1\r\n")).collect();
    format!("GET /api/v1/pods HTTP/1.1\r\nhost: a\r\nx: {}\r\n{others}\r\n", "v".repeat(bytes))
}
