//! Stores reports between runs: a line of JSON for each, of which a cell's last one counts.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::code::Timing;
use super::report::CellReport;

/// A file with one report in each line.
#[derive(Debug)]
pub struct ReportLog(PathBuf);

/// By row, timing and seed.
pub type Reports = BTreeMap<(String, Timing, u64), CellReport>;

impl ReportLog {
    /// A file at this path. Its folder is created by the first write.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Appends a report to the file.
    ///
    /// # Errors
    /// An error of the system.
    pub fn keep(&self, report: &CellReport) -> io::Result<()> {
        if let Some(folder) = self.0.parent() {
            fs::create_dir_all(folder)?;
        }
        // One write with O_APPEND, so that lines of cells that run at once do not mix.
        let line = format!("{}\n", serde_json::to_string(report)?);
        OpenOptions::new().create(true).append(true).open(&self.0)?.write_all(line.as_bytes())
    }

    /// All reports of the file; none if there is no file.
    ///
    /// # Errors
    /// If a line is no report.
    pub fn read(&self) -> io::Result<Reports> {
        let text = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut reports = Reports::new();
        for line in text.lines() {
            let report: CellReport = serde_json::from_str(line)?;
            reports.insert((report.row.clone(), report.timing, report.seed), report);
        }
        Ok(reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_report_of_a_cell_counts() {
        let folder = tempfile::tempdir().unwrap();
        let book = ReportLog::at(&folder.path().join("new/book"));
        assert!(book.read().unwrap().is_empty());
        for noticed in [Some(1.0), Some(2.0)] {
            let report = CellReport { noticed, ..CellReport::new("1", Timing::New, 7) };
            book.keep(&report).unwrap();
        }
        let reports = book.read().unwrap();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[&("1".to_owned(), Timing::New, 7)].noticed, Some(2.0));
    }
}
