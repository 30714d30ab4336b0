//! The configuration that every daemon has: raw keys, defaults, and the values that file and flags resolve
//! to.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{KeyError, RawLayout, RawRuntime, seconds, socket_address};
use crate::args::{DRAIN_GRACE, SharedFlags};
use crate::runtime::Layout;
use crate::telemetry::{LogFormat, LogOptions};

/// The longest configurable drain, in seconds.
pub const GRACE_SECONDS_MAX: u64 = 600;

/// The mapping under the key `probes`.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RawProbes {
    /// Address and TCP port of `/livez`, `/readyz` and `/metrics`.
    pub listen: Option<String>,
}

/// The mapping under the key `log`.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RawLog {
    /// Form of the log: text for people, json for programs. The default is text on a terminal, else json.
    pub format: Option<RawLogFormat>,
    /// Level, or a filter such as info,transport=debug. The default is info.
    pub level: Option<String>,
}

/// The allowed values of `log.format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum RawLogFormat {
    /// One JSON object per line, for programs.
    Json,
    /// Plain text for people to read.
    Text,
}

/// The keys that the file of every daemon has: the keys of [`RawCommon`], as the file spells them.
pub(super) const COMMON_KEYS: [&str; 5] = ["stateDir", "probes", "drainGraceSeconds", "log", "runtime"];

/// The raw values of the keys that every daemon has. [`load_with_common`](super::load_with_common) reads them beside a
/// daemon's own struct, so that no daemon repeats them.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RawCommon {
    /// Directory for keys and other state, made with mode 0700.
    pub state_dir: Option<PathBuf>,
    /// The listener for probes and metrics.
    pub probes: Option<RawProbes>,
    /// Time for which running requests may continue after the first SIGTERM or SIGINT.
    #[cfg_attr(test, schemars(range(min = 1, max = GRACE_SECONDS_MAX), extend("default" = DRAIN_GRACE.as_secs())))]
    pub drain_grace_seconds: Option<u64>,
    /// The log on standard error.
    pub log: Option<RawLog>,
    /// The number of runtimes and threads.
    pub runtime: Option<RawRuntime>,
}

/// The defaults of one daemon, for values that neither flags nor file set.
#[derive(Debug, Clone, Copy)]
pub struct CommonDefaults {
    /// Path of the state directory.
    pub state_dir: &'static str,
    /// Address and port of the probes.
    pub probes_listen: SocketAddr,
    /// The layout of the runtimes.
    pub layout: RawLayout,
    /// The number of threads; `None` means one for each core.
    pub threads: Option<usize>,
}

/// The resolved and validated configuration that every daemon has.
#[derive(Debug, Clone)]
pub struct CommonConfig {
    /// Path of the state directory.
    pub state_dir: PathBuf,
    /// Address and port of the probes.
    pub probes_listen: SocketAddr,
    /// The longest time that a drain may take.
    pub drain_grace: Duration,
    /// Format and filter of the log.
    pub logs: LogOptions,
    /// The layout of the runtimes.
    pub layout: Layout,
}

impl RawCommon {
    /// Resolves each value: a flag wins over the file, and the file over the default. Paths of the file are relative to
    /// `directory`.
    ///
    /// # Errors
    ///
    /// [`KeyError`], which names the key, its value and what is allowed.
    pub fn resolve(
        self,
        flags: &SharedFlags,
        default: &CommonDefaults,
        directory: &Path,
    ) -> Result<CommonConfig, KeyError> {
        let Self { state_dir, probes, drain_grace_seconds, log, runtime } = self;
        let state_dir = flags.state_dir.clone().or_else(|| state_dir.map(|path| directory.join(path)));
        let probes_listen = match (flags.probes_listen, probes.unwrap_or_default().listen) {
            (Some(address), _) => address,
            (None, Some(raw)) => socket_address("probes.listen", &raw)?,
            (None, None) => default.probes_listen,
        };
        let drain_grace = flags.drain_grace.or(drain_grace_seconds);
        let drain_grace = drain_grace
            .map_or(Ok(DRAIN_GRACE), |value| seconds("drainGraceSeconds", value, 1..=GRACE_SECONDS_MAX))?;
        Ok(CommonConfig {
            state_dir: state_dir.unwrap_or_else(|| default.state_dir.into()),
            probes_listen,
            drain_grace,
            logs: logs(flags, log.unwrap_or_default()),
            layout: layout(runtime.unwrap_or_default(), default)?,
        })
    }
}

