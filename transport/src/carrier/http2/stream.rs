//! Reads and writes one bidirectional stream of HTTP/2.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use tokio::io::ReadBuf;
use tokio::sync::OwnedSemaphorePermit;

use super::codes;
use super::outcome::{SendOutcome, StreamDelivery};
use super::settings::{BULK_FRAME_BYTES, SEND_BYTES_MAX};
use super::shared::SharedConnection;
use crate::carrier::contract::Stopped;
use crate::error::{TunnelEnded, ended};
use crate::priority::Priority;

/// A bidirectional stream of HTTP/2.
pub(crate) struct Http2Stream {
    id: u32,
    sending: Arc<Sending>,
    receiving: Receiving,
    /// Bytes that h2 has handed over and nobody has read yet. For the peer's window they are still in flight.
    chunk: Bytes,
    shared: Arc<SharedConnection>,
    /// Released when the stream ends; only on the side that opened it.
    _slot: Option<OwnedSemaphorePermit>,
}

/// The reading direction of a stream.
pub(super) enum Receiving {
    /// The bytes follow the head of a response, which has not come yet.
    Head(ResponseFuture),
    Body(RecvStream),
}

/// The writing direction. The stream's writer and the futures that wait for its end share it.
pub(super) struct Sending {
    stream: Mutex<SendStream<Bytes>>,
    outcome: Arc<SendOutcome>,
}

impl Sending {
    fn stream(&self) -> MutexGuard<'_, SendStream<Bytes>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8], priority: Priority) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(frame_bytes(priority))];
        // Registered before h2 is polled, so that no wake-up is missed.
        self.outcome.register(cx);
        let waker = Waker::from(self.outcome.wakers());
        let mut stream = self.stream();
        stream.reserve_capacity(bytes.len());
        let mut room = stream.capacity();
        if room == 0 {
            room = match ready!(stream.poll_capacity(&mut Context::from_waker(&waker))) {
                Some(Ok(room)) => room,
                Some(Err(error)) => return Poll::Ready(Err(codes::stream_error(error))),
                None => return Poll::Ready(Err(write_error(&mut stream))),
            };
        }
        let room = room.min(bytes.len());
        match stream.send_data(Bytes::copy_from_slice(&bytes[..room]), false) {
            Ok(()) => Poll::Ready(Ok(room)),
            Err(_) => Poll::Ready(Err(write_error(&mut stream))),
        }
    }

    fn poll_stopped(&self, cx: &Context<'_>, shared: &SharedConnection) -> Poll<io::Result<()>> {
        self.outcome.register(cx);
        match self.outcome.get() {
            Some(StreamDelivery::Acknowledged) => return Poll::Ready(Ok(())),
            Some(StreamDelivery::Lost) => {
                return Poll::Ready(Err(ended(shared.end().unwrap_or(TunnelEnded::Lost))));
            }
            None => {}
        }
        let waker = Waker::from(self.outcome.wakers());
        let reset = ready!(self.stream().poll_reset(&mut Context::from_waker(&waker)));
        Poll::Ready(Err(match (shared.end(), reset) {
            (Some(how), _) => ended(how),
            (None, Ok(reason)) => codes::reset_error(reason),
            (None, Err(error)) => codes::stream_error(error),
        }))
    }
}

impl Http2Stream {
    pub(super) fn new(
        send: SendStream<Bytes>,
        receiving: Receiving,
        shared: &Arc<SharedConnection>,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let id = send.stream_id().as_u32();
        let sending = Sending { stream: Mutex::new(send), outcome: Arc::new(SendOutcome::default()) };
        Self {
            id,
            sending: Arc::new(sending),
            receiving,
            chunk: Bytes::new(),
            shared: Arc::clone(shared),
            _slot: slot,
        }
    }

    /// HTTP/2's number of the stream. They only grow.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let body = loop {
            match &mut self.receiving {
                Receiving::Head(head) => {
                    let answer =
                        ready!(std::pin::Pin::new(head).poll(cx)).map_err(|error| self.broken(error))?;
                    self.receiving = Receiving::Body(answer.into_body());
                }
                Receiving::Body(body) => break body,
            }
        };
        while self.chunk.is_empty() {
            match ready!(body.poll_data(cx)) {
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => return Poll::Ready(Err(self.broken(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let read = self.chunk.len().min(into.remaining());
        into.put_slice(&self.chunk[..read]);
        self.chunk.advance(read);
        // The peer's window grows only once the bytes are read. A stream that has ended has no window any
        // more.
        let _ = body.flow_control().release_capacity(read);
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        priority: Priority,
    ) -> Poll<io::Result<usize>> {
        self.sending.poll_write(cx, bytes, priority).map_err(|error| self.with_end(error))
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.shared.await_acknowledgement(self.id, &self.sending.outcome);
        self.sending.stream().send_data(Bytes::new(), true).map_err(io::Error::other)
    }

    pub(crate) fn stopped(&self) -> Stopped {
        let (sending, shared) = (Arc::clone(&self.sending), Arc::clone(&self.shared));
        Box::pin(poll_fn(move |cx| sending.poll_stopped(cx, &shared)))
    }

    pub(crate) fn abort(&mut self, code: u32) {
        self.sending.stream().send_reset(codes::reset_reason(code));
    }

    fn broken(&self, error: h2::Error) -> io::Error {
        self.with_end(codes::stream_error(error))
    }

    /// Replaces an error that only says that the connection ended by the connection's own reason.
    fn with_end(&self, error: io::Error) -> io::Error {
        let is_end = error.get_ref().is_some_and(|inside| inside.is::<TunnelEnded>());
        match self.shared.end() {
            Some(how) if is_end => ended(how),
            _ => error,
        }
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.shared.forget(self.id);
        if let Receiving::Body(body) = &mut self.receiving {
            let _ = body.flow_control().release_capacity(self.chunk.len());
        }
    }
}

/// Largest DATA frame of a priority, in bytes. h2 knows no priorities: it sends one frame of each stream in
/// turn, so bulk gets small frames.
fn frame_bytes(priority: Priority) -> usize {
    match priority {
        Priority::Bulk => BULK_FRAME_BYTES,
        Priority::Light | Priority::Control => SEND_BYTES_MAX,
    }
}

/// The reason why a stream accepts no more bytes.
fn write_error(stream: &mut SendStream<Bytes>) -> io::Error {
    match stream.poll_reset(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(reason)) => codes::reset_error(reason),
        Poll::Ready(Err(error)) => codes::stream_error(error),
        Poll::Pending => io::ErrorKind::BrokenPipe.into(),
    }
}
