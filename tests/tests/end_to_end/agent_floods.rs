//! Agents that flood their tunnel over HTTP/2: each flood ends its tunnel or its exchange, and callers of
//! another cluster are answered meanwhile.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Request, Response, StatusCode};
use proto::frame;
use proto::wire::{CarrierNote, ControlFrame, Hello, carrier_note::Note, control_frame::Frame};
use tests::check::bystanders::Bystander;
use tests::dial::dial;
use tests::fake_api::{Behaviour, HttpVersion};
use tests::fake_edge::FakeEdge;
use tests::pki::Issued;
use tests::rig::{GROUP, ask};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// The limit for any step of a test.
const DONE_MAX: Duration = Duration::from_secs(60);

/// The pause between two looks at the bystander.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Times that an agent comes back and floods again.
const FLOODS: u64 = 20;

/// The reason in the server's log.
const TOO_MANY: &str = "more than 100 control frames a second";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_floods_its_tunnel_is_disconnected_and_others_are_served() {
    let setup = AgentFloodSetup::start().await;
    let ping = encoded(&CarrierNote { note: Some(Note::Ping(7)) });
    let newer = vec![0];
    let acknowledgement = encoded(&CarrierNote { note: Some(Note::Taken(5)) });
    for (name, flood, reason) in [
        ("pings", ping, TOO_MANY),
        ("frames of no known kind", newer, TOO_MANY),
        ("acknowledgements of nothing", acknowledgement, "the ends of more streams were acknowledged"),
    ] {
        let from = setup.edge.rig.server_log().len();
        for sequence in 1..=FLOODS {
            let mut agent = setup.greeted(sequence).await;

            agent.flood(&flood).await;

            let ended = timeout(DONE_MAX, agent.ended()).await;
            ended.unwrap_or_else(|_| panic!("{name} do not end it: {:?}", setup.bystander.noticed()));
        }
        setup.edge.rig.logged("server.log", from, reason).await;
        setup.others_are_served(name).await;
    }
}

/// HTTP/2 keeps them without a bound, and HTTP/1.1 within the tunnel's stream skips them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informational_heads_without_end_are_refused_and_others_are_served() {
    let setup = AgentFloodSetup::start().await;
    let mut agent = setup.greeted(1).await;
    agent.answer_pings();
    setup.edge.rig.connected("edge-b").await;
    let floods = async {
        let (request, mut respond) = agent.next_stream().await;
        // An answer that comes before its request is another fault.
        let _body = request_head(request).await;
        let mut answer = respond.send_response(Response::new(()), false).expect("a head");
        let heads = Bytes::from(b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000));
        // Until the gateway resets the stream.
        while send(&mut answer, heads.clone()).await.is_ok() {}
    };

    let asked = setup.edge.rig.ask_with_token("GET", "/clusters/edge-b/version", &[]);
    let (reply, ()) = timeout(DONE_MAX, async { tokio::join!(asked, floods) }).await.expect("in time");

    assert_eq!(reply.status, 502, "{reply:?}");
    setup.others_are_served("heads of HTTP/1.1").await;

    let from = setup.edge.rig.server_log().len();
    let floods = async {
        let (_request, mut respond) = agent.next_stream().await;
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::EARLY_HINTS;
        for _ in 0..5_000 {
            // Fails once the server has closed the connection.
            let _ = respond.send_informational(head.clone());
        }
        agent.ended().await;
    };
    let asked = setup.edge.rig.ask_with_token("POST", "/clusters/edge-b/version", &[]);
    let (reply, ()) = timeout(DONE_MAX, async { tokio::join!(asked, floods) }).await.expect("in time");

    assert!(reply.status >= 500, "{reply:?}");
    setup.edge.rig.logged("server.log", from, TOO_MANY).await;
    setup.others_are_served("heads of HTTP/2").await;
}

/// A server with a good agent, and a caller of that agent's cluster who asks all the time.
struct AgentFloodSetup {
    edge: FakeEdge,
    flooding: Issued,
    bystander: Bystander,
}

impl AgentFloodSetup {
    async fn start() -> Self {
        let edge = FakeEdge::start(HttpVersion::Http2).await;
        edge.fake.otherwise(Behaviour::json("{}"));
        edge.rig.tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", "edge-b"]).await;
        let flooding = edge.rig.issued("edge-b-agent");
        let alice = edge.rig.caller("alice", &[GROUP]).await;
        let (gateway, ca) = (edge.rig.gateway(), edge.rig.server_ca());
        let bystander = Bystander::start(move || {
            let (ca, alice) = (ca.clone(), alice.clone());
            async move {
                let answer =
                    ask(gateway, &ca, Some(&alice), "GET", "/clusters/edge-a/api/v1/namespaces", &[]).await;
                answer.is_ok_and(|answer| answer.status == 200)
            }
        });
        let setup = Self { edge, flooding, bystander };
        while setup.bystander.noticed().before.0 < 20 {
            sleep(LOOK_EVERY).await;
        }
        setup.bystander.the_fault_begins();
        setup
    }

