//! Drives a tunnel: moves frames between the control stream and the session, until the tunnel ends.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use proto::frame;
use proto::greeting::Advertised;
use proto::peering::PeerMessage;
use proto::server_list::ServerList;
use proto::session::{Event, HEARTBEAT_ACTIVE, Health, ProtocolViolation};
use proto::wire::{ControlFrame, Extension, StreamQuery, StreamReport, control_frame::Frame};
use proto::{CloseCode, Session};
use tokio::io::ReadBuf;
use tokio::task::coop;
use tokio::time::{sleep_until, timeout};

use crate::carrier::contract::Pinged;
use crate::carrier::{Connection, Stream};
use crate::error::TunnelEnded;
use crate::path_mtu::FULL_SIZE_DATAGRAM_BYTES;
use crate::peer_queue::PeerQueue;
use crate::priority::Priority;
use crate::probe::{Answer, RttRepair};
use crate::rebind::Rebinding;
use crate::settings::Side;
use crate::tunnel::Tunnel;
use crate::tunnel_state::TunnelState;

/// Longest time that the side which did not ask for the drain waits for the other to close an empty tunnel.
/// Then it closes the tunnel itself.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Longest time that a broken control stream waits for its connection to report the reason.
const END_REASON_WAIT_MAX: Duration = Duration::from_millis(500);

/// Bytes read from the control stream at once.
const READ_BYTES: usize = 4096;

/// The control stream, with frames that are not written yet and bytes of the next frame.
pub(crate) struct ControlStream {
    stream: Stream,
    unwritten: BytesMut,
    buffer: BytesMut,
}

/// An event that the owner of a tunnel has to act upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelEvent {
    /// The tunnel's health changed to this.
    Health(Health),
    /// The other side is stopping: the tunnel takes no new streams.
    PeerDrains,
    /// The cluster's control-plane endpoints changed.
    Endpoints(Advertised),
    /// A newer certificate takes the tunnel over, if its proof holds.
    Extension(Extension),
    /// The server asks for streams of another tunnel.
    StreamQuery(StreamQuery),
    /// The agent answers such a question.
    StreamReport(StreamReport),
    /// The server tells which servers there are.
    Servers(ServerList),
    /// A message of the other server; only in a session between servers.
    Peer(PeerMessage),
}

/// Runs the session of a tunnel until it ends. The owner of the tunnel polls it; dropping it closes the
/// tunnel.
#[must_use = "a tunnel without its driver is silent and will be given up by the other side"]
pub struct Driver {
    connection: Connection,
    state: Arc<TunnelState>,
    stream: ControlStream,
    /// The carrier's count of signs of life when it last changed, and the time of that change.
    heard: (u64, Instant),
    drain_is_ours: bool,
    rtt_repair: RttRepair,
    /// Changes the socket of a silent tunnel; only at an agent.
    rebinding: Option<Rebinding>,
}

impl ControlStream {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, unwritten: BytesMut::new(), buffer: BytesMut::new() }
    }

    /// Writes a frame, and waits until the carrier has taken it.
    pub(crate) async fn write(&mut self, frame: impl Into<ControlFrame>) -> Result<(), TunnelEnded> {
        self.queue(&frame.into())?;
        poll_fn(|cx| self.poll_flush(cx)).await.map_err(tunnel_ended)
    }

    /// Reads the next frame, and writes queued frames meanwhile. Cancel-safe: bytes that were read stay in
    /// the buffer.
    pub(crate) async fn read(&mut self) -> Result<ControlFrame, TunnelEnded> {
        loop {
            if let Some(frame) = self.read_or_written(false).await? {
                return Ok(frame);
            }
        }
    }

    /// The same, but with `stops_when_written` it returns `None` once queued frames are written, so that more
    /// can be queued. Cancel-safe, too.
    async fn read_or_written(
        &mut self,
        stops_when_written: bool,
    ) -> Result<Option<ControlFrame>, TunnelEnded> {
        loop {
            if let Some(frame) = frame::decode(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            let stops = stops_when_written && !self.is_written();
            let filled = poll_fn(|cx| match self.poll_flush(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) if stops => Poll::Ready(Ok(None)),
                Poll::Ready(Ok(())) | Poll::Pending => self.poll_fill(cx).map_ok(Some),
            });
            match filled.await.map_err(tunnel_ended)? {
                None => return Ok(None),
                Some(0) => return Err(TunnelEnded::Carrier("the control stream was shut down".to_owned())),
                Some(_) => {}
            }
        }
    }

    /// Queues a frame, which the next read or write sends.
    fn queue(&mut self, frame: &ControlFrame) -> Result<(), TunnelEnded> {
        Ok(frame::encode(frame, &mut self.unwritten)?)
    }

    /// Queues the bytes of a frame.
    fn queue_encoded(&mut self, frame: &[u8]) {
        self.unwritten.extend_from_slice(frame);
    }

    /// Returns true if the carrier has taken all queued frames.
    fn is_written(&self) -> bool {
        self.unwritten.is_empty()
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten.is_empty() {
            let written = ready!(self.stream.poll_write(cx, &self.unwritten, Priority::Control))?;
            self.unwritten.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once into the buffer, and returns the number of bytes.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut bytes = [0; READ_BYTES];
        let mut into = ReadBuf::new(&mut bytes);
        ready!(self.stream.poll_read(cx, &mut into))?;
        self.buffer.extend_from_slice(into.filled());
        Poll::Ready(Ok(into.filled().len()))
    }

    /// Ends the stream and waits until the peer has acknowledged everything written, before a close.
    pub(crate) async fn finish(&mut self) {
        if self.stream.finish().is_ok() {
            // The outcome does not matter: the connection is closed next.
            let _ = self.stream.stopped().await;
        }
    }
}

