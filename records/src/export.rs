//! The text of all records at one moment.
//!
//! The first line is a [`Header`]. Each further line is one record, in the order of their paths. The last line has their
//! number and their digest, so a part of an export is never taken for all of it. The same records are the same lines, from
//! whichever store they come.

mod reader;
mod writer;

use serde::{Deserialize, Serialize};

pub use reader::{ExportReader, NotAnExport};
pub use writer::{ExportWriter, NotARecord};

/// The version of the text's form.
pub const FORMAT: u64 = 1;

/// Longest line, in bytes. A record of a server has at most 128 KiB.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;

/// The first line: where the records come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Header {
    /// The version of the text's form, by whose name a file is known.
    #[serde(rename = "tomboloRecords")]
    pub format: u64,
    /// The version of the records' form.
    pub schema: u64,
    /// The trust domain of the servers.
    pub trust_domain: String,
    /// The time of the export, by RFC 3339. The digest does not cover it, so that the same records have the same one.
    pub taken: String,
}

/// The last line: what came before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Summary {
    /// The number of records before this line.
    pub records: u64,
    /// The SHA-256 of the lines of all records with their line ends, in lower-case hexadecimal.
    pub sha256: String,
}

/// The bytes of a record's line before the record.
fn before_record(path: &str) -> String {
    // A text is always JSON.
    let path = serde_json::Value::from(path);
    format!(r#"{{"key":{path},"record":"#)
}

#[cfg(test)]
mod tests;
