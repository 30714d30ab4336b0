//! An answer on its way to its caller, counted, and its end told to the log.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use audit::EndReason;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::Record;
use crate::gateway::body::AnswerBody;

/// An answer that the log knows of.
pub(in crate::gateway) struct RecordedBody {
    body: AnswerBody,
    record: Record,
}

impl RecordedBody {
    pub(in crate::gateway) fn new(body: AnswerBody, record: Record) -> Self {
        let recorded = Self { body, record };
        recorded.look_for_end();
        recorded
    }

    pub(in crate::gateway) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                self.record.sent_down(frame.data_ref().map_or(0, Bytes::len));
                self.look_for_end();
            }
            Some(Err(_)) => self.record.breaks(EndReason::UpstreamReset),
            None => self.record.ends(EndReason::Clean),
        }
        Poll::Ready(frame)
    }

    pub(in crate::gateway) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(in crate::gateway) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    /// Nobody asks a body for more that says that there is none.
    fn look_for_end(&self) {
        if self.body.is_end_stream() {
            self.record.ends(EndReason::Clean);
        }
    }
}
