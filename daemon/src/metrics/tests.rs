//! Tests of the text of a scrape.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// One test for all that a scrape shows of a process: its recorder can be installed once.
#[test]
fn a_scrape_has_help_type_build_process_and_real_histograms() {
    let product = Product { name: "test", metrics_prefix: "tombolo_test", version: "1.2.3" };
    let installed = Metrics::install(&product).unwrap();
    metrics::describe_histogram!("tombolo_test_wait_seconds", "How long.");
    metrics::histogram!("tombolo_test_wait_seconds").record(0.02);
    metrics::histogram!("tombolo_test_watch_duration_seconds").record(2000.0);

    let text = installed.render();

    let rustc = env!("RUSTC_VERSION");
    assert!(rustc.starts_with("1."), "{rustc}");
    for line in [
        "# HELP tombolo_test_build_info Always 1; which build this is.",
        "# TYPE tombolo_test_build_info gauge",
        &format!("tombolo_test_build_info{{version=\"1.2.3\",revision=\"unknown\",rustc=\"{rustc}\"}} 1"),
        "# TYPE process_resident_memory_bytes gauge",
        "# TYPE process_cpu_seconds_total counter",
        "# TYPE tombolo_test_wait_seconds histogram",
        "tombolo_test_wait_seconds_bucket{le=\"0.01\"} 0",
        "tombolo_test_wait_seconds_bucket{le=\"0.025\"} 1",
        "tombolo_test_watch_duration_seconds_bucket{le=\"1800\"} 0",
        "tombolo_test_watch_duration_seconds_bucket{le=\"3600\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line:?} in:\n{text}");
    }
    assert!(matches!(Metrics::install(&product), Err(TelemetryError::AlreadyInstalled(_))));
}

#[test]
fn series_that_a_source_no_longer_writes_disappear() {
    let metrics = quiet();
    let there = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&there);
    metrics.on_scrape(move |lines| {
        if asked.load(Ordering::Relaxed) {
            lines.gauge("tombolo_test_guests", "How many.").sample(&[], 2);
        }
    });

    assert!(metrics.render().contains("tombolo_test_guests 2\n"));
    there.store(false, Ordering::Relaxed);

    assert!(!metrics.render().contains("tombolo_test_guests"));
}

#[tokio::test]
async fn a_scrape_has_the_scopes_tasks_and_runtimes() {
    let (metrics, scope) = (quiet(), Scope::here());
    metrics.run_upkeep(&scope);
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    scope.spawn(async move {
        let _ = finished.await;
    });

    let busy = metrics.scrape().await;
    finish.send(()).unwrap();
    scope.begin_drain();
    let work_left = || async {
        while metrics.scrape().await.contains("tombolo_test_tasks{kind=\"work\"} 1\n") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), work_left()).await.unwrap();
    let idle = metrics.scrape().await;

    for line in [
        "tombolo_test_draining 0",
        "tombolo_test_tasks{kind=\"work\"} 1",
        "tombolo_test_tasks{kind=\"background\"} 1",
        "tombolo_test_runtime_workers{home=\"0\"} 1",
        "# TYPE tombolo_test_runtime_busy_seconds_total counter",
    ] {
        assert!(busy.lines().any(|found| found == line), "no line {line:?} in:\n{busy}");
    }
    assert!(idle.contains("tombolo_test_draining 1\n"), "{idle}");
    assert!(idle.contains("tombolo_test_tasks{kind=\"work\"} 0\n"), "{idle}");
}

/// Metrics with a recorder of their own, so that tests do not share the process-wide one.
fn quiet() -> Metrics {
    Metrics::with_recorder("tombolo_test", builder().unwrap().build_recorder().handle())
}
