//! The language of sources and documents: rules that a test enforces, and figures that `make language` prints.

pub mod comments;
pub mod figures;
pub mod names;
pub mod retired;
pub mod sentences;

use std::fs;
use std::path::{Path, PathBuf};

use crate::layers::Violation;

/// Folders that hold sources or documents of the project.
const FOLDERS: &[&str] = &[
    ".ci",
    "audit",
    "cli",
    "daemon",
    "deploy",
    "docs",
    "fleet",
    "loadtest",
    "policy",
    "proto",
    "records",
    "summary",
    "api-servers",
    "node-lb",
    "sys",
    "tests",
    "transport",
    "trust",
    "tunnel-agent",
    "tunnel-server",
];

/// A text file of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// The path, relative to the root of the workspace.
    pub path: PathBuf,
    /// The whole text of the file.
    pub text: String,
}

impl TextFile {
    /// Returns true if the path ends in `.EXTENSION`.
    pub fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|found| found == extension)
    }
}

/// Reads every text file below the project's folders and every Markdown file beside them, in the order of paths.
///
/// Files that are not UTF-8 are left out: images and the corpora of fuzz targets.
///
/// # Errors
/// A folder that cannot be listed is one violation.
pub fn files(root: &Path) -> Result<Vec<TextFile>, Violation> {
    let mut found = Vec::new();
    let at_the_top = list(root, Path::new(""))?;
    found.extend(at_the_top.into_iter().filter(|path| path.extension().is_some_and(|it| it == "md")));
    for folder in FOLDERS.iter().map(Path::new).filter(|folder| root.join(folder).is_dir()) {
        walk(root, folder, &mut found)?;
    }
    found.sort();
    let read = found.into_iter().filter_map(|path| {
        let text = fs::read_to_string(root.join(&path)).ok()?;
        Some(TextFile { path, text })
    });
    Ok(read.collect())
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Violation> {
    for path in list(root, folder)? {
        let name = path.file_name().unwrap_or_default();
        let is_link = root.join(&path).is_symlink();
        // Cargo marks its build folder so. A module may be called `target`, too.
        let is_built = root.join(&path).join("CACHEDIR.TAG").exists();
        if is_link || is_built || name == "__fuzz__" {
            continue;
        }
        if root.join(&path).is_dir() {
            walk(root, &path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

fn list(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, Violation> {
    let cannot = |error| Violation::of(folder, format!("cannot be read: {error}"));
    let entries = fs::read_dir(root.join(folder)).map_err(cannot)?;
    entries.map(|entry| Ok(folder.join(entry.map_err(cannot)?.file_name()))).collect()
}

#[cfg(test)]
mod tests;
