//! Reads an enrollment token or a ServiceAccount's token from its file, or from standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use daemon::config::redact;

/// Stands for standard input in place of a path.
const STANDARD_INPUT: &str = "-";

/// The file with a token, or standard input.
pub(super) struct TokenFile {
    path: PathBuf,
    /// Most bytes that are read.
    bytes_max: u64,
    /// The token from standard input, which can be read only once. It is needed again if an attempt fails.
    from_stdin: OnceLock<String>,
}

/// The token cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the token in {}", redact(&path.display().to_string()))]
pub(super) struct TokenFileError {
    path: PathBuf,
    source: io::Error,
}

/// Reads the token on a thread that may block.
pub(super) async fn read(file: &Arc<TokenFile>) -> Result<String, TokenFileError> {
    let reader = Arc::clone(file);
    let unread = |source| TokenFileError { path: file.path.clone(), source };
    let read = tokio::task::spawn_blocking(move || reader.read()).await;
    read.map_err(|_| unread(io::ErrorKind::Interrupted.into()))?.map_err(unread)
}

impl TokenFile {
    pub(super) fn at(path: PathBuf, bytes_max: u64) -> Self {
        Self { path, bytes_max, from_stdin: OnceLock::new() }
    }

    /// Reads the token. A file is read each time, because an operator may replace it. Blocks.
    fn read(&self) -> io::Result<String> {
        if self.path != Path::new(STANDARD_INPUT) {
            return self.text(File::open(&self.path)?);
        }
        if let Some(from_stdin) = self.from_stdin.get() {
            return Ok(from_stdin.clone());
        }
        let from_stdin = self.text(io::stdin())?;
        Ok(self.from_stdin.get_or_init(|| from_stdin).clone())
    }

    fn text(&self, from: impl Read) -> io::Result<String> {
        let mut text = String::new();
        from.take(self.bytes_max).read_to_string(&mut text)?;
        Ok(text.trim().to_owned())
    }
}
