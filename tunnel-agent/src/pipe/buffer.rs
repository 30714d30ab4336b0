//! The bytes of one direction that were read from one side and not yet written to the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;

/// Bytes that wait in each direction while the other side does not read. One read adds as many at most.
pub(super) const BUFFER_BYTES: usize = 32 * 1024;

/// Bytes that were read and not written yet.
#[derive(Default)]
pub(super) struct Buffer {
    pub(super) bytes: BytesMut,
    pub(super) is_unflushed: bool,
}

/// True if a step made progress, so that another one may find more to do.
pub(super) type MadeProgress = bool;

impl Buffer {
    /// Reads at most [`BUFFER_BYTES`] behind the bytes that are there. 0 means end of file.
    pub(super) fn read(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Poll<usize>> {
        if self.bytes.is_empty() && self.bytes.capacity() > 2 * BUFFER_BYTES {
            // It has grown while more than usual waited. That memory is given back.
            self.bytes = BytesMut::new();
        }
        self.bytes.reserve(BUFFER_BYTES);
        // The capacity may be larger than what one read may add.
        Ok(poll_read_buf(Pin::new(from), cx, &mut (&mut self.bytes).limit(BUFFER_BYTES))?)
    }

    /// Writes as much as `to` takes now.
    pub(super) fn write(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<MadeProgress> {
        let written = write_some(cx, to, &self.bytes)?;
        Ok(self.advance(written))
    }

    /// Removes the first `written` bytes, which the other side has taken.
    pub(super) fn advance(&mut self, written: usize) -> MadeProgress {
        self.bytes.advance(written);
        self.is_unflushed |= written > 0;
        written > 0
    }

    /// Flushes `to` if something was written since the last flush.
    pub(super) fn flush(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        if self.is_unflushed && Pin::new(to).poll_flush(cx)?.is_ready() {
            self.is_unflushed = false;
        }
        Ok(())
    }
}

/// Writes as many of the bytes as `to` takes now, and returns their number. 0 means that it takes none for
/// now.
pub(super) fn write_some(
    cx: &mut Context<'_>,
    to: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> io::Result<usize> {
    match Pin::new(to).poll_write(cx, bytes)? {
        Poll::Ready(0) => Err(io::ErrorKind::WriteZero.into()),
        Poll::Ready(written) => Ok(written),
        Poll::Pending => Ok(0),
    }
}
