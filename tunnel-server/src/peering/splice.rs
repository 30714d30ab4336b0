//! Passes bytes between a stream of another server and one of an agent, each direction on its own.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use proto::AbortCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::TunnelStream;

/// Most bytes that one direction takes over at once.
const CHUNK_BYTES: usize = 16 * 1024;

thread_local! {
    /// The place for bytes until it is known how many they are: an idle stream has no buffer of its own.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK_BYTES].into_boxed_slice());
}

/// Bytes that both directions have passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// From the other server to the agent.
    pub(super) up: u64,
    /// From the agent to the other server.
    pub(super) down: u64,
}

/// The side whose stream broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BrokenLeg {
    /// The other server has aborted, or its session has ended.
    Peer,
    /// The agent has aborted, or its tunnel has ended.
    Agent,
}

/// One direction between two streams.
#[derive(Default)]
struct Direction {
    /// Bytes that were read and are not written yet. Empty, and without memory, while nothing arrives.
    pending: Vec<u8>,
    written: usize,
    passed: u64,
    stage: Stage,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Passing,
    /// The reading side has ended; the writing side is being shut down.
    Ending,
    Ended,
}

/// The side of a direction that broke.
enum BrokenSide {
    Reading,
    Writing,
}

/// Passes bytes until both directions have ended, and returns how many. If a stream breaks, the other one is aborted with the
/// same code, or with [`AbortCode::TunnelLost`] if it is the agent's and has none.
pub(super) async fn splice(mut peer: TunnelStream, mut agent: TunnelStream) -> (Passed, Option<BrokenLeg>) {
    let (mut up, mut down) = (Direction::default(), Direction::default());
    let broken = std::future::poll_fn(|cx| {
        let (mut peer, mut agent) = (Pin::new(&mut peer), Pin::new(&mut agent));
        let going_up = up.poll_pass(cx, peer.as_mut(), agent.as_mut()).map_err(|side| match side {
            BrokenSide::Reading => BrokenLeg::Peer,
            BrokenSide::Writing => BrokenLeg::Agent,
        });
        let going_down = down.poll_pass(cx, agent.as_mut(), peer.as_mut()).map_err(|side| match side {
            BrokenSide::Reading => BrokenLeg::Agent,
            BrokenSide::Writing => BrokenLeg::Peer,
        });
        match (going_up, going_down) {
            (Poll::Ready(Err(broken)), _) | (_, Poll::Ready(Err(broken))) => Poll::Ready(Some(broken)),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(None),
            (Poll::Ready(Ok(())) | Poll::Pending, _) => Poll::Pending,
        }
    });
    let broken = broken.await;
    let passed = Passed { up: up.passed, down: down.passed };
    match broken {
        Some(BrokenLeg::Peer) => {
            let code = peer.abort_codes().peer_code().unwrap_or(AbortCode::Abandoned);
            agent.abort(code);
        }
        Some(BrokenLeg::Agent) => {
            let code = agent.abort_codes().peer_code().unwrap_or(AbortCode::TunnelLost);
            peer.abort(code);
        }
        None => {}
    }
    (passed, broken)
}

impl Direction {
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        mut from: Pin<&mut TunnelStream>,
        mut to: Pin<&mut TunnelStream>,
    ) -> Poll<Result<(), BrokenSide>> {
        loop {
            if self.written < self.pending.len() {
                let written = ready!(to.as_mut().poll_write(cx, &self.pending[self.written..]));
                match written {
                    Ok(0) | Err(_) => return Poll::Ready(Err(BrokenSide::Writing)),
                    Ok(written) => self.written += written,
                }
                continue;
            }
            // Nothing is held while the stream is idle.
            (self.pending, self.written) = (Vec::new(), 0);
            match self.stage {
                Stage::Passing => match ready!(poll_take(cx, from.as_mut())) {
                    Ok(taken) if taken.is_empty() => self.stage = Stage::Ending,
                    Ok(taken) => {
                        self.passed += taken.len() as u64;
                        self.pending = taken;
                    }
                    Err(_) => return Poll::Ready(Err(BrokenSide::Reading)),
                },
                Stage::Ending => match ready!(to.as_mut().poll_shutdown(cx)) {
                    Ok(()) => self.stage = Stage::Ended,
                    Err(_) => return Poll::Ready(Err(BrokenSide::Writing)),
                },
                Stage::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// The next bytes of a stream, or none at its end.
fn poll_take(cx: &mut Context<'_>, from: Pin<&mut TunnelStream>) -> Poll<io::Result<Vec<u8>>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut into = ReadBuf::new(scratch);
        ready!(from.poll_read(cx, &mut into))?;
        Poll::Ready(Ok(into.filled().to_vec()))
    })
}
