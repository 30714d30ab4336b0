//! The control stream: moves frames between the wire and the session, until the tunnel ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use proto::frame;
use proto::session::{Event, HEARTBEAT_ACTIVE, Health};
use proto::wire::ControlFrame;
use proto::{CloseCode, Session};
use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::time::{sleep_until, timeout};

use crate::counted::Shared;
use crate::error::TunnelEnded;
use crate::settings::Side;
use crate::tunnel::Tunnel;

/// After both sides know that the tunnel is empty, the one that did not ask for the drain waits so long for the other to
/// close it, and then does so itself.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Bytes read from the control stream at once.
const READ_BYTES: usize = 4096;

/// The two ends of the control stream, and what was read of the next frame.
pub(crate) struct ControlStream {
    send: SendStream,
    recv: RecvStream,
    buffer: BytesMut,
}

/// What the owner of a tunnel has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelEvent {
    /// The tunnel's health changed.
    Health(Health),
    /// The other side is stopping: the tunnel takes no new streams.
    PeerDrains,
    /// The cluster's control-plane endpoints changed.
    Endpoints(Vec<String>),
}

/// Speaks for a tunnel until it ends. The owner of the tunnel runs it; dropped, it closes the tunnel.
#[must_use = "a tunnel without its driver is silent and will be given up by the other side"]
pub struct Driver {
    connection: Connection,
    shared: Arc<Shared>,
    stream: ControlStream,
    /// Datagrams that had come in when we last looked: each is a sign of life.
    heard: u64,
    drain_is_ours: bool,
}

impl ControlStream {
    pub(crate) fn new((send, recv): (SendStream, RecvStream)) -> Self {
        Self { send, recv, buffer: BytesMut::new() }
    }

    pub(crate) async fn write(&mut self, frame: impl Into<ControlFrame>) -> Result<(), TunnelEnded> {
        let mut bytes = BytesMut::new();
        frame::encode(&frame.into(), &mut bytes)?;
        self.send.write_all(&bytes).await.map_err(|error| TunnelEnded::Carrier(error.to_string()))
    }

    /// The next frame. Cancel-safe: what was read stays in the buffer.
    pub(crate) async fn read(&mut self) -> Result<ControlFrame, TunnelEnded> {
        loop {
            if let Some(frame) = frame::decode(&mut self.buffer)? {
                return Ok(frame);
            }
            match self.recv.read_chunk(READ_BYTES, true).await {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk.bytes),
                Ok(None) => return Err(TunnelEnded::Carrier("the control stream was shut down".to_owned())),
                Err(quinn::ReadError::ConnectionLost(error)) => return Err(error.into()),
                Err(error) => return Err(TunnelEnded::Carrier(error.to_string())),
            }
        }
    }

    /// Waits until the peer has acknowledged everything written, for a last word before a close.
    pub(crate) async fn finish(&mut self) {
        if self.send.finish().is_ok() {
            // However it ends, there is nothing more to be done for it.
            let _ = self.send.stopped().await;
        }
    }
}

impl Driver {
    pub(crate) fn new(
        connection: Connection,
        stream: ControlStream,
        session: Session,
        side: Side,
    ) -> (Tunnel, Self) {
        let shared = Arc::new(Shared::new(session, side));
        let tunnel = Tunnel::new(connection.clone(), Arc::clone(&shared));
        (tunnel, Self { connection, shared, stream, heard: 0, drain_is_ours: true })
    }

    /// Runs the tunnel's protocol until it ends, and closes it. Dropping this future closes the tunnel, too.
    pub async fn run(mut self, mut on_event: impl FnMut(TunnelEvent)) -> TunnelEnded {
        let ended = match self.converse(&mut on_event).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        };
        // The carrier knows better why a stream broke.
        let ended = match (self.connection.close_reason(), ended) {
            (Some(reason), TunnelEnded::Carrier(_)) => reason.into(),
            (_, ended) => ended,
        };
        self.close(close_code(&ended));
        ended
    }

    async fn converse(
        &mut self,
        on_event: &mut impl FnMut(TunnelEvent),
    ) -> Result<std::convert::Infallible, TunnelEnded> {
        loop {
            self.speak().await?;
            self.report(on_event).await?;
            let next_look = self.next_look();
            // All arms are cancel-safe: `read` keeps what it read, a notification that came is kept, a sleep has
            // nothing to lose.
            tokio::select! {
                frame = self.stream.read() => {
                    self.shared.session().handle_frame(Instant::now(), frame?.frame)?;
                }
                () = self.shared.told() => {}
                () = sleep_until(next_look.into()) => self.look(),
                closed = self.connection.closed() => return Err(closed.into()),
            }
        }
    }

    /// Sends what the session has to say.
    async fn speak(&mut self) -> Result<(), TunnelEnded> {
        loop {
            // Taken in a statement of its own: no lock is held over the write.
            let frame = self.shared.session().poll_frame();
            let Some(frame) = frame else {
                return Ok(());
            };
            self.stream.write(frame).await?;
        }
    }

    async fn report(&mut self, on_event: &mut impl FnMut(TunnelEvent)) -> Result<(), TunnelEnded> {
        loop {
            let event = self.shared.session().poll_event();
            match event {
                None => return Ok(()),
                Some(Event::Health(health)) => {
                    on_event(TunnelEvent::Health(health));
                    if health == Health::Lost {
                        return Err(TunnelEnded::Lost);
                    }
                }
                Some(Event::PeerDrains) => {
                    self.drain_is_ours = false;
                    on_event(TunnelEvent::PeerDrains);
                }
                Some(Event::Endpoints(endpoints)) => {
                    on_event(TunnelEvent::Endpoints(proto::greeting::endpoints(endpoints)));
                }
                Some(Event::Empty) => return Err(self.part().await),
            }
        }
    }

    /// Both sides are empty. Who asked for the drain closes; the other waits for it.
    async fn part(&mut self) -> TunnelEnded {
        if !self.drain_is_ours {
            let _ = timeout(CLOSE_MAX, self.connection.closed()).await;
        }
        TunnelEnded::Drained
    }

    /// When to look at the session again: at its next instant, but at least every heartbeat, because streams that open
    /// bring that instant nearer and packets that arrive are signs of life.
    fn next_look(&self) -> Instant {
        let soon = Instant::now() + HEARTBEAT_ACTIVE;
        self.shared.session().poll_timeout().map_or(soon, |at| at.min(soon))
    }

    fn look(&mut self) {
        let now = Instant::now();
        let heard = self.connection.stats().udp_rx.datagrams;
        let mut session = self.shared.session();
        if heard != self.heard {
            self.heard = heard;
            session.heard(now);
        }
        session.handle_timeout(now);
    }

    fn close(&self, code: CloseCode) {
        self.connection.close(VarInt::from_u32(code.number()), code.to_string().as_bytes());
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Nothing happens where the connection was closed before.
        self.close(CloseCode::Stopping);
    }
}

/// What the other side is told of the end.
fn close_code(ended: &TunnelEnded) -> CloseCode {
    match ended {
        TunnelEnded::Drained => CloseCode::Drained,
        TunnelEnded::Lost => CloseCode::Lost,
        TunnelEnded::Violation(_) | TunnelEnded::Frame(_) => CloseCode::Violation,
        TunnelEnded::ClosedByPeer(code) => *code,
        TunnelEnded::Restarted | TunnelEnded::Carrier(_) => CloseCode::Stopping,
    }
}
