//! HTTP/2 over TLS over TCP as a carrier, for where UDP is blocked.
//!
//! The agent dials TCP and is then HTTP/2's server, because the tunnel's server opens the streams. Three kinds of requests
//! tell the streams apart; the heads say nothing else, and the bytes are those that QUIC would carry.

mod codes;
mod common;
mod drive;
mod notes;
mod settings;
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

use self::common::Common;
use self::drive::{Doors, Drive, Kind, Owned, Role};
use self::notes::Notes;
use self::stream::Receiving;
use self::wire::{Seen, Wire};
use super::Pinged;
use crate::error::TunnelEnded;
use crate::link::{Link, StreamBytes};
use crate::probe::Answer;
use crate::settings::{STREAMS_MAX, Side};

pub(crate) use self::common::Parting;
pub(crate) use self::settings::{TLS_BYTES, socket};
pub(crate) use self::stream::Stream;

/// A connection of HTTP/2. Clones are the same connection.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Inner>);

struct Inner {
    peer: SocketAddr,
    common: Arc<Common>,
    seen: Arc<Seen>,
    control: Mutex<mpsc::Receiver<Stream>>,
    way: Way,
    /// What TLS exports of the connection beneath.
    exporter: OnceLock<[u8; EXPORTER_BYTES]>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody speaks for it any more. Nothing happens where it was closed before.
        self.common.close(CloseCode::Stopping, &CloseCode::Stopping.to_string());
    }
}

/// How exchanges begin.
enum Way {
    /// The server opens them.
    Opens(Opener),
    /// The agent takes them.
    Takes(Mutex<mpsc::Receiver<Stream>>),
}

struct Opener {
    requests: SendRequest<Bytes>,
    /// As many as the agent grants: what waits, waits here and not in h2, where it would be opened even if given up.
    places: Arc<Semaphore>,
    /// From this id on the tunnel is to be replaced.
    worn_at: u32,
    is_worn: AtomicBool,
}

impl Connection {
    /// Makes the server's side of a carrier of `io`, and what drives it.
    pub(crate) async fn server<T>(
        io: T,
        peer: SocketAddr,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::server_worn_at(settings::STREAM_ID_WORN, io, peer).await
    }

    async fn server_worn_at<T>(
        worn_at: u32,
        io: T,
        peer: SocketAddr,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (wire, seen) = Wire::new(io, Side::Server);
        let (mut requests, connection) = settings::server().handshake(wire).await?;
        let common = Arc::new(Common::new());
        let mut open = |kind: Kind| -> Result<Stream, h2::Error> {
            let (head, send) = requests.send_request(kind.request(), false)?;
            Ok(Stream::new(send, Receiving::Head(head), &common, None))
        };
        let (control, notes) = (open(Kind::Control)?, open(Kind::Notes)?);
        let (put_control, take_control) = mpsc::channel(1);
        // There is room for it.
        let _ = put_control.try_send(control);
        let places = Arc::new(Semaphore::new(STREAMS_MAX as usize));
        let way = Way::Opens(Opener { requests, places, worn_at, is_worn: AtomicBool::new(false) });
        let drive = Drive {
            role: Role::Server(connection),
            notes: Notes::new(Some(notes)),
            common: Owned(Arc::clone(&common)),
            seen: Arc::clone(&seen),
        };
        Ok((
            Self(Arc::new(Inner {
                peer,
                common,
                seen,
                control: Mutex::new(take_control),
                way,
                exporter: OnceLock::new(),
            })),
            drive.run(),
        ))
    }

    /// Makes the agent's side of a carrier of `io`, and what drives it.
    pub(crate) async fn agent<T>(
        io: T,
        peer: SocketAddr,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (wire, seen) = Wire::new(io, Side::Agent);
        let connection = settings::agent().handshake(wire).await?;
        let common = Arc::new(Common::new());
        let (put_control, take_control) = mpsc::channel(1);
        // What the server may have open finds room, though nobody has accepted it yet.
        let (put_exchange, take_exchange) = mpsc::channel(STREAMS_MAX as usize);
        let doors = Doors { control: put_control, exchanges: put_exchange };
        let drive = Drive {
            role: Role::Agent(connection, doors),
            notes: Notes::new(None),
            common: Owned(Arc::clone(&common)),
            seen: Arc::clone(&seen),
        };
        let way = Way::Takes(Mutex::new(take_exchange));
        Ok((
            Self(Arc::new(Inner {
                peer,
                common,
                seen,
                control: Mutex::new(take_control),
                way,
                exporter: OnceLock::new(),
            })),
            drive.run(),
        ))
    }

