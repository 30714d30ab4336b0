//! The handle of a greeted tunnel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use proto::frame::{self, FrameError};
use proto::peering::PeerMessage;
use proto::server_list::ServerList;
use proto::session::Health;
use proto::wire::{Endpoints, Extension, StreamOpen, StreamQuery, StreamReport};
use proto::{AbortCode, CloseCode};
use tokio::time::timeout;
use trust::proof::EXPORTER_BYTES;

use crate::carrier::{Carrier, Connection};
use crate::error::TunnelEnded;
use crate::link_stats::LinkStats;
use crate::peer_queue::TellError;
use crate::stream::TunnelStream;
use crate::tunnel_state::{StreamGuard, TunnelState};

/// A stream is opened within this time, or not at all. It waits only where the peer's limit of streams is
/// reached.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// A greeted tunnel. Clones are the same tunnel; dropping all of them closes nothing, the
/// [`Driver`](crate::Driver) does.
#[derive(Clone)]
pub struct Tunnel {
    connection: Connection,
    state: Arc<TunnelState>,
}

/// The reason why a stream could not be opened. Not one byte was handed to the carrier, so the request may be
/// sent another way.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The tunnel drains and opens no new stream.
    #[error("the tunnel is draining")]
    Draining,
    /// As many streams are open as the peer grants, and none ended in time.
    #[error("no stream could be opened within {} s", OPEN_MAX.as_secs())]
    Full,
    /// The tunnel has ended, for this reason.
    #[error("the tunnel ended")]
    Ended(#[from] TunnelEnded),
    /// The first frame is too large: the caller's identity, most likely.
    #[error("the stream's first frame cannot be sent")]
    Frame(#[from] FrameError),
}

impl Tunnel {
    pub(crate) fn new(connection: Connection, state: Arc<TunnelState>) -> Self {
        Self { connection, state }
    }

    /// Opens a stream, with `open` as its first frame, to which the stream's number is added.
    ///
    /// # Errors
    /// `OpenError`. After it the peer has seen nothing of the stream, or that it was aborted.
    pub async fn open(&self, open: &StreamOpen) -> Result<TunnelStream, OpenError> {
        let (mut first, number) = (BytesMut::new(), self.state.next_stream());
        frame::encode_merged(open, &StreamOpen::numbered(number), &mut first)?;
        let guard = StreamGuard::open(&self.state).ok_or(OpenError::Draining)?;
        let opening = async {
            let mut stream = TunnelStream::new(self.connection.open().await?, guard).numbered(number);
            stream.write_first(&first).await?;
            if self.connection.needs_replacement() && !self.is_draining() {
                // The agent dials another tunnel at once, and this one ends with its last stream.
                self.begin_drain();
            }
            Ok(stream)
        };
        timeout(OPEN_MAX, opening).await.unwrap_or(Err(OpenError::Full))
    }

    /// The next stream that the peer opens. Cancel-safe.
    ///
    /// # Errors
    /// The end of the tunnel.
    pub async fn accept(&self) -> Result<TunnelStream, TunnelEnded> {
        let carried = self.connection.accept().await?;
        let guard = StreamGuard::accepted(&self.state);
        if let Some(more) = self.state.grant_more() {
            self.connection.grant(more);
        }
        Ok(TunnelStream::new(carried, guard))
    }

    /// The tunnel's health at this moment.
    #[must_use]
    pub fn health(&self) -> Health {
        if self.connection.end().is_some() {
            return Health::Lost;
        }
        self.state.session().health()
    }

    /// Returns true if the peer was heard lately and the tunnel takes new streams.
    #[must_use]
    pub fn serves(&self) -> bool {
        if self.connection.end().is_some() {
            return false;
        }
        let session = self.state.session();
        session.health() == Health::Live && !session.is_draining()
    }

    /// Time since the last sign of life from the peer, to about a second.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.state.session().silence(Instant::now())
    }

    /// Returns true if a drain was asked for, by either side.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.state.session().is_draining()
    }

    /// Returns true if the tunnel has ended because the peer has closed it, in good order or not.
    #[must_use]
    pub fn was_closed_by_peer(&self) -> bool {
        match self.connection.end() {
            Some(TunnelEnded::Drained | TunnelEnded::ClosedByPeer(_)) => true,
            Some(
                TunnelEnded::Lost
                | TunnelEnded::Restarted
                | TunnelEnded::Violation(_)
                | TunnelEnded::Frame(_)
                | TunnelEnded::Carrier(_),
            )
            | None => false,
        }
    }

    /// Streams that carry exchanges now.
    #[must_use]
    pub fn streams_open(&self) -> u32 {
        self.state.streams_open()
    }

    /// The protocol that carries the tunnel.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        self.connection.carrier()
    }

    /// Current estimate of the path's round trip.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.connection.round_trip()
    }

    /// The shortest round trip of the last eight answers to heartbeats, and before the first one the estimate
    /// of the round trip. A measure of distance for a choice between tunnels, which shall not depend on the
    /// load of a moment.
    #[must_use]
    pub fn min_rtt(&self) -> Duration {
        self.state.min_rtt().get().unwrap_or_else(|| self.round_trip())
    }

    /// Counters of everything that the link has carried and lost so far. Takes the connection's lock and
    /// copies all counters, so it is not for the path of a request.
    #[must_use]
    pub fn link_stats(&self) -> LinkStats {
        self.connection.link_stats(self.state.stream_bytes())
    }

    /// The address from which the peer's packets come now; changes when the peer's address does.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.connection.peer_address()
    }

    /// A number that grows with everything that arrives from the peer, and with nothing else.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.connection.heard()
    }

    /// The last time at which the tunnel turned from suspect to live; `None` if it never was suspect.
    #[must_use]
    pub fn flapped_at(&self) -> Option<Instant> {
        self.state.session().flapped_at()
    }

    /// Returns true while it is not known whether the latest full-size probe has passed. Until then a sign of
    /// life does not show that the tunnel carries requests.
    #[must_use]
    pub fn awaits_probe(&self) -> bool {
        self.state.session().full_size_awaited()
    }

    /// Sends a heartbeat to the peer now, so that a live one answers soon.
    pub fn nudge(&self) {
        self.state.update_session(|session| session.nudge(Instant::now()));
    }

    /// Asks both sides to open no new stream. The tunnel closes by itself when no stream is open any more.
    pub fn begin_drain(&self) {
        self.state.update_session(proto::Session::begin_drain);
    }

    /// Sends changed control-plane endpoints, or changed certificates of theirs, to the server.
    pub fn advertise(&self, endpoints: Endpoints) {
        self.state.update_session(|session| session.advertise(endpoints));
    }

    /// Presents a newer certificate to the server than the one with which the tunnel was opened.
    pub fn extend(&self, extension: Extension) {
        self.state.update_session(|session| session.extend(extension));
    }

    /// Asks the agent for streams of another tunnel, which is silent.
    pub fn ask(&self, query: StreamQuery) {
        self.state.update_session(|session| session.ask(query));
    }

    /// Answers the server's question about streams of another tunnel.
    pub fn report(&self, report: StreamReport) {
        self.state.update_session(|session| session.report(report));
    }

    /// Tells the agent which servers there are. A list that was not sent yet is replaced.
    pub fn tell_servers(&self, servers: &ServerList) {
        self.state.update_session(|session| session.tell_servers(servers.to_wire()));
    }

    /// Tells the other server something. Messages arrive in their order, or the session ends. Never waits.
    ///
    /// # Errors
    /// `TellError`. After `Unread` the session ends, because a server that missed a message would go on with a wrong
    /// picture of this one.
    pub fn tell_peer(&self, message: PeerMessage) -> Result<(), TellError> {
        let queue = self.state.peer_queue().ok_or(TellError::NotAPeer)?;
        let pushed = queue.push(message);
        self.state.wake_driver();
        pushed
    }

    /// Resolves when the carrier has taken what the other server was told, but for the last message. A sender of
    /// much, such as a full copy, waits for it between two messages. Cancel-safe.
    ///
    /// # Errors
    /// The end of the tunnel.
    pub async fn peer_messages_taken(&self) -> Result<(), TunnelEnded> {
        let Some(queue) = self.state.peer_queue() else {
            return Ok(());
        };
        // Both arms are cancel-safe: neither takes anything.
        tokio::select! {
            () = queue.emptied() => Ok(()),
            ended = self.connection.ended() => Err(ended),
        }
    }

    /// The TLS keying material that binds a proof to this tunnel; the same on both sides, and on no other
    /// tunnel.
    #[must_use]
    pub fn exporter(&self) -> Option<[u8; EXPORTER_BYTES]> {
        self.connection.exporter()
    }

    /// Closes the tunnel with everything on it: for a deadline that passed, never for a healthy tunnel.
    pub fn close(&self, code: CloseCode) {
        self.connection.close(code);
    }

    /// Resolves when the tunnel has ended. Cancel-safe.
    pub async fn ended(&self) -> TunnelEnded {
        self.connection.ended().await
    }
}

impl TunnelStream {
    async fn write_first(&mut self, first: &[u8]) -> Result<(), OpenError> {
        use tokio::io::AsyncWriteExt;
        // A new stream breaks only with its tunnel.
        self.write_all(first).await.map_err(|error| {
            OpenError::Ended(TunnelEnded::Carrier(format!("{}: {error}", AbortCode::Abandoned)))
        })
    }
}
