//! A body that repeats one piece of bytes, so that a large body needs little memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// The piece that large bodies repeat.
const PIECE_BYTES: usize = 64 * 1024;
static PIECE: [u8; PIECE_BYTES] = [b'x'; PIECE_BYTES];

/// A body that repeats its piece until it has its full size.
#[derive(Debug)]
pub struct RepeatedBody {
    piece: Bytes,
    left: u64,
}

impl RepeatedBody {
    /// A body without any bytes.
    pub fn empty() -> Self {
        Self { piece: Bytes::new(), left: 0 }
    }

    /// A body of these bytes, sent once.
    pub fn once(bytes: Bytes) -> Self {
        Self { left: bytes.len() as u64, piece: bytes }
    }

    /// A body of this size in bytes.
    pub fn with_size(count: u64) -> Self {
        Self { piece: Bytes::from_static(&PIECE), left: count }
    }
}

impl Body for RepeatedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let length = self.left.min(self.piece.len() as u64);
        self.left -= length;
        Poll::Ready(Some(Ok(Frame::data(self.piece.slice(..length as usize)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_body_has_exactly_its_size() {
        for count in [0, 1, PIECE_BYTES as u64, 3 * PIECE_BYTES as u64 + 1] {
            let body = RepeatedBody::with_size(count);
            assert_eq!(body.is_end_stream(), count == 0);
            assert_eq!(body.collect().await.expect("a body").to_bytes().len() as u64, count);
        }
    }
}
