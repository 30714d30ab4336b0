//! Metrics of requests: how many run, the codes of their answers, and their durations.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Instant,
};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use super::codes;

/// The kind of a request that was not parsed yet, or was refused before.
pub const UNKNOWN: &str = "unknown";

/// The handles of all series, so that a request needs no lookup. Clones share them.
#[derive(Clone)]
pub struct RequestMetrics(Arc<SharedRequestMetrics>);

struct SharedRequestMetrics {
    total: String,
    label: &'static str,
    /// One entry for each kind, and the last for [`UNKNOWN`].
    kinds: Vec<KindMetrics>,
}

struct KindMetrics {
    name: &'static str,
    active: Gauge,
    head: Histogram,
    duration: Histogram,
    /// Registered at the first answer with the code, because most pairs never occur.
    codes: [OnceLock<Counter>; codes::LABELS],
}

/// One request, from its head to the last byte of its answer. It is active until this is dropped.
#[must_use = "the request counts as ended when this is dropped"]
pub struct ActiveRequest {
    metrics: RequestMetrics,
    began: Instant,
    /// An index into the kinds.
    kind: Mutex<usize>,
}

impl RequestMetrics {
    /// Describes and registers the metrics with the recorder of the calling thread. Their names begin with
    /// `prefix`, and the values of `label` are `kinds` and [`UNKNOWN`].
    #[must_use]
    pub fn new(prefix: &str, label: &'static str, kinds: &[&'static str]) -> Self {
        let [total, active, head, duration] =
            ["requests_total", "requests_active", "response_head_seconds", "request_duration_seconds"]
                .map(|name| format!("{prefix}_{name}"));
        describe_counter!(
            total.clone(),
            "Requests that were answered, by kind and by the code of the answer."
        );
        describe_gauge!(
            active.clone(),
            "Requests that run now, to the last byte of their answers, by kind; unknown before it was read."
        );
        describe_histogram!(
            head.clone(),
            Unit::Seconds,
            "Time from a request's head to its answer's head, by kind; watches and bodies go on after it."
        );
        describe_histogram!(
            duration.clone(),
            Unit::Seconds,
            "Time from a request's head to its end, by kind; watches and upgraded connections last as long as callers like."
        );
        let kind = |name: &&'static str| KindMetrics {
            name,
            active: gauge!(active.clone(), label => *name),
            head: histogram!(head.clone(), label => *name),
            duration: histogram!(duration.clone(), label => *name),
            codes: [const { OnceLock::new() }; codes::LABELS],
        };
        let kinds = kinds.iter().chain(&[UNKNOWN]).map(kind).collect();
        Self(Arc::new(SharedRequestMetrics { total, label, kinds }))
    }

    /// Counts a request whose head has arrived, with the kind [`UNKNOWN`].
    pub fn begin(&self) -> ActiveRequest {
        let kind = self.index(UNKNOWN);
        let active = ActiveRequest { metrics: self.clone(), began: Instant::now(), kind: Mutex::new(kind) };
        active.of(kind).active.increment(1);
        active
    }

    /// The index of a kind; that of [`UNKNOWN`] for an unlisted one.
    fn index(&self, kind: &str) -> usize {
        let kinds = &self.0.kinds;
        kinds.iter().position(|known| known.name == kind).unwrap_or(kinds.len() - 1)
    }
}

impl ActiveRequest {
    /// Sets the kind of the request.
    pub fn set_kind(&self, kind: &str) {
        let kind = self.metrics.index(kind);
        let mut known = self.kind.lock().unwrap_or_else(PoisonError::into_inner);
        self.of(*known).active.decrement(1);
        self.of(kind).active.increment(1);
        *known = kind;
    }

    /// Counts the head of the answer.
    pub fn answered(&self, code: u16) {
        let kind = self.of(self.kind());
        let SharedRequestMetrics { total, label, .. } = &*self.metrics.0;
        let (index, code) = codes::label(code);
        let counter =
            kind.codes[index].get_or_init(|| counter!(total.clone(), *label => kind.name, "code" => code));
        counter.increment(1);
        kind.head.record(self.began.elapsed().as_secs_f64());
    }

    fn kind(&self) -> usize {
        *self.kind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, kind: usize) -> &KindMetrics {
        &self.metrics.0.kinds[kind]
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let kind = self.of(self.kind());
        kind.active.decrement(1);
        kind.duration.record(self.began.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn a_request_is_counted_by_kind_and_code_and_active_until_its_end() {
        let recorder = PrometheusBuilder::new().set_buckets(&[1.0]).unwrap().build_recorder();
        let scrape = || recorder.handle().render();
        metrics::with_local_recorder(&recorder, || {
            let metrics = RequestMetrics::new("test", "verb", &["get", "watch"]);
            let active = metrics.begin();
            has(&scrape(), "test_requests_active{verb=\"unknown\"} 1");

            active.set_kind("watch");
            active.answered(200);
            let during = scrape();
            drop(active);
            let after = scrape();

            has(&during, "test_requests_active{verb=\"unknown\"} 0");
            has(&during, "test_requests_active{verb=\"watch\"} 1");
            has(&during, "test_requests_total{verb=\"watch\",code=\"200\"} 1");
            has(&during, "test_response_head_seconds_count{verb=\"watch\"} 1");
            has(&during, "test_request_duration_seconds_count{verb=\"watch\"} 0");
            has(&after, "test_requests_active{verb=\"watch\"} 0");
            has(&after, "test_request_duration_seconds_count{verb=\"watch\"} 1");
            assert_eq!(after.matches("test_requests_total{").count(), 1);
        });
    }

    #[test]
    fn an_unlisted_kind_is_unknown() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            let active = RequestMetrics::new("test", "verb", &["get"]).begin();
            active.set_kind("made-up");
            active.answered(200);
        });

        has(&recorder.handle().render(), "test_requests_total{verb=\"unknown\",code=\"200\"} 1");
    }

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|found| found == line), "no line {line:?} in:\n{text}");
    }
}
