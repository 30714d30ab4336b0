//! An answer's body: it knows whether it ended or broke off, and keeps its connection until then.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use daemon::Seat;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::connection::Http1Connection;
use super::error::ApiServerError;
use super::pool::Slot;
use super::request_body::Progress;

/// The body of an answer. An answer that broke off ends with an error, never with end of stream. Dropping it
/// before its end cancels the exchange at the API server.
#[derive(Debug)]
#[must_use = "dropping it cancels the exchange"]
pub struct ResponseBody {
    // Before `lease`: the stream is reset before its slot is given to another.
    incoming: Option<Incoming>,
    lease: Option<Lease>,
    /// The request's seat, which is kept to the answer's end.
    seat: Option<Seat>,
    progress: Progress,
    /// The text of an answer that the agent has made itself. `None` once it was taken.
    own: Option<Bytes>,
}

/// The connection, or the slot on one, that an exchange keeps until its end.
#[derive(Debug)]
pub(super) enum Lease {
    Pooled(Slot),
    /// A connection of its own, which is closed after the answer.
    Dedicated(Http1Connection),
}

impl ResponseBody {
    /// The body of an answer without content.
    pub fn empty() -> Self {
        Self { incoming: None, lease: None, seat: None, progress: Progress::default(), own: None }
    }

    /// The body of an answer that the agent has made itself.
    pub fn of_agent(text: Vec<u8>) -> Self {
        let mut body = Self::empty();
        body.own = Some(text.into());
        body
    }

    pub(super) fn new(incoming: Incoming, lease: Lease, progress: Progress) -> Self {
        let mut body = Self { incoming: Some(incoming), lease: Some(lease), seat: None, progress, own: None };
        if body.is_end_stream() {
            body.end();
        }
        body
    }

    /// Keeps the request's seat to the answer's end.
    pub fn keep_seat(&mut self, seat: Seat) {
        self.seat = (!self.is_end_stream()).then_some(seat);
    }

    /// The complete answer has arrived.
    fn end(&mut self) {
        self.seat = None;
        match self.lease.take() {
            Some(Lease::Pooled(slot)) if self.progress.has_ended() => slot.finish(),
            // The answer came before the request's end. Over HTTP/1.1 the connection cannot be used again.
            Some(Lease::Pooled(slot)) => drop(slot),
            Some(Lease::Dedicated(connection)) => drop(connection),
            None => {}
        }
        self.progress.finish();
    }

    /// Returns true if HTTP/2 reset the stream before END_STREAM. hyper takes a reset for an end, because a
    /// server may send one after a complete answer.
    fn was_cut(&self) -> bool {
        let multiplexed = matches!(&self.lease, Some(Lease::Pooled(slot)) if slot.is_multiplexed());
        let is_complete =
            |incoming: &Incoming| incoming.is_end_stream() || incoming.size_hint().exact() == Some(0);
        multiplexed && self.incoming.as_ref().is_some_and(|incoming| !is_complete(incoming))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ApiServerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ApiServerError>>> {
        if let Some(text) = self.own.take() {
            return Poll::Ready(Some(Ok(Frame::data(text))));
        }
        let Some(incoming) = &mut self.incoming else {
            return Poll::Ready(None);
        };
        match ready!(Pin::new(incoming).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if self.is_end_stream() {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.incoming = None;
                self.lease = None;
                self.seat = None;
                Poll::Ready(Some(Err(ApiServerError::Lost(Arc::new(error)))))
            }
            None if self.was_cut() => {
                self.incoming = None;
                self.lease = None;
                self.seat = None;
                Poll::Ready(Some(Err(ApiServerError::CutShort)))
            }
            None => {
                self.end();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.own.is_none() && self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        if let Some(text) = &self.own {
            return SizeHint::with_exact(text.len() as u64);
        }
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.progress.finish();
    }
}
