//! What a daemon says about itself: logs and metrics.

use std::{
    error::Error,
    fmt,
    io::{self, IsTerminal as _},
    time::Duration,
};

use metrics::{Unit, describe_gauge, gauge};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;
use tracing_subscriber::{
    EnvFilter, Layer as _, filter::ParseError, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::{Scope, outcome::Failure};

/// What is logged unless configured.
const FILTER_DEFAULT: &str = "info";

/// How often old samples are folded into histograms; without it they would gather for ever.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Bounds of every histogram, in seconds: from a cache hit to the longest drain.
const SECONDS_BUCKETS: [f64; 17] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

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

/// The metrics of this process, as Prometheus reads them. Clones are the same.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
    process: Option<Collector>,
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

impl Metrics {
    /// Installs the recorder of the whole process, and describes and sets what every daemon has:
    /// `PREFIX_build_info{version}` and `PREFIX_process_…`.
    ///
    /// # Errors
    ///
    /// A recorder was installed before.
    pub fn install(product: &Product) -> Result<Self, TelemetryError> {
        let handle = builder()
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(|error| TelemetryError::Twice(error.into()))?;
        let process = Collector::new(format!("{}_", product.metrics_prefix));
        process.describe();
        let build_info = format!("{}_build_info", product.metrics_prefix);
        describe_gauge!(build_info.clone(), Unit::Count, "Always 1; which build this is.");
        gauge!(build_info, "version" => product.version).set(1.0);
        Ok(Self { handle, process: Some(process) })
    }

    /// What one recorder gathers, without the metrics of the process.
    #[cfg(test)]
    pub(crate) fn of(handle: PrometheusHandle) -> Self {
        Self { handle, process: None }
    }

    /// All metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        if let Some(process) = &self.process {
            process.collect();
        }
        self.handle.render()
    }

    /// Keeps the recorder's memory bounded, as an attendant of `scope`.
    pub fn attend(&self, scope: &Scope) {
        let handle = self.handle.clone();
        scope.attend(async move {
            let mut ticks = tokio::time::interval(UPKEEP_EVERY);
            loop {
                ticks.tick().await;
                handle.run_upkeep();
            }
        });
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
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

pub(crate) fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new().set_buckets(&SECONDS_BUCKETS)
}

#[cfg(test)]
mod tests;
