//! How the audit log is kept, as it was written and as it is valid.

use std::path::{Path, PathBuf};

use audit::{FILE_BYTES_MAX, FILE_BYTES_MIN, FILES_MAX, FILES_MIN, Settings, Sync, Target};
use daemon::config::KeyError;
use serde::Deserialize;

use daemon::config::bounded;

/// Unless said otherwise: 512 MiB in all, some 400,000 requests.
const FILE_DEFAULT_BYTES: u64 = 64 * 1024 * 1024;
const FILES_DEFAULT: usize = 8;

/// Below the state directory.
const DIRECTORY_DEFAULT: &str = "audit";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    sink: Option<WrittenSink>,
    directory: Option<PathBuf>,
    max_file_bytes: Option<u64>,
    files_kept: Option<usize>,
    sync: Option<WrittenSync>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum WrittenSink {
    File,
    Stdout,
    Off,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum WrittenSync {
    Always,
    Interval,
}

/// How the log of the server `server` is kept; `None` where it is not. A relative path starts at the configuration file.
pub(super) fn valid(
    written: Written,
    server: &str,
    state_dir: &Path,
    beside: &Path,
) -> Result<Option<Settings>, KeyError> {
    let Written { sink, directory, max_file_bytes, files_kept, sync } = written;
    let bytes_max = max_file_bytes.unwrap_or(FILE_DEFAULT_BYTES);
    if !(FILE_BYTES_MIN..=FILE_BYTES_MAX).contains(&bytes_max) {
        let allowed = format!("{FILE_BYTES_MIN} to {FILE_BYTES_MAX}");
        return Err(KeyError::new("audit.maxFileBytes", bytes_max, allowed));
    }
    let kept = bounded("audit.filesKept", files_kept.unwrap_or(FILES_DEFAULT), FILES_MIN..=FILES_MAX)?;
    let target = match sink.unwrap_or(WrittenSink::File) {
        WrittenSink::File => Target::Files { bytes_max, kept },
        WrittenSink::Stdout => Target::Stdout,
        WrittenSink::Off => return Ok(None),
    };
    let sync = match sync.unwrap_or(WrittenSync::Interval) {
        WrittenSync::Always => Sync::Always,
        WrittenSync::Interval => Sync::Interval,
    };
    let directory = directory.map_or_else(|| state_dir.join(DIRECTORY_DEFAULT), |path| beside.join(path));
    Ok(Some(Settings { server: server.to_owned(), directory, target, sync }))
}
