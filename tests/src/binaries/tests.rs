//! Binaries under test that are accepted or refused, by files of known ages.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::{STAMP, find, sources};

#[test]
fn a_binary_newer_than_its_sources_is_used() {
    let place = TargetFolder::new();

    assert_eq!(place.find().unwrap(), place.path("program"));
}

#[test]
fn an_absent_binary_says_what_to_run() {
    let place = TargetFolder::new();
    fs::remove_file(place.path("program")).unwrap();

    let expected = format!(
        "there is no binary {}. Run `make binaries`, or set TOMBOLO_BIN_DIR to where it is",
        place.path("program").display()
    );
    assert_eq!(place.find().unwrap_err().to_string(), expected);
}

#[test]
fn of_several_newer_sources_the_newest_is_named() {
    let place = TargetFolder::new();
    place.file("src/a.rs", 4);
    place.file("src/with space.rs", 6);
    place.file("Cargo.lock", 5);

    assert_eq!(place.find().unwrap_err().to_string(), place.stale("src/with space.rs"));
}

#[test]
fn a_newer_file_in_a_folder_that_a_build_script_reads_counts() {
    let place = TargetFolder::new();
    place.file("schemas/deep/one.proto", 6);

    assert!(place.find().is_err());
}

#[test]
fn a_source_that_is_gone_is_a_change() {
    let place = TargetFolder::new();
    fs::remove_file(place.path("src/a.rs")).unwrap();

    assert!(place.find().unwrap_err().to_string().contains("src/a.rs was a source of"));
}

#[test]
fn a_newer_lock_file_counts_until_cargo_has_run() {
    let place = TargetFolder::new();
    place.file("Cargo.lock", 4);
    assert_eq!(place.find().unwrap_err().to_string(), place.stale("Cargo.lock"));

    place.file(STAMP, 5);

    assert!(place.find().is_ok());
}

#[test]
fn a_binary_without_a_list_of_sources_is_refused() {
    let place = TargetFolder::new();
    fs::remove_file(place.path("program.d")).unwrap();

    assert!(place.find().unwrap_err().to_string().contains("nobody knows"));
}

#[test]
fn names_with_spaces_are_read() {
    assert_eq!(sources("/t/p: /a\\ b.rs /c.rs\n"), [Path::new("/a b.rs"), Path::new("/c.rs")]);
}

struct TargetFolder(TempDir);

impl TargetFolder {
    /// Sources of the first second, a binary of the third.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for file in ["src/a.rs", "src/with space.rs", "schemas/deep/one.proto", "Cargo.lock"] {
            place.file(file, 1);
        }
        for folder in ["schemas/deep", "schemas"] {
            File::open(place.path(folder)).unwrap().set_modified(at(1)).unwrap();
        }
        place.file("program", 3);
        let path = |name: &str| place.path(name).display().to_string().replace(' ', "\\ ");
        let list = format!(
            "{}: {} {} {}\n",
            path("program"),
            path("src/a.rs"),
            path("src/with space.rs"),
            path("schemas")
        );
        fs::write(place.path("program.d"), list).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, second: u64) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().set_modified(at(second)).unwrap();
    }

    fn find(&self) -> Result<PathBuf, super::BinaryError> {
        find(self.0.path(), "program", &self.path("Cargo.lock"))
    }

    fn stale(&self, newer: &str) -> String {
        format!(
            "{} is newer than the binary {}. Run `make binaries`",
            self.path(newer).display(),
            self.path("program").display()
        )
    }
}

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + second)
}
