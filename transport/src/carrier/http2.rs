//! HTTP/2 over TLS over TCP as a carrier, for networks that block UDP.
//!
//! The agent dials TCP and is then HTTP/2's server, because the tunnel's server opens the streams. The
//! request's path tells three kinds of streams apart; the heads say nothing else, and the bytes are those
//! that QUIC would carry.

mod carrier_frames;
mod codes;
mod driver;
mod outcome;
mod settings;
mod shared;
mod stream;
mod wakers;
mod wire;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use proto::CloseCode;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, Semaphore, mpsc};
use trust::proof::EXPORTER_BYTES;

use self::carrier_frames::CarrierFrames;
use self::driver::{ConnectionDriver, FinishOnDrop, Role, StreamKind, StreamQueues};
use self::shared::SharedConnection;
use self::stream::Receiving;
use self::wire::{Wire, WireStats};
use super::contract::Pinged;
use crate::error::TunnelEnded;
use crate::link_stats::{LinkStats, StreamBytes};
use crate::probe::Answer;
use crate::settings::{STREAMS_MAX, Side};

pub(crate) use self::settings::{TLS_BYTES, socket};
pub(crate) use self::shared::CloseReason;
pub(crate) use self::stream::Http2Stream;

/// A connection of HTTP/2. Clones are the same connection.
#[derive(Clone)]
pub(crate) struct Http2Connection(Arc<ConnectionInner>);

struct ConnectionInner {
    peer: SocketAddr,
    shared: Arc<SharedConnection>,
    stats: Arc<WireStats>,
    control: Mutex<mpsc::Receiver<Http2Stream>>,
    exchanges: Exchanges,
    /// The keying material that TLS exports for the connection.
    exporter: OnceLock<[u8; EXPORTER_BYTES]>,
}

impl Drop for ConnectionInner {
    fn drop(&mut self) {
        // The last handle is gone. Does nothing if the connection was closed before.
        self.shared.close(CloseCode::Stopping, &CloseCode::Stopping.to_string());
    }
}

/// The source of the streams that carry exchanges.
enum Exchanges {
    /// The server opens the streams.
    Opens(ExchangeOpener),
    /// The agent accepts the streams.
    Accepts(Mutex<mpsc::Receiver<Http2Stream>>),
}

struct ExchangeOpener {
    requests: SendRequest<Bytes>,
    /// One slot for each stream that the agent grants. Callers wait here and not in h2, which would open even
    /// a stream whose caller has given up.
    slots: Arc<Semaphore>,
    /// From this stream id on the tunnel has to be replaced.
    replace_at: u32,
    needs_replacement: AtomicBool,
}

impl Http2Connection {
    /// Makes the server's side of a carrier over `io`, and the future that drives it.
    pub(crate) async fn server<T>(
        io: T,
        peer: SocketAddr,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::server_replaced_at(settings::REPLACE_AT_STREAM_ID, io, peer).await
    }

    async fn server_replaced_at<T>(
        replace_at: u32,
        io: T,
        peer: SocketAddr,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (wire, stats) = Wire::new(io, Side::Server);
        let (mut requests, connection) = settings::server().handshake(wire).await?;
        let shared = Arc::new(SharedConnection::new());
        let mut open = |kind: StreamKind| -> Result<Http2Stream, h2::Error> {
            stats.stream_opens();
            let (head, send) = requests.send_request(kind.request(), false)?;
            Ok(Http2Stream::new(send, Receiving::Head(head), &shared, None))
        };
        let (control, carrier_frames) = (open(StreamKind::Control)?, open(StreamKind::CarrierFrames)?);
        let (control_sender, control_receiver) = mpsc::channel(1);
        // The channel has room for it.
        let _ = control_sender.try_send(control);
        let slots = Arc::new(Semaphore::new(STREAMS_MAX as usize));
        let exchanges = Exchanges::Opens(ExchangeOpener {
            requests,
            slots,
            replace_at,
            needs_replacement: AtomicBool::new(false),
        });
        let driver = ConnectionDriver {
            role: Role::Server(connection),
            frames: CarrierFrames::new(Some(carrier_frames)),
            shared: FinishOnDrop(Arc::clone(&shared)),
            stats: Arc::clone(&stats),
        };
        Ok((
            Self(Arc::new(ConnectionInner {
                peer,
                shared,
                stats,
                control: Mutex::new(control_receiver),
                exchanges,
                exporter: OnceLock::new(),
            })),
            driver.run(),
        ))
    }

    /// Makes the agent's side of a carrier over `io`, and the future that drives it.
    pub(crate) async fn agent<T>(
        io: T,
        peer: SocketAddr,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (wire, stats) = Wire::new(io, Side::Agent);
        let connection = settings::agent().handshake(wire).await?;
        let shared = Arc::new(SharedConnection::new());
        let (control_sender, control_receiver) = mpsc::channel(1);
        // Has room for all streams that the server may open before any is accepted.
        let (exchange_sender, exchange_receiver) = mpsc::channel(STREAMS_MAX as usize);
        let queues = StreamQueues { control: control_sender, exchanges: exchange_sender };
        let driver = ConnectionDriver {
            role: Role::Agent(connection, queues),
            frames: CarrierFrames::new(None),
            shared: FinishOnDrop(Arc::clone(&shared)),
            stats: Arc::clone(&stats),
        };
        let exchanges = Exchanges::Accepts(Mutex::new(exchange_receiver));
        Ok((
            Self(Arc::new(ConnectionInner {
                peer,
                shared,
                stats,
                control: Mutex::new(control_receiver),
                exchanges,
                exporter: OnceLock::new(),
            })),
            driver.run(),
        ))
    }

