//! Joins a caller's stream to a connection in the cluster, and hears that one out before it is spoken to.
//!
//! Who has closed a TCP connection answers whatever comes afterwards by RST (RFC 1122, section 4.2.2.13), and what it had said and
//! not sent yet is never sent. An API server closes right behind a command's last byte, while megabytes of its output still lie in
//! its kernel's buffer, and kubectl pings every five seconds: over a slow link a ping is what cuts the output short, and over SPDY
//! with exit code 0. So a ping to somebody who talked lately is answered here, and is not passed on: that it did shows that it lives. And
//! before other words of a caller who was silent for a while are passed on to somebody whose words wait here, or who has said
//! much without a pause, all is read that can have been said: behind an end of file nothing is passed on, and nothing is lost.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use proto::upgrade::Protocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::coop::has_budget_remaining;
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use ahead::Ahead;
use hearing::Hearing;
use pings::Pings;

mod ahead;
mod hearing;
mod pings;

/// What waits here in each direction while the other side does not read, and what one read adds.
const BUFFER_BYTES: usize = 32 * 1024;

/// Connections of which more than the usual may wait at once. Callers of others are passed on all the same.
pub const HEARD_OUT_MAX: usize = 4;

/// What a caller may say to somebody who is gone, having been passed all that was said to it: some pings, and no upload.
pub const UNHEARD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Who has said so much without a pause may have said more, which its kernel still holds, though the caller takes everything at once.
const UNPAUSED_BYTES: usize = 2 * BUFFER_BYTES;

/// Whoever was spoken to within this time is not heard out: a caller that talks on all the time would be slow.
const SILENCE: Duration = Duration::from_secs(1);

/// Who has said something within this time lives, and what it says next may lie in kernels on the way already, though nothing comes
/// while those between have no processor. So it is not pinged. Longer than the 5 s between two of kubectl's pings.
const LATELY: Duration = Duration::from_secs(10);

/// Reads and writes until others are to run.
const TURNS_MAX: usize = 64;

static PLACES: Semaphore = Semaphore::const_new(HEARD_OUT_MAX);

/// Moves bytes both ways until both directions have ended, each on its own. Pings are known where both speak a `protocol`.
///
/// # Errors
/// One of both broke, and neither is to take it for an end. That `edge` takes no more is no error by itself: it may have closed
/// behind its last words, and these the caller still gets.
pub async fn join<C, E>(protocol: Option<Protocol>, caller: &mut C, edge: &mut E) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    E: AsyncRead + AsyncWrite + Unpin,
{
    let mut pipe = Pipe::among(&PLACES, protocol);
    poll_fn(|cx| pipe.poll(cx, caller, edge)).await
}

struct Pipe<'a> {
    down: Down<'a>,
    up: Up,
    /// The caller's, which the edge has not taken yet.
    words: Words,
    /// When the edge last took some.
    spoken: Instant,
    /// Where frames are known.
    pings: Option<Pings>,
    /// Where somebody beyond the edge is pinged.
    ahead: Option<Ahead>,
}

/// From the edge to the caller.
struct Down<'a> {
    words: Words,
    /// The edge has said its last word.
    is_over: bool,
    /// The caller has it.
    is_done: bool,
    /// What was read since there was last nothing to read.
    unpaused: usize,
    /// When the edge last said something.
    heard: Option<Instant>,
    places: &'a Semaphore,
    /// More than the usual may wait.
    place: Option<SemaphorePermit<'a>>,
}

/// From the caller to the edge.
enum Up {
    Open,
    /// The edge is heard out before the caller's words are passed on.
    Hearing(Hearing),
    /// The caller has said its last word.
    Ending,
    /// The edge takes no more. The caller has said so much since it has heard all.
    Deaf(usize),
    Done,
}

/// What was read and not written yet.
#[derive(Default)]
struct Words {
    bytes: BytesMut,
    is_unflushed: bool,
}

/// Whether something has happened, so that another turn may find more to do.
type Moved = bool;

