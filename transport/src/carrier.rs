//! The carrier of a tunnel: one connection and its streams, over QUIC or HTTP/2.

pub(crate) mod contract;
pub(crate) mod http2;
mod quic;

pub(crate) use quic::number;

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::CloseCode;
use tokio::io::ReadBuf;
use trust::proof::{EXPORTER_BYTES, EXPORTER_LABEL};

use self::contract::{Pinged, Stopped};
use crate::error::TunnelEnded;
use crate::link_stats::{LinkStats, StreamBytes};
use crate::priority::Priority;
use crate::probe::{Answer, Probe};
use crate::settings::Side;

/// The protocol that carries a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// QUIC over UDP, the default.
    Quic,
    /// HTTP/2 over TLS over TCP, for where UDP is blocked.
    Http2,
}

/// A carrier's connection. Clones are the same connection.
#[derive(Clone)]
pub(crate) enum Connection {
    Quic(quinn::Connection, Probe),
    Http2(http2::Http2Connection),
}

/// A carrier's stream: both directions.
pub(crate) enum Stream {
    Quic(quic::QuicStream),
    Http2(http2::Http2Stream),
}

impl Connection {
    /// The control stream: it carries the greeting and the session's frames. The agent speaks first on it.
    pub(crate) async fn control(&self, side: Side) -> Result<Stream, TunnelEnded> {
        match self {
            Self::Quic(connection, _) => quic::control(connection, side).await.map(Stream::Quic),
            Self::Http2(connection) => connection.control().await.map(Stream::Http2),
        }
    }

    /// Opens a stream. Waits while as many are open as the peer grants. Dropping the future opens none.
    pub(crate) async fn open(&self) -> Result<Stream, TunnelEnded> {
        match self {
            Self::Quic(connection, _) => quic::open(connection).await.map(Stream::Quic),
            Self::Http2(connection) => connection.open().await.map(Stream::Http2),
        }
    }

    /// The next stream that the peer opens. Cancel-safe.
    pub(crate) async fn accept(&self) -> Result<Stream, TunnelEnded> {
        match self {
            Self::Quic(connection, _) => quic::accept(connection).await.map(Stream::Quic),
            Self::Http2(connection) => connection.accept().await.map(Stream::Http2),
        }
    }

    /// Allows the peer to have this many streams open.
    pub(crate) fn grant(&self, streams: u32) {
        match self {
            Self::Quic(connection, _) => quic::grant(connection, streams),
            // A grant costs nothing here, so all streams were granted at the start.
            Self::Http2(_) => {}
        }
    }

    /// Closes the connection with everything on it.
    pub(crate) fn close(&self, code: CloseCode) {
        self.close_with(code, &code.to_string());
    }

    /// Closes the connection with everything on it, with a sentence for the peer's log.
    pub(crate) fn close_with(&self, code: CloseCode, reason: &str) {
        match self {
            Self::Quic(connection, _) => quic::close(connection, code, reason),
            Self::Http2(connection) => connection.close(code, reason),
        }
    }

    /// The end of the connection, once it has ended.
    pub(crate) fn end(&self) -> Option<TunnelEnded> {
        match self {
            Self::Quic(connection, _) => connection.close_reason().map(TunnelEnded::from),
            Self::Http2(connection) => connection.end(),
        }
    }

    /// Resolves when the connection has ended. Cancel-safe.
    pub(crate) async fn ended(&self) -> TunnelEnded {
        match self {
            Self::Quic(connection, _) => connection.closed().await.into(),
            Self::Http2(connection) => connection.ended().await,
        }
    }

    /// Resolves when the peer was notified that this side has closed, or could not be.
    pub(crate) async fn close_sent(&self) {
        match self {
            // The endpoint waits for all of its connections.
            Self::Quic(..) => {}
            Self::Http2(connection) => connection.close_sent().await,
        }
    }

    /// Returns true if the connection has to be replaced soon, although it still serves.
    pub(crate) fn needs_replacement(&self) -> bool {
        match self {
            Self::Quic(..) => false,
            Self::Http2(connection) => connection.needs_replacement(),
        }
    }

    /// The protocol of this connection.
    pub(crate) fn carrier(&self) -> Carrier {
        match self {
            Self::Quic(..) => Carrier::Quic,
            Self::Http2(_) => Carrier::Http2,
        }
    }

    /// The keying material that TLS exports for this connection and no other (RFC 8446, section 7.5).
    pub(crate) fn exporter(&self) -> Option<[u8; EXPORTER_BYTES]> {
        match self {
            Self::Quic(connection, _) => {
                let mut exported = [0; EXPORTER_BYTES];
                connection.export_keying_material(&mut exported, EXPORTER_LABEL, b"").ok()?;
                Some(exported)
            }
            Self::Http2(connection) => connection.exporter(),
        }
    }

    /// Current estimate of the path's round trip.
    pub(crate) fn round_trip(&self) -> Duration {
        match self {
            Self::Quic(connection, _) => connection.rtt(),
            Self::Http2(connection) => connection.round_trip(),
        }
    }

