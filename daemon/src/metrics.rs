//! Metrics of a daemon, in Prometheus' text format.
//!
//! Events are recorder by the crate `metrics` when they happen. State (connections, sizes, dates, bytes of a
//! link) is read at each scrape: its series exist as long as their subject, and need no cleanup.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use metrics::{describe_gauge, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;
use tokio::{sync::Semaphore, task::spawn_blocking};

use self::exposition::Exposition;
use crate::{
    Scope,
    telemetry::{Product, TelemetryError},
};

mod codes;
pub mod expiry;
pub mod exposition;
pub mod links;
pub mod requests;
mod runtime;

/// The interval of folding old samples into histograms; without it they would accumulate.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// The number of scrapes that are rendered at once. Each holds the complete text; further ones wait.
const RENDERS_MAX: usize = 1;

/// Buckets of every histogram but those of [`LONG`], in seconds: from an answer on a LAN to the longest wait
/// for a head.
const SECONDS_BUCKETS: [f64; 17] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];

/// The suffix of histograms whose durations the callers choose, such as those of watches and shells.
const LONG: &str = "_duration_seconds";

/// Buckets of histograms that end in [`LONG`], in seconds. A watch lives for up to an hour.
const LONG_BUCKETS: [f64; 15] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 1800.0, 3600.0];

/// A function that writes state at a scrape.
type ScrapeSource = Arc<dyn Fn(&mut Exposition) + Send + Sync>;

/// The metrics of this process. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<SharedMetrics>);

struct SharedMetrics {
    prefix: &'static str,
    recorder: PrometheusHandle,
    process: Option<Collector>,
    sources: Mutex<Vec<ScrapeSource>>,
    rendering: Semaphore,
}

impl Metrics {
    /// Installs the recorder of the process, and the metrics that every daemon has: `PREFIX_build_info` and,
    /// by their conventional names, the figures of the process.
    ///
    /// # Errors
    ///
    /// A recorder was installed before.
    pub fn install(product: &Product) -> Result<Self, TelemetryError> {
        let recorder = builder()
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(|error| TelemetryError::AlreadyInstalled(error.into()))?;
        let build_info = format!("{}_build_info", product.metrics_prefix);
        describe_gauge!(build_info.clone(), "Always 1; which build this is.");
        let revision = option_env!("TOMBOLO_REVISION").unwrap_or("unknown");
        let labels = [("version", product.version), ("revision", revision), ("rustc", env!("RUSTC_VERSION"))];
        gauge!(build_info, &labels).set(1.0);
        // Without a prefix, because generic dashboards expect these names.
        let process = Collector::new("");
        process.describe();
        Ok(Self::new(product.metrics_prefix, recorder, Some(process)))
    }

    /// Metrics of one recorder, without those of the process.
    #[cfg(test)]
    pub(crate) fn with_recorder(prefix: &'static str, recorder: PrometheusHandle) -> Self {
        Self::new(prefix, recorder, None)
    }

    fn new(prefix: &'static str, recorder: PrometheusHandle, process: Option<Collector>) -> Self {
        let rendering = Semaphore::new(RENDERS_MAX);
        Self(Arc::new(SharedMetrics { prefix, recorder, process, sources: Mutex::default(), rendering }))
    }

    /// Calls `source` at each scrape, on a thread where it may block for a moment. Its series are in that
    /// scrape only.
    pub fn on_scrape(&self, source: impl Fn(&mut Exposition) + Send + Sync + 'static) {
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(source));
    }

    /// All metrics in Prometheus' text format. Rendered on a thread for blocking calls, one scrape at a time.
    pub async fn scrape(&self) -> String {
        let this = self.clone();
        // The semaphore is never closed, and a cancelled task has no reader left.
        let _turn = self.0.rendering.acquire().await;
        spawn_blocking(move || this.render()).await.unwrap_or_default()
    }

    /// All metrics in Prometheus' text format, rendered on this thread.
    pub fn render(&self) -> String {
        if let Some(process) = &self.0.process {
            process.collect();
        }
        let sources = self.0.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut text = Exposition::default();
        sources.iter().for_each(|source| source(&mut text));
        self.0.recorder.render() + &text.into_text()
    }

    /// Starts the periodic upkeep of the recorder as a background task, and adds the metrics of `scope` and
    /// its runtimes.
    pub fn run_upkeep(&self, scope: &Scope) {
        let (prefix, watched) = (self.0.prefix, scope.clone());
        self.on_scrape(move |text| runtime::write(text, prefix, &watched));
        let recorder = self.0.recorder.clone();
        scope.spawn_background(async move {
            let mut ticks = tokio::time::interval(UPKEEP_EVERY);
            loop {
                ticks.tick().await;
                recorder.run_upkeep();
            }
        });
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("prefix", &self.0.prefix).finish_non_exhaustive()
    }
}

/// A recorder of counted events, with histograms instead of summaries.
pub(crate) fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets(&SECONDS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix(LONG.to_owned()), &LONG_BUCKETS)
}

#[cfg(test)]
mod tests;