impl<'a> Pipe<'a> {
    fn among(places: &'a Semaphore, protocol: Option<Protocol>) -> Self {
        let (down, words, pings) = (Down::new(places), Words::default(), protocol.map(Pings::new));
        let ahead = matches!(protocol, Some(Protocol::WebSocket)).then(Ahead::begin);
        Self { down, up: Up::Open, words, spoken: Instant::now(), pings, ahead }
    }

    fn poll<C, E>(&mut self, cx: &mut Context<'_>, caller: &mut C, edge: &mut E) -> Poll<io::Result<()>>
    where
        C: AsyncRead + AsyncWrite + Unpin,
        E: AsyncRead + AsyncWrite + Unpin,
    {
        for _ in 0..TURNS_MAX {
            let heard = self.hear(cx, edge)?;
            let told = self.down.tell(cx, caller, self.pings.as_mut())?;
            if !matches!(self.up, Up::Hearing(_)) && self.down.words.bytes.len() < BUFFER_BYTES {
                self.down.place = None;
            }
            let moved = self.speak(cx, caller, edge, heard)?;
            if self.down.is_done && matches!(self.up, Up::Done) {
                return Poll::Ready(Ok(()));
            }
            if !(heard || told || moved) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// One step from the edge, of which more may wait while it is heard out, and before somebody beyond it is pinged.
    fn hear(&mut self, cx: &mut Context<'_>, edge: &mut (impl AsyncRead + Unpin)) -> io::Result<Moved> {
        let mut room = if let Up::Hearing(hearing) = &self.up { hearing.room() } else { 0 };
        if self.down.words.bytes.len() >= BUFFER_BYTES
            && let Some(ahead) = &mut self.ahead
        {
            let more = ahead.room(cx);
            if more > 0 && self.down.can_be_heard_out() {
                room = room.max(more);
            }
        }
        self.down.hear(cx, edge, BUFFER_BYTES + room)
    }

    /// One step from the caller to the edge, which has just said something if it was `heard`.
    fn speak<C, E>(
        &mut self,
        cx: &mut Context<'_>,
        caller: &mut C,
        edge: &mut E,
        heard: bool,
    ) -> io::Result<Moved>
    where
        C: AsyncRead + Unpin,
        E: AsyncWrite + Unpin,
    {
        match &mut self.up {
            Up::Open if self.words.bytes.is_empty() => match self.words.read(cx, caller)? {
                Poll::Ready(0) => self.up = Up::Ending,
                Poll::Ready(_) => {
                    if let Some(pings) = &mut self.pings {
                        pings.asked(&mut self.words.bytes, self.down.lives());
                    }
                    // A ping, too, though nothing is passed on behind it: there are pings between others on the way.
                    if self.spoken.elapsed() >= SILENCE && self.down.can_be_heard_out() {
                        self.up = Up::Hearing(Hearing::begin());
                    }
                }
                Poll::Pending => {
                    if self.words.flush(cx, edge).is_ok() {
                        return Ok(false);
                    }
                    self.up = Up::Deaf(0);
                }
            },
            Up::Open => match self.words.write(cx, edge) {
                Ok(false) => return Ok(false),
                Ok(true) => self.spoken = Instant::now(),
                // Whether it broke or has closed is what it says itself.
                Err(_) => self.up = Up::Deaf(0),
            },
            Up::Hearing(_) if self.down.is_over => self.up = Up::Deaf(0),
            Up::Hearing(hearing) => {
                let talks = heard || self.down.words.bytes.len() >= BUFFER_BYTES + hearing.room();
                let Poll::Ready(over) = hearing.poll_over(cx, talks) else { return Ok(false) };
                if over {
                    self.spoken = Instant::now();
                    self.up = Up::Open;
                }
            }
            Up::Ending => match Pin::new(edge).poll_shutdown(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(_) => self.up = Up::Done,
            },
            Up::Deaf(unheard) => {
                self.words.bytes.clear();
                match self.words.read(cx, caller)? {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(0) => self.up = Up::Done,
                    Poll::Ready(bytes) => {
                        *unheard += if self.down.is_done { bytes } else { 0 };
                        if *unheard > UNHEARD_BYTES_MAX {
                            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "nobody hears the caller"));
                        }
                    }
                }
            }
            Up::Done => return Ok(false),
        }
        Ok(true)
    }
}

impl<'a> Down<'a> {
    fn new(places: &'a Semaphore) -> Self {
        let words = Words::default();
        Self { words, is_over: false, is_done: false, unpaused: 0, heard: None, places, place: None }
    }