    /// Counters of everything that the connection has carried and lost so far.
    pub(crate) fn link_stats(&self, streams: &StreamBytes) -> LinkStats {
        match self {
            Self::Quic(connection, _) => LinkStats::from_quic(&connection.stats(), streams),
            Self::Http2(connection) => connection.link_stats(streams),
        }
    }

    /// A number that changes with every sign of life from the peer.
    pub(crate) fn heard(&self) -> u64 {
        match self {
            Self::Quic(connection, _) => connection.stats().udp_rx.datagrams,
            Self::Http2(connection) => connection.heard(),
        }
    }

    /// The peer's present address and port.
    pub(crate) fn peer_address(&self) -> SocketAddr {
        match self {
            Self::Quic(connection, _) => connection.remote_address(),
            Self::Http2(connection) => connection.peer_address(),
        }
    }

    /// Sends a heartbeat outside of all streams, whatever the congestion window, and awaits its answer
    /// (`answered`). One of `FULL_SIZE_DATAGRAM_BYTES` is a full-size probe. `Unsent` where the carrier or the peer cannot: the heartbeat goes over the control
    /// stream then.
    pub(crate) fn ping(&self, heartbeat: Bytes) -> Pinged {
        match self {
            Self::Quic(connection, probe) => quic::ping(connection, probe, heartbeat),
            Self::Http2(connection) => connection.ping(),
        }
    }

    /// The next heartbeat that arrived outside of all streams. Cancel-safe.
    pub(crate) async fn heartbeat(&self) -> Result<Bytes, TunnelEnded> {
        match self {
            Self::Quic(connection, _) => Ok(connection.read_datagram().await?),
            // They come over the control stream.
            Self::Http2(_) => std::future::pending().await,
        }
    }

    /// Returns true if a heartbeat can be sent as a full-size probe: the packets are ours, and the peer takes
    /// datagrams of that size.
    pub(crate) fn probes_full_size(&self) -> bool {
        match self {
            Self::Quic(connection, _) => quic::probes_full_size(connection),
            Self::Http2(_) => false,
        }
    }

    /// The time at which the latest full-size packet was sent that the peer has received.
    pub(crate) fn full_size_arrived(&self) -> Option<Instant> {
        match self {
            Self::Quic(_, probe) => probe.full_size_arrived(),
            Self::Http2(_) => None,
        }
    }

    /// The time of the oldest full-size packet since the last that the peer has received.
    pub(crate) fn full_size_unanswered_since(&self) -> Option<Instant> {
        match self {
            Self::Quic(_, probe) => probe.full_size_unanswered_since(),
            Self::Http2(_) => None,
        }
    }

    /// Resolves when there is an answer to take. Cancel-safe.
    pub(crate) async fn answered(&self) {
        match self {
            Self::Quic(_, probe) => probe.answered().await,
            Self::Http2(connection) => connection.answered().await,
        }
    }

    /// The round-trip estimate that paces our own sending; `None` over TCP, where the kernel has it.
    pub(crate) fn rtt_estimate(&self) -> Option<Duration> {
        match self {
            Self::Quic(connection, _) => Some(connection.rtt()),
            Self::Http2(_) => None,
        }
    }

    /// Sends an empty ping, for a sample of the round trip.
    pub(crate) fn send_rtt_sample(&self) {
        match self {
            Self::Quic(connection, probe) => drop(quic::ping(connection, probe, Bytes::new())),
            Self::Http2(_) => {}
        }
    }

    /// Corrects the sending pace by this factor, while the round-trip estimate is too long by it.
    pub(crate) fn correct_pace(&self, factor: u64) {
        match self {
            Self::Quic(_, probe) => probe.correct_pace(factor),
            Self::Http2(_) => {}
        }
    }

    /// Takes the answer to a ping: the time at which the peer had received it.
    pub(crate) fn take_answer(&self) -> Option<Answer> {
        match self {
            Self::Quic(_, probe) => probe.take_answer(),
            Self::Http2(connection) => connection.take_answer(),
        }
    }
}

impl Stream {
    /// Reads into `into`. Reading nothing into a buffer that has room means the end of the stream.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Quic(stream) => stream.poll_read(cx, into),
            Self::Http2(stream) => stream.poll_read(cx, into),
        }
    }

    /// Hands bytes to the carrier, which sends those of a higher priority first as far as it can.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        priority: Priority,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Quic(stream) => stream.poll_write(cx, bytes, priority),
            Self::Http2(stream) => stream.poll_write(cx, bytes, priority),
        }
    }

    /// Ends the writing direction after everything written so far. Fails if it has ended before.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Quic(stream) => stream.finish(),
            Self::Http2(stream) => stream.finish(),
        }
    }

    /// Resolves when the peer has received the writing direction to its end (`Ok`), or has aborted the
    /// stream.
    pub(crate) fn stopped(&self) -> Stopped {
        match self {
            Self::Quic(stream) => stream.stopped(),
            Self::Http2(stream) => stream.stopped(),
        }
    }

    /// Aborts both directions with this code.
    pub(crate) fn abort(&mut self, code: u32) {
        match self {
            Self::Quic(stream) => stream.abort(code),
            Self::Http2(stream) => stream.abort(code),
        }
    }
}

impl Carrier {
    /// The carrier's name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Http2 => "http2",
        }
    }
}
