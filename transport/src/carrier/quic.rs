//! QUIC as a carrier: quinn's connections and streams, and the meaning of their errors.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use proto::CloseCode;
use quinn::{
    Connection, ConnectionError, ReadError, RecvStream, SendDatagramError, SendStream, StoppedError, VarInt,
    WriteError,
};
use tokio::io::ReadBuf;

use super::contract::{Pinged, Stopped};
use crate::error::{TunnelEnded, aborted, ended};
use crate::path_mtu::{FILLER, FULL_SIZE_DATAGRAM_BYTES};
use crate::priority::Priority;
use crate::probe::Probe;
use crate::settings::{SEND_RESERVE_BYTES, SEND_WINDOW_BYTES, Side};

/// A bidirectional stream of QUIC.
pub(crate) struct QuicStream {
    send: SendStream,
    recv: RecvStream,
    /// Priority of the bytes that were written last; those of a higher one leave first.
    priority: Priority,
    connection: Connection,
}

/// The first stream that the agent opens.
pub(super) async fn control(connection: &Connection, side: Side) -> Result<QuicStream, TunnelEnded> {
    match side {
        Side::Agent => open(connection).await,
        Side::Server => accept(connection).await,
    }
}

pub(super) async fn open(connection: &Connection) -> Result<QuicStream, TunnelEnded> {
    let (send, recv) = connection.open_bi().await?;
    Ok(QuicStream::new(send, recv, connection))
}

pub(super) async fn accept(connection: &Connection) -> Result<QuicStream, TunnelEnded> {
    let (send, recv) = connection.accept_bi().await?;
    Ok(QuicStream::new(send, recv, connection))
}

pub(super) fn grant(connection: &Connection, streams: u32) {
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(streams));
}

pub(super) fn close(connection: &Connection, code: CloseCode, reason: &str) {
    connection.close(VarInt::from_u32(code.number()), reason.as_bytes());
}

/// Sends a heartbeat as a datagram (RFC 9221), which neither a lost packet nor a stream's full window delays.
pub(super) fn ping(connection: &Connection, probe: &Probe, heartbeat: Bytes) -> Pinged {
    probe.allow_probe();
    let is_full_size = heartbeat.len() >= FULL_SIZE_DATAGRAM_BYTES;
    if is_full_size {
        probe.expect_full_size(Instant::now());
    }
    let sent = connection.send_datagram(heartbeat);
    if is_full_size && sent.is_ok() {
        // What cannot be sent beside the probe is not missed.
        let _ = connection.send_datagram(Bytes::from_static(&FILLER));
    }
    match sent {
        // The driver learns of the end of the connection by itself.
        Ok(()) | Err(SendDatagramError::ConnectionLost(_)) => Pinged::Sent,
        Err(
            SendDatagramError::UnsupportedByPeer | SendDatagramError::Disabled | SendDatagramError::TooLarge,
        ) => Pinged::Unsent,
    }
}

/// Returns true if the peer takes datagrams of a full-size probe. What the path takes is what probes are for.
pub(super) fn probes_full_size(connection: &Connection) -> bool {
    connection.max_datagram_size().is_some_and(|most| most >= FULL_SIZE_DATAGRAM_BYTES)
}

impl QuicStream {
    fn new(send: SendStream, recv: RecvStream, connection: &Connection) -> Self {
        // quinn's default priority.
        Self { send, recv, priority: Priority::Bulk, connection: connection.clone() }
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.recv.poll_read_buf(cx, into).map_err(of_read)
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        priority: Priority,
    ) -> Poll<io::Result<usize>> {
        if priority != self.priority {
            // Fails if the stream has ended, which the write reports.
            let _ = self.send.set_priority(quic_priority(priority));
            self.priority = priority;
        }
        let written = self.write(cx, bytes);
        if written.is_ready() || priority == Priority::Bulk {
            return written;
        }
        // Bulk may have filled the window. A stream that writes at the same moment may use part of the
        // reserve, but no stream more than that.
        self.connection.set_send_window(SEND_WINDOW_BYTES + SEND_RESERVE_BYTES);
        let written = self.write(cx, bytes);
        self.connection.set_send_window(SEND_WINDOW_BYTES);
        written
    }

    fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.send).poll_write(cx, bytes).map_err(of_write)
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.send.finish().map_err(io::Error::other)
    }

    pub(super) fn stopped(&self) -> Stopped {
        let stopped = self.send.stopped();
        Box::pin(async move { of_stopped(stopped.await) })
    }

    pub(super) fn abort(&mut self, code: u32) {
        let code = VarInt::from_u32(code);
        // A stream that has ended already needs no reset.
        let _ = self.send.reset(code);
        let _ = self.recv.stop(code);
    }
}

/// quinn's number for a priority: higher ones are sent first.
fn quic_priority(priority: Priority) -> i32 {
    match priority {
        Priority::Bulk => 0,
        Priority::Light => 1,
        Priority::Control => 2,
    }
}

impl From<ConnectionError> for TunnelEnded {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => {
                Self::closed(CloseCode::from_number(number(close.error_code)))
            }
            ConnectionError::Reset => Self::Restarted,
            ConnectionError::TimedOut => Self::Lost,
            error @ (ConnectionError::VersionMismatch
            | ConnectionError::TransportError(_)
            | ConnectionError::ConnectionClosed(_)
            | ConnectionError::LocallyClosed
            | ConnectionError::CidsExhausted) => Self::Carrier(error.to_string()),
        }
    }
}

/// The number of a QUIC error code. Our codes have 32 bits.
pub(crate) fn number(code: VarInt) -> u32 {
    u32::try_from(code.into_inner()).unwrap_or(u32::MAX)
}

fn of_read(error: ReadError) -> io::Error {
    match error {
        ReadError::Reset(code) => aborted(number(code)),
        ReadError::ConnectionLost(error) => ended(error.into()),
        error @ (ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected) => {
            io::Error::new(io::ErrorKind::NotConnected, error.to_string())
        }
    }
}

fn of_write(error: WriteError) -> io::Error {
    match error {
        WriteError::Stopped(code) => aborted(number(code)),
        WriteError::ConnectionLost(error) => ended(error.into()),
        error @ (WriteError::ClosedStream | WriteError::ZeroRttRejected) => {
            io::Error::new(io::ErrorKind::NotConnected, error.to_string())
        }
    }
}

fn of_stopped(outcome: Result<Option<VarInt>, StoppedError>) -> io::Result<()> {
    match outcome {
        Ok(None) => Ok(()),
        Ok(Some(code)) => Err(aborted(number(code))),
        Err(StoppedError::ConnectionLost(error)) => Err(ended(error.into())),
        Err(error @ StoppedError::ZeroRttRejected) => {
            Err(io::Error::new(io::ErrorKind::NotConnected, error.to_string()))
        }
    }
}