    /// The first stream, which the server opens.
    pub(super) async fn control(&self) -> Result<Http2Stream, TunnelEnded> {
        self.next_of(&self.0.control).await
    }

    pub(super) async fn open(&self) -> Result<Http2Stream, TunnelEnded> {
        let Exchanges::Opens(opener) = &self.0.exchanges else {
            return Err(TunnelEnded::Carrier("only the server opens streams".to_owned()));
        };
        let slot = Arc::clone(&opener.slots).acquire_owned().await;
        // The semaphore is never closed.
        let slot = slot.map_err(|error| TunnelEnded::Carrier(error.to_string()))?;
        let mut requests = opener.requests.clone();
        let broken = |error| self.0.shared.end().unwrap_or_else(|| codes::tunnel_ended(error));
        self.0.stats.stream_opens();
        let (head, send) = requests.send_request(StreamKind::Exchange.request(), false).map_err(broken)?;
        let stream = Http2Stream::new(send, Receiving::Head(head), &self.0.shared, Some(slot));
        if stream.id() >= opener.replace_at {
            opener.needs_replacement.store(true, Ordering::Relaxed);
        }
        // Waits until the peer counts it as open, too: it may still count one that has ended here.
        poll_fn(|cx| requests.poll_ready(cx)).await.map_err(broken)?;
        Ok(stream)
    }

    pub(super) async fn accept(&self) -> Result<Http2Stream, TunnelEnded> {
        match &self.0.exchanges {
            Exchanges::Accepts(streams) => self.next_of(streams).await,
            // The agent never opens a stream.
            Exchanges::Opens(_) => Err(self.0.shared.ended().await),
        }
    }

    async fn next_of(
        &self,
        streams: &Mutex<mpsc::Receiver<Http2Stream>>,
    ) -> Result<Http2Stream, TunnelEnded> {
        match streams.lock().await.recv().await {
            Some(stream) => Ok(stream),
            None => Err(self.0.shared.ended().await),
        }
    }

    /// Returns true if so many streams were opened that the tunnel has to be replaced.
    pub(super) fn needs_replacement(&self) -> bool {
        match &self.0.exchanges {
            Exchanges::Opens(opener) => opener.needs_replacement.load(Ordering::Relaxed),
            Exchanges::Accepts(_) => false,
        }
    }

    pub(super) fn close(&self, code: CloseCode, reason: &str) {
        self.0.shared.close(code, reason);
    }

    pub(super) fn end(&self) -> Option<TunnelEnded> {
        self.0.shared.end()
    }

    pub(super) async fn ended(&self) -> TunnelEnded {
        self.0.shared.ended().await
    }

    /// Resolves when the peer was notified of the end, or could not be.
    pub(super) async fn close_sent(&self) {
        self.0.shared.close_sent().await;
    }

    /// The reason that the peer gave, if it closed the connection.
    pub(crate) fn peer_close_reason(&self) -> Option<CloseReason> {
        self.0.shared.peer_close_reason()
    }

    pub(super) fn round_trip(&self) -> Duration {
        self.0.shared.round_trip()
    }

    /// Sends a ping for a heartbeat that is due. The heartbeat itself may have to be written to the control
    /// stream.
    pub(super) fn ping(&self) -> Pinged {
        if self.0.shared.ping(Instant::now()) { Pinged::Unsent } else { Pinged::Sent }
    }

    pub(super) async fn answered(&self) {
        self.0.shared.answered().await;
    }

    pub(super) fn take_answer(&self) -> Option<Answer> {
        self.0.shared.take_answer()
    }

    pub(super) fn heard(&self) -> u64 {
        self.0.stats.received()
    }

    /// Sets the keying material that TLS exports for the connection.
    pub(crate) fn exporting(self, exporter: Option<[u8; EXPORTER_BYTES]>) -> Self {
        if let Some(exporter) = exporter {
            // Set only once, by the code that made the connection.
            let _ = self.0.exporter.set(exporter);
        }
        self
    }

    pub(super) fn exporter(&self) -> Option<[u8; EXPORTER_BYTES]> {
        self.0.exporter.get().copied()
    }

    pub(super) fn peer_address(&self) -> SocketAddr {
        self.0.peer
    }

    pub(super) fn link_stats(&self, streams: &StreamBytes) -> LinkStats {
        let (sent, received) = (self.0.stats.sent(), self.0.stats.received());
        LinkStats::without_packets(self.round_trip(), sent, received, streams)
    }
}

#[cfg(test)]
mod tests;
