//! The connections and bytes of one API server, counted while they are relayed.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Counters that every connection to one API server shares.
#[derive(Debug)]
pub struct Traffic {
    connections: AtomicUsize,
    bytes_to: AtomicU64,
    bytes_from: AtomicU64,
    results: [AtomicU64; ConnectionResult::ALL.len()],
    began: Instant,
    /// Nanoseconds from `began` to the last byte that came from the API server. 0 for none.
    last_byte: AtomicU64,
    /// Changes when every connection has to end.
    cuts: watch::Sender<u64>,
}

/// One connection among those that are open, until this is dropped.
#[derive(Debug)]
#[must_use = "the connection is no longer counted when this is dropped"]
pub struct OpenConnection(std::sync::Arc<Traffic>);

/// Makes the enum of results and, from the same list, their labels.
macro_rules! connection_results {
    ($($(#[$doc:meta])* $result:ident = $label:literal;)*) => {
        /// The result of a connection, or of an attempt to dial one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ConnectionResult {
            $($(#[$doc])* $result,)*
        }

        impl ConnectionResult {
            /// Every result, in the order of the metric's labels.
            pub const ALL: &'static [Self] = &[$(Self::$result,)*];

            /// The value of the metric's label `result`.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$result => $label,)*
                }
            }
        }
    };
}

connection_results! {
    /// Nobody listens there, so the dial was refused.
    DialRefused = "dial_refused";
    /// The dial was not answered in time, or the address cannot be reached.
    DialFailed = "dial_failed";
    /// The API server ended the connection before its first byte, and another one was dialed.
    Unanswered = "unanswered";
    /// Both sides have closed the connection.
    Closed = "closed";
    /// One side has broken the connection.
    Broken = "broken";
    /// The API server is down, so the connection was ended.
    Cut = "cut";
    /// The connection was closed in a quiet moment, for another API server to get it.
    Moved = "moved";
    /// The connection was closed because this process ends.
    Drained = "drained";
    /// The connection goes on in a successor of this process.
    HandedOver = "handed_over";
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            connections: AtomicUsize::default(),
            bytes_to: AtomicU64::default(),
            bytes_from: AtomicU64::default(),
            results: [const { AtomicU64::new(0) }; ConnectionResult::ALL.len()],
            began: Instant::now(),
            last_byte: AtomicU64::default(),
            cuts: watch::Sender::new(0),
        }
    }
}

impl Traffic {
    /// Counts one more open connection.
    pub fn open(self: &std::sync::Arc<Self>) -> OpenConnection {
        self.connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection(std::sync::Arc::clone(self))
    }

    /// The number of connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts bytes that went to the API server.
    pub fn sent(&self, bytes: usize) {
        self.bytes_to.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that came from the API server now.
    pub fn received(&self, bytes: usize, now: Instant) {
        self.bytes_from.fetch_add(bytes as u64, Ordering::Relaxed);
        let since = now.saturating_duration_since(self.began).max(Duration::from_nanos(1));
        self.last_byte.store(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns true if a byte has come from the API server since then.
    #[must_use]
    pub fn has_received_since(&self, since: Instant) -> bool {
        match self.last_byte.load(Ordering::Relaxed) {
            0 => false,
            nanos => self.began + Duration::from_nanos(nanos) >= since,
        }
    }

    /// The bytes to the API server, and those from it.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes_to.load(Ordering::Relaxed), self.bytes_from.load(Ordering::Relaxed))
    }

    /// Counts the result of a connection or of a dial.
    pub fn count(&self, result: ConnectionResult) {
        self.results[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of connections and dials with this result.
    #[must_use]
    pub fn counted(&self, result: ConnectionResult) -> u64 {
        self.results[result as usize].load(Ordering::Relaxed)
    }

    /// Ends every connection that is open now.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Changes when the connections that are open now have to end.
    #[must_use]
    pub fn cuts(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
