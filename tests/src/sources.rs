//! The workspace's own sources, for tests that compare pages of documentation with them.

use std::path::Path;

use crate::language;

/// The root folder of the workspace.
///
/// # Panics
/// Never: this crate is in it.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// The text of every Rust file of the workspace.
///
/// # Panics
/// If a folder cannot be listed.
pub fn all() -> String {
    let files = language::files(workspace()).unwrap_or_else(|violation| panic!("{violation}"));
    files.iter().filter(|file| file.has_extension("rs")).map(|file| file.text.as_str()).collect()
}

/// Returns true if there is a test of this name in such a text.
pub fn has_test(sources: &str, test: &str) -> bool {
    sources.contains(&format!("fn {test}("))
}