/// Resolves the layout. The default number of threads applies only to the default layout; another one has a thread per core.
fn layout(raw: RawRuntime, default: &CommonDefaults) -> Result<Layout, KeyError> {
    let RawRuntime { layout, threads } = raw;
    let threads = match layout {
        Some(_) => threads,
        None => threads.or(default.threads),
    };
    RawRuntime { layout: layout.or(Some(default.layout)), threads }.layout()
}

fn logs(flags: &SharedFlags, raw: RawLog) -> LogOptions {
    let RawLog { format, level } = raw;
    let format = format.map(|format| match format {
        RawLogFormat::Json => LogFormat::Json,
        RawLogFormat::Text => LogFormat::Text,
    });
    let flags = flags.logs();
    LogOptions { format: flags.format.or(format), filter: flags.filter.or(level) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: CommonDefaults = CommonDefaults {
        state_dir: "/var/lib/test",
        probes_listen: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9090),
        layout: RawLayout::PerCore,
        threads: Some(1),
    };

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let file = RawCommon {
            state_dir: Some("state".into()),
            probes: Some(RawProbes { listen: Some("127.0.0.1:1".to_owned()) }),
            drain_grace_seconds: Some(7),
            log: Some(RawLog { format: Some(RawLogFormat::Json), level: Some("debug".to_owned()) }),
            runtime: None,
        };
        let flags = SharedFlags {
            drain_grace: Some(9),
            log_level: Some("warn".to_owned()),
            ..SharedFlags::default()
        };

        let by_default =
            RawCommon::default().resolve(&SharedFlags::default(), &DEFAULT, Path::new("/etc")).unwrap();
        let resolved = file.resolve(&flags, &DEFAULT, Path::new("/etc")).unwrap();

        assert_eq!(
            (by_default.state_dir.as_path(), by_default.probes_listen),
            (Path::new("/var/lib/test"), DEFAULT.probes_listen)
        );
        assert_eq!(resolved.state_dir, Path::new("/etc/state"));
        assert_eq!(resolved.probes_listen.port(), 1);
        assert_eq!(resolved.drain_grace, Duration::from_secs(9));
        assert_eq!(
            (resolved.logs.format, resolved.logs.filter.as_deref()),
            (Some(LogFormat::Json), Some("warn"))
        );
    }

    #[test]
    fn the_default_number_of_threads_belongs_to_the_default_layout() {
        let layout = |runtime| {
            let keys = RawCommon { runtime: Some(runtime), ..RawCommon::default() };
            keys.resolve(&SharedFlags::default(), &DEFAULT, Path::new("/")).unwrap().layout
        };
        let threads = |threads| RawRuntime { layout: None, threads };

        assert_eq!(layout(threads(None)), Layout::PerCore { homes: 1 });
        assert_eq!(layout(threads(Some(3))), Layout::PerCore { homes: 3 });
        let shared = RawRuntime { layout: Some(RawLayout::Shared), threads: Some(2) };
        assert_eq!(layout(shared), Layout::Shared { workers: 2 });
    }

    #[test]
    fn a_grace_at_the_limit_is_taken_and_one_second_more_is_not() {
        let keys = |seconds| RawCommon { drain_grace_seconds: Some(seconds), ..RawCommon::default() };
        let resolve = |keys: RawCommon| keys.resolve(&SharedFlags::default(), &DEFAULT, Path::new("/"));

        assert!(resolve(keys(GRACE_SECONDS_MAX)).is_ok());
        let error = resolve(keys(GRACE_SECONDS_MAX + 1)).unwrap_err();
        assert_eq!(error.to_string(), "drainGraceSeconds: 601 is not allowed, use 1 to 600");
    }
}
