//! Breaches of the layer table are found: one test for each form that a path can take.

mod circles;
mod edges;
mod file_circles;
mod files;
mod modules;

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::Violation;
use super::source::Crate;
use super::table::{Layer, LayeredCrate, built, planned};

/// The plan of the fixture `clean`.
const SAMPLE: LayeredCrate = LayeredCrate {
    krate: "sample",
    layers: &[
        Layer { name: "roof", members: &[built("app")] },
        Layer { name: "entry points", members: &[built("gateway"), built("agents"), planned("proxy")] },
        Layer { name: "routing", members: &[built("registry")] },
        Layer { name: "ground", members: &[built("identity"), built("config")] },
    ],
};

/// A workspace of one crate, `sample`.
struct Workspace(TempDir);

impl Workspace {
    /// Copies the fixture `clean` into a temporary folder.
    fn clean() -> Self {
        let workspace = Self(tempfile::tempdir().unwrap());
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/layers/clean/src");
        copy(&fixture, &workspace.0.path().join("sample/src"));
        workspace
    }

    /// The same with another file; the code begins in its second line.
    fn with(self, file: &str, code: &str) -> Self {
        self.with_whole(file, &format!("//! Changed.\n{code}\n"))
    }

    fn with_whole(self, file: &str, text: &str) -> Self {
        let path = self.0.path().join("sample/src").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn without(self, file: &str) -> Self {
        fs::remove_file(self.0.path().join("sample/src").join(file)).unwrap();
        self
    }

    fn read(&self) -> Crate {
        Crate::read(self.0.path(), "sample").unwrap()
    }
}

fn lines(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(ToString::to_string).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
