//! A caller's connection that can move to another runtime before it carries bytes.
//!
//! The runtime that creates a socket polls it. If the socket were read on the tunnel's runtime but polled by
//! another, each small request would cost a turn of that other runtime and a system call between both.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use hyper::upgrade::{Parts, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// A connection that can move from one runtime to another.
pub(crate) trait LocalStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Registers the connection with the runtime of the calling task. Without a free file descriptor it stays
    /// where it was.
    fn move_to_current_runtime(&mut self);
}

/// A connection preceded by bytes that were read from it before.
pub(crate) struct PrefixedStream<S> {
    prefix: Bytes,
    stream: S,
}

impl<S> PrefixedStream<S> {
    pub(crate) fn new(prefix: Bytes, stream: S) -> Self {
        Self { prefix, stream }
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }
}

/// Duplicates the socket under a descriptor of its own, registered with the runtime of the calling task.
///
/// # Errors
/// An I/O error if no descriptor is free.
pub(crate) fn duplicate_socket<S: AsFd, T: From<OwnedFd>>(
    stream: &S,
    from_std: impl FnOnce(T) -> io::Result<S>,
) -> io::Result<S> {
    from_std(stream.as_fd().try_clone_to_owned()?.into())
}

/// The connection of an HTTP upgrade, preceded by the bytes that HTTP has already read.
///
/// # Errors
/// `InvalidData` if the connection is of another type.
pub(crate) fn from_upgraded<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    upgraded: Upgraded,
) -> io::Result<PrefixedStream<S>> {
    let parts = upgraded.downcast::<TokioIo<S>>();
    let Parts { io, read_buf, .. } = parts.map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(PrefixedStream::new(read_buf, io.into_inner()))
}

impl LocalStream for TcpStream {
    fn move_to_current_runtime(&mut self) {
        if let Ok(duplicate) = duplicate_socket(self, Self::from_std) {
            *self = duplicate;
        }
    }
}

impl LocalStream for UnixStream {
    fn move_to_current_runtime(&mut self) {
        if let Ok(duplicate) = duplicate_socket(self, Self::from_std) {
            *self = duplicate;
        }
    }
}

impl LocalStream for TlsStream<TcpStream> {
    fn move_to_current_runtime(&mut self) {
        self.get_mut().0.move_to_current_runtime();
    }
}

impl<S: LocalStream> LocalStream for PrefixedStream<S> {
    fn move_to_current_runtime(&mut self) {
        self.stream.move_to_current_runtime();
    }
}

impl LocalStream for Box<dyn LocalStream> {
    fn move_to_current_runtime(&mut self) {
        self.as_mut().move_to_current_runtime();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefixedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix[..length]);
        self.prefix.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefixedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::runtime::{Builder, Runtime};
    use tokio::time::timeout;

    use super::*;

    fn home() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Writes to `remote` once the test reads from `local`, on the only runtime that runs.
    async fn passes(mut local: impl LocalStream, mut remote: impl AsyncWrite + Unpin) -> Vec<u8> {
        local.move_to_current_runtime();
        let mut read = [0; 12];
        let reading = async {
            local.read_exact(&mut read).await.unwrap();
        };
        let writing = async {
            tokio::task::yield_now().await;
            remote.write_all(b"behind").await.unwrap();
        };
        timeout(Duration::from_secs(10), async { tokio::join!(reading, writing) }).await.unwrap();
        read.to_vec()
    }

    #[test]
    fn a_moved_stream_is_polled_here_while_its_old_runtime_is_blocked() {
        let (old, new) = (home(), home());
        let (local, remote) = old.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let remote = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().await.unwrap().0, remote)
        });
        remote.set_nonblocking(true).unwrap();
        let local: Box<dyn LocalStream> = Box::new(PrefixedStream::new(Bytes::from_static(b"first "), local));
        let read = new.block_on(async { passes(local, TcpStream::from_std(remote).unwrap()).await });
        assert_eq!(read, b"first behind");

        let (local, remote) = std::os::unix::net::UnixStream::pair().unwrap();
        local.set_nonblocking(true).unwrap();
        remote.set_nonblocking(true).unwrap();
        let local = old.block_on(async { UnixStream::from_std(local).unwrap() });
        let local = PrefixedStream::new(Bytes::from_static(b"first "), local);
        let read = new.block_on(async { passes(local, UnixStream::from_std(remote).unwrap()).await });
        assert_eq!(read, b"first behind");
    }
}
