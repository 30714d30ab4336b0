//! The floor plan, enforced: which crate and which room may name which, read from the sources and from cargo.

pub mod cycles;
pub mod edges;
pub mod habits;
pub mod plan;
pub mod rooms;
pub mod source;
mod tokens;

use std::fmt;
use std::path::{Path, PathBuf};

/// The one place to edit when a room or a crate is added.
pub const TABLE: &str = "tests/src/floor_plan/plan.rs";

/// Something that the floor plan does not allow, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The file, relative to the root of the workspace; the table where something is absent.
    pub file: PathBuf,
    /// The line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// What is wrong and what to do.
    pub says: String,
}

impl Violation {
    /// About one line of a file.
    pub fn at(file: &Path, line: usize, says: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, says: says.into() }
    }

    /// About a whole file.
    pub fn of(file: &Path, says: impl Into<String>) -> Self {
        Self::at(file, 0, says)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.says),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.says),
        }
    }
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is a folder of the workspace").to_owned()
}

/// Fails with one violation per line, if there are any.
///
/// # Panics
/// If there is a violation.
pub fn expect_none(mut violations: Vec<Violation>) {
    violations.sort();
    let lines: Vec<String> = violations.iter().map(|violation| format!("  {violation}")).collect();
    assert!(lines.is_empty(), "{} of the floor plan broken:\n{}", count(lines.len()), lines.join("\n"));
}

fn count(rules: usize) -> String {
    if rules == 1 { "1 rule".to_owned() } else { format!("{rules} rules") }
}

#[cfg(test)]
mod tests;
