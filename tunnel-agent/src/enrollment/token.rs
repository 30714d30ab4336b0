//! The token with which an agent enrolls, where its configuration says that it is.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Largest file with a token.
const TOKEN_BYTES_MAX: u64 = 1024;

/// Standard input, where a path could stand.
const STANDARD_INPUT: &str = "-";

/// Where the token is.
pub(super) struct TokenFile {
    path: PathBuf,
    /// Standard input gives it once, and it may be needed again: an attempt may fail.
    typed: OnceLock<String>,
}

impl TokenFile {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, typed: OnceLock::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The token: a file is read each time, because people put another one there. Blocks.
    pub(super) fn read(&self) -> io::Result<String> {
        if self.path != Path::new(STANDARD_INPUT) {
            return text(File::open(&self.path)?);
        }
        if let Some(typed) = self.typed.get() {
            return Ok(typed.clone());
        }
        let typed = text(io::stdin())?;
        Ok(self.typed.get_or_init(|| typed).clone())
    }
}

fn text(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}
