//! Finds the binaries under test, and checks that they were built from the sources in this workspace.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::sources::workspace;

/// The file that `make binaries` writes to the profile's folder once cargo has found every binary up to date.
///
/// cargo does not touch a binary that a change of `Cargo.lock` leaves as it is, so the binary's age alone is
/// no proof.
const STAMP: &str = ".binaries-built";

/// A binary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// There is no binary at this path.
    #[error("there is no binary {}. Run `make binaries`, or set TOMBOLO_BIN_DIR to where it is", .0.display())]
    Absent(PathBuf),
    /// cargo's list of its sources is not beside it.
    #[error("{} cannot be read, so nobody knows whether the binary beside it is up to date. Run `make binaries`", .file.display())]
    NoSources {
        /// The path of the list of sources.
        file: PathBuf,
        /// The error of reading the list.
        #[source]
        source: io::Error,
    },
    /// A source has changed since.
    #[error("{} is newer than the binary {}. Run `make binaries`", .newer.display(), .binary.display())]
    Stale {
        /// The path of the stale binary.
        binary: PathBuf,
        /// The newest source, which is newer than the binary.
        newer: PathBuf,
    },
    /// A source of the binary does not exist any more.
    #[error("{} was a source of {} and is gone. Run `make binaries`", .gone.display(), .binary.display())]
    SourceGone {
        /// The path of the binary.
        binary: PathBuf,
        /// The path of the missing source.
        gone: PathBuf,
    },
}

/// The binary `name` of this workspace, from the folder `TOMBOLO_BIN_DIR` or else from that of the profile
/// under test.
///
/// # Panics
/// If there is none, or if it is older than one of its sources. The message names both and the command to
/// run.
pub fn binary(name: &str) -> PathBuf {
    match find_binary(name) {
        Ok(path) => path,
        Err(error) => panic!("{error}"),
    }
}

/// The same for callers that report the error themselves.
pub fn find_binary(name: &str) -> Result<PathBuf, BinaryError> {
    let lock = workspace().join("Cargo.lock");
    find(&folder(), name, &lock)
}

fn folder() -> PathBuf {
    if let Some(given) = env::var_os("TOMBOLO_BIN_DIR").filter(|value| !value.is_empty()) {
        return PathBuf::from(given);
    }
    // Tests are in PROFILE/deps, binaries and examples in PROFILE or PROFILE/examples.
    let own = env::current_exe().expect("a process knows its executable");
    let folder = own.parent().expect("an executable lies in a folder");
    match folder.file_name().and_then(|name| name.to_str()) {
        Some("deps" | "examples") => folder.parent().unwrap_or(folder).to_owned(),
        _ => folder.to_owned(),
    }
}

fn find(folder: &Path, name: &str, lock: &Path) -> Result<PathBuf, BinaryError> {
    let binary = folder.join(name);
    let Ok(built) = changed(&binary) else { return Err(BinaryError::Absent(binary)) };
    let built = changed(&folder.join(STAMP)).map_or(built, |stamp| built.max(stamp));
    let list = folder.join(format!("{name}.d"));
    let text = fs::read_to_string(&list).map_err(|source| BinaryError::NoSources { file: list, source })?;
    let mut newest = (built, None);
    for source in sources(&text).into_iter().chain([lock.to_owned()]) {
        let Ok(when) = changed(&source) else {
            return Err(BinaryError::SourceGone { binary, gone: source });
        };
        if when > newest.0 {
            newest = (when, Some(source));
        }
    }
    match newest {
        (_, Some(newer)) => Err(BinaryError::Stale { binary, newer }),
        (_, None) => Ok(binary),
    }
}

// The newest change of a file, or of anything in a folder.
fn changed(path: &Path) -> io::Result<SystemTime> {
    let found = fs::metadata(path)?;
    let mut newest = found.modified()?;
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            newest = newest.max(changed(&entry?.path())?);
        }
    }
    Ok(newest)
}

// `BINARY: SOURCE SOURCE …` as in a makefile; a space of a name has a backslash before it. cargo lists the
// sources of all crates of the workspace that went in, and what their build scripts read.
fn sources(list: &str) -> Vec<PathBuf> {
    let Some((_, names)) = list.lines().next().and_then(|line| line.split_once(": ")) else {
        return Vec::new();
    };
    let mut sources = vec![String::new()];
    let mut characters = names.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some(' ')) => sources.last_mut().expect("never empty").extend(characters.next()),
            (' ', _) => sources.push(String::new()),
            _ => sources.last_mut().expect("never empty").push(character),
        }
    }
    sources.into_iter().filter(|name| !name.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests;
