//! The keys that the file of every daemon has, and what they come to with the flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{KeyError, LayoutKey, RuntimeKeys, seconds, socket_address};
use crate::args::{DRAIN_GRACE, SharedFlags};
use crate::runtime::Layout;
use crate::telemetry::{LogFormat, LogOptions};

/// The longest drain that may be asked for, in seconds.
pub const GRACE_SECONDS_MAX: u64 = 600;

/// The key `probes`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ProbesKeys {
    /// Where `/livez`, `/readyz` and `/metrics` answer.
    pub listen: Option<String>,
}

/// The key `log`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LogKeys {
    /// Its form.
    pub format: Option<LogFormatKey>,
    /// Its level, or a filter.
    pub level: Option<String>,
}

/// The values of `log.format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogFormatKey {
    /// [`LogFormat::Json`].
    Json,
    /// [`LogFormat::Text`].
    Text,
}

/// What a file says of the keys that every daemon has. A daemon's own struct holds them one by one, because unknown
/// keys cannot be refused through `flatten`.
#[derive(Debug, Clone, Default)]
pub struct EveryKeys {
    /// `stateDir`, relative to the file.
    pub state_dir: Option<PathBuf>,
    /// `probes`.
    pub probes: Option<ProbesKeys>,
    /// `drainGraceSeconds`.
    pub drain_grace_seconds: Option<u64>,
    /// `log`.
    pub log: Option<LogKeys>,
    /// `runtime`.
    pub runtime: Option<RuntimeKeys>,
}

/// What a daemon takes where nothing was said.
#[derive(Debug, Clone, Copy)]
pub struct EveryDefault {
    /// The state directory.
    pub state_dir: &'static str,
    /// Where the probes answer.
    pub probes_listen: SocketAddr,
    /// How runtimes are laid over threads.
    pub layout: LayoutKey,
    /// How many threads; `None` is one for each core.
    pub threads: Option<usize>,
}

/// What every daemon needs to know.
#[derive(Debug, Clone)]
pub struct Every {
    /// The state directory.
    pub state_dir: PathBuf,
    /// Where the probes answer.
    pub probes_listen: SocketAddr,
    /// How long a drain may take.
    pub drain_grace: Duration,
    /// What to log, and how.
    pub logs: LogOptions,
    /// How runtimes are laid over threads.
    pub layout: Layout,
}

impl EveryKeys {
    /// Flag over file over default; paths of the file are relative to `directory`.
    ///
    /// # Errors
    ///
    /// [`KeyError`], which names the key, its value and what is allowed.
    pub fn settle(
        self,
        flags: &SharedFlags,
        default: &EveryDefault,
        directory: &Path,
    ) -> Result<Every, KeyError> {
        let Self { state_dir, probes, drain_grace_seconds, log, runtime } = self;
        let state_dir = flags.state_dir.clone().or_else(|| state_dir.map(|path| directory.join(path)));
        let probes_listen = match (flags.probes_listen, probes.unwrap_or_default().listen) {
            (Some(address), _) => address,
            (None, Some(written)) => socket_address("probes.listen", &written)?,
            (None, None) => default.probes_listen,
        };
        let drain_grace = flags.drain_grace.or(drain_grace_seconds);
        let drain_grace = drain_grace
            .map_or(Ok(DRAIN_GRACE), |value| seconds("drainGraceSeconds", value, 1..=GRACE_SECONDS_MAX))?;
        Ok(Every {
            state_dir: state_dir.unwrap_or_else(|| default.state_dir.into()),
            probes_listen,
            drain_grace,
            logs: logs(flags, log.unwrap_or_default()),
            layout: layout(runtime.unwrap_or_default(), default)?,
        })
    }
}

/// The default number of threads belongs to the default layout; another layout has one for each core.
fn layout(written: RuntimeKeys, default: &EveryDefault) -> Result<Layout, KeyError> {
    let RuntimeKeys { layout, threads } = written;
    let threads = match layout {
        Some(_) => threads,
        None => threads.or(default.threads),
    };
    RuntimeKeys { layout: layout.or(Some(default.layout)), threads }.layout()
}

fn logs(flags: &SharedFlags, written: LogKeys) -> LogOptions {
    let LogKeys { format, level } = written;
    let format = format.map(|format| match format {
        LogFormatKey::Json => LogFormat::Json,
        LogFormatKey::Text => LogFormat::Text,
    });
    let flags = flags.logs();
    LogOptions { format: flags.format.or(format), filter: flags.filter.or(level) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: EveryDefault = EveryDefault {
        state_dir: "/var/lib/test",
        probes_listen: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9090),
        layout: LayoutKey::PerCore,
        threads: Some(1),
    };

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let file = EveryKeys {
            state_dir: Some("state".into()),
            probes: Some(ProbesKeys { listen: Some("127.0.0.1:1".to_owned()) }),
            drain_grace_seconds: Some(7),
            log: Some(LogKeys { format: Some(LogFormatKey::Json), level: Some("debug".to_owned()) }),
            runtime: None,
        };
        let flags = SharedFlags {
            drain_grace: Some(9),
            log_level: Some("warn".to_owned()),
            ..SharedFlags::default()
        };

        let by_default =
            EveryKeys::default().settle(&SharedFlags::default(), &DEFAULT, Path::new("/etc")).unwrap();
        let settled = file.settle(&flags, &DEFAULT, Path::new("/etc")).unwrap();

        assert_eq!(
            (by_default.state_dir.as_path(), by_default.probes_listen),
            (Path::new("/var/lib/test"), DEFAULT.probes_listen)
        );
        assert_eq!(settled.state_dir, Path::new("/etc/state"));
        assert_eq!(settled.probes_listen.port(), 1);
        assert_eq!(settled.drain_grace, Duration::from_secs(9));
        assert_eq!(
            (settled.logs.format, settled.logs.filter.as_deref()),
            (Some(LogFormat::Json), Some("warn"))
        );
    }

    #[test]
    fn the_default_number_of_threads_belongs_to_the_default_layout() {
        let layout = |runtime| {
            let keys = EveryKeys { runtime: Some(runtime), ..EveryKeys::default() };
            keys.settle(&SharedFlags::default(), &DEFAULT, Path::new("/")).unwrap().layout
        };
        let threads = |threads| RuntimeKeys { layout: None, threads };

        assert_eq!(layout(threads(None)), Layout::PerCore { homes: 1 });
        assert_eq!(layout(threads(Some(3))), Layout::PerCore { homes: 3 });
        let shared = RuntimeKeys { layout: Some(LayoutKey::Shared), threads: Some(2) };
        assert_eq!(layout(shared), Layout::Shared { workers: 2 });
    }

    #[test]
    fn a_grace_at_the_limit_is_taken_and_one_second_more_is_not() {
        let keys = |seconds| EveryKeys { drain_grace_seconds: Some(seconds), ..EveryKeys::default() };
        let settle = |keys: EveryKeys| keys.settle(&SharedFlags::default(), &DEFAULT, Path::new("/"));

        assert!(settle(keys(GRACE_SECONDS_MAX)).is_ok());
        let error = settle(keys(GRACE_SECONDS_MAX + 1)).unwrap_err();
        assert_eq!(error.to_string(), "drainGraceSeconds: 601 is not allowed, use 1 to 600");
    }
}
