//! A connection that is closed for writing first, and for reading when the other end has closed, too, or soon enough.
//!
//! Who closes a TCP connection while words lie unread answers by RST (RFC 1122, section 4.2.2.13), and what it had said and the other
//! end has not acknowledged is never sent: a window update of HTTP/2 would cut off the last bytes of a download, and the rest of an
//! upload that is refused the refusal (RFC 9112, section 9.6).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Who says nothing for so long behind our end is not waited for. Who still takes what was said acknowledges that in words of HTTP/2, or
/// goes on with its upload.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// How long it is read on behind the own end, in all. At 1 Mbit/s that is as much as Linux holds of what was said (4 MB, `tcp_wmem`).
const LINGER_MAX: Duration = Duration::from_secs(30);

/// What is read and passed over meanwhile: as much as an upload may have on its way.
const LINGER_BYTES_MAX: usize = super::connection::STREAM_WINDOW_BYTES as usize;

/// Bytes that one read takes.
const READ_BYTES: usize = 4 * 1024;

/// Ends with `poll_shutdown`, behind which nothing is to be read: of no use to connections whose halves end by themselves.
pub(super) struct Lingering<S> {
    stream: S,
    state: LingerState,
}

enum LingerState {
    Open,
    /// Nothing more is said.
    Lingers {
        silence: Pin<Box<Sleep>>,
        until: Instant,
        read: usize,
    },
    Over,
}

impl<S> Lingering<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, state: LingerState::Open }
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
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
        let Self { stream, state } = &mut *self;
        let mut stream = Pin::new(stream);
        loop {
            match state {
                LingerState::Open => {
                    ready!(stream.as_mut().poll_shutdown(cx))?;
                    let silence = Box::pin(sleep(SILENCE_MAX));
                    *state = LingerState::Lingers { silence, until: Instant::now() + LINGER_MAX, read: 0 };
                }
                LingerState::Lingers { silence, until, read } => {
                    let mut words = [0; READ_BYTES];
                    let mut words = ReadBuf::new(&mut words);
                    if silence.as_mut().poll(cx).is_pending() {
                        // What cannot be read has ended, too: nothing is in it then, and our own end was said.
                        let _ = ready!(stream.as_mut().poll_read(cx, &mut words));
                    }
                    *read += words.filled().len();
                    if words.filled().is_empty() || *read > LINGER_BYTES_MAX {
                        *state = LingerState::Over;
                    } else {
                        silence.as_mut().reset((Instant::now() + SILENCE_MAX).min(*until));
                    }
                }
                LingerState::Over => return Poll::Ready(Ok(())),
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

    /// More than the other end's kernel takes of what is not read.
    const ANSWER_BYTES: usize = 16 * 1024 * 1024;

    #[tokio::test]
    async fn the_last_bytes_arrive_though_the_callers_last_words_are_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = Lingering::new(stream);
        let answers = async {
            stream.write_all(&vec![0; ANSWER_BYTES]).await.unwrap();
            stream.shutdown().await.unwrap();
            drop(stream);
        };
        let reads = async {
            caller.write_all(b"more room").await.unwrap();
            // The kernels hold the rest of the answer when the server has said its end.
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
    async fn a_caller_who_does_not_close_is_waited_for_no_longer_than_it_may() {
        let (stream, mut caller) = duplex(64);
        let mut stream = Lingering::new(stream);
        let began = Instant::now();
        timeout(2 * SILENCE_MAX, stream.shutdown()).await.unwrap().unwrap();
        assert_eq!(began.elapsed(), SILENCE_MAX);

        let mut read = Vec::new();
        caller.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"", "the end was said");
        stream.shutdown().await.unwrap();
        assert_eq!(began.elapsed(), SILENCE_MAX, "once");
    }

    #[tokio::test(start_paused = true)]
    async fn who_still_talks_is_read_on_and_not_for_ever() {
        let (stream, mut caller) = duplex(64);
        let mut stream = Lingering::new(stream);
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
    async fn no_more_of_a_caller_is_read_than_may_be() {
        let (stream, caller) = duplex(READ_BYTES);
        let mut stream = Lingering::new(stream);
        let began = Instant::now();
        let (mut said, mut caller) = (0, caller);
        let floods = async {
            while said < 4 * LINGER_BYTES_MAX
                && let Ok(more) = caller.write(&[0; READ_BYTES]).await
            {
                said += more;
            }
        };
        let closes = async {
            stream.shutdown().await.unwrap();
            drop(stream);
        };
        timeout(SILENCE_MAX, async { tokio::join!(floods, closes) }).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        let room = LINGER_BYTES_MAX..=LINGER_BYTES_MAX + 2 * READ_BYTES;
        assert!(room.contains(&said), "{said} bytes");
    }
}
