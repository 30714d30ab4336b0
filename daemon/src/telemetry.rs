//! What a daemon says about itself in its log.

use std::{
    error::Error,
    io::{self, IsTerminal as _},
};

use tracing_subscriber::{
    EnvFilter, Layer as _, filter::ParseError, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::outcome::Failure;

/// What is logged unless configured.
const FILTER_DEFAULT: &str = "info";

/// Which program this is.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// `tunnel-server`.
    pub name: &'static str,
    /// What its metrics begin with, without the last underscore: `tombolo_server`.
    pub metrics_prefix: &'static str,
    /// `CARGO_PKG_VERSION` of its crate.
    pub version: &'static str,
}

/// What was said about the log.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// `None`: text if stderr is a terminal, else JSON.
    pub format: Option<LogFormat>,
    /// In the syntax of `EnvFilter`; `None`: `info`.
    pub filter: Option<String>,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For collectors: one JSON object per line.
    Json,
}

/// Why telemetry could not be had.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error(
        "--log-level (TOMBOLO_LOG): {filter:?} is not a filter, use a level (error, warn, info, debug, trace) \
         or a list such as info,transport=debug"
    )]
    Filter {
        /// What was written.
        filter: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// Logs or metrics go elsewhere already. A fault of ours, not of a person.
    #[error("telemetry was installed twice")]
    Twice(#[source] Box<dyn Error + Send + Sync>),
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
    installed.map_err(|error| TelemetryError::Twice(error.into()))
}

impl From<TelemetryError> for Failure {
    fn from(error: TelemetryError) -> Self {
        match error {
            TelemetryError::Filter { .. } => Self::misconfigured(error),
            TelemetryError::Twice(_) => Self::could_not_go_on(error),
        }
    }
}

fn filter(written: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(written)
        .map_err(|source| TelemetryError::Filter { filter: written.to_owned(), source })
}

#[cfg(test)]
mod tests;
