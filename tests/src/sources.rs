//! The workspace's own sources and manifests, for tests that compare pages of documentation with them or change
//! a copy.

use std::fs;
use std::path::{Path, PathBuf};

use crate::language;

/// True in a released demo, which `.ci/dist` builds to the same bytes in every folder.
const IS_RELEASED: bool = option_env!("TOMBOLO_RELEASE").is_some();

/// The root folder of the workspace; for a released demo, the folder in which it runs.
///
/// # Panics
/// Never: this crate is in it.
pub fn workspace() -> &'static Path {
    if IS_RELEASED {
        return Path::new(".");
    }
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

/// Copies the files of a base of `deploy/` and of an example of it to this folder, and returns the example's folder
/// there.
///
/// # Panics
/// If a file cannot be copied.
pub fn copy_of_deploy(to: &Path, folders: [&str; 2]) -> PathBuf {
    let deploy = workspace().join("deploy");
    for folder in folders {
        fs::create_dir_all(to.join(folder)).expect("a folder");
        let files = fs::read_dir(deploy.join(folder)).expect("a folder").flatten();
        for file in files.filter(|file| file.path().is_file()) {
            fs::copy(file.path(), to.join(folder).join(file.file_name())).expect("a file can be copied");
        }
    }
    to.join(folders[1])
}

/// Returns true if there is a test of this name in such a text.
pub fn has_test(sources: &str, test: &str) -> bool {
    sources.contains(&format!("fn {test}("))
}
