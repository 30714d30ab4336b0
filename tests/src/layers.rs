//! The layer table, enforced: crates and modules use only what lies below them. Read from the sources and from cargo.

pub mod cycles;
pub mod edges;
pub mod file_circles;
pub mod files;
mod graph;
pub mod modules;
pub mod source;
pub mod table;
mod tokens;

use std::fmt;
use std::path::{Path, PathBuf};

/// The file to edit when a module or a crate is added.
pub const TABLE: &str = "tests/src/layers/table.rs";

/// A breach of the project's structure or language, and the line on which it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The file, relative to the root of the workspace. The layer table, where a module is absent.
    pub file: PathBuf,
    /// The line, from 1; 0 stands for the whole file.
    pub line: usize,
    /// The fault, and the action that mends it.
    pub says: String,
}

impl Violation {
    /// A breach on one line of a file.
    pub fn at(file: &Path, line: usize, says: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, says: says.into() }
    }

    /// A breach that concerns a file as a whole.
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

/// The folder that is the root of the workspace.
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
    assert!(lines.is_empty(), "{}:\n{}", count(lines.len()), lines.join("\n"));
}

fn count(breaches: usize) -> String {
    if breaches == 1 { "1 breach".to_owned() } else { format!("{breaches} breaches") }
}

#[cfg(test)]
mod tests;