    /// Comes as the agent of a second cluster, and greets.
    async fn greeted(&self, sequence: u64) -> FloodingAgent {
        let (gateway, ca) = (self.edge.rig.gateway(), self.edge.rig.server_ca());
        let stream = dial(gateway, &ca, &["tombolo/1"], Some(&self.flooding)).await.expect("a handshake");
        let mut connection = h2::server::Builder::new()
            .max_concurrent_streams(1000)
            .max_send_buffer_size(1024 * 1024)
            // The server answers each ping in a small frame of its own.
            .data_frame_budget(64 * 1024 * 1024)
            .handshake::<_, Bytes>(stream)
            .await
            .expect("HTTP/2");
        let (accepted, streams) = mpsc::channel(1000);
        let serving = tokio::spawn(async move {
            while let Some(Ok(stream)) = connection.accept().await {
                let _ = accepted.try_send(stream);
            }
        });
        let mut agent = FloodingAgent { streams, serving, control: None, notes: None };
        let (control, mut respond) = agent.next_stream().await;
        let mut sending = respond.send_response(Response::new(()), false).expect("a head");
        let hello = Hello {
            versions: vec![1],
            cluster: "edge-b".to_owned(),
            boot_nonce: vec![7; 16],
            sequence,
            ..Hello::default()
        };
        send(&mut sending, encoded(&ControlFrame::from(Frame::Hello(hello))).into())
            .await
            .expect("it is read");
        let mut control = control.into_body();
        timeout(DONE_MAX, control.data()).await.expect("in time").expect("a Welcome").expect("a Welcome");
        agent.control = Some((sending, control));
        let (notes, mut respond) = agent.next_stream().await;
        let sending = respond.send_response(Response::new(()), false).expect("a head");
        agent.notes = Some((sending, notes.into_body()));
        agent
    }

    /// Requests before and during the flood were answered.
    async fn others_are_served(&self, name: &str) {
        let answered = self.bystander.noticed().during.0;
        let two_more = async {
            while self.bystander.noticed().during.0 < answered + 2 {
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(DONE_MAX, two_more).await.expect("others are answered");
        let noticed = self.bystander.noticed();
        eprintln!("{name}: {noticed:?}, a ratio of {:.1}", noticed.ratio());
        assert_eq!(noticed.failed, 0, "{name}");
        assert!(!self.edge.rig.server_log().contains("panicked"));
    }
}

/// An agent by hand, over HTTP/2.
struct FloodingAgent {
    streams: mpsc::Receiver<(Request<RecvStream>, SendResponse<Bytes>)>,
    serving: tokio::task::JoinHandle<()>,
    control: Option<(SendStream<Bytes>, RecvStream)>,
    notes: Option<(SendStream<Bytes>, RecvStream)>,
}

impl FloodingAgent {
    async fn next_stream(&mut self) -> (Request<RecvStream>, SendResponse<Bytes>) {
        timeout(DONE_MAX, self.streams.recv()).await.expect("in time").expect("the connection lives")
    }

    /// Writes this to the stream of carrier frames until nobody takes it.
    async fn flood(&mut self, bytes: &[u8]) {
        let piece = Bytes::from(bytes.repeat(16 * 1024 / bytes.len()));
        let (notes, _) = self.notes.as_mut().expect("greeted");
        let flood = async { while send(notes, piece.clone()).await.is_ok() {} };
        // A server that ends nothing is noticed by its caller.
        let _ = timeout(DONE_MAX, flood).await;
    }

    /// Answers the server's pings from now on, so that its tunnel counts as live.
    fn answer_pings(&mut self) {
        let (mut sending, mut notes) = self.notes.take().expect("greeted");
        tokio::spawn(async move {
            let mut received = BytesMut::new();
            while let Some(Ok(bytes)) = notes.data().await {
                let _ = notes.flow_control().release_capacity(bytes.len());
                received.extend_from_slice(&bytes);
                while let Some(note) = frame::decode::<CarrierNote>(&mut received).expect("frames") {
                    if let Some(Note::Ping(number)) = note.note {
                        let pong = encoded(&CarrierNote { note: Some(Note::Pong(number)) });
                        let _ = send(&mut sending, pong.into()).await;
                    }
                }
            }
        });
    }

    /// Resolves when the server has closed the connection.
    async fn ended(&mut self) {
        let _ = (&mut self.serving).await;
    }
}

impl Drop for FloodingAgent {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Reads until the head of a GET has come whole, and returns the rest of the stream.
async fn request_head(request: Request<RecvStream>) -> RecvStream {
    let (mut body, mut received) = (request.into_body(), Vec::new());
    while !received.ends_with(b"\r\n\r\n") {
        let bytes = timeout(DONE_MAX, body.data()).await.expect("in time").expect("more").expect("bytes");
        received.extend_from_slice(&bytes);
    }
    body
}

/// Sends bytes as the window allows.
async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let Some(capacity) = capacity else { return Err(h2::Reason::CANCEL.into()) };
        let piece = bytes.split_to(capacity?.min(bytes.len()));
        stream.send_data(piece, false)?;
    }
    Ok(())
}

fn encoded(message: &impl frame::Message) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    frame::encode(message, &mut bytes).expect("a frame");
    bytes.to_vec()
}
