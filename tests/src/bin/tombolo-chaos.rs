//! The fault matrix as a program: tries cells, prints each request's outcome, and writes the page.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use clap::Parser;
use tests::matrix::code::{Request, Timing};
use tests::matrix::fault::Row;
use tests::matrix::page;
use tests::matrix::report_log::ReportLog;
use tests::matrix::run::{Cell, attempt};
use tests::matrix::table;

/// Tries faults on a complete tunnel in a lab of network namespaces. Needs root.
///
/// Each cell is a fault, the stage of the requests when it begins, and a seed. A failed expectation is
/// printed with the command that repeats it, and makes the exit code 1.
#[derive(Debug, Parser)]
#[command(name = "tombolo-chaos")]
struct Arguments {
    /// Rows by their ids; all that can be tried, if left out
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    row: Vec<String>,
    /// Only rows whose fault lasts at most 5 s
    #[arg(long)]
    quick: bool,
    /// Stages of the requests when the fault begins: new, before-head, mid-body, at-the-end; if left out,
    /// those of the row
    #[arg(long, value_name = "TIMING", value_delimiter = ',')]
    timing: Vec<Timing>,
    /// get, watch, exec, apply, download; all, if left out
    #[arg(long, value_name = "REQUEST", value_delimiter = ',')]
    request: Vec<Request>,
    /// The first seed; an even one asks in HTTP/1.1, an odd one in HTTP/2
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Number of seeds to try for each cell
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seeds: u64,
    /// Number of cells that run at once
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    jobs: usize,
    /// No requests to another cluster beside the fault
    #[arg(long)]
    without_bystander: bool,
    /// File of reports: a line of JSON for each; the last one of a cell counts
    #[arg(long, value_name = "FILE", default_value = "target/chaos/matrix.jsonl")]
    book: PathBuf,
    /// Writes the page of all reports in the file of reports
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Tries no cell, for use with --write
    #[arg(long)]
    dry: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let book = ReportLog::at(&arguments.book);
    let cells = match cells(&arguments) {
        Ok(cells) if !arguments.dry => cells,
        Ok(_) => VecDeque::new(),
        Err(unknown) => {
            eprintln!("tombolo-chaos: there is no row {unknown:?}; docs/faults.md lists them");
            return ExitCode::FAILURE;
        }
    };
    let (count, begun) = (cells.len(), Instant::now());
    let cells = Mutex::new(cells);
    let failed = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                // Not in the loop's head: there the lock would be held for as long as the trial lasts.
                let next = || lock(&cells).pop_front();
                while let Some(cell) = next() {
                    let report = attempt(&cell);
                    let verdict = page::verdict(&cell, &report);
                    println!("{verdict}");
                    if verdict.is_failure() {
                        *lock(&failed) += 1;
                    }
                    book.keep(&report).expect("the book can be written");
                }
            });
        }
    });
    if let Some(path) = &arguments.write {
        let text = page::render(&book.read().expect("the book can be read"));
        std::fs::write(path, text).expect("the page can be written");
    }
    let failed = *lock(&failed);
    println!("{count} cells, {failed} do not hold, {} s", begun.elapsed().as_secs());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn cells(arguments: &Arguments) -> Result<VecDeque<Cell>, String> {
    let rows: Vec<&'static Row> = if arguments.row.is_empty() {
        table::rows().filter(|row| row.is_tried()).collect()
    } else {
        let found = arguments.row.iter().map(|id| table::row(id).ok_or_else(|| id.clone()));
        found.collect::<Result<_, _>>()?
    };
    let wanted = |request: &Request| arguments.request.is_empty() || arguments.request.contains(request);
    let mut cells = VecDeque::new();
    for row in rows.into_iter().filter(|row| !arguments.quick || row.is_quick()) {
        let timings = row
            .timings
            .iter()
            .filter(|timing| arguments.timing.is_empty() || arguments.timing.contains(timing));
        for timing in timings {
            for seed in arguments.seed..arguments.seed + arguments.seeds {
                let cell = Cell::of(*row, *timing, seed, !arguments.without_bystander);
                let requests = cell.requests.iter().copied().filter(wanted).collect();
                cells.push_back(Cell { requests, ..cell });
            }
        }
    }
    Ok(cells)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
