//! A token with which an agent enrolls, where its configuration says that it is.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use daemon::config::shown;

/// Standard input, where a path could stand.
const STANDARD_INPUT: &str = "-";

/// Where the token is.
pub(super) struct TokenFile {
    path: PathBuf,
    /// Largest that is read.
    bytes_max: u64,
    /// Standard input gives it once, and it may be needed again: an attempt may fail.
    typed: OnceLock<String>,
}

/// It cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the token in {}", shown(&path.display().to_string()))]
pub(super) struct Unread {
    path: PathBuf,
    source: io::Error,
}

/// The token in a file, read on a thread that may block.
pub(super) async fn read(file: &Arc<TokenFile>) -> Result<String, Unread> {
    let reader = Arc::clone(file);
    let unread = |source| Unread { path: file.path.clone(), source };
    let read = tokio::task::spawn_blocking(move || reader.read()).await;
    read.map_err(|_| unread(io::ErrorKind::Interrupted.into()))?.map_err(unread)
}

impl TokenFile {
    pub(super) fn at(path: PathBuf, bytes_max: u64) -> Self {
        Self { path, bytes_max, typed: OnceLock::new() }
    }

    /// The token: a file is read each time, because people put another one there. Blocks.
    fn read(&self) -> io::Result<String> {
        if self.path != Path::new(STANDARD_INPUT) {
            return self.text(File::open(&self.path)?);
        }
        if let Some(typed) = self.typed.get() {
            return Ok(typed.clone());
        }
        let typed = self.text(io::stdin())?;
        Ok(self.typed.get_or_init(|| typed).clone())
    }

    fn text(&self, from: impl Read) -> io::Result<String> {
        let mut text = String::new();
        from.take(self.bytes_max).read_to_string(&mut text)?;
        Ok(text.trim().to_owned())
    }
}
