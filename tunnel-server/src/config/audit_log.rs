//! The section `audit`: where the audit log goes, how large it gets and how often it is synchronized.

use std::path::{Path, PathBuf};

use audit::{FILE_BYTES_MAX, FILE_BYTES_MIN, FILES_MAX, FILES_MIN, Settings, Sync, Target};
use daemon::config::{KeyError, bounded};
use serde::Deserialize;

/// Default size of a file in bytes. With the default number of files that is 512 MiB, some 400,000 requests.
const FILE_DEFAULT_BYTES: u64 = 64 * 1024 * 1024;
const FILES_DEFAULT: usize = 8;

/// The default directory, below the state directory.
const DIRECTORY_DEFAULT: &str = "audit";

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawAudit {
    /// The destination of the log. With off nothing is recorded.
    #[cfg_attr(test, schemars(extend("default" = "file")))]
    sink: Option<RawSink>,
    /// Directory of the files. The default is audit in the state directory.
    directory: Option<PathBuf>,
    /// Size at which the next file begins.
    #[cfg_attr(test, schemars(range(min = FILE_BYTES_MIN, max = FILE_BYTES_MAX), extend("default" = FILE_DEFAULT_BYTES)))]
    max_file_bytes: Option<u64>,
    /// Files that stay. Older ones are removed.
    #[cfg_attr(test, schemars(range(min = FILES_MIN, max = FILES_MAX), extend("default" = FILES_DEFAULT)))]
    files_kept: Option<usize>,
    /// With always, each line is on the disk before its request goes on; with interval, once a second.
    #[cfg_attr(test, schemars(extend("default" = "interval")))]
    sync: Option<RawSync>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
enum RawSink {
    File,
    Stdout,
    Off,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
enum RawSync {
    Always,
    Interval,
}

/// The settings of the log of the server `server`; `None` where auditing is off. A relative path starts at the
/// configuration file.
pub(super) fn audit(
    raw: RawAudit,
    server: &str,
    state_dir: &Path,
    config_directory: &Path,
) -> Result<Option<Settings>, KeyError> {
    let RawAudit { sink, directory, max_file_bytes, files_kept, sync } = raw;
    let bytes_max = max_file_bytes.unwrap_or(FILE_DEFAULT_BYTES);
    if !(FILE_BYTES_MIN..=FILE_BYTES_MAX).contains(&bytes_max) {
        let allowed = format!("{FILE_BYTES_MIN} to {FILE_BYTES_MAX}");
        return Err(KeyError::new("audit.maxFileBytes", bytes_max, allowed));
    }
    let kept = bounded("audit.filesKept", files_kept.unwrap_or(FILES_DEFAULT), FILES_MIN..=FILES_MAX)?;
    let target = match sink.unwrap_or(RawSink::File) {
        RawSink::File => Target::Files { bytes_max, kept },
        RawSink::Stdout => Target::Stdout,
        RawSink::Off => return Ok(None),
    };
    let sync = match sync.unwrap_or(RawSync::Interval) {
        RawSync::Always => Sync::Always,
        RawSync::Interval => Sync::Interval,
    };
    let directory =
        directory.map_or_else(|| state_dir.join(DIRECTORY_DEFAULT), |path| config_directory.join(path));
    Ok(Some(Settings { server: server.to_owned(), directory, target, sync }))
}