    /// The first stream, which the server opens.
    pub(super) async fn control(&self) -> Result<Stream, TunnelEnded> {
        self.next_of(&self.0.control).await
    }

    pub(super) async fn open(&self) -> Result<Stream, TunnelEnded> {
        let Way::Opens(opener) = &self.0.way else {
            return Err(TunnelEnded::Carrier("only the server opens streams".to_owned()));
        };
        let place = Arc::clone(&opener.places).acquire_owned().await;
        // Never closed.
        let place = place.map_err(|error| TunnelEnded::Carrier(error.to_string()))?;
        let mut requests = opener.requests.clone();
        let broken = |error| self.0.common.end().unwrap_or_else(|| codes::connection(error));
        let (head, send) = requests.send_request(Kind::Exchange.request(), false).map_err(broken)?;
        let stream = Stream::new(send, Receiving::Head(head), &self.0.common, Some(place));
        if stream.id() >= opener.worn_at {
            opener.is_worn.store(true, Ordering::Relaxed);
        }
        // Open for the peer, too: it may count one as open that has ended here.
        poll_fn(|cx| requests.poll_ready(cx)).await.map_err(broken)?;
        Ok(stream)
    }

    pub(super) async fn accept(&self) -> Result<Stream, TunnelEnded> {
        match &self.0.way {
            Way::Takes(streams) => self.next_of(streams).await,
            // The agent has no way to open one.
            Way::Opens(_) => Err(self.0.common.ended().await),
        }
    }

    async fn next_of(&self, streams: &Mutex<mpsc::Receiver<Stream>>) -> Result<Stream, TunnelEnded> {
        match streams.lock().await.recv().await {
            Some(stream) => Ok(stream),
            None => Err(self.0.common.ended().await),
        }
    }

    /// Whether so many streams were opened that the tunnel is to be replaced.
    pub(super) fn is_worn(&self) -> bool {
        match &self.0.way {
            Way::Opens(opener) => opener.is_worn.load(Ordering::Relaxed),
            Way::Takes(_) => false,
        }
    }

    pub(super) fn close(&self, code: CloseCode, reason: &str) {
        self.0.common.close(code, reason);
    }

    pub(super) fn end(&self) -> Option<TunnelEnded> {
        self.0.common.end()
    }

    pub(super) async fn ended(&self) -> TunnelEnded {
        self.0.common.ended().await
    }

    /// Resolves when the other side was told of the end, or could not be.
    pub(super) async fn over(&self) {
        self.0.common.over().await;
    }

    /// What the peer said when it closed.
    pub(crate) fn said(&self) -> Option<Parting> {
        self.0.common.said()
    }

    pub(super) fn round_trip(&self) -> Duration {
        self.0.common.round_trip()
    }

    /// A heartbeat is due. It has to be written to the control stream; the carrier's own stream tells of the answer.
    pub(super) fn ping(&self) -> Pinged {
        if self.0.common.ping(Instant::now()) { Pinged::Unsent } else { Pinged::Sent }
    }

    pub(super) async fn answered(&self) {
        self.0.common.answered().await;
    }

    pub(super) fn take_answer(&self) -> Option<Answer> {
        self.0.common.take_answer()
    }

    pub(super) fn heard(&self) -> u64 {
        self.0.seen.received()
    }

    /// Keeps what TLS exports of the connection beneath.
    pub(crate) fn exporting(self, exporter: Option<[u8; EXPORTER_BYTES]>) -> Self {
        if let Some(exporter) = exporter {
            // Once, by who made it.
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

    pub(super) fn link(&self, streams: &StreamBytes) -> Link {
        let (sent, received) = (self.0.seen.sent(), self.0.seen.received());
        Link::without_packets(self.round_trip(), sent, received, streams)
    }
}

#[cfg(test)]
mod tests;
