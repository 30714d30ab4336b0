//! The task that drives an HTTP/2 connection. It never blocks on a slow stream.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::{Method, Request, Response, Uri};
use proto::CloseCode;
use proto::session::ProtocolViolation;
use proto::wire::{Closing, carrier_note::Note};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::coop;
use tokio::time::sleep;

use super::carrier_frames::{CarrierFrames, CarrierFramesError};
use super::codes;
use super::settings::CLOSE_WAIT_MAX;
use super::shared::{CloseReason, SharedConnection};
use super::stream::{Http2Stream, Receiving};
use super::wire::{Wire, WireStats};
use crate::error::TunnelEnded;
use crate::task_budget;

/// Drives a connection until it has ended.
pub(super) struct ConnectionDriver<T> {
    pub(super) role: Role<T>,
    pub(super) frames: CarrierFrames,
    pub(super) shared: FinishOnDrop,
    pub(super) stats: Arc<WireStats>,
}

/// Finishes a connection when its driver is dropped, however its task ends.
pub(super) struct FinishOnDrop(pub(super) Arc<SharedConnection>);

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        self.0.finish(TunnelEnded::Carrier("the task that drove it was ended".to_owned()));
    }
}

/// This side's role in HTTP/2.
pub(super) enum Role<T> {
    /// The tunnel's server is HTTP/2's client.
    Server(h2::client::Connection<Wire<T>, Bytes>),
    /// The agent is HTTP/2's server, and sorts incoming streams by kind.
    Agent(h2::server::Connection<Wire<T>, Bytes>, StreamQueues),
}

/// Queues of the streams that the server has opened.
pub(super) struct StreamQueues {
    pub(super) control: mpsc::Sender<Http2Stream>,
    pub(super) exchanges: mpsc::Sender<Http2Stream>,
}

/// The purpose of a stream, from the path of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// The stream of the session's frames.
    Control,
    /// The stream of the carrier's own frames.
    CarrierFrames,
    /// The stream of one exchange.
    Exchange,
}

/// The result of polling the connection.
enum Polled {
    /// The connection has ended, with this error.
    Over(Option<h2::Error>),
    /// The peer opened the stream of the carrier's own frames.
    CarrierFrames(Http2Stream),
    /// The last bytes of some streams have arrived.
    Ended,
}

impl StreamKind {
    const ALL: [Self; 3] = [Self::Control, Self::CarrierFrames, Self::Exchange];

    /// The URI of its request. HTTP/2 requires an authority; nobody reads it.
    fn uri(self) -> &'static str {
        match self {
            Self::Control => "https://tombolo/control",
            Self::CarrierFrames => "https://tombolo/notes",
            Self::Exchange => "https://tombolo/exchange",
        }
    }

    fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| Uri::from_static(kind.uri()).path() == path)
    }

    /// The request that opens a stream of this kind.
    pub(super) fn request(self) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(self.uri());
        request
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> ConnectionDriver<T> {
    pub(super) async fn run(mut self) {
        let outcome = match self.drive().await {
            Ok(outcome) => outcome,
            Err(CarrierFramesError::Violation(violation)) => self.close_for(&violation).await,
            Err(error) => TunnelEnded::Carrier(error.to_string()),
        };
        // Before h2 fails the streams, so that their errors carry the reason.
        self.shared.0.finish(outcome);
    }

    async fn drive(&mut self) -> Result<TunnelEnded, CarrierFramesError> {
        let Self { role, frames, shared: FinishOnDrop(shared), stats } = self;
        // Measures the round trip before the first exchange comes.
        shared.ping(Instant::now());
        loop {
            for stream in stats.take_ended_streams() {
                frames.queue(Note::Taken(stream))?;
            }
            // All arms are cancel-safe: the connection and the frames keep their state, and a request stays
            // pending.
            tokio::select! {
                polled = poll_fn(|cx| role.poll(cx, shared, stats)) => match polled {
                    Polled::Over(error) => return Ok(end(frames, shared, stats, error)),
                    Polled::CarrierFrames(stream) => frames.set_stream(stream),
                    Polled::Ended => {}
                },
                note = poll_fn(|cx| frames.poll(cx)) => {
                    if let Some(outcome) = handle_frame(note?, frames, shared)? {
                        return Ok(outcome);
                    }
                    // A frame that has arrived is always ready, so a flood would never yield by itself.
                    coop::consume_budget().await;
                }
                () = shared.ping_requested() => frames.ping()?,
                reason = shared.close_requested() => return close(role, frames, shared, stats, reason).await,
            }
        }
    }

    /// Closes the connection for a violation of the peer, and tells it the reason.
    async fn close_for(&mut self, violation: &ProtocolViolation) -> TunnelEnded {
        let Self { role, frames, shared: FinishOnDrop(shared), stats } = self;
        let outcome = shared.violated(violation);
        let reason = CloseReason { code: CloseCode::Violation, message: violation.to_string() };
        // The peer may not read it.
        let _ = close(role, frames, shared, stats, reason).await;
        outcome
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Role<T> {
    /// Reads, writes and sorts as much as is ready.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Arc<SharedConnection>,
        stats: &WireStats,
    ) -> Poll<Polled> {
        let polled = match self {
            Self::Server(connection) => {
                std::pin::Pin::new(connection).poll(cx).map(|over| Polled::Over(over.err()))
            }
            Self::Agent(connection, queues) => poll_agent(connection, queues, cx, shared),
        };
        if polled.is_pending() && stats.has_ended_streams() { Poll::Ready(Polled::Ended) } else { polled }
    }
}

fn poll_agent<T: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut h2::server::Connection<Wire<T>, Bytes>,
    queues: &StreamQueues,
    cx: &mut Context<'_>,
    shared: &Arc<SharedConnection>,
) -> Poll<Polled> {
    loop {
        // Only asks whether a unit is left. One that is held would give back what `Wire` spends on frames, if
        // no stream is accepted.
        drop(ready!(coop::poll_proceed(cx)));
        let (request, mut respond) = match ready!(connection.poll_accept(cx)) {
            None => return Poll::Ready(Polled::Over(None)),
            Some(Err(error)) => return Poll::Ready(Polled::Over(Some(error))),
            Some(Ok(accepted)) => accepted,
        };
        task_budget::spend(cx, 1);
        let (head, body): (_, RecvStream) = request.into_parts();
        let Ok(send) = respond.send_response(Response::new(()), false) else {
            // The peer aborted it before it was accepted.
            continue;
        };
        let stream = Http2Stream::new(send, Receiving::Body(body), shared, None);
        let is_taken = match StreamKind::from_path(head.uri.path()) {
            Some(StreamKind::Exchange) => queues.exchanges.try_send(stream).is_ok(),
            Some(StreamKind::Control) => queues.control.try_send(stream).is_ok(),
            Some(StreamKind::CarrierFrames) => return Poll::Ready(Polled::CarrierFrames(stream)),
            None => false,
        };
        if !is_taken {
            respond.send_reset(Reason::REFUSED_STREAM);
        }
    }
}

