//! What a daemon counts, as Prometheus reads it.
//!
//! What happens is counted when it happens, by the crate `metrics`. What merely *is* (connections, sizes, dates, what a
//! link has carried) is asked for at each scrape: a series is there for as long as what it speaks of, and nothing has to be
//! taken back.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use metrics::{describe_gauge, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;
use tokio::{sync::Semaphore, task::spawn_blocking};

use self::lines::Lines;
use crate::{
    Scope,
    telemetry::{Product, TelemetryError},
};

mod codes;
pub mod exchanges;
pub mod expiry;
pub mod lines;
pub mod links;
mod runtime;

/// How often old samples are folded into histograms; without it they would gather for ever.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// How many scrapes are rendered at once; more wait their turn. Each holds the whole text.
const RENDERS_MAX: usize = 1;

/// Bounds of every histogram but those of [`LONG`], in seconds: from an answer on a LAN to the longest wait for a head.
const SECONDS_BUCKETS: [f64; 17] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];

/// What lasts as long as callers like, watches and shells among it, ends so.
const LONG: &str = "_duration_seconds";

/// Bounds of histograms that end in [`LONG`], in seconds. A watch lives for up to an hour.
const LONG_BUCKETS: [f64; 15] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 1800.0, 3600.0];

/// Writes at a scrape what is.
type Source = Arc<dyn Fn(&mut Lines) + Send + Sync>;

/// The metrics of this process. Clones are the same.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    prefix: &'static str,
    counted: PrometheusHandle,
    process: Option<Collector>,
    sources: Mutex<Vec<Source>>,
    rendering: Semaphore,
}

impl Metrics {
    /// Installs the recorder of the whole process, and describes and sets what every daemon has:
    /// `PREFIX_build_info` and, by their conventional names, the figures of the process.
    ///
    /// # Errors
    ///
    /// A recorder was installed before.
    pub fn install(product: &Product) -> Result<Self, TelemetryError> {
        let counted = builder()
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(|error| TelemetryError::Twice(error.into()))?;
        let build_info = format!("{}_build_info", product.metrics_prefix);
        describe_gauge!(build_info.clone(), "Always 1; which build this is.");
        let revision = option_env!("TOMBOLO_REVISION").unwrap_or("unknown");
        let labels = [("version", product.version), ("revision", revision), ("rustc", env!("RUSTC_VERSION"))];
        gauge!(build_info, &labels).set(1.0);
        // Without a prefix, because that is what dashboards for any process look for.
        let process = Collector::new("");
        process.describe();
        Ok(Self::over(product.metrics_prefix, counted, Some(process)))
    }

    /// What one recorder gathers, without the figures of the process.
    #[cfg(test)]
    pub(crate) fn of(prefix: &'static str, counted: PrometheusHandle) -> Self {
        Self::over(prefix, counted, None)
    }

    fn over(prefix: &'static str, counted: PrometheusHandle, process: Option<Collector>) -> Self {
        let rendering = Semaphore::new(RENDERS_MAX);
        Self(Arc::new(Inner { prefix, counted, process, sources: Mutex::default(), rendering }))
    }

    /// Asks `source` at each scrape, from a thread where it may block for a moment. What it writes is in that scrape and
    /// in no other.
    pub fn ask(&self, source: impl Fn(&mut Lines) + Send + Sync + 'static) {
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(source));
    }

    /// All metrics in Prometheus' text format, rendered beside the homes, one scrape at a time.
    pub async fn scrape(&self) -> String {
        let this = self.clone();
        // The semaphore is never closed, and a task that was cut off has no reader left.
        let _turn = self.0.rendering.acquire().await;
        spawn_blocking(move || this.render()).await.unwrap_or_default()
    }

    /// All metrics in Prometheus' text format, on this thread.
    pub fn render(&self) -> String {
        if let Some(process) = &self.0.process {
            process.collect();
        }
        let sources = self.0.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut lines = Lines::default();
        sources.iter().for_each(|source| source(&mut lines));
        self.0.counted.render() + &lines.into_text()
    }

    /// Keeps the recorder's memory bounded, as an attendant of `scope`, and tells of the scope and its runtimes.
    pub fn attend(&self, scope: &Scope) {
        let (prefix, watched) = (self.0.prefix, scope.clone());
        self.ask(move |lines| runtime::tell(lines, prefix, &watched));
        let counted = self.0.counted.clone();
        scope.attend(async move {
            let mut ticks = tokio::time::interval(UPKEEP_EVERY);
            loop {
                ticks.tick().await;
                counted.run_upkeep();
            }
        });
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("prefix", &self.0.prefix).finish_non_exhaustive()
    }
}

/// A recorder for what is counted, with histograms in place of summaries.
pub(crate) fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets(&SECONDS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix(LONG.to_owned()), &LONG_BUCKETS)
}

#[cfg(test)]
mod tests;
