//! Writes expected and observed outcomes, as a line for a terminal and as a page for readers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::fs;
use std::process::Command;

use super::code::{Code, Request, Timing};
use super::fault::{Injection, QUICK_MAX, Row};
use super::report::{CellReport, Observed};
use super::report_log::Reports;
use super::run::Cell;
use super::table::{SECTIONS, Section, row, rows};

/// The text above the tables.
const HEAD: &str = include_str!("page/head.md");

/// The verdict on one cell's report by its row.
#[derive(Debug)]
pub struct Verdict {
    line: String,
    failures: Vec<String>,
    again: String,
}

impl Verdict {
    /// Returns true if something does not hold.
    pub fn is_failure(&self) -> bool {
        !self.failures.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.line)?;
        for failure in &self.failures {
            write!(formatter, "\n    does not hold: {failure}")?;
        }
        if self.is_failure() {
            write!(formatter, "\n    again: make chaos CHAOS_FLAGS=\"{}\"", self.again)?;
        }
        Ok(())
    }
}

/// Compares a report with what its row expects.
pub fn verdict(cell: &Cell, report: &CellReport) -> Verdict {
    let mut line = format!("{:<4} {:<11} seed {}", report.row, report.timing.word(), report.seed);
    let mut failures = Vec::new();
    for observed in &report.observed {
        let _ = write!(line, "  {} {}", observed.request.word(), observed.code); // A string takes all.
        if let Some(failure) = failure(&cell.row, report.timing, observed) {
            failures.push(failure);
        }
    }
    let missing =
        cell.requests.iter().filter(|request| report.observed.iter().all(|one| one.request != **request));
    failures.extend(missing.map(|request| format!("{} saw nothing", request.word())));
    failures.extend(report.wrong.iter().cloned());
    let again = format!("--row {} --timing {} --seed {}", report.row, report.timing.word(), report.seed);
    Verdict { line, failures, again }
}

/// The reason why an observation does not hold, if it does not.
fn failure(row: &Row, timing: Timing, observed: &Observed) -> Option<String> {
    let expected = row.expected(observed.request, timing).unwrap_or_default();
    if expected.is_empty() || expected.contains(&observed.code) {
        return None;
    }
    let expected: Vec<String> = expected.iter().map(Code::to_string).collect();
    let Observed { request, code, detail, .. } = observed;
    Some(format!("{} saw {code}, not {}: {detail}", request.word(), expected.join("/")))
}

/// The page of all that is kept.
pub fn render(reports: &Reports) -> String {
    let mut page = HEAD.to_owned();
    let _ = writeln!(page, "\n{}\n{}", provenance(reports), bystanders(reports)); // A string takes all.
    for section in SECTIONS {
        page.push_str(&tables(section, reports));
    }
    page
}

fn provenance(reports: &Reports) -> String {
    let output_of = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = output_of("git", &["log", "-1", "--format=%h of %cs"]).unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{} cells were tried before commit {commit}, on a machine of {cores} cores with other work beside, Linux {}, \
         debug builds. {}",
        reports.len(),
        kernel.trim(),
        commands(reports)
    )
}

/// The commands that try the same cells: which rows with how many seeds.
fn commands(reports: &Reports) -> String {
    let mut seeds: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for report in reports.values() {
        seeds.entry(&report.row).or_default().insert(report.seed);
    }
    let tried = || rows().filter(|row| row.is_tried());
    let of = |row: &Row| seeds.get(row.id).map_or(0, BTreeSet::len);
    let least = |rows: &mut dyn Iterator<Item = &Row>| rows.map(of).min().unwrap_or(0);
    let all = least(&mut tried());
    let quick = least(&mut tried().filter(|row| row.is_quick()));
    let quick = if quick > all {
        format!(
            "; of those whose fault lasts at most {} s: {quick}, `make chaos CHAOS_FLAGS=\"--quick --seeds {quick}\"`",
            QUICK_MAX.as_secs()
        )
    } else {
        String::new()
    };
    format!("Seeds of every cell: {all}, `make chaos CHAOS_FLAGS=\"--seeds {all}\"`{quick}.")
}

fn bystanders(reports: &Reports) -> String {
    let is_theirs_too = |report: &CellReport| row(&report.row).is_some_and(Row::affects_all);
    let others = || reports.values().filter(|report| !is_theirs_too(report));
    let all = || others().filter_map(|report| Some((report, report.bystander?)));
    let Some((worst, noticed)) =
        all().max_by(|(_, one), (_, other)| one.during_ms.total_cmp(&other.during_ms))
    else {
        return "No requests were sent to another cluster.".to_owned();
    };
    let (asked, failed) =
        all().fold((0, 0), |(asked, failed), (_, one)| (asked + one.asked, failed + one.failed));
    format!(
        "Small requests of another cluster's caller, sent all the time where the fault was not the server's or the \
         callers' own: {failed} of {asked} failed. The 99th percentile was at worst {:.0} ms, in row {}, after {:.0} ms before that fault.",
        noticed.during_ms, worst.row, noticed.before_ms
    )
}