/// Handles one carrier frame; `None` is a frame of a newer peer. Returns the end of the connection, if the
/// frame closes it.
fn handle_frame(
    note: Option<Note>,
    frames: &mut CarrierFrames,
    shared: &SharedConnection,
) -> Result<Option<TunnelEnded>, CarrierFramesError> {
    let now = Instant::now();
    match note {
        Some(Note::Taken(stream)) => shared.acknowledged(stream)?,
        Some(Note::Ping(number)) => {
            frames.count(now)?;
            frames.queue(Note::Pong(number))?;
        }
        Some(Note::Pong(number)) => {
            frames.count(now)?;
            if frames.is_answer(number) {
                shared.ping_answered(now);
            }
        }
        None => frames.count(now)?,
        Some(Note::Closing(Closing { code, reason })) => {
            let code = CloseCode::from_number(code);
            shared.peer_closed(CloseReason { code, message: reason });
            return Ok(Some(TunnelEnded::closed(code)));
        }
    }
    Ok(None)
}

/// The end of a connection that HTTP/2 has ended, with this error. Reads the frames that came before,
/// because they may say why it ended. They are bounded by the peer's allowance, and there is no peer left to
/// answer.
fn end(
    frames: &mut CarrierFrames,
    shared: &SharedConnection,
    stats: &WireStats,
    error: Option<h2::Error>,
) -> TunnelEnded {
    if let Some(violation) = stats.violation() {
        return TunnelEnded::from(violation);
    }
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Ok(note)) = frames.poll_next(&mut cx) {
        match handle_frame(note, frames, shared) {
            Ok(None) => {}
            Ok(Some(outcome)) => return outcome,
            Err(CarrierFramesError::Violation(violation)) => return TunnelEnded::from(violation),
            Err(error) => return TunnelEnded::Carrier(error.to_string()),
        }
    }
    let cut = || TunnelEnded::Carrier("the TCP connection was closed without a close frame".to_owned());
    error.map_or_else(cut, codes::tunnel_ended)
}

/// Sends the close reason, and waits until the peer has closed, or the deadline passes.
async fn close<T: AsyncRead + AsyncWrite + Unpin>(
    role: &mut Role<T>,
    frames: &mut CarrierFrames,
    shared: &Arc<SharedConnection>,
    stats: &WireStats,
    close_reason: CloseReason,
) -> Result<TunnelEnded, CarrierFramesError> {
    let CloseReason { code, message } = close_reason;
    frames.queue(Note::Closing(Closing { code: code.number(), reason: message }))?;
    let deadline = sleep(CLOSE_WAIT_MAX);
    tokio::pin!(deadline);
    loop {
        // All arms are cancel-safe: see `drive`.
        tokio::select! {
            polled = poll_fn(|cx| role.poll(cx, shared, stats)) => match polled {
                Polled::Over(_) => break,
                // No more acknowledgements are sent.
                Polled::Ended => drop(stats.take_ended_streams()),
                Polled::CarrierFrames(stream) => frames.set_stream(stream),
            },
            note = poll_fn(|cx| frames.poll(cx)) => {
                drop(note?);
                coop::consume_budget().await;
            }
            () = &mut deadline => break,
        }
    }
    Ok(TunnelEnded::Carrier("closed by this side".to_owned()))
}
