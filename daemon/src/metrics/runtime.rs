//! Metrics of the scope and its runtimes.

use super::exposition::Exposition;
use crate::Scope;

/// Writes the metrics of `scope`, with names that begin with `prefix`.
pub(super) fn write(text: &mut Exposition, prefix: &str, scope: &Scope) {
    text.gauge(
        &format!("{prefix}_draining"),
        "1 once this process finishes what runs and begins nothing new, else 0.",
    )
    .sample(&[], u8::from(scope.is_draining()));
    let (work, background) = scope.task_counts();
    text
        .gauge(
            &format!("{prefix}_tasks"),
            "Tasks that live now, by kind: a drain waits for work, but not for background tasks (drivers, probes).",
        )
        .sample(&[("kind", "work")], work)
        .sample(&[("kind", "background")], background);

    let homes = scope.runtimes();
    let name = format!("{prefix}_runtime_workers");
    let mut workers = text.gauge(&name, "Threads that run a home's tasks.");
    for (home, runtime) in &homes {
        workers.sample(&[("home", home)], runtime.num_workers());
    }
    let name = format!("{prefix}_runtime_tasks");
    let mut tasks = text.gauge(&name, "Tasks of a home that live now, those of libraries included.");
    for (home, runtime) in &homes {
        tasks.sample(&[("home", home)], runtime.num_alive_tasks());
    }
    let name = format!("{prefix}_runtime_queue_depth");
    let help = "Tasks of a home that wait in its global queue; if it grows, the home is too busy.";
    let mut queue = text.gauge(&name, help);
    for (home, runtime) in &homes {
        queue.sample(&[("home", home)], runtime.global_queue_depth());
    }
    let name = format!("{prefix}_runtime_busy_seconds_total");
    let help = "Time for which a home's threads were busy; its rate by the workers is their load.";
    let mut busy = text.counter(&name, help);
    for (home, runtime) in &homes {
        let workers = 0..runtime.num_workers();
        let seconds: f64 = workers.map(|n| runtime.worker_total_busy_duration(n).as_secs_f64()).sum();
        busy.sample(&[("home", home)], seconds);
    }
}
