//! Requests with their answers: how many run, how they are answered, how long they take.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Instant,
};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use super::codes;

/// The sort of a request of which nothing is known: not read yet, or refused before that.
pub const UNKNOWN: &str = "unknown";

/// The handles of every series, so that a request looks none up. Clones are the same.
#[derive(Clone)]
pub struct Exchanges(Arc<Inner>);

struct Inner {
    total: String,
    label: &'static str,
    /// One for each sort, and the last for [`UNKNOWN`].
    sorts: Vec<Sort>,
}

struct Sort {
    name: &'static str,
    active: Gauge,
    head: Histogram,
    duration: Histogram,
    /// Registered when the first answer bears the code: most pairs never occur.
    codes: [OnceLock<Counter>; codes::LABELS],
}

/// One request, from its head to the last byte of its answer: active until this is dropped.
#[must_use = "the exchange counts as over when this is dropped"]
pub struct Active {
    exchanges: Exchanges,
    began: Instant,
    /// An index of the sorts.
    sort: Mutex<usize>,
}

impl Exchanges {
    /// Describes and registers them, with the recorder of the calling thread: names that begin with `prefix`, and a
    /// `label` whose values are `sorts` and [`UNKNOWN`].
    #[must_use]
    pub fn new(prefix: &str, label: &'static str, sorts: &[&'static str]) -> Self {
        let [total, active, head, duration] =
            ["exchanges_total", "exchanges_active", "exchange_head_seconds", "exchange_duration_seconds"]
                .map(|name| format!("{prefix}_{name}"));
        describe_counter!(
            total.clone(),
            "Requests that were answered, by sort and by the code of the answer."
        );
        describe_gauge!(
            active.clone(),
            "Requests that run now, to the last byte of their answers, by sort; unknown before it was read."
        );
        describe_histogram!(
            head.clone(),
            Unit::Seconds,
            "Time from a request's head to its answer's head, by sort; watches and bodies go on after it."
        );
        describe_histogram!(
            duration.clone(),
            Unit::Seconds,
            "Time from a request's head to its end, by sort; what watches or is upgraded lasts as callers like."
        );
        let sort = |name: &&'static str| Sort {
            name,
            active: gauge!(active.clone(), label => *name),
            head: histogram!(head.clone(), label => *name),
            duration: histogram!(duration.clone(), label => *name),
            codes: [const { OnceLock::new() }; codes::LABELS],
        };
        let sorts = sorts.iter().chain(&[UNKNOWN]).map(sort).collect();
        Self(Arc::new(Inner { total, label, sorts }))
    }

    /// Counts a request whose head has come, as one of an unknown sort.
    pub fn begin(&self) -> Active {
        let sort = self.index(UNKNOWN);
        let active = Active { exchanges: self.clone(), began: Instant::now(), sort: Mutex::new(sort) };
        active.of(sort).active.increment(1);
        active
    }

    /// Where a sort stands; one that is not known, as the last.
    fn index(&self, sort: &str) -> usize {
        let sorts = &self.0.sorts;
        sorts.iter().position(|known| known.name == sort).unwrap_or(sorts.len() - 1)
    }
}

impl Active {
    /// Says of which sort it is.
    pub fn set_sort(&self, sort: &str) {
        let sort = self.exchanges.index(sort);
        let mut known = self.sort.lock().unwrap_or_else(PoisonError::into_inner);
        self.of(*known).active.decrement(1);
        self.of(sort).active.increment(1);
        *known = sort;
    }

    /// Counts its answer's head.
    pub fn answered(&self, code: u16) {
        let sort = self.of(self.sort());
        let Inner { total, label, .. } = &*self.exchanges.0;
        let (place, code) = codes::label(code);
        let counter =
            sort.codes[place].get_or_init(|| counter!(total.clone(), *label => sort.name, "code" => code));
        counter.increment(1);
        sort.head.record(self.began.elapsed().as_secs_f64());
    }

    fn sort(&self) -> usize {
        *self.sort.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, sort: usize) -> &Sort {
        &self.exchanges.0.sorts[sort]
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let sort = self.of(self.sort());
        sort.active.decrement(1);
        sort.duration.record(self.began.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn an_exchange_is_counted_once_by_its_sort_and_code_and_active_until_its_end() {
        let recorder = PrometheusBuilder::new().set_buckets(&[1.0]).unwrap().build_recorder();
        let scrape = || recorder.handle().render();
        metrics::with_local_recorder(&recorder, || {
            let exchanges = Exchanges::new("test", "verb", &["get", "watch"]);
            let active = exchanges.begin();
            has(&scrape(), "test_exchanges_active{verb=\"unknown\"} 1");

            active.set_sort("watch");
            active.answered(200);
            let during = scrape();
            drop(active);
            let after = scrape();

            has(&during, "test_exchanges_active{verb=\"unknown\"} 0");
            has(&during, "test_exchanges_active{verb=\"watch\"} 1");
            has(&during, "test_exchanges_total{verb=\"watch\",code=\"200\"} 1");
            has(&during, "test_exchange_head_seconds_count{verb=\"watch\"} 1");
            has(&during, "test_exchange_duration_seconds_count{verb=\"watch\"} 0");
            has(&after, "test_exchanges_active{verb=\"watch\"} 0");
            has(&after, "test_exchange_duration_seconds_count{verb=\"watch\"} 1");
            assert_eq!(after.matches("test_exchanges_total{").count(), 1);
        });
    }

    #[test]
    fn a_sort_that_was_not_named_is_unknown() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            let active = Exchanges::new("test", "verb", &["get"]).begin();
            active.set_sort("made-up");
            active.answered(200);
        });

        has(&recorder.handle().render(), "test_exchanges_total{verb=\"unknown\",code=\"200\"} 1");
    }

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|found| found == line), "no line {line:?} in:\n{text}");
    }
}
