//! Gives words to the refusals that the HTTP libraries send themselves.
//!
//! A request that hyper or h2 cannot read never reaches a service. hyper answers such a request of HTTP/1.1
//! without a body, and h2 resets its stream, which clients in Go take for a reason to send it again, for more
//! than a minute.

pub(super) mod http1;
pub(super) mod http2;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;
use tracing::debug;

use super::refusal::{MalformedRequest, Refusal};
use crate::metrics;

/// The part of an answer that is still to be written, in place of the library's own answer.
#[derive(Default)]
pub(super) struct PendingAnswer(Bytes);

impl From<Vec<u8>> for PendingAnswer {
    fn from(answer: Vec<u8>) -> Self {
        Self(answer.into())
    }
}

impl PendingAnswer {
    /// Writes the answer to its end, and no byte if there is none.
    pub(super) fn poll_write(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.0.is_empty() {
            let written = ready!(Pin::new(&mut *stream).poll_write(cx, &self.0))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.0.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

/// The refusal of a request that the library cannot read, which is logged and counted.
fn refusal(reason: MalformedRequest) -> Refusal {
    let refusal = Refusal::Malformed(reason);
    debug!(%refusal, "refused");
    metrics::refused(refusal.cause());
    refusal
}