impl Driver {
    pub(crate) fn new(
        connection: Connection,
        stream: ControlStream,
        mut session: Session,
        side: Side,
    ) -> (Tunnel, Self) {
        if connection.probes_full_size() {
            session.require_full_size(Instant::now());
        }
        let state = Arc::new(TunnelState::new(session, side));
        let tunnel = Tunnel::new(connection.clone(), Arc::clone(&state));
        (
            tunnel,
            Self {
                connection,
                state,
                stream,
                heard: (0, Instant::now()),
                drain_is_ours: true,
                rtt_repair: RttRepair::default(),
                rebinding: None,
            },
        )
    }

    /// The driver with a socket that is replaced while nothing is heard.
    pub(crate) fn rebinding(mut self, rebinding: Rebinding) -> Self {
        self.rebinding = Some(rebinding);
        self
    }

    /// Runs the tunnel's protocol until it ends, and closes it. Dropping this future closes the tunnel, too.
    pub async fn run(mut self, mut on_event: impl FnMut(TunnelEvent)) -> TunnelEnded {
        let ended = match self.drive(&mut on_event).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        };
        // The connection knows the reason why the stream broke, perhaps a moment later.
        let ended = if matches!(ended, TunnelEnded::Carrier(_)) {
            timeout(END_REASON_WAIT_MAX, self.connection.ended()).await.unwrap_or(ended)
        } else {
            ended
        };
        self.connection.close(close_code(&ended));
        self.connection.close_sent().await;
        ended
    }

    async fn drive(
        &mut self,
        on_event: &mut impl FnMut(TunnelEvent),
    ) -> Result<std::convert::Infallible, TunnelEnded> {
        loop {
            self.send_frames()?;
            self.report(on_event).await?;
            let next_check = self.next_check();
            // Each of the waiting messages follows as soon as the one before it is written.
            let more_wait = self.state.peer_queue().is_some_and(|queue| !queue.is_empty());
            // All arms are cancel-safe: `read` keeps what it read, a notification is kept, an answer is taken
            // by `check`, a sleep has nothing to lose.
            tokio::select! {
                frame = self.stream.read_or_written(more_wait) => {
                    if let Some(frame) = frame? {
                        self.state.session().handle_frame(Instant::now(), frame.frame)?;
                    }
                    // A frame that has arrived is always ready, so a flood would never yield by itself.
                    coop::consume_budget().await;
                }
                heartbeat = self.connection.heartbeat() => {
                    self.handle_datagram(&heartbeat?)?;
                    coop::consume_budget().await;
                }
                () = self.connection.answered() => self.check(),
                () = self.state.session_changed() => {}
                () = sleep_until(next_check.into()) => self.check(),
                ended = self.connection.ended() => return Err(ended),
            }
        }
    }

    /// Sends the session's frames. Never waits: what a blocked carrier does not take is written later.
    fn send_frames(&mut self) -> Result<(), TunnelEnded> {
        if self.state.peer_queue().is_some_and(PeerQueue::is_overfull) {
            return Err(ProtocolViolation::UnreadMessages.into());
        }
        let heartbeat = self.state.session().poll_heartbeat();
        if let Some(heartbeat) = heartbeat {
            self.ping(heartbeat)?;
        }
        while self.stream.is_written() {
            // In a statement of its own, so that the lock is released at its end.
            let frame = self.state.session().poll_frame();
            if let Some(frame) = frame {
                self.stream.queue(&frame.into())?;
                continue;
            }
            let Some(message) = self.state.peer_queue().and_then(PeerQueue::pop) else {
                return Ok(());
            };
            self.stream.queue_encoded(&message);
        }
        Ok(())
    }

    /// Sends a heartbeat outside of all streams where that is possible, else as an ordinary frame.
    fn ping(&mut self, heartbeat: Frame) -> Result<(), TunnelEnded> {
        let (now, frame) = (Instant::now(), ControlFrame::from(heartbeat));
        let mut bytes = BytesMut::new();
        frame::encode(&frame, &mut bytes)?;
        let data_since = self.connection.full_size_unanswered_since();
        let is_full_size = self.state.session().full_size_due(now, data_since);
        if is_full_size {
            // The receiver decodes one frame, and ignores the bytes behind it.
            bytes.resize(FULL_SIZE_DATAGRAM_BYTES.max(bytes.len()), 0);
        }
        match self.connection.ping(bytes.freeze()) {
            Pinged::Sent if is_full_size => self.state.session().full_size_sent(now),
            Pinged::Sent => {}
            // A heartbeat waits already, and a second one would add nothing.
            Pinged::Unsent if self.stream.is_written() => self.stream.queue(&frame)?,
            Pinged::Unsent => {}
        }
        self.state.session().pinged(now);
        Ok(())
    }

    /// Handles a datagram, which must be a heartbeat: datagrams have no order, so no other frame may come in
    /// one.
    fn handle_datagram(&mut self, bytes: &[u8]) -> Result<(), TunnelEnded> {
        let frame = frame::decode::<ControlFrame>(&mut BytesMut::from(bytes))?;
        let heartbeat =
            frame.and_then(|frame| frame.frame).filter(|frame| matches!(frame, Frame::Heartbeat(_)));
        let (now, mut session) = (Instant::now(), self.state.session());
        session.handle_frame(now, heartbeat)?;
        if bytes.len() >= FULL_SIZE_DATAGRAM_BYTES {
            session.full_size_heard(now);
        }
        Ok(())
    }

    async fn report(&mut self, on_event: &mut impl FnMut(TunnelEvent)) -> Result<(), TunnelEnded> {
        loop {
            let event = self.state.session().poll_event();
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
                    on_event(TunnelEvent::Endpoints(proto::greeting::advertised(endpoints)));
                }
                Some(Event::Extension(extension)) => on_event(TunnelEvent::Extension(extension)),
                Some(Event::StreamQuery(query)) => on_event(TunnelEvent::StreamQuery(query)),
                Some(Event::StreamReport(report)) => on_event(TunnelEvent::StreamReport(report)),
                Some(Event::Servers(servers)) => {
                    on_event(TunnelEvent::Servers(ServerList::from_wire(servers)));
                }
                Some(Event::Peer(peer)) => {
                    let message = PeerMessage::parse(peer)
                        .map_err(|error| ProtocolViolation::PeerMessage(error.to_string()))?;
                    message.into_iter().for_each(|message| on_event(TunnelEvent::Peer(message)));
                }
                Some(Event::Empty) => return Err(self.await_close().await),
            }
        }
    }

    /// Waits for the close of an empty tunnel. The side that asked for the drain closes it; the other waits.
    async fn await_close(&mut self) -> TunnelEnded {
        if !self.drain_is_ours {
            let _ = timeout(CLOSE_MAX, self.connection.ended()).await;
        }
        TunnelEnded::Drained
    }

    /// The next time at which to check the session. At least every heartbeat, because new streams bring the
    /// session's own timeout nearer, and packets that arrive are signs of life.
    fn next_check(&self) -> Instant {
        let soon = Instant::now() + HEARTBEAT_ACTIVE;
        let due = self.state.session().poll_timeout().into_iter().chain(self.rtt_repair.next());
        due.fold(soon, Instant::min)
    }

    fn check(&mut self) {
        let now = Instant::now();
        let heard = self.connection.heard();
        let answer = self.connection.take_answer();
        if let Some(Answer { at, round_trip }) = answer {
            self.state.session().answered(at, round_trip);
            self.state.min_rtt().record(round_trip);
            if let Some(estimate) = self.connection.rtt_estimate() {
                self.connection.correct_pace(self.rtt_repair.correction_factor(now, estimate, round_trip));
            }
        }
        let full_size_arrived = self.connection.full_size_arrived();
        let mut session = self.state.session();
        if let Some(sent) = full_size_arrived {
            session.full_size_answered(now, sent);
        }
        if heard != self.heard.0 {
            self.heard = (heard, now);
            session.heard(now);
        }
        session.handle_timeout(now);
        drop(session);
        if let Some(rebinding) = &mut self.rebinding {
            rebinding.rebind_if_silent(now, now.saturating_duration_since(self.heard.1));
        }
        if self.rtt_repair.is_due(now) {
            self.connection.send_rtt_sample();
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Does nothing if the connection was closed before.
        self.connection.close(CloseCode::Stopping);
    }
}

/// The end of the tunnel that broke the control stream.
fn tunnel_ended(error: io::Error) -> TunnelEnded {
    let ended = error.get_ref().and_then(|inside| inside.downcast_ref::<TunnelEnded>());
    ended.cloned().unwrap_or_else(|| TunnelEnded::Carrier(error.to_string()))
}

/// The code with which this side closes a tunnel that ended so.
fn close_code(ended: &TunnelEnded) -> CloseCode {
    match ended {
        TunnelEnded::Drained => CloseCode::Drained,
        TunnelEnded::Lost => CloseCode::Lost,
        TunnelEnded::Violation(_) | TunnelEnded::Frame(_) => CloseCode::Violation,
        TunnelEnded::ClosedByPeer(code) => *code,
        TunnelEnded::Restarted | TunnelEnded::Carrier(_) => CloseCode::Stopping,
    }
}