    /// Whether the edge was heard lately, or what it said is not told yet.
    fn lives(&self) -> bool {
        let is_lately = self.heard.is_some_and(|heard| heard.elapsed() < LATELY);
        !self.is_over && (is_lately || !self.words.bytes.is_empty())
    }

    /// Whether more than what was read may have been said, and may be read.
    fn can_be_heard_out(&mut self) -> bool {
        if self.is_over || (self.words.bytes.is_empty() && self.unpaused < UNPAUSED_BYTES) {
            return false;
        }
        if self.place.is_none() {
            self.place = self.places.try_acquire().ok();
        }
        self.place.is_some()
    }

    fn hear(
        &mut self,
        cx: &mut Context<'_>,
        edge: &mut (impl AsyncRead + Unpin),
        most: usize,
    ) -> io::Result<Moved> {
        if self.is_over || self.words.bytes.len() >= most {
            return Ok(false);
        }
        let Poll::Ready(bytes) = self.words.read(cx, edge)? else {
            // Without a budget the runtime has stopped us, and whoever talks may have more.
            if has_budget_remaining() {
                self.unpaused = 0;
            }
            return Ok(false);
        };
        self.unpaused = self.unpaused.saturating_add(bytes);
        self.heard = Some(Instant::now());
        self.is_over = bytes == 0;
        Ok(true)
    }

    fn tell(
        &mut self,
        cx: &mut Context<'_>,
        caller: &mut (impl AsyncWrite + Unpin),
        mut pings: Option<&mut Pings>,
    ) -> io::Result<Moved> {
        if let Some(given) = pings.as_deref_mut().map(Pings::given).filter(|given| !given.is_empty()) {
            self.words.is_unflushed = true;
            let written = written(cx, caller, given)?;
            given.advance(written);
            return Ok(written > 0);
        }
        let words = &self.words.bytes;
        if !words.is_empty() {
            let most = pings.as_deref().map_or(words.len(), |pings| pings.most(words));
            let written = written(cx, caller, &words[..most])?;
            if let Some(pings) = pings {
                pings.told(&words[..written]);
            }
            return Ok(self.words.taken(written));
        }
        if !self.is_over {
            self.words.flush(cx, caller)?;
        } else if !self.is_done && Pin::new(caller).poll_shutdown(cx)?.is_ready() {
            self.is_done = true;
            return Ok(true);
        }
        Ok(false)
    }
}

impl Words {
    /// Reads behind what is there; 0 is the end.
    fn read(&mut self, cx: &mut Context<'_>, from: &mut (impl AsyncRead + Unpin)) -> io::Result<Poll<usize>> {
        if self.bytes.is_empty() && self.bytes.capacity() > 2 * BUFFER_BYTES {
            // Of who was heard out.
            self.bytes = BytesMut::new();
        }
        self.bytes.reserve(BUFFER_BYTES);
        // What was reserved for more has room for more.
        Ok(poll_read_buf(Pin::new(from), cx, &mut (&mut self.bytes).limit(BUFFER_BYTES))?)
    }

    fn write(&mut self, cx: &mut Context<'_>, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<Moved> {
        let written = written(cx, to, &self.bytes)?;
        Ok(self.taken(written))
    }

    /// So many bytes were written.
    fn taken(&mut self, written: usize) -> Moved {
        self.bytes.advance(written);
        self.is_unflushed |= written > 0;
        written > 0
    }

    fn flush(&mut self, cx: &mut Context<'_>, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.is_unflushed && Pin::new(to).poll_flush(cx)?.is_ready() {
            self.is_unflushed = false;
        }
        Ok(())
    }
}

/// How many of the bytes `to` has taken; 0 where it takes none for now.
fn written(cx: &mut Context<'_>, to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    match Pin::new(to).poll_write(cx, bytes)? {
        Poll::Ready(0) => Err(io::ErrorKind::WriteZero.into()),
        Poll::Ready(written) => Ok(written),
        Poll::Pending => Ok(0),
    }
}

#[cfg(test)]
mod tests;
