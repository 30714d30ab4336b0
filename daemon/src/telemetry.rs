//! Configures the log of a daemon.

use std::{
    error::Error,
    io::{self, IsTerminal as _},
};

use tracing_subscriber::{
    EnvFilter, Layer as _, filter::ParseError, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::exit_code::Failure;

/// The filter without any configuration.
const FILTER_DEFAULT: &str = "info";

/// The names and the version of a program.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// The program's name, such as `tunnel-server`.
    pub name: &'static str,
    /// The prefix of its metrics, without the last underscore: `tombolo_server`.
    pub metrics_prefix: &'static str,
    /// The version: `CARGO_PKG_VERSION` of its crate.
    pub version: &'static str,
}

/// Format and filter of the log.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// The format; `None` means text if stderr is a terminal, else JSON.
    pub format: Option<LogFormat>,
    /// The filter, in the syntax of `EnvFilter`; `None` means `info`.
    pub filter: Option<String>,
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Plain text, made for people.
    Text,
    /// For collectors: one JSON object per line.
    Json,
}

/// The reason why telemetry could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error(
        "--log-level (TOMBOLO_LOG): {filter:?} is not a filter, use a level (error, warn, info, debug, trace) \
         or a list such as info,transport=debug"
    )]
    Filter {
        /// The configured text of the filter.
        filter: String,
        /// The error of the filter's parser.
        source: ParseError,
    },
    /// A log or a recorder was installed before. This is a bug in the caller.
    #[error("telemetry was installed twice")]
    AlreadyInstalled(#[source] Box<dyn Error + Send + Sync>),
}

/// Sends the log to stderr, for the whole process.
///
/// # Errors
///
/// The filter is wrong, or a log was installed before.
pub fn install_logs(options: &LogOptions) -> Result<(), TelemetryError> {
    let filter = filter(options.filter.as_deref().unwrap_or(FILTER_DEFAULT))?;
    let automatic = || if io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::Json };
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = match options.format.unwrap_or_else(automatic) {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let installed = tracing_subscriber::registry().with(filter).with(lines).try_init();
    installed.map_err(|error| TelemetryError::AlreadyInstalled(error.into()))
}

impl From<TelemetryError> for Failure {
    fn from(error: TelemetryError) -> Self {
        match error {
            TelemetryError::Filter { .. } => Self::misconfigured(error),
            TelemetryError::AlreadyInstalled(_) => Self::could_not_go_on(error),
        }
    }
}

fn filter(text: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(text)
        .map_err(|source| TelemetryError::Filter { filter: text.to_owned(), source })
}

#[cfg(test)]
mod tests;
