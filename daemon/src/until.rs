//! Something that goes on until something else happens.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

/// Runs `work` to its end, or until `end` has come: then `work` is dropped, and what `end` said is the error.
///
/// `end` is polled when it was woken for, and not whenever `work` is: most of what tells an end takes a lock each time it is asked, and
/// a task that moves bytes is woken twice for each small request. Cancel-safe where `work` is.
///
/// # Errors
/// `end` came first, or both at once.
pub async fn until<W: Future, E: Future>(work: W, end: E) -> Result<W::Output, E::Output> {
    let mut work = pin!(work);
    // It has a waker of its own for what is in it.
    let mut end = FuturesUnordered::from_iter([end]);
    poll_fn(|cx| match end.poll_next_unpin(cx) {
        Poll::Ready(Some(said)) => Poll::Ready(Err(said)),
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
    async fn work_goes_on_until_its_end_or_the_other_and_both_at_once_are_the_other() {
        assert_eq!(until(async { 1 }, pending::<()>()).await, Ok(1));

        let (tell, told) = oneshot::channel();
        let telling = async {
            yield_now().await;
            tell.send(2).unwrap();
        };
        let (ended, ()) = tokio::join!(timeout(SOON, until(pending::<()>(), told)), telling);
        assert_eq!(ended, Ok(Err(Ok(2))));

        assert_eq!(until(async { 1 }, async { 2 }).await, Err(2));
    }

    #[tokio::test]
    async fn the_end_is_asked_when_it_was_woken_for_and_not_whenever_the_work_is() {
        let asked = Rc::new(Cell::new(0));
        let counting = Rc::clone(&asked);
        let (tell, mut told) = oneshot::channel::<()>();
        let end = poll_fn(move |cx| {
            counting.set(counting.get() + 1);
            Pin::new(&mut told).poll(cx)
        });
        let work = async {
            for _ in 0..100 {
                yield_now().await;
            }
            assert_eq!(asked.get(), 1);
            tell.send(()).unwrap();
            pending::<()>().await;
        };

        assert_eq!(timeout(SOON, until(work, end)).await, Ok(Err(Ok(()))));

        assert_eq!(asked.get(), 2);
    }
}
