//! Measures the receiving end of one direction of a stream: times, bytes, and whether they are what was sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use crate::check::stream::{StreamFault, Verifier};

/// The end of a direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// As the sender ended it.
    Clean,
    /// It ended with this error.
    Broken(String),
}

/// The receiving end of one direction; clones are the same.
#[derive(Debug, Clone)]
pub struct Meter {
    inner: Arc<Mutex<MeterState>>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct MeterState {
    verifier: Verifier,
    bytes: u64,
    marks: Vec<(Instant, u64)>,
    end: Option<(Instant, StreamEnd)>,
}

impl Meter {
    /// Expects the stream of this seed.
    pub fn new(seed: u64) -> Self {
        let inner = MeterState { verifier: Verifier::new(seed), bytes: 0, marks: Vec::new(), end: None };
        Self { inner: Arc::new(Mutex::new(inner)), changed: watch::Sender::new(()) }
    }

    /// Takes what has just arrived.
    pub fn take(&self, bytes: &[u8]) {
        let now = Instant::now();
        let mut inner = self.inner();
        inner.verifier.take(bytes);
        inner.bytes += bytes.len() as u64;
        let total = inner.bytes;
        inner.marks.push((now, total));
        drop(inner);
        self.changed.send_replace(());
    }

    /// Takes the end; only the first counts.
    pub fn ended(&self, end: StreamEnd) {
        self.inner().end.get_or_insert((Instant::now(), end));
        self.changed.send_replace(());
    }

    /// Number of bytes that have arrived.
    pub fn bytes(&self) -> u64 {
        self.inner().bytes
    }

    /// The first difference from what was sent.
    pub fn fault(&self) -> Option<StreamFault> {
        self.inner().verifier.fault()
    }

    /// The time and kind of its end, if it has ended.
    pub fn end(&self) -> Option<(Instant, StreamEnd)> {
        self.inner().end.clone()
    }

    /// The time of the first byte after an instant.
    pub fn first_after(&self, instant: Instant) -> Option<Instant> {
        self.inner().marks.iter().map(|(at, _)| *at).find(|at| *at > instant)
    }

    /// The bytes that had arrived at each time, in seconds from an instant.
    pub fn since(&self, instant: Instant) -> Vec<(f64, f64)> {
        // One of the two is zero.
        let seconds =
            |at: Instant| at.duration_since(instant).as_secs_f64() - instant.duration_since(at).as_secs_f64();
        self.inner().marks.iter().map(|(at, total)| (seconds(*at), *total as f64)).collect()
    }

    /// Waits until `wanted` is true, and returns whether it was within the limit.
    pub async fn becomes(&self, limit: Duration, wanted: impl Fn(&Self) -> bool) -> bool {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            while !wanted(self) {
                // The sender lives as long as this meter does.
                let _ = changed.changed().await;
            }
        };
        timeout(limit, waiting).await.is_ok()
    }

    fn inner(&self) -> MutexGuard<'_, MeterState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::stream::Generator;

    #[tokio::test]
    async fn arriving_bytes_are_counted_timed_and_compared() {
        let (meter, start) = (Meter::new(3), Instant::now());
        let mut sent = Generator::new(3);
        meter.take(&sent.take(10));
        let between = Instant::now();
        assert_eq!(meter.first_after(between), None);
        meter.take(&sent.take(5));
        meter.ended(StreamEnd::Clean);
        meter.ended(StreamEnd::Broken("too late".to_owned()));

        assert!(meter.becomes(Duration::ZERO, |meter| meter.bytes() == 15).await);
        assert!(meter.first_after(between).is_some_and(|at| at > between));
        assert_eq!((meter.fault(), meter.end().map(|(_, end)| end)), (None, Some(StreamEnd::Clean)));
        assert_eq!(meter.since(start).iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [10.0, 15.0]);
        meter.take(b"what was never sent");
        assert!(meter.fault().is_some());
    }
}
