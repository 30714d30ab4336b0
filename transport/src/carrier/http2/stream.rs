//! A bidirectional stream of HTTP/2.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use tokio::io::ReadBuf;
use tokio::sync::OwnedSemaphorePermit;

use super::super::Stopped;
use super::codes;
use super::common::Common;
use super::settings::{BULK_FRAME_BYTES, SEND_BYTES_MAX};
use super::wakers::Wakers;
use crate::error::{TunnelEnded, ended};
use crate::precedence::Rank;

pub(crate) struct Stream {
    id: u32,
    sending: Arc<Sending>,
    receiving: Receiving,
    /// What was taken off h2 and not read yet; its bytes are still in flight as far as the peer's window is concerned.
    chunk: Bytes,
    common: Arc<Common>,
    /// Held where this side opened the stream.
    _place: Option<OwnedSemaphorePermit>,
}

pub(super) enum Receiving {
    /// The bytes come behind the head of an answer.
    Head(ResponseFuture),
    Body(RecvStream),
}

/// The writing direction. The stream's writer and those who only watch for its end share it.
pub(super) struct Sending {
    stream: Mutex<SendStream<Bytes>>,
    wakers: Arc<Wakers>,
    outcome: AtomicU8,
}

/// Values of `Sending::outcome`.
const UNDER_WAY: u8 = 0;
const TAKEN: u8 = 1;
const LOST: u8 = 2;

impl Sending {
    /// The peer has taken the last byte.
    pub(super) fn take(&self) {
        self.outcome.store(TAKEN, Ordering::Release);
        self.wakers.wake_all();
    }

    /// The connection ended before that.
    pub(super) fn lose(&self) {
        self.outcome.store(LOST, Ordering::Release);
        self.wakers.wake_all();
    }

    fn stream(&self) -> MutexGuard<'_, SendStream<Bytes>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8], rank: Rank) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(frame_bytes(rank))];
        // Before h2 is asked, so that no waking is missed.
        self.wakers.register(cx);
        let waker = Waker::from(Arc::clone(&self.wakers));
        let mut stream = self.stream();
        stream.reserve_capacity(bytes.len());
        let mut room = stream.capacity();
        if room == 0 {
            room = match ready!(stream.poll_capacity(&mut Context::from_waker(&waker))) {
                Some(Ok(room)) => room,
                Some(Err(error)) => return Poll::Ready(Err(codes::broken(error))),
                None => return Poll::Ready(Err(cause(&mut stream))),
            };
        }
        let room = room.min(bytes.len());
        match stream.send_data(Bytes::copy_from_slice(&bytes[..room]), false) {
            Ok(()) => Poll::Ready(Ok(room)),
            Err(_) => Poll::Ready(Err(cause(&mut stream))),
        }
    }

    fn poll_stopped(&self, cx: &Context<'_>, common: &Common) -> Poll<io::Result<()>> {
        self.wakers.register(cx);
        match self.outcome.load(Ordering::Acquire) {
            TAKEN => return Poll::Ready(Ok(())),
            LOST => return Poll::Ready(Err(ended(common.end().unwrap_or(TunnelEnded::Lost)))),
            _ => {}
        }
        let waker = Waker::from(Arc::clone(&self.wakers));
        let reset = ready!(self.stream().poll_reset(&mut Context::from_waker(&waker)));
        Poll::Ready(Err(match (common.end(), reset) {
            (Some(how), _) => ended(how),
            (None, Ok(reason)) => codes::reset(reason),
            (None, Err(error)) => codes::broken(error),
        }))
    }
}

impl Stream {
    pub(super) fn new(
        send: SendStream<Bytes>,
        receiving: Receiving,
        common: &Arc<Common>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let id = send.stream_id().as_u32();
        let sending = Sending {
            stream: Mutex::new(send),
            wakers: Arc::new(Wakers::default()),
            outcome: AtomicU8::new(UNDER_WAY),
        };
        Self {
            id,
            sending: Arc::new(sending),
            receiving,
            chunk: Bytes::new(),
            common: Arc::clone(common),
            _place: place,
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
        // Only now the peer may send so much more. A stream that is over has no window any more.
        let _ = body.flow_control().release_capacity(read);
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        rank: Rank,
    ) -> Poll<io::Result<usize>> {
        self.sending.poll_write(cx, bytes, rank).map_err(|error| self.known(error))
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.common.await_taking(self.id, &self.sending);
        self.sending.stream().send_data(Bytes::new(), true).map_err(io::Error::other)
    }

    pub(crate) fn stopped(&self) -> Stopped {
        let (sending, common) = (Arc::clone(&self.sending), Arc::clone(&self.common));
        Box::pin(poll_fn(move |cx| sending.poll_stopped(cx, &common)))
    }

    pub(crate) fn abort(&mut self, code: u32) {
        self.sending.stream().send_reset(codes::reason(code));
    }

    fn broken(&self, error: h2::Error) -> io::Error {
        self.known(codes::broken(error))
    }

    /// The connection knows better why it ended.
    fn known(&self, error: io::Error) -> io::Error {
        let is_end = error.get_ref().is_some_and(|inside| inside.is::<TunnelEnded>());
        match self.common.end() {
            Some(how) if is_end => ended(how),
            _ => error,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.common.forget(self.id);
        if let Receiving::Body(body) = &mut self.receiving {
            let _ = body.flow_control().release_capacity(self.chunk.len());
        }
    }
}

/// h2 knows no ranks: it sends one frame of each stream in turn. So that of bulk is small.
fn frame_bytes(rank: Rank) -> usize {
    match rank {
        Rank::Bulk => BULK_FRAME_BYTES,
        Rank::Light | Rank::Control => SEND_BYTES_MAX,
    }
}

/// Why a stream takes nothing any more.
fn cause(stream: &mut SendStream<Bytes>) -> io::Error {
    match stream.poll_reset(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(reason)) => codes::reset(reason),
        Poll::Ready(Err(error)) => codes::broken(error),
        Poll::Pending => io::ErrorKind::BrokenPipe.into(),
    }
}
