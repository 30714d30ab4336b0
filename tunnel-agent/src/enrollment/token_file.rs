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
pub(super) enum TokenFileError {
    #[error("cannot read the token in {}", redact(&path.display().to_string()))]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "the token file {} is empty; write the token into it that `tombolo token create` prints, or that Kubernetes projects",
        redact(&.0.display().to_string())
    )]
    Empty(PathBuf),
}

/// Reads the token, which is not empty, on a thread that may block.
pub(super) async fn read(file: &Arc<TokenFile>) -> Result<String, TokenFileError> {
    let reader = Arc::clone(file);
    let unread = |source| TokenFileError::Io { path: file.path.clone(), source };
    let read = tokio::task::spawn_blocking(move || reader.read()).await;
    let token = read.map_err(|_| unread(io::ErrorKind::Interrupted.into()))?.map_err(unread)?;
    if token.is_empty() { Err(TokenFileError::Empty(file.path.clone())) } else { Ok(token) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_empty_token_file_is_an_error_that_names_it_and_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        for (text, expected) in [("", None), (" \n", None), ("abc.def\n", Some("abc.def"))] {
            std::fs::write(&path, text).unwrap();

            let token = read(&Arc::new(TokenFile::at(path.clone(), 1024))).await;

            match expected {
                Some(expected) => assert_eq!(token.unwrap(), expected),
                None => {
                    let message = token.unwrap_err().to_string();
                    let names_both =
                        message.contains("token is empty") && message.contains("tombolo token create");
                    assert!(names_both, "{text:?}: {message}");
                }
            }
        }
    }
}
