//! An answer on its way to its caller, as the log sees it: count_bytes, cut off where it may not go on, and its end told.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use audit::EndReason;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::exchanges::TerminationReason;
use crate::exchanges::audit::AuditEntry;
use crate::gateway::body::{AnswerBody, BodyError};

/// An answer that the log knows of.
pub(in crate::gateway) struct AuditedBody {
    body: AnswerBody,
    record: AuditEntry,
    /// Resolves when it may not go on; there while a cluster's answer comes.
    ended: Option<Pin<Box<dyn Future<Output = TerminationReason> + Send>>>,
    /// Its last piece was a word of ours.
    is_cut: bool,
}

impl AuditedBody {
    pub(in crate::gateway) fn new(body: AnswerBody, record: AuditEntry) -> Self {
        let ended =
            (body.is_passed_on() && !body.is_end_stream()).then(|| Box::pin(record.terminated()) as _);
        let recorded = Self { body, record, ended, is_cut: false };
        recorded.look_for_end();
        recorded
    }

    pub(in crate::gateway) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_cut {
            return Poll::Ready(None);
        }
        if let Some(ended) = &mut self.ended
            && let Poll::Ready(why) = ended.as_mut().poll(cx)
        {
            return Poll::Ready(Some(self.cut(why)));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                self.record.add_bytes_down(frame.data_ref().map_or(0, Bytes::len));
                self.look_for_end();
            }
            Some(Err(_)) => self.record.set_broken(EndReason::UpstreamReset),
            None => self.record.set_end(EndReason::Clean),
        }
        Poll::Ready(frame)
    }

    pub(in crate::gateway) fn is_end_stream(&self) -> bool {
        self.is_cut || self.body.is_end_stream()
    }

    pub(in crate::gateway) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    /// Never a clean end: whoever reads it is told, or sees it break off.
    fn cut(&mut self, why: TerminationReason) -> Result<Frame<Bytes>, BodyError> {
        self.ended = None;
        self.record.set_terminated(why);
        match self.body.cut(why) {
            Some(word) => {
                self.is_cut = true;
                self.record.add_bytes_down(word.len());
                Ok(Frame::data(word))
            }
            None => Err(why.into()),
        }
    }

    /// Nobody asks a body for more that says that there is none.
    fn look_for_end(&self) {
        if self.body.is_end_stream() {
            self.record.set_end(EndReason::Clean);
        }
    }
}
