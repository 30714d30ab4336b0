//! The export that is imported, which is read twice: once to check all of it, and once to write it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use daemon::config::redact;
use records::export::{ExportReader, Header, NotAnExport, Summary};
use records::file::MAGIC;

use crate::export::STANDARD_STREAM;

/// The name of standard input in messages.
const STANDARD_INPUT: &str = "standard input";

/// Most bytes of the file that are read at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// A file with an export.
pub(super) struct Source {
    file: File,
    name: PathBuf,
    keeps_tokens: bool,
    buffer: Vec<u8>,
}

/// The facts about an export that was checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) header: Header,
    pub(super) summary: Summary,
    /// The number of records of each table that are imported.
    pub(super) tables: BTreeMap<String, u64>,
    /// The enrollment tokens that are left out.
    pub(super) unused_tokens: u64,
}

/// The error if there is no export to import.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("cannot read {}", redact(&.0.display().to_string()))]
    Read(PathBuf, #[source] io::Error),
    #[error(
        "standard input is a terminal: redirect an export into it, as in `tombolo server import - < records.jsonl`"
    )]
    Terminal,
    #[error(
        "{0} is a database, as `tombolo server backup` of an earlier version wrote it: with the server stopped, copy it to \
         directory.redb in the state directory; it must belong to the server's user and have mode 0600"
    )]
    Database(PathBuf),
    #[error("{0} is not an export of a server; pass the file that `tombolo server export` wrote")]
    NotAnExport(PathBuf, #[source] NotAnExport),
    #[error("{0} has changed while it was read; nothing of it is in force")]
    Changed(PathBuf),
}

impl Source {
    /// Opens the file at `path`, or a copy of standard input.
    pub(super) fn open(path: &Path, keeps_tokens: bool) -> Result<Self, SourceError> {
        let buffer = vec![0; PIECE_BYTES_MAX];
        if path != Path::new(STANDARD_STREAM) {
            let file = File::open(path).map_err(|error| SourceError::Read(path.to_owned(), error))?;
            return Ok(Self { file, name: path.to_owned(), keeps_tokens, buffer });
        }
        let (mut input, name) = (io::stdin().lock(), PathBuf::from(STANDARD_INPUT));
        if input.is_terminal() {
            return Err(SourceError::Terminal);
        }
        let copied = tempfile::tempfile().and_then(|mut file| io::copy(&mut input, &mut file).map(|_| file));
        let file = copied.map_err(|error| SourceError::Read(name.clone(), error))?;
        Ok(Self { file, name, keeps_tokens, buffer })
    }

    /// Checks the whole file, and counts its records.
    pub(super) fn contents(&mut self) -> Result<Contents, SourceError> {
        self.rewind()?;
        let (mut reader, mut tables, mut unused_tokens) = (ExportReader::default(), BTreeMap::new(), 0);
        let keeps_tokens = self.keeps_tokens;
        let mut is_first = true;
        while let Some(piece) = self.piece()? {
            if std::mem::take(&mut is_first) && piece.starts_with(MAGIC) {
                return Err(SourceError::Database(self.name.clone()));
            }
            let read = reader.read(piece, |place, record| {
                if !keeps_tokens && place.is_unused_token(record) {
                    unused_tokens += 1;
                } else {
                    *tables.entry(place.table.to_owned()).or_insert(0) += 1;
                }
                Ok::<_, NotAnExport>(())
            });
            read.map_err(|error| self.refused(error))?;
        }
        let (header, summary) = reader.end().map_err(|error| self.refused(error))?;
        Ok(Contents { header, summary, tables, unused_tokens })
    }

    /// Begins at the first byte again.
    pub(super) fn rewind(&mut self) -> Result<(), SourceError> {
        self.file.rewind().map_err(|error| SourceError::Read(self.name.clone(), error))
    }

    /// The next bytes of the file; `None` at its end.
    pub(super) fn piece(&mut self) -> Result<Option<&[u8]>, SourceError> {
        let read = self.file.read(&mut self.buffer);
        let length = read.map_err(|error| SourceError::Read(self.name.clone(), error))?;
        Ok(self.buffer.get(..length).filter(|piece| !piece.is_empty()))
    }

    /// Returns true if enrollment tokens that were not used are imported.
    pub(super) fn keeps_tokens(&self) -> bool {
        self.keeps_tokens
    }

    /// Compares what was read again with what was checked.
    pub(super) fn check_again(&self, reader: ExportReader, contents: &Contents) -> Result<(), SourceError> {
        match reader.end() {
            Ok((header, summary)) if header == contents.header && summary == contents.summary => Ok(()),
            Ok(_) | Err(_) => Err(SourceError::Changed(self.name.clone())),
        }
    }

    /// The error for a text that is no export.
    pub(super) fn refused(&self, error: NotAnExport) -> SourceError {
        SourceError::NotAnExport(self.name.clone(), error)
    }
}
