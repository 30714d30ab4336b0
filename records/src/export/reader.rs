//! Reads the lines of an export, and refuses everything that is not exactly one.

use aws_lc_rs::digest::{Context, SHA256};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::writer::text_of;
use super::{FORMAT, Header, LINE_BYTES_MAX, Summary, before_record};
use crate::layout::{Place, SCHEMA};

/// The beginning of the line of a record.
const RECORD_HEAD: &[u8] = br#"{"key":"#;

/// The end of the line of a record.
const RECORD_TAIL: u8 = b'}';

/// Reads one export, whose bytes come in pieces of any size.
pub struct ExportReader {
    /// The begin of a line whose end has not come yet.
    pending: Vec<u8>,
    lines: u64,
    header: Option<Header>,
    digest: Context,
    count: u64,
    last: Option<String>,
    summary: Option<Summary>,
}

/// The reason why a text is not a complete export.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnExport {
    /// The first line is not one of an export.
    #[error("it does not begin as an export of records does")]
    NoHeader,
    /// A newer program wrote it.
    #[error("it was written by a newer release ({what} {found}, this one knows {known})")]
    Newer {
        /// The form that is newer: `format` or `schema`.
        what: &'static str,
        /// The version that was found.
        found: u64,
        /// The newest version that is known here.
        known: u64,
    },
    /// A line is neither a record nor the last line.
    #[error("line {0} is damaged")]
    Damaged(u64),
    /// A record does not come after the one before.
    #[error("line {0} is not in the order of its key")]
    OutOfOrder(u64),
    /// There is text behind the last line.
    #[error("it goes on after its last line, at line {0}")]
    GoesOn(u64),
    /// The last line is missing.
    #[error("it was cut off after line {0}, so records are missing")]
    CutOff(u64),
    /// The number of records is not that of the last line.
    #[error("it has {found} records, and had {expected} when it was written")]
    OtherCount {
        /// The number of records that were read.
        found: u64,
        /// The number of the last line.
        expected: u64,
    },
    /// The digest of the records is not that of the last line.
    #[error("it was changed since it was written: its digest is another one")]
    OtherDigest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordLine {
    key: String,
    #[serde(rename = "record")]
    _record: IgnoredAny,
}

impl Default for ExportReader {
    fn default() -> Self {
        Self {
            pending: Vec::new(),
            lines: 0,
            header: None,
            digest: Context::new(&SHA256),
            count: 0,
            last: None,
            summary: None,
        }
    }
}

impl ExportReader {
    /// Reads the next bytes. `each` gets the records whose lines are complete.
    ///
    /// # Errors
    /// [`NotAnExport`], or the error of `each`. Nothing can be read after it.
    pub fn read<E: From<NotAnExport>>(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&Place<'_>, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.pending.len() + piece.len() > LINE_BYTES_MAX {
                return Err(self.damaged().into());
            }
            self.pending.extend(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.pending);
                self.line(&line, &mut each)?;
            }
        }
        Ok(())
    }

    /// The first line, once it was read.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Ends the text, which must be complete.
    ///
    /// # Errors
    /// [`NotAnExport`] if the last line is missing.
    pub fn end(self) -> Result<(Header, Summary), NotAnExport> {
        match (self.header, self.summary) {
            (None, _) => Err(NotAnExport::NoHeader),
            (Some(header), Some(summary)) if self.pending.is_empty() => Ok((header, summary)),
            (Some(_), Some(_)) => Err(NotAnExport::GoesOn(self.lines + 1)),
            (Some(_), None) => Err(NotAnExport::CutOff(self.lines)),
        }
    }

    /// Reads one line with its end.
    fn line<E: From<NotAnExport>>(
        &mut self,
        line: &[u8],
        each: &mut impl FnMut(&Place<'_>, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.summary.is_some() {
            return Err(NotAnExport::GoesOn(self.lines + 1).into());
        }
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if self.header.is_none() {
            self.header = Some(header(text)?);
        } else if text.starts_with(RECORD_HEAD) {
            let (path, record) = record(text).ok_or_else(|| self.damaged())?;
            let place = Place::parse(&path).ok_or_else(|| self.damaged())?;
            if self.last.as_ref().is_some_and(|last| *last >= path) {
                return Err(NotAnExport::OutOfOrder(self.lines + 1).into());
            }
            each(&place, record)?;
            self.digest.update(line);
            self.count += 1;
            self.last = Some(path);
        } else {
            let summary = serde_json::from_slice(text).map_err(|_| self.damaged())?;
            self.summary = Some(self.compared(summary)?);
        }
        self.lines += 1;
        Ok(())
    }

    fn compared(&self, summary: Summary) -> Result<Summary, NotAnExport> {
        if summary.records != self.count {
            return Err(NotAnExport::OtherCount { found: self.count, expected: summary.records });
        }
        if summary.sha256 != text_of(self.digest.clone()) {
            return Err(NotAnExport::OtherDigest);
        }
        Ok(summary)
    }

    fn damaged(&self) -> NotAnExport {
        if self.header.is_none() { NotAnExport::NoHeader } else { NotAnExport::Damaged(self.lines + 1) }
    }
}

/// Parses the first line. A newer form may have other fields.
fn header(text: &[u8]) -> Result<Header, NotAnExport> {
    let fields: serde_json::Value = serde_json::from_slice(text).map_err(|_| NotAnExport::NoHeader)?;
    let number =
        |name: &str| fields.get(name).and_then(serde_json::Value::as_u64).ok_or(NotAnExport::NoHeader);
    for (what, name, known) in [("format", "tomboloRecords", FORMAT), ("schema", "schema", SCHEMA)] {
        let found = number(name)?;
        if found > known {
            return Err(NotAnExport::Newer { what, found, known });
        }
        if found == 0 {
            return Err(NotAnExport::NoHeader);
        }
    }
    serde_json::from_value(fields).map_err(|_| NotAnExport::NoHeader)
}

/// The path and the record of a line, which must be written as we write it.
fn record(text: &[u8]) -> Option<(String, &[u8])> {
    let RecordLine { key, .. } = serde_json::from_str(std::str::from_utf8(text).ok()?).ok()?;
    let record = text.strip_prefix(before_record(&key).as_bytes())?.strip_suffix(&[RECORD_TAIL])?;
    (!record.contains(&b'\r')).then_some((key, record))
}