fn tables(section: &Section, reports: &Reports) -> String {
    let mut text = format!("\n## {}\n\n", section.title);
    text.push_str(
        "| row | fault | when | get | watch | exec | apply | download | noticed, s | resumed, s | lost | twice | holds |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut notes = Vec::new();
    for row in section.rows {
        text.push_str(&lines(row, reports, &mut notes));
    }
    if !notes.is_empty() {
        text.push('\n');
        text.extend(notes.into_iter().map(|note| format!("* {note}\n")));
    }
    text
}

/// The lines of a row: one for requests in flight, one for those that began during the fault.
fn lines(row: &Row, reports: &Reports, notes: &mut Vec<String>) -> String {
    let Row { id, fault, .. } = row;
    if let Injection::Elsewhere(test) = row.injection {
        return format!("| {id} | {fault} | | shown by the test `{test}` | | | | | | | | | |\n");
    }
    if !row.note.is_empty() {
        notes.push(format!("{id}: {}", row.note));
    }
    let mut text = String::new();
    for timing in row.timings {
        let of_row: Vec<&CellReport> =
            reports.values().filter(|report| report.row == *id && report.timing == *timing).collect();
        text.push_str(&line(row, *timing, &of_row, notes));
    }
    text
}

fn line(row: &Row, timing: Timing, reports: &[&CellReport], notes: &mut Vec<String>) -> String {
    let mut cells = Vec::new();
    let mut failures = BTreeSet::new();
    for request in Request::ALL {
        let expected = row.expected(request, timing).unwrap_or_default();
        let seen: Vec<&Observed> =
            reports.iter().flat_map(|report| &report.observed).filter(|one| one.request == request).collect();
        let codes: BTreeSet<Code> = seen.iter().map(|one| one.code).collect();
        failures.extend(seen.iter().filter_map(|one| failure(row, timing, one)));
        cells.push(match (expected.is_empty(), codes.is_empty()) {
            (true, _) => String::new(),
            (false, true) => format!("{} → not tried", words(&expected)),
            (false, false) => {
                format!("{} → {}", words(&expected), words(&codes.into_iter().collect::<Vec<_>>()))
            }
        });
    }
    failures.extend(reports.iter().flat_map(|report| report.wrong.iter().cloned()));
    let observed = || reports.iter().flat_map(|report| &report.observed);
    let entries =
        observed().filter_map(|one| one.noticed).chain(reports.iter().filter_map(|report| report.noticed));
    let resumed = observed().filter_map(|one| one.resumed);
    let holds = match (reports.is_empty(), failures.is_empty()) {
        (true, _) => "not tried",
        (false, true) => "yes",
        (false, false) => "**no**",
    };
    for failure in &failures {
        notes.push(format!("{} {} does not hold: {}", row.id, timing.word(), shortened(failure)));
    }
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {holds} |\n",
        row.id,
        row.fault,
        timing.word(),
        cells.join(" | "),
        least(entries),
        most(resumed),
        observed().map(|one| one.lost).sum::<u64>(),
        observed().map(|one| one.twice).sum::<u64>(),
    )
}

fn words(codes: &[Code]) -> String {
    codes.iter().map(Code::to_string).collect::<Vec<_>>().join("/")
}

/// The shortest of these times as text.
fn least(times: impl Iterator<Item = f64>) -> String {
    times.reduce(f64::min).map_or_else(String::new, |time| format!("{time:.1}"))
}

/// The last to go on.
fn most(times: impl Iterator<Item = f64>) -> String {
    times.reduce(f64::max).map_or_else(String::new, |time| format!("{time:.1}"))
}

/// A sentence that fits in a list.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 240;
    let line = text.replace(['\n', '|'], " ");
    if line.chars().count() <= CHARACTERS_MAX {
        return line;
    }
    format!("{}…", line.chars().take(CHARACTERS_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unexpected_outcome_fails_and_says_how_to_repeat_it() {
        let (cell, report) = tried(Code::G3);
        let verdict = verdict(&cell, &report);
        assert!(verdict.is_failure());
        let text = verdict.to_string();
        assert!(
            text.contains("get saw G3, not G0: why") && text.contains("--row 1 --timing mid-body --seed 7"),
            "{text}"
        );
        let reports = Reports::from([(("1".to_owned(), Timing::MidBody, 7), report)]);
        let page = render(&reports);
        assert!(page.contains("G0 → G3") && page.contains("**no**"), "{page}");
    }

    #[test]
    fn an_expected_outcome_holds_unless_it_is_never_allowed() {
        let (cell, mut report) = tried(Code::G0);
        assert!(!verdict(&cell, &report).is_failure());
        report.wrong.push("a write came twice".to_owned());
        assert!(verdict(&cell, &report).is_failure());
    }

    #[test]
    fn a_request_without_an_outcome_does_not_hold() {
        let (cell, mut report) = tried(Code::G0);
        report.observed.clear();
        assert!(verdict(&cell, &report).is_failure());
    }

    #[test]
    fn every_row_is_on_the_page_also_an_untried_one() {
        let page = render(&Reports::new());
        for row in rows() {
            assert!(page.contains(&format!("| {} | {} |", row.id, row.fault)), "{}", row.id);
        }
        assert!(
            page.contains("shown by the test `a_writer_that_is_blocked_for_too_long_counts_as_failing`")
                && !page.contains("| yes |")
        );
    }

    fn tried(code: Code) -> (Cell, CellReport) {
        let row = *row("1").unwrap();
        let cell = Cell { requests: vec![Request::Get], ..Cell::of(row, Timing::MidBody, 7, false) };
        let get = Observed {
            request: Request::Get,
            code,
            detail: "why".to_owned(),
            noticed: None,
            resumed: None,
            lost: 0,
            twice: 0,
        };
        (cell, CellReport { observed: vec![get], ..CellReport::new("1", Timing::MidBody, 7) })
    }
}
