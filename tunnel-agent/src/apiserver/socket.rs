//! The socket of a connection to the API server, which is reset unless it was shut down.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use daemon::poll_read_within_budget;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::client::TlsStream;

/// A socket with its permit among [`super::limits::CONNECTIONS_MAX`], which is free again when the socket is
/// closed. It is reset on drop unless it was shut down, so that a truncated request never looks complete.
pub(super) struct Socket {
    tls: TlsStream<TcpStream>,
    is_shut_down: bool,
    _permit: OwnedSemaphorePermit,
}

impl Socket {
    pub(super) fn new(tls: TlsStream<TcpStream>, permit: OwnedSemaphorePermit) -> Self {
        Self { tls, is_shut_down: false, _permit: permit }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // hyper handles all frames and informational heads that it can read before it yields.
        poll_read_within_budget(cx, |cx| {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.tls).poll_read(cx, buffer))?;
            Poll::Ready(Ok(buffer.filled().len() - before))
        })
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(&mut self.tls).poll_shutdown(cx);
        self.is_shut_down |= matches!(shut_down, Poll::Ready(Ok(())));
        shut_down
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.is_shut_down {
            // Fails only on a socket that has broken already.
            let _ = self.tls.get_ref().0.set_zero_linger();
        }
    }
}
