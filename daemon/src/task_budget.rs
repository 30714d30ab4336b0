//! Lets other tasks run between the bytes of a busy peer whose connection is read through TLS.
//!
//! tokio gives each task 128 units between two yields, and a socket spends one for each read, whatever it
//! brings. HTTP libraries handle all frames that they can read before they yield, and some frames have nine
//! bytes. `transport` has the same for tunnels; it uses no crate of the daemons.

use std::task::{Context, Poll, ready};

use tokio::task::coop;

/// Bytes that cost one unit: a task yields after 128 KiB.
const BYTES_PER_UNIT: usize = 1024;

/// Units that a task has between two yields, so that no more are spent in vain.
const UNITS_MAX: usize = 128;

/// Polls `read`, which returns the number of bytes that it brought, and spends the task's budget by them.
/// Pending while the task has no budget left; the task is then polled again after others.
pub fn poll_read_within_budget<E>(
    cx: &mut Context<'_>,
    read: impl FnOnce(&mut Context<'_>) -> Poll<Result<usize, E>>,
) -> Poll<Result<(), E>> {
    let unit = ready!(coop::poll_proceed(cx));
    let bytes = match ready!(read(cx)) {
        Ok(bytes) => bytes,
        Err(error) => return Poll::Ready(Err(error)),
    };
    unit.made_progress();
    for _ in 0..(bytes / BYTES_PER_UNIT).min(UNITS_MAX) {
        let Poll::Ready(unit) = coop::poll_proceed(cx) else { break };
        unit.made_progress();
    }
    Poll::Ready(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;

    use super::*;

    /// A turn is the time between two polls of the task by its runtime.
    #[tokio::test]
    async fn a_reader_of_bytes_that_are_always_there_yields_after_128_kib() {
        const PIECE_BYTES: usize = 16 * 1024;
        let mut turns = vec![0];
        poll_fn(|cx| {
            while turns.iter().sum::<usize>() < 1024 * 1024 {
                let read = |_: &mut Context<'_>| Poll::Ready(Ok::<_, Infallible>(PIECE_BYTES));
                if poll_read_within_budget(cx, read).is_pending() {
                    turns.push(0);
                    return Poll::Pending;
                }
                *turns.last_mut().unwrap() += PIECE_BYTES;
            }
            Poll::Ready(())
        })
        .await;
        let most = *turns.iter().max().unwrap();
        assert!(most <= 128 * 1024 && turns.len() >= 8, "{turns:?}");
    }
}
