//! Joins a caller's stream to a connection in the cluster, and copies bytes both ways until both directions
//! have ended.
//!
//! The copying is generic. Everything that depends on timers inside Kubernetes stands in
//! [`kubernetes_compat`], which may hold a caller's bytes back for a moment, read more of the edge's bytes
//! than the caller takes, and answer the caller's pings.
//!
//! The *edge* is the side in the cluster: an API server behind an upgrade, or a target that was dialed.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf as _;
use proto::upgrade_protocol::UpgradeProtocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::coop::has_budget_remaining;

use buffer::{BUFFER_BYTES, Buffer, MadeProgress, write_some};
use kubernetes_compat::{Edge, KubernetesCompat};

mod buffer;
pub mod kubernetes_compat;

/// Bytes that a caller may still send after the edge has closed and the caller has its last byte. Some pings
/// fit, an upload does not. 4 MiB.
pub const DISCARDED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Poll iterations before the task yields to others.
const ITERATIONS_MAX: usize = 64;

/// Moves bytes both ways until both directions have ended, each on its own. Where both sides speak a
/// `protocol`, the caller's pings are recognized.
///
/// # Errors
/// One of the sides broke, and neither side may take that for an end of file. An edge that accepts no more
/// bytes is not an error by itself: it may have closed after its last byte, and the caller still gets
/// everything up to there.
pub async fn join<C, E>(protocol: Option<UpgradeProtocol>, caller: &mut C, edge: &mut E) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    E: AsyncRead + AsyncWrite + Unpin,
{
    let mut pipe = Pipe::new(KubernetesCompat::new(protocol));
    poll_fn(|cx| pipe.poll(cx, caller, edge)).await
}

struct Pipe<'a> {
    down: Down,
    up: Up,
    /// Bytes from the caller that the edge has not taken yet.
    up_buffer: Buffer,
    compat: KubernetesCompat<'a>,
}

/// The direction from the edge to the caller.
#[derive(Default)]
struct Down {
    buffer: Buffer,
    /// The edge has sent end of file.
    is_over: bool,
    /// The caller has received everything up to end of file.
    is_done: bool,
}

/// The direction from the caller to the edge.
enum Up {
    Open,
    /// The caller has sent end of file.
    Ending,
    /// The edge accepts no more. So many bytes were discarded since the caller has received everything.
    Discarding(usize),
    Done,
}

impl<'a> Pipe<'a> {
    fn new(compat: KubernetesCompat<'a>) -> Self {
        Self { down: Down::default(), up: Up::Open, up_buffer: Buffer::default(), compat }
    }

    fn poll<C, E>(&mut self, cx: &mut Context<'_>, caller: &mut C, edge: &mut E) -> Poll<io::Result<()>>
    where
        C: AsyncRead + AsyncWrite + Unpin,
        E: AsyncRead + AsyncWrite + Unpin,
    {
        for _ in 0..ITERATIONS_MAX {
            let read = self.read_edge(cx, edge)?;
            let written = self.write_caller(cx, caller)?;
            self.compat.release_slot(self.down.edge());
            let forwarded = self.forward_up(cx, caller, edge, read)?;
            if self.down.is_done && matches!(self.up, Up::Done) {
                return Poll::Ready(Ok(()));
            }
            if !(read || written || forwarded) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once from the edge, unless as much waits for the caller as may.
    fn read_edge(
        &mut self,
        cx: &mut Context<'_>,
        edge: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<MadeProgress> {
        let waiting_max = BUFFER_BYTES + self.compat.extra_bytes(cx, self.down.edge());
        if self.down.is_over || self.down.buffer.bytes.len() >= waiting_max {
            return Ok(false);
        }
        let Poll::Ready(bytes) = self.down.buffer.read(cx, edge)? else {
            // Without a budget it is the runtime that has stopped the read, and the edge may have more.
            if has_budget_remaining() {
                self.compat.edge_paused();
            }
            return Ok(false);
        };
        self.compat.edge_sent(bytes);
        self.down.is_over = bytes == 0;
        Ok(true)
    }

    /// Writes once to the caller: answers to its pings first, then bytes of the edge, then end of file.
    fn write_caller(
        &mut self,
        cx: &mut Context<'_>,
        caller: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<MadeProgress> {
        let Self { down, compat, .. } = self;
        if let Some(answers) = compat.answers() {
            down.buffer.is_unflushed = true;
            let written = write_some(cx, caller, answers)?;
            answers.advance(written);
            return Ok(written > 0);
        }
        let bytes = &down.buffer.bytes;
        if !bytes.is_empty() {
            let written = write_some(cx, caller, &bytes[..compat.writable(bytes)])?;
            compat.written_to_caller(&bytes[..written]);
            return Ok(down.buffer.advance(written));
        }
        if !down.is_over {
            down.buffer.flush(cx, caller)?;
        } else if !down.is_done && Pin::new(caller).poll_shutdown(cx)?.is_ready() {
            down.is_done = true;
            return Ok(true);
        }
        Ok(false)
    }

    /// One step from the caller to the edge. `read` says that the edge has just sent something.
    fn forward_up<C, E>(
        &mut self,
        cx: &mut Context<'_>,
        caller: &mut C,
        edge: &mut E,
        read: bool,
    ) -> io::Result<MadeProgress>
    where
        C: AsyncRead + Unpin,
        E: AsyncWrite + Unpin,
    {
        match &mut self.up {
            Up::Open if self.compat.holds_back() => {
                if self.down.is_over {
                    self.compat.stop_holding_back();
                    self.up = Up::Discarding(0);
                } else if self.compat.poll_drained(cx, self.down.edge(), read).is_pending() {
                    return Ok(false);
                }
            }
            Up::Open if self.up_buffer.bytes.is_empty() => match self.up_buffer.read(cx, caller)? {
                Poll::Ready(0) => self.up = Up::Ending,
                Poll::Ready(_) => self.compat.caller_sent(&mut self.up_buffer.bytes, self.down.edge()),
                Poll::Pending => {
                    if self.up_buffer.flush(cx, edge).is_ok() {
                        return Ok(false);
                    }
                    self.up = Up::Discarding(0);
                }
            },
            Up::Open => match self.up_buffer.write(cx, edge) {
                Ok(false) => return Ok(false),
                Ok(true) => self.compat.written_to_edge(),
                // Reading from the edge shows whether it broke or has closed.
                Err(_) => self.up = Up::Discarding(0),
            },
            Up::Ending => match Pin::new(edge).poll_shutdown(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(_) => self.up = Up::Done,
            },
            Up::Discarding(discarded) => {
                self.up_buffer.bytes.clear();
                match self.up_buffer.read(cx, caller)? {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(0) => self.up = Up::Done,
                    Poll::Ready(bytes) => {
                        *discarded += if self.down.is_done { bytes } else { 0 };
                        if *discarded > DISCARDED_BYTES_MAX {
                            let message = "the edge has closed and the caller goes on sending";
                            return Err(io::Error::new(io::ErrorKind::BrokenPipe, message));
                        }
                    }
                }
            }
            Up::Done => return Ok(false),
        }
        Ok(true)
    }
}

impl Down {
    fn edge(&self) -> Edge {
        Edge { is_over: self.is_over, waiting: self.buffer.bytes.len() }
    }
}

#[cfg(test)]
mod tests;
