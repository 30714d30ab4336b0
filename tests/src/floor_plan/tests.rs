//! The floor plan sees whoever builds otherwise: one test per form that a path can take.

mod circles;
mod edges;
mod habits;
mod rooms;

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::Violation;
use super::plan::{Floor, House, built, planned};
use super::source::Crate;

/// The plan of the fixture `clean`.
const HOUSE: House = House {
    krate: "house",
    floors: &[
        Floor { name: "roof", rooms: &[built("app")] },
        Floor { name: "doors", rooms: &[built("gateway"), built("reception"), planned("proxy")] },
        Floor { name: "hall", rooms: &[built("registry")] },
        Floor { name: "ground", rooms: &[built("identity"), built("config")] },
    ],
};

/// A workspace of one crate, `house`.
struct Workspace(TempDir);

impl Workspace {
    /// The fixture `clean`.
    fn clean() -> Self {
        let workspace = Self(tempfile::tempdir().unwrap());
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/floor_plan/clean/src");
        copy(&fixture, &workspace.0.path().join("house/src"));
        workspace
    }

    /// The same with another file; the code begins in its second line.
    fn with(self, file: &str, code: &str) -> Self {
        self.with_whole(file, &format!("//! Changed.\n{code}\n"))
    }

    fn with_whole(self, file: &str, text: &str) -> Self {
        let path = self.0.path().join("house/src").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn without(self, file: &str) -> Self {
        fs::remove_file(self.0.path().join("house/src").join(file)).unwrap();
        self
    }

    fn read(&self) -> Crate {
        Crate::read(self.0.path(), "house").unwrap()
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
