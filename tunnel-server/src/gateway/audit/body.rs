//! A body that counts an answer's bytes in its audit entry, ends it early where that is required, and notes
//! its end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use audit::EndReason;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::exchanges::TerminationReason;
use crate::exchanges::audit::AuditEntry;
use crate::gateway::body::AnswerBody;
use crate::gateway::body_error::BodyError;
use crate::gateway::event_delay::EventDelay;

/// An answer's body with its audit entry, if the request has one.
pub(in crate::gateway) struct AuditedBody {
    body: AnswerBody,
    audit: Option<BodyAudit>,
}

/// The audit of one body.
struct BodyAudit {
    entry: AuditEntry,
    /// Resolves when the exchange is to be ended early. `None` for an answer that is complete already.
    terminated: Option<Pin<Box<dyn Future<Output = TerminationReason> + Send>>>,
    /// The reason of an early end whose last bytes were passed on, until the body is broken off.
    breaking: Option<(EventDelay, TerminationReason)>,
}

impl AuditedBody {
    /// Counts and audits `body` in `entry`.
    pub(in crate::gateway) fn new(body: AnswerBody, entry: AuditEntry) -> Self {
        let is_running = body.may_be_ended() && !body.is_end_stream();
        let terminated = is_running.then(|| Box::pin(entry.terminated()) as _);
        note_end(&body, &entry);
        Self { body, audit: Some(BodyAudit { entry, terminated, breaking: None }) }
    }
}

/// The body of a request without an audit entry passes as it is.
impl From<AnswerBody> for AuditedBody {
    fn from(body: AnswerBody) -> Self {
        Self { body, audit: None }
    }
}

impl BodyAudit {
    fn poll_frame(
        &mut self,
        body: &mut AnswerBody,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some((delay, why)) = &mut self.breaking {
            ready!(delay.poll(cx));
            return Poll::Ready(Some(Err((*why).into())));
        }
        if let Some(terminated) = &mut self.terminated
            && let Poll::Ready(why) = terminated.as_mut().poll(cx)
        {
            return Poll::Ready(Some(self.end_early(body, why)));
        }
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                self.entry.add_bytes_down(frame.data_ref().map_or(0, Bytes::len));
                note_end(body, &self.entry);
            }
            Some(Err(_)) => self.entry.set_broken(EndReason::UpstreamReset),
            None => self.entry.set_end(EndReason::Clean),
        }
        Poll::Ready(frame)
    }

    /// Ends the body with an error, and with an event before it where that is possible. A truncated answer
    /// never looks complete.
    fn end_early(
        &mut self,
        body: &mut AnswerBody,
        why: TerminationReason,
    ) -> Result<Frame<Bytes>, BodyError> {
        self.terminated = None;
        self.entry.set_terminated(why);
        match body.end_early(why) {
            Some(last) => {
                self.breaking = Some((EventDelay::begin(), why));
                self.entry.add_bytes_down(last.len());
                Ok(Frame::data(last))
            }
            None => Err(why.into()),
        }
    }
}

/// Notes the end of a body that says it is complete, because nobody polls it again.
fn note_end(body: &AnswerBody, entry: &AuditEntry) {
    if body.is_end_stream() {
        entry.set_end(EndReason::Clean);
    }
}

impl Body for AuditedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { body, audit } = self.get_mut();
        match audit {
            Some(audit) => audit.poll_frame(body, cx),
            None => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
