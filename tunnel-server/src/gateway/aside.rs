//! Connections whose logins fail though their source has failed too often: served aside, where nobody waits behind them.
//!
//! To say no costs little, and ten thousand times a second it is half of a core: on a home everybody's requests would stand in line
//! behind it.

use std::pin::Pin;

use daemon::Scope;
use tokio::sync::{Notify, oneshot};

use crate::metrics;

/// Whether a connection is to go aside. It does so once, and whatever comes over it from then on is served there.
#[derive(Debug, Default)]
pub(super) struct Aside(Notify);

impl Aside {
    /// It is to go.
    pub(super) fn go(&self) {
        self.0.notify_one();
    }

    /// Drives a connection that is `served` where it is, until it is to go aside, and from then on there. `None` if it was dropped
    /// in an abort. Dropped in its turn, it leaves one that is aside to that.
    pub(super) async fn drive<T: Send + 'static>(
        &self,
        mut served: Pin<Box<dyn Future<Output = T> + Send>>,
        scope: &Scope,
    ) -> Option<T> {
        // Both arms are cancel-safe: the one is polled by reference, and the other is not asked for again.
        tokio::select! {
            biased;
            served = &mut served => return Some(served),
            () = self.0.notified() => metrics::low_priority(),
        }
        let (end, ended) = oneshot::channel();
        scope.spawn_aside(async move {
            // Whoever waited for it was dropped, and this will be.
            let _ = end.send(served.await);
        });
        ended.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::task::Poll;
    use std::thread;
    use std::time::Duration;

    use daemon::{Failure, Layout, Outcome, Plan};

    use super::*;

    #[test]
    fn a_connection_is_served_where_it_is_and_once_it_is_to_go_aside_there() {
        let plan = Plan { layout: Layout::PerCore { homes: 1 }, grace: Duration::from_secs(30), aside: true };
        let here = thread::current().name().map(str::to_owned);
        let (report, reported) = std::sync::mpsc::channel();

        let outcome = daemon::run(plan, |scope| async move {
            let aside = Arc::new(Aside::default());
            let driven = aside.drive(Box::pin(visited(Arc::clone(&aside))), &scope).await;
            report.send(driven).map_err(Failure::could_not_go_on)
        });

        assert!(matches!(outcome, Outcome::Drained), "{outcome:?}");
        let visited = reported.recv().unwrap();
        assert_eq!(visited, Some([here, Some("aside".to_owned())]));
    }

    #[tokio::test]
    async fn a_connection_that_ends_where_it_is_never_goes() {
        let aside = Aside::default();
        let ends = Box::pin(async { 7 });
        assert_eq!(aside.drive(ends, &Scope::here()).await, Some(7));
    }

    #[tokio::test]
    async fn of_one_that_was_dropped_aside_nobody_waits_for_the_end() {
        let (aside, scope) = (Aside::default(), Scope::here());
        aside.go();
        let stays = Box::pin(std::future::pending::<()>());
        let (driven, ()) = tokio::join!(aside.drive(stays, &scope), async { scope.abort() });
        assert_eq!(driven, None);
    }

    /// The threads on which it is polled: the first, from which it asks to go, and the next.
    async fn visited(aside: Arc<Aside>) -> [Option<String>; 2] {
        let name = || thread::current().name().map(str::to_owned);
        let mut first = None;
        poll_fn(|_| match first.take() {
            None => {
                first = Some(name());
                aside.go();
                Poll::Pending
            }
            Some(first) => Poll::Ready([first, name()]),
        })
        .await
    }
}
