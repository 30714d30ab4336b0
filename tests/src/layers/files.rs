//! Rules for single files: length, first line, and names that only a few files may use.

use std::path::{Path, PathBuf};

use super::source::{Crate, Mention};
use super::table::{RESERVED_PATHS, ReservedPath, STATUS_FILES, WITHOUT_COMMAND};
use super::{TABLE, Violation};

/// A file with more lines is split.
pub const LINES_MAX: usize = 800;
/// A test prints a warning for each longer file.
pub const LINES_ALARM: usize = 500;

/// Names that only some files may name, in the sources of one crate.
pub fn check_names(folder: &str, krate: &Crate) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in &krate.files {
        for rule in RESERVED_PATHS.iter().filter(|rule| rule.crates.contains(&folder)) {
            if allowed(&source.file, rule.files) {
                continue;
            }
            let wrong = source.mentions.iter().filter(|mention| names(mention, rule));
            violations.extend(wrong.map(|mention| {
                let written = mention.segments.join("::");
                Violation::at(&source.file, mention.line, format!("`{written}`: {}", rule.why))
            }));
        }
        if WITHOUT_COMMAND.contains(&folder) && !allowed(&source.file, STATUS_FILES) {
            let wrong = source.strings.iter().filter(|(_, text)| writes_status(text));
            violations.extend(wrong.map(|(line, _)| {
                let says =
                    format!("a Kubernetes `Status` is written in {} only (see {TABLE})", STATUS_FILES[0]);
                Violation::at(&source.file, *line, says)
            }));
        }
    }
    violations
}

/// The shape of one file; the second value is a warning.
pub fn check_shape(file: &Path, text: &str) -> (Vec<Violation>, Option<String>) {
    let mut violations = Vec::new();
    if file.file_name().is_some_and(|name| name == "mod.rs") {
        violations.push(Violation::of(file, "a module is `name.rs` beside `name/`, not `mod.rs`"));
    }
    let in_src = file.components().any(|part| part.as_os_str() == "src");
    if in_src && !text.starts_with("//!") {
        violations.push(Violation::at(file, 1, "the first line says what the file is for: `//! …`"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        violations.push(Violation::of(file, format!("{lines} lines; split it, {LINES_MAX} is the limit")));
    }
    let long = (LINES_ALARM + 1..=LINES_MAX).contains(&lines);
    (violations, long.then(|| format!("{}: {lines} lines, split it before it hurts", file.display())))
}

/// The files of a crate whose shape matters: those of its `src` and of its `tests`.
pub fn shaped_files(root: &Path, folder: &str) -> Result<Vec<PathBuf>, Violation> {
    let mut files = Vec::new();
    for part in ["src", "tests"] {
        let path = Path::new(folder).join(part);
        if root.join(&path).is_dir() {
            files.extend(super::source::rust_files(root, &path)?);
        }
    }
    Ok(files)
}

// A path in full, or what a `use` of all but the last segment leaves of it. A glob names all that is below.
fn names(mention: &Mention, rule: &ReservedPath) -> bool {
    let segments: Vec<&str> = mention.segments.iter().map(String::as_str).collect();
    let whole = segments.starts_with(rule.path);
    let glob = mention.glob && rule.path.starts_with(&segments);
    let shortened = rule.path.len() > 2 && segments.starts_with(&rule.path[rule.path.len() - 2..]);
    whole || glob || shortened
}

fn allowed(file: &Path, files: &[&str]) -> bool {
    files.iter().any(|known| match known.strip_suffix('/') {
        Some(folder) => file.starts_with(folder),
        None => file == Path::new(known),
    })
}

fn writes_status(text: &str) -> bool {
    let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    text == "Status" || packed.contains(r#""kind":"Status""#)
}
