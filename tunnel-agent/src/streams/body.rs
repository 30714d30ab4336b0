//! An answer's body that sets the abort code of its stream if it breaks.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use transport::AbortCodes;

use crate::apiserver::{ApiServerError, ResponseBody};

/// The body of an API server's answer on its way to a stream.
pub(super) struct AbortingBody {
    pub(super) body: ResponseBody,
    pub(super) verdict: AbortCodes,
}

impl Body for AbortingBody {
    type Data = Bytes;
    type Error = ApiServerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ApiServerError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Err(error)) = &frame {
            self.verdict.set(error.code());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
