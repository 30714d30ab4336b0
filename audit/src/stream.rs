//! A log on a stream, standard output. Only the number and the MAC of its last line are kept on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use tracing::warn;

use crate::chain::{Head, Mac};
use crate::checkpoint::Extent;
use crate::sink::{Sink, Space};

/// The file with the last line's number and code, in the log's directory.
const HEAD_FILE: &str = "head";

/// A stream, and the file with its chain's head.
pub(crate) struct Stream<W> {
    stream: W,
    head: File,
    /// True if the last write ended within a line.
    is_torn: bool,
    /// The error of storing the head. The lines are already out, so the next [`Sink::sync`] returns it.
    head_error: Option<io::Error>,
}

impl<W: Write + Send> Stream<W> {
    /// Continues the chain after the head that is stored in `directory`.
    pub(crate) fn open(directory: &Path, stream: W) -> io::Result<(Self, Head)> {
        let path = directory.join(HEAD_FILE);
        let kept = match fs::read_to_string(&path) {
            Ok(text) => read(&text).unwrap_or_else(|| {
                warn!(path = %path.display(), "the head of the audit log is damaged: its lines are numbered from 1 again");
                Head::START
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Head::START,
            Err(error) => return Err(error),
        };
        let head = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        Ok((Self { stream, head, is_torn: false, head_error: None }, kept))
    }

    fn put(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.stream.write_all(b"\n")?;
            self.is_torn = false;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    let (done, left) = rest.split_at(written);
                    self.is_torn = done.last() != Some(&b'\n');
                    rest = left;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.stream.flush()
    }
}

impl<W: Write + Send> Sink for Stream<W> {
    fn append(&mut self, lines: &[u8], head: Head, _: Space) -> io::Result<()> {
        self.put(lines)?;
        // The text has a fixed length, so that a write replaces all of it.
        let text = format!("{:020} {}\n", head.sequence, head.mac.to_text());
        self.head_error = self.head.write_all_at(text.as_bytes(), 0).err();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.head_error.take().map_or(Ok(()), Err)?;
        self.head.sync_data()
    }

    fn is_full(&self) -> bool {
        false
    }

    fn begin_file(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn extent(&self) -> Option<Extent> {
        None
    }

    fn oldest_kept(&self) -> u64 {
        1
    }

    fn retire(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read(text: &str) -> Option<Head> {
    let (sequence, code) = text.trim_end().split_once(' ')?;
    Some(Head { sequence: sequence.parse().ok()?, mac: Mac::from_text(code)? })
}
