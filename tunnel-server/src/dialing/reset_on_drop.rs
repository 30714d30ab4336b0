//! A caller's plain TCP connection that is reset on drop unless it ended cleanly. A caller can therefore tell
//! truncated data from complete data.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::local_stream::{LocalStream, PrefixedStream};

/// A TCP connection that is reset on drop, unless it was shut down.
pub(crate) struct ResetOnDrop {
    stream: PrefixedStream<TcpStream>,
    has_ended: bool,
}

impl ResetOnDrop {
    /// A connection from which nothing was read yet.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self::with_prefix(Bytes::new(), stream)
    }

    /// A connection preceded by the bytes that were read from it before.
    pub(crate) fn with_prefix(prefix: Bytes, stream: TcpStream) -> Self {
        Self { stream: PrefixedStream::new(prefix, stream), has_ended: false }
    }
}

impl LocalStream for ResetOnDrop {
    fn move_to_current_runtime(&mut self) {
        self.stream.move_to_current_runtime();
    }
}

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        if !self.has_ended {
            // This fails only if the connection is closed already.
            let _ = self.stream.stream().set_zero_linger();
        }
    }
}

impl AsyncRead for ResetOnDrop {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ResetOnDrop {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_ended = true;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn the_prefix_comes_first_and_an_unfinished_stream_is_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for ends in [true, false] {
            let mut caller = TcpStream::connect(address).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let mut stream = ResetOnDrop::with_prefix(Bytes::from_static(b"first, "), accepted);
            caller.write_all(b"then").await.unwrap();
            caller.shutdown().await.unwrap();
            // In pieces that are smaller than the prefix.
            let (mut read, mut piece) = (Vec::<u8>::new(), [0; 3]);
            while let length @ 1.. = stream.read(&mut piece).await.unwrap() {
                read.extend(&piece[..length]);
            }
            assert_eq!(read, b"first, then");

            if ends {
                stream.shutdown().await.unwrap();
            }
            drop(stream);

            assert_eq!(caller.read(&mut [0]).await.is_ok(), ends);
        }
    }
}
