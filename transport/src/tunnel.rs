//! The handle of a greeted tunnel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use proto::frame::{self, FrameError};
use proto::session::Health;
use proto::wire::{Endpoints, Extension, StreamOpen};
use proto::{AbortCode, CloseCode};
use tokio::time::timeout;
use trust::proof::EXPORTER_BYTES;

use crate::carrier::{Carrier, Connection};
use crate::error::TunnelEnded;
use crate::link_stats::LinkStats;
use crate::stream::TunnelStream;
use crate::tunnel_state::{StreamGuard, TunnelState};

/// A stream is opened within this time, or not at all. It waits only where the peer's limit of streams is reached.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// A greeted tunnel. Clones are the same tunnel; dropping all of them closes nothing, the [`Driver`](crate::Driver) does.
#[derive(Clone)]
pub struct Tunnel {
    connection: Connection,
    state: Arc<TunnelState>,
}

/// Why a stream could not be opened. Not one byte was handed to the carrier, so whatever was to be sent may be sent
/// another way.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The tunnel drains and begins nothing new.
    #[error("the tunnel is draining")]
    Draining,
    /// As many streams are open as the peer grants, and none ended in time.
    #[error("no stream could be opened within {} s", OPEN_MAX.as_secs())]
    Full,
    /// The tunnel is over.
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

    /// Opens a stream, with `open` as its first frame.
    ///
    /// # Errors
    /// `OpenError`. After it the peer has seen nothing of the stream, or that it was aborted.
    pub async fn open(&self, open: &StreamOpen) -> Result<TunnelStream, OpenError> {
        let mut first = BytesMut::new();
        frame::encode(open, &mut first)?;
        let guard = StreamGuard::open(&self.state).ok_or(OpenError::Draining)?;
        let opening = async {
            let mut stream = TunnelStream::new(self.connection.open().await?, guard);
            stream.write_first(&first).await?;
            if self.connection.needs_replacement() && !self.is_draining() {
                // The agent dials another one at once, and this one ends with its last stream.
                self.begin_drain();
            }
            Ok(stream)
        };
        timeout(OPEN_MAX, opening).await.unwrap_or(Err(OpenError::Full))
    }

    /// The next stream that the peer opens. Cancel-safe.
    ///
    /// # Errors
    /// How the tunnel ended.
    pub async fn accept(&self) -> Result<TunnelStream, TunnelEnded> {
        let carried = self.connection.accept().await?;
        let guard = StreamGuard::accepted(&self.state);
        if let Some(more) = self.state.grant_more() {
            self.connection.grant(more);
        }
        Ok(TunnelStream::new(carried, guard))
    }

    /// How the tunnel does.
    #[must_use]
    pub fn health(&self) -> Health {
        if self.connection.end().is_some() {
            return Health::Lost;
        }
        self.state.session().health()
    }

    /// For how long nothing has been heard of the peer, to about a second.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.state.session().silence(Instant::now())
    }

    /// Whether a drain was asked for, by either side.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.state.session().is_draining()
    }

    /// Streams that carry exchanges now.
    #[must_use]
    pub fn streams_open(&self) -> u32 {
        self.state.streams_open()
    }

    /// What carries it.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        self.connection.carrier()
    }

    /// Current estimate of the path's round trip.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.connection.round_trip()
    }

    /// How far away the peer is: the least that one of its last eight answers to a heartbeat took, and before the first one
    /// the estimate of the round trip. For a choice between tunnels, which shall not hang on how busy a machine was once.
    #[must_use]
    pub fn min_rtt(&self) -> Duration {
        self.state.min_rtt().get().unwrap_or_else(|| self.round_trip())
    }

    /// What the link has carried and lost so far. Takes the connection's lock and copies all of its figures: not for the
    /// way of a request.
    #[must_use]
    pub fn link_stats(&self) -> LinkStats {
        self.connection.link_stats(self.state.stream_bytes())
    }

    /// Where the peer's packets come from now; changes when its address does.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.connection.peer_address()
    }

    /// A number that grows with everything that arrives from the peer, and with nothing else.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.connection.heard()
    }

    /// Says something to the peer now, so that one that lives is heard soon.
    pub fn nudge(&self) {
        self.state.update_session(|session| session.nudge(Instant::now()));
    }

    /// Asks both sides to begin nothing new. The tunnel closes by itself when no stream is open any more.
    pub fn begin_drain(&self) {
        self.state.update_session(proto::Session::begin_drain);
    }

    /// Tells the server of other control-plane endpoints, or of other certificates of theirs.
    pub fn advertise(&self, endpoints: Endpoints) {
        self.state.update_session(|session| session.advertise(endpoints));
    }

    /// Shows the server a newer certificate than the one with which the tunnel was opened.
    pub fn extend(&self, extension: Extension) {
        self.state.update_session(|session| session.extend(extension));
    }

    /// What a proof is bound to, so that it holds on this tunnel alone; the same on both sides, and on no other tunnel.
    #[must_use]
    pub fn exporter(&self) -> Option<[u8; EXPORTER_BYTES]> {
        self.connection.exporter()
    }

    /// Ends the tunnel with everything on it: for a deadline that passed, never for a healthy tunnel.
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
