//! The workspace's own sources, for tests that compare pages of documentation with them.

use std::fs;
use std::path::Path;

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
/// If one cannot be read.
pub fn all() -> String {
    let mut folders = vec![workspace().to_owned()];
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()) {
            if is_ours(&path) {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                text.push_str(&fs::read_to_string(&path).expect("a source"));
            }
        }
    }
    text
}

/// Returns true if there is a test of this name in such a text.
pub fn has_test(sources: &str, test: &str) -> bool {
    sources.contains(&format!("fn {test}("))
}

/// A folder in which sources may be.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.is_dir() && !name.starts_with('.') && !path.join("CACHEDIR.TAG").exists()
}
