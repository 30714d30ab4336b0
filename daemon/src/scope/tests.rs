//! Tests of how tasks live and end. Time is paused: grace periods pass at once and in order.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::pending;
use tokio::sync::oneshot;

use super::*;

const GRACE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_work_that_ends_within_grace() {
    let scope = Scope::here();
    let finished = Counter::default();
    scope.spawn({
        let (draining, counted) = (scope.draining(), finished.clone());
        async move {
            draining.await;
            sleep(GRACE / 2).await;
            counted.count();
        }
    });

    let closed = scope.close(GRACE).await;

    assert_eq!(closed, Ok(()));
    assert_eq!(finished.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_that_outlives_grace_is_dropped_and_counted() {
    let scope = Scope::here();
    let dropped = Counter::default();
    for _ in 0..3 {
        let guard = dropped.on_drop();
        scope.spawn(async move {
            let _guard = guard;
            pending().await
        });
    }

    let closed = scope.close(GRACE).await;

    assert_eq!(closed, Err(GraceExceeded { cut: 3, grace: GRACE }));
    assert_eq!(dropped.get(), 3, "all are gone when close returns");
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_a_close_before_its_grace() {
    let scope = Scope::here();
    scope.spawn(pending());
    let started = tokio::time::Instant::now();
    scope.spawn_background({
        let scope = scope.clone();
        async move {
            sleep(GRACE / 3).await;
            scope.abort();
        }
    });

    let closed = scope.close(GRACE).await;

    assert_eq!(closed, Ok(()));
    assert_eq!(started.elapsed(), GRACE / 3);
}

#[tokio::test(start_paused = true)]
async fn after_an_abort_a_stuck_task_delays_the_close_only_briefly() {
    let scope = Scope::here();
    let _stuck = scope.0.work.token();
    let started = tokio::time::Instant::now();

    scope.abort();
    let closed = scope.close(GRACE).await;

    assert_eq!(closed, Ok(()));
    assert_eq!(started.elapsed(), ABORT_MAX);
}

#[tokio::test(start_paused = true)]
async fn background_tasks_run_until_the_last_work_ends() {
    let scope = Scope::here();
    let stopped = Counter::default();
    let guard = stopped.on_drop();
    scope.spawn_background(async move {
        let _guard = guard;
        pending().await
    });
    let (seen, at_the_end) = oneshot::channel();
    scope.spawn({
        let stopped = stopped.clone();
        async move {
            sleep(GRACE / 2).await;
            seen.send(stopped.get()).unwrap();
        }
    });

    let closed = scope.close(GRACE).await;

    assert_eq!(closed, Ok(()));
    assert_eq!(at_the_end.await, Ok(0), "the background task ran as long as work did");
    assert_eq!(stopped.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_spawned_after_the_close_does_not_run() {
    let scope = Scope::here();
    scope.close(GRACE).await.unwrap();
    let ran = Counter::default();

    let counted = ran.clone();
    scope.spawn(async move { counted.count() });
    scope.0.work.wait().await;

    assert_eq!(ran.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_its_own_task_only_and_is_logged_with_its_message() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.subscriber());
    let scope = Scope::here();
    let finished = Counter::default();
    scope.spawn(async { panic!("as planned") });
    scope.spawn({
        let counted = finished.clone();
        async move {
            sleep(GRACE / 2).await;
            counted.count();
        }
    });

    let closed = scope.close(GRACE).await;

    assert_eq!(closed, Ok(()), "the panicked task is counted as ended");
    assert_eq!(finished.get(), 1);
    assert!(
        log.text().contains(r#"ERROR daemon::scope: a task panicked panic="as planned""#),
        "{}",
        log.text()
    );
}

#[test]
fn the_message_of_a_panic_is_found_in_both_its_forms() {
    assert_eq!(panic_message(&"a literal"), "a literal");
    assert_eq!(panic_message(&String::from("a formatted one")), "a formatted one");
    assert_eq!(panic_message(&7_u8), "(no message)");
}

#[tokio::test]
async fn homes_are_assigned_round_robin() {
    let handle = Handle::current();
    let scope = Scope::over(handle.clone(), [handle.clone(), handle], None);

    let given: Vec<usize> = (0..5).map(|n| scope.home_for(n).number()).collect();

    assert_eq!(given, [0, 1, 2, 0, 1]);
    let mut homes = scope.homes_in_turn();
    let in_turn: Vec<usize> = (0..5).map(|_| homes().number()).collect();
    assert_eq!(in_turn, given);
    assert_eq!(scope.homes().count(), 3);
}

/// Counts events of several tasks.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

struct CountOnDrop(Counter);

impl Counter {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn on_drop(&self) -> CountOnDrop {
        CountOnDrop(self.clone())
    }
}

/// Collects the text of the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn subscriber(&self) -> impl tracing::Subscriber + use<> {
        let log = self.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone()).finish()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for CountOnDrop {
    fn drop(&mut self) {
        self.0.count();
    }
}
