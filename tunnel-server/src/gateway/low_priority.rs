//! Moves a connection to the low-priority runtime once its logins fail although its source has failed too
//! often.
//!
//! A refusal costs little, but ten thousand refusals a second cost half a core. On a home they would delay
//! the requests of everybody else.

use std::pin::Pin;

use daemon::Scope;
use tokio::sync::{Notify, oneshot};

use crate::metrics;

/// Moves one connection to the low-priority runtime. It moves once, and all its later requests are served
/// there.
#[derive(Debug, Default)]
pub(super) struct LowPrioritySwitch(Notify);

impl LowPrioritySwitch {
    /// Asks for the move, which follows at once.
    pub(super) fn switch(&self) {
        self.0.notify_one();
    }

    /// Drives the connection `served` here until [`LowPrioritySwitch::switch`], and from then on in the
    /// low-priority runtime. Returns `None` if it was dropped there in an abort. Dropping this future does
    /// not end a connection that has moved.
    pub(super) async fn drive<T: Send + 'static>(
        &self,
        mut served: Pin<Box<dyn Future<Output = T> + Send>>,
        scope: &Scope,
    ) -> Option<T> {
        // Both arms are cancel-safe: the first is polled by reference, and the second is not polled again.
        tokio::select! {
            biased;
            served = &mut served => return Some(served),
            () = self.0.notified() => metrics::low_priority(),
        }
        let (end, ended) = oneshot::channel();
        scope.spawn_low_priority(async move {
            // If the receiver was dropped, the server is aborting.
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
    fn a_connection_moves_to_the_low_priority_runtime_once_asked() {
        let plan =
            Plan { layout: Layout::PerCore { homes: 1 }, grace: Duration::from_secs(30), low_priority: true };
        let here = thread::current().name().map(str::to_owned);
        let (report, reported) = std::sync::mpsc::channel();

        let outcome = daemon::run(plan, |scope| async move {
            let connection = Arc::new(LowPrioritySwitch::default());
            let driven = connection.drive(Box::pin(visited(Arc::clone(&connection))), &scope).await;
            report.send(driven).map_err(Failure::could_not_go_on)
        });

        assert!(matches!(outcome, Outcome::Drained), "{outcome:?}");
        let visited = reported.recv().unwrap();
        assert_eq!(visited, Some([here, Some("low-priority".to_owned())]));
    }

    #[tokio::test]
    async fn a_connection_that_ends_first_never_moves() {
        let connection = LowPrioritySwitch::default();
        let ends = Box::pin(async { 7 });
        assert_eq!(connection.drive(ends, &Scope::here()).await, Some(7));
    }

    #[tokio::test]
    async fn a_moved_connection_that_is_dropped_in_an_abort_ends_the_wait() {
        let (connection, scope) = (LowPrioritySwitch::default(), Scope::here());
        connection.switch();
        let stays = Box::pin(std::future::pending::<()>());
        let (driven, ()) = tokio::join!(connection.drive(stays, &scope), async { scope.abort() });
        assert_eq!(driven, None);
    }

    /// The names of the threads that poll it: the first, where it asks for the move, and the next.
    async fn visited(connection: Arc<LowPrioritySwitch>) -> [Option<String>; 2] {
        let name = || thread::current().name().map(str::to_owned);
        let mut first = None;
        poll_fn(|_| match first.take() {
            None => {
                first = Some(name());
                connection.switch();
                Poll::Pending
            }
            Some(first) => Poll::Ready([first, name()]),
        })
        .await
    }
}
