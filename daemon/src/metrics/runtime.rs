//! What the scope and its runtimes do now.

use super::lines::Lines;
use crate::Scope;

/// Tells of `scope` under names that begin with `prefix`.
pub(super) fn tell(lines: &mut Lines, prefix: &str, scope: &Scope) {
    lines
        .gauge(
            &format!("{prefix}_draining"),
            "1 once this process finishes what runs and begins nothing new, else 0.",
        )
        .is(&[], u8::from(scope.is_draining()));
    let (work, attendants) = scope.task_counts();
    lines
        .gauge(
            &format!("{prefix}_tasks"),
            "Tasks that live now, by kind: work holds a drain up, attendants (drivers, probes) do not.",
        )
        .is(&[("kind", "work")], work)
        .is(&[("kind", "attendant")], attendants);

    let homes = scope.runtimes();
    let name = format!("{prefix}_runtime_workers");
    let mut workers = lines.gauge(&name, "Threads that run a home's tasks.");
    for (home, runtime) in &homes {
        workers.is(&[("home", home)], runtime.num_workers());
    }
    let name = format!("{prefix}_runtime_tasks");
    let mut tasks = lines.gauge(&name, "Tasks of a home that live now, those of libraries included.");
    for (home, runtime) in &homes {
        tasks.is(&[("home", home)], runtime.num_alive_tasks());
    }
    let name = format!("{prefix}_runtime_queue_depth");
    let help = "Tasks of a home that wait in its global queue; if it grows, the home is too busy.";
    let mut queue = lines.gauge(&name, help);
    for (home, runtime) in &homes {
        queue.is(&[("home", home)], runtime.global_queue_depth());
    }
    let name = format!("{prefix}_runtime_busy_seconds_total");
    let help = "Time for which a home's threads were busy; its rate by the workers is their load.";
    let mut busy = lines.counter(&name, help);
    for (home, runtime) in &homes {
        let workers = 0..runtime.num_workers();
        let seconds: f64 = workers.map(|n| runtime.worker_total_busy_duration(n).as_secs_f64()).sum();
        busy.is(&[("home", home)], seconds);
    }
}
