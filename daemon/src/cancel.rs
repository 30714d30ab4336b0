//! Runs a future until another one completes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

/// Runs `work` to its end, or until `end` completes. Then `work` is dropped, and the output of `end` is the
/// error.
///
/// `end` is polled only when it was woken, and not with every poll of `work`: most futures of that kind take
/// a lock in each poll, and a task that moves bytes is woken twice for each small request. Cancel-safe if
/// `work` is.
///
/// # Errors
/// `end` completed first, or both completed at once.
pub async fn run_until<W: Future, E: Future>(work: W, end: E) -> Result<W::Output, E::Output> {
    let mut work = pin!(work);
    // It gives the future in it a waker of its own.
    let mut end = FuturesUnordered::from_iter([end]);
    poll_fn(|cx| match end.poll_next_unpin(cx) {
        Poll::Ready(Some(ended)) => Poll::Ready(Err(ended)),
        Poll::Ready(None) | Poll::Pending => work.as_mut().poll(cx).map(Ok),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn work_runs_until_its_end_or_the_other_futures() {
        assert_eq!(run_until(async { 1 }, pending::<()>()).await, Ok(1));

        let (sender, receiver) = oneshot::channel();
        let sending = async {
            yield_now().await;
            sender.send(2).unwrap();
        };
        let (ended, ()) = tokio::join!(timeout(SOON, run_until(pending::<()>(), receiver)), sending);
        assert_eq!(ended, Ok(Err(Ok(2))));

        assert_eq!(run_until(async { 1 }, async { 2 }).await, Err(2));
    }

    #[tokio::test]
    async fn the_end_is_polled_only_when_it_was_woken() {
        let polls = Rc::new(Cell::new(0));
        let counting = Rc::clone(&polls);
        let (sender, mut receiver) = oneshot::channel::<()>();
        let end = poll_fn(move |cx| {
            counting.set(counting.get() + 1);
            Pin::new(&mut receiver).poll(cx)
        });
        let work = async {
            for _ in 0..100 {
                yield_now().await;
            }
            assert_eq!(polls.get(), 1);
            sender.send(()).unwrap();
            pending::<()>().await;
        };

        assert_eq!(timeout(SOON, run_until(work, end)).await, Ok(Err(Ok(()))));

        assert_eq!(polls.get(), 2);
    }
}
