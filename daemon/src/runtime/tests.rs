//! Tests of homes, and of the life from a signal to an outcome. Signals are injected.

use futures::{channel::mpsc, future::pending, stream};
use tokio::sync::oneshot;

use super::*;
use crate::scope::current_home;

const GRACE: Duration = Duration::from_secs(30);

#[test]
fn a_task_spawned_on_a_home_runs_on_the_thread_of_that_home() {
    let homes = Homes::build(Layout::PerCore { homes: 3 }, false).unwrap();
    let scope = homes.scope();

    let seen = homes.first.block_on(async {
        let mut seen = Vec::new();
        for home in scope.homes() {
            seen.push(whereabouts(|task| scope.spawn_on(home, task)).await);
        }
        seen
    });
    homes.stop();

    let test_thread = thread::current().name().map(str::to_owned);
    assert_eq!(seen[0], (test_thread, Some(Home::nth(0))));
    assert_eq!(seen[1], (Some("home-1".into()), Some(Home::nth(1))));
    assert_eq!(seen[2], (Some("home-2".into()), Some(Home::nth(2))));
}

#[test]
fn a_spawned_task_stays_on_the_home_of_its_spawner() {
    let homes = Homes::build(Layout::PerCore { homes: 2 }, false).unwrap();
    let scope = homes.scope();

    let (report, reported) = oneshot::channel();
    let inner = scope.clone();
    scope.spawn_on(Home::nth(1), async move {
        report.send(whereabouts(|task| inner.spawn(task)).await).unwrap();
    });
    let (_, home) = homes.first.block_on(reported).unwrap();
    homes.stop();

    assert_eq!(home, Some(Home::nth(1)));
}

#[test]
fn the_shared_layout_has_one_home_and_all_its_threads_belong_to_it() {
    let homes = Homes::build(Layout::Shared { workers: 2 }, false).unwrap();
    let scope = homes.scope();

    let (thread, home) = homes.first.block_on(whereabouts(|task| scope.spawn_on(scope.home_for(7), task)));
    homes.stop();

    assert_eq!(scope.home_count(), 1);
    assert_eq!((thread.as_deref(), home), (Some("home-0"), Some(Home::FIRST)));
}

#[test]
fn the_low_priority_thread_is_no_home_and_has_higher_niceness() {
    let homes = Homes::build(Layout::PerCore { homes: 2 }, true).unwrap();
    let scope = homes.scope();

    let (report, reported) = oneshot::channel();
    let (thread, home) = homes.first.block_on(whereabouts(|task| scope.spawn_low_priority(task)));
    scope.spawn_low_priority(async move { report.send(getpriority_process(None)).unwrap() });
    let niceness = homes.first.block_on(reported).unwrap();
    let names: Vec<String> = scope.runtimes().into_iter().map(|(name, _)| name).collect();
    homes.stop();

    assert_eq!((thread.as_deref(), home), (Some("low-priority"), None));
    assert_eq!(names, ["0", "1", "low_priority"]);
    let here = getpriority_process(None).unwrap();
    assert_eq!(niceness, Ok((here + NICENESS_ADDED).min(NICENESS_MAX)));
}

#[test]
fn without_a_low_priority_runtime_home_0_runs_the_task() {
    let homes = Homes::build(Layout::PerCore { homes: 2 }, false).unwrap();
    let scope = homes.scope();

    let (_, home) = homes.first.block_on(whereabouts(|task| scope.spawn_low_priority(task)));
    homes.stop();

    assert_eq!(home, Some(Home::FIRST));
}

