//! Writes the lines of an export.

use aws_lc_rs::digest::{Context, SHA256};
use serde::Serialize;
use serde::de::IgnoredAny;

use super::{FORMAT, Header, LINE_BYTES_MAX, Summary, before_record};
use crate::layout::{Place, SCHEMA};

/// Makes the lines of one export, in their order.
pub struct ExportWriter {
    digest: Context,
    count: u64,
    last: Option<String>,
}

/// A record that cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum NotARecord {
    /// The record is not JSON.
    #[error("{0} is no JSON")]
    NotJson(String),
    /// It is larger than any record may be.
    #[error("{0} is larger than {LINE_BYTES_MAX} bytes")]
    TooLarge(String),
    /// It does not come after the one before.
    #[error("{0} is out of order")]
    OutOfOrder(String),
}

impl ExportWriter {
    /// Begins an export of this trust domain. `taken` is the time of now, by RFC 3339. Its first line goes to `out`.
    #[must_use]
    pub fn begin(trust_domain: &str, taken: &str, out: &mut Vec<u8>) -> Self {
        let (trust_domain, taken) = (trust_domain.to_owned(), taken.to_owned());
        line(&Header { format: FORMAT, schema: SCHEMA, trust_domain, taken }, out);
        Self { digest: Context::new(&SHA256), count: 0, last: None }
    }

    /// Writes the line of a record to `out`. Records come in the order of their paths.
    ///
    /// # Errors
    /// [`NotARecord`]; then the export cannot be completed.
    pub fn record(&mut self, place: &Place<'_>, record: &[u8], out: &mut Vec<u8>) -> Result<(), NotARecord> {
        let path = place.to_string();
        let text = std::str::from_utf8(record).ok();
        let Some(text) = text.filter(|text| serde_json::from_str::<IgnoredAny>(text).is_ok()) else {
            return Err(NotARecord::NotJson(path));
        };
        if self.last.as_ref().is_some_and(|last| *last >= path) {
            return Err(NotARecord::OutOfOrder(path));
        }
        let begin = out.len();
        out.extend(before_record(&path).bytes());
        // People who repair a record leave line ends. In JSON they only stand where a space may stand.
        out.extend(text.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
        out.extend(b"}\n");
        let line = out.get(begin..).unwrap_or_default();
        if line.len() > LINE_BYTES_MAX {
            return Err(NotARecord::TooLarge(path));
        }
        self.digest.update(line);
        self.count += 1;
        self.last = Some(path);
        Ok(())
    }

    /// Writes the last line to `out`.
    #[must_use]
    pub fn end(self, out: &mut Vec<u8>) -> Summary {
        let summary = Summary { records: self.count, sha256: text_of(self.digest) };
        line(&summary, out);
        summary
    }
}

/// The digest of all lines so far, in hexadecimal.
pub(super) fn text_of(digest: Context) -> String {
    digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn line(content: &impl Serialize, out: &mut Vec<u8>) {
    // Texts and numbers are always JSON.
    out.extend(serde_json::to_vec(content).unwrap_or_default());
    out.push(b'\n');
}
