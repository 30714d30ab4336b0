//! A caller's connection, which comes to where the tunnel is before bytes pass.
//!
//! A socket is woken for by the runtime that has made it. What is read here and woken for elsewhere costs each small request a turn
//! of that other home, and a system call between both.

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

/// A connection that can go from one runtime to another.
pub(crate) trait Near: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Lets the calling task's runtime wake for it from now on. Where no descriptor is left for that, it goes on as it was.
    fn come_here(&mut self);
}

/// A connection of which something was read already, that comes first.
pub(crate) struct Behind<S> {
    before: Bytes,
    stream: S,
}

impl<S> Behind<S> {
    pub(crate) fn new(before: Bytes, stream: S) -> Self {
        Self { before, stream }
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }
}

/// The same socket by a descriptor of its own, for which the calling task's runtime wakes.
///
/// # Errors
/// No descriptor is left.
pub(crate) fn second<S: AsFd, T: From<OwnedFd>>(
    stream: &S,
    from_std: impl FnOnce(T) -> io::Result<S>,
) -> io::Result<S> {
    from_std(stream.as_fd().try_clone_to_owned()?.into())
}

/// The connection that an upgrade has given up, behind what was read of it already.
///
/// # Errors
/// It is of another kind.
pub(crate) fn taken_back<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    upgraded: Upgraded,
) -> io::Result<Behind<S>> {
    let parts = upgraded.downcast::<TokioIo<S>>();
    let Parts { io, read_buf, .. } = parts.map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Behind::new(read_buf, io.into_inner()))
}

impl Near for TcpStream {
    fn come_here(&mut self) {
        if let Ok(second) = second(self, Self::from_std) {
            *self = second;
        }
    }
}

impl Near for UnixStream {
    fn come_here(&mut self) {
        if let Ok(second) = second(self, Self::from_std) {
            *self = second;
        }
    }
}

impl Near for TlsStream<TcpStream> {
    fn come_here(&mut self) {
        self.get_mut().0.come_here();
    }
}

impl<S: Near> Near for Behind<S> {
    fn come_here(&mut self) {
        self.stream.come_here();
    }
}

impl Near for Box<dyn Near> {
    fn come_here(&mut self) {
        self.as_mut().come_here();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Behind<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.before.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.before.len().min(buffer.remaining());
        buffer.put_slice(&self.before[..length]);
        self.before.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Behind<S> {
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

    /// Writes to `far` once somebody waits for it at `near`, on a home that is the only one to run.
    async fn passes(mut near: impl Near, mut far: impl AsyncWrite + Unpin) -> Vec<u8> {
        near.come_here();
        let mut read = [0; 12];
        let reading = async {
            near.read_exact(&mut read).await.unwrap();
        };
        let writing = async {
            tokio::task::yield_now().await;
            far.write_all(b"behind").await.unwrap();
        };
        timeout(Duration::from_secs(10), async { tokio::join!(reading, writing) }).await.unwrap();
        read.to_vec()
    }

    #[test]
    fn what_came_here_is_woken_for_here_though_the_home_that_made_it_stands_still() {
        let (old, new) = (home(), home());
        let (near, far) = old.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().await.unwrap().0, far)
        });
        far.set_nonblocking(true).unwrap();
        let near: Box<dyn Near> = Box::new(Behind::new(Bytes::from_static(b"first "), near));
        let read = new.block_on(async { passes(near, TcpStream::from_std(far).unwrap()).await });
        assert_eq!(read, b"first behind");

        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let near = old.block_on(async { UnixStream::from_std(near).unwrap() });
        let near = Behind::new(Bytes::from_static(b"first "), near);
        let read = new.block_on(async { passes(near, UnixStream::from_std(far).unwrap()).await });
        assert_eq!(read, b"first behind");
    }
}