#[test]
fn run_ends_when_main_does_and_leaves_no_task_behind() {
    for layout in [Layout::PerCore { homes: 2 }, Layout::Shared { workers: 2 }] {
        let (held, released) = oneshot::channel::<()>();

        let outcome = run(Plan { layout, grace: Duration::ZERO, low_priority: true }, |scope| async move {
            scope.spawn_on(scope.home_for(1), async move {
                let _held = held;
                pending().await
            });
            Ok(())
        });

        assert_eq!(outcome.exit_code(), 3, "the task was cut off");
        assert!(released.blocking_recv().is_err(), "and is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_signal_drains() {
    let scope = Scope::here();
    let signals = stream::iter([Signal::Terminate]);
    let main = finishes_after(&scope, GRACE / 2);

    let outcome = supervise(&scope, GRACE, signals, main).await;

    assert!(matches!(outcome, Outcome::Drained), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn the_drain_begins_when_nobody_holds_it_any_longer() {
    for (held_for, begins_after) in [(GRACE / 10, GRACE / 10), (GRACE * 10, Duration::from_secs(10))] {
        let (scope, started) = (Scope::here(), tokio::time::Instant::now());
        let (hold, stopping) = (scope.hold_drain(), scope.stopping());
        scope.spawn(async move {
            stopping.await;
            tokio::time::sleep(held_for).await;
            drop(hold);
        });
        let main = finishes_after(&scope, Duration::ZERO);

        let life = supervise(&scope, GRACE, stream::iter([Signal::Terminate]), main);
        let drained = async {
            scope.draining().await;
            started.elapsed()
        };
        let (_, after) = futures::join!(life, drained);

        assert_eq!(after, begins_after);
    }
}

#[tokio::test(start_paused = true)]
async fn a_main_that_returns_begins_the_drain() {
    let scope = Scope::here();

    let life = supervise(&scope, GRACE, stream::empty(), async { Ok(()) });

    assert!(matches!(tokio::time::timeout(GRACE * 2, life).await, Ok(Outcome::Drained)));
}

#[tokio::test(start_paused = true)]
async fn nothing_ends_without_a_signal() {
    let scope = Scope::here();

    let life = supervise(&scope, GRACE, stream::empty(), pending());

    assert!(tokio::time::timeout(GRACE * 100, life).await.is_err());
    assert!(!scope.is_draining());
}

#[tokio::test(start_paused = true)]
async fn work_beyond_grace_is_a_distinct_outcome() {
    let scope = Scope::here();
    scope.spawn(pending());
    let main = finishes_after(&scope, Duration::ZERO);

    let outcome = supervise(&scope, GRACE, stream::iter([Signal::Interrupt]), main).await;

    let Outcome::GraceExceeded(exceeded) = outcome else { panic!("{outcome:?}") };
    assert_eq!(exceeded.cut, 1, "main had ended, the other task had not");
}

#[tokio::test(start_paused = true)]
async fn the_second_signal_aborts_work_and_main_alike() {
    let scope = Scope::here();
    scope.spawn(pending());
    let (send, signals) = mpsc::channel(2);
    let started = tokio::time::Instant::now();
    scope.spawn_background(two_signals(send, GRACE / 3));

    let outcome = supervise(&scope, GRACE, signals, pending()).await;

    assert!(matches!(outcome, Outcome::Aborted), "{outcome:?}");
    assert_eq!(started.elapsed(), GRACE / 3);
}

#[tokio::test(start_paused = true)]
async fn a_main_that_fails_drains_the_rest_and_its_failure_is_the_outcome() {
    let scope = Scope::here();
    let (done, finished) = oneshot::channel();
    let work = finishes_after(&scope, GRACE / 2);
    scope.spawn(async move {
        let _ = work.await;
        done.send(()).unwrap();
    });

    let main = async { Err(Failure::could_not_go_on("the disk is gone")) };
    let outcome = supervise(&scope, GRACE, stream::empty(), main).await;

    assert_eq!(outcome.exit_code(), 1);
    assert!(finished.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_main_that_panics_is_a_failure_with_its_message() {
    let scope = Scope::here();

    let outcome = supervise(&scope, GRACE, stream::empty(), async { panic!("as planned") }).await;

    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(crate::error_chain(&failure).to_string(), "could not go on: panicked: as planned");
}

/// The thread and the home on which `spawn` runs a task.
async fn whereabouts(
    spawn: impl FnOnce(futures::future::BoxFuture<'static, ()>),
) -> (Option<String>, Option<Home>) {
    let (report, reported) = oneshot::channel();
    spawn(Box::pin(async move {
        let thread = thread::current().name().map(str::to_owned);
        report.send((thread, current_home())).unwrap();
    }));
    reported.await.unwrap()
}

fn finishes_after(
    scope: &Scope,
    late: Duration,
) -> impl Future<Output = Result<(), Failure>> + Send + 'static + use<> {
    let draining = scope.draining();
    async move {
        draining.await;
        tokio::time::sleep(late).await;
        Ok(())
    }
}

async fn two_signals(mut send: mpsc::Sender<Signal>, apart: Duration) {
    send.try_send(Signal::Terminate).unwrap();
    tokio::time::sleep(apart).await;
    send.try_send(Signal::Interrupt).unwrap();
    pending().await
}
