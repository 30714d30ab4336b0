//! A lingering close: the connection is closed for writing first, and for reading once the other end has
//! closed too, or at a limit.
//!
//! A kernel that closes a TCP connection with unread bytes sends RST (RFC 1122, section 4.2.2.13) and drops
//! what the other end has not acknowledged. An unread HTTP/2 window update would cut off the last bytes of a
//! download, and the rest of a refused upload would cut off the refusal (RFC 9112, section 9.6).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use daemon::poll_read_within_budget;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Longest silence of the other end after our own end. A peer that still reads sends HTTP/2 acknowledgements
/// or the rest of its upload.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Longest time to read after our own end. At 1 Mbit/s that is enough for all that Linux buffers (4 MB,
/// `tcp_wmem`).
const LINGER_MAX: Duration = Duration::from_secs(30);

/// Size of one read, in bytes.
const READ_BYTES: usize = 4 * 1024;

/// A stream that lingers in `poll_shutdown`, after which nothing is to be read. It does not suit connections
/// whose halves end independently.
pub(super) struct LingeringStream<S> {
    stream: S,
    state: LingerState,
    /// Most bytes that are read and dropped while lingering.
    bytes_max: usize,
}

enum LingerState {
    Open,
    /// Our own end was sent.
    Lingering {
        silence: Pin<Box<Sleep>>,
        until: Instant,
        read: usize,
    },
    Closed,
}

impl<S> LingeringStream<S> {
    /// Wraps a stream that reads and drops up to `bytes_max` bytes while it lingers.
    pub(super) fn new(stream: S, bytes_max: usize) -> Self {
        Self { stream, state: LingerState::Open, bytes_max }
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.stream
    }

    pub(super) fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for LingeringStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // hyper handles all frames that it can read before it yields.
        poll_read_within_budget(cx, |cx| {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
            Poll::Ready(Ok(buffer.filled().len() - before))
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, state, bytes_max } = &mut *self;
        let mut stream = Pin::new(stream);
        loop {
            match state {
                LingerState::Open => {
                    ready!(stream.as_mut().poll_shutdown(cx))?;
                    let silence = Box::pin(sleep(SILENCE_MAX));
                    *state = LingerState::Lingering { silence, until: Instant::now() + LINGER_MAX, read: 0 };
                }
                LingerState::Lingering { silence, until, read } => {
                    let mut buffer = [0; READ_BYTES];
                    let mut buffer = ReadBuf::new(&mut buffer);
                    if silence.as_mut().poll(cx).is_pending() {
                        // A read error ends the connection too: the buffer is empty then, and our own end was
                        // sent.
                        let _ = ready!(stream.as_mut().poll_read(cx, &mut buffer));
                    }
                    *read += buffer.filled().len();
                    if buffer.filled().is_empty() || *read > *bytes_max {
                        *state = LingerState::Closed;
                    } else {
                        silence.as_mut().reset((Instant::now() + SILENCE_MAX).min(*until));
                    }
                }
                LingerState::Closed => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::*;

    /// More than the kernel of the other end buffers unread.
    const ANSWER_BYTES: usize = 16 * 1024 * 1024;

    const LINGER_BYTES_MAX: usize = 256 * 1024;

    #[tokio::test]
    async fn the_last_bytes_arrive_although_the_callers_last_bytes_are_unread() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = LingeringStream::new(stream, LINGER_BYTES_MAX);
        let answers = async {
            stream.write_all(&vec![0; ANSWER_BYTES]).await.unwrap();
            stream.shutdown().await.unwrap();
            drop(stream);
        };
        let reads = async {
            caller.write_all(b"more room").await.unwrap();
            // The kernels hold the rest of the answer when the server has sent its end.
            let mut read = 0;
            let mut chunk = vec![0; 64 * 1024];
            loop {
                let got = caller.read(&mut chunk).await.unwrap();
                if got == 0 {
                    break;
                }
                read += got;
                caller.write_all(b"more room").await.unwrap();
            }
            drop(caller);
            read
        };
        let ((), read) =
            timeout(Duration::from_secs(60), async { tokio::join!(answers, reads) }).await.unwrap();
        assert_eq!(read, ANSWER_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_does_not_close_is_waited_for_up_to_the_limit() {
        let (stream, mut caller) = duplex(64);
        let mut stream = LingeringStream::new(stream, LINGER_BYTES_MAX);
        let began = Instant::now();
        timeout(2 * SILENCE_MAX, stream.shutdown()).await.unwrap().unwrap();
        assert_eq!(began.elapsed(), SILENCE_MAX);

        let mut read = Vec::new();
        caller.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"", "the end was sent");
        stream.shutdown().await.unwrap();
        assert_eq!(began.elapsed(), SILENCE_MAX, "once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_still_sends_is_read_up_to_the_longest_time() {
        let (stream, mut caller) = duplex(64);
        let mut stream = LingeringStream::new(stream, LINGER_BYTES_MAX);
        let began = Instant::now();
        let talks = async {
            while caller.write_all(b"more room").await.is_ok() {
                sleep(SILENCE_MAX / 2).await;
            }
        };
        let closes = async {
            stream.shutdown().await.unwrap();
            let waited = began.elapsed();
            drop(stream);
            waited
        };
        let ((), waited) = timeout(2 * LINGER_MAX, async { tokio::join!(talks, closes) }).await.unwrap();
        assert_eq!(waited, LINGER_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_bytes_are_read_than_the_limit() {
        let (stream, caller) = duplex(READ_BYTES);
        let mut stream = LingeringStream::new(stream, LINGER_BYTES_MAX);
        let began = Instant::now();
        let (mut sent, mut caller) = (0, caller);
        let floods = async {
            while sent < 4 * LINGER_BYTES_MAX
                && let Ok(more) = caller.write(&[0; READ_BYTES]).await
            {
                sent += more;
            }
        };
        let closes = async {
            stream.shutdown().await.unwrap();
            drop(stream);
        };
        timeout(SILENCE_MAX, async { tokio::join!(floods, closes) }).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        let expected = LINGER_BYTES_MAX..=LINGER_BYTES_MAX + 2 * READ_BYTES;
        assert!(expected.contains(&sent), "{sent} bytes");
    }
}
