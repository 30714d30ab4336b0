//! The grades of health, and the outcomes of probes that lead to them.

use std::time::Duration;

/// The health of an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// It is ready for requests, or refuses those that probe it.
    Ready,
    /// It shows a certificate of the cluster's CA, and says that it is not ready: it is starting, or ending,
    /// or a part that it needs is away.
    Alive,
    /// It has shown such a certificate before, and does not answer.
    Down,
    /// It has not shown such a certificate in this process's life, or has shown another one since.
    Unproven,
}

/// The outcome of one probe, or of a dial for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// It showed a certificate of the CA and answered after this time. `is_ready` is its own word.
    Answered {
        /// True if the answer counts as ready.
        is_ready: bool,
        /// The shortest round trip of the connection, as the kernel has measured it.
        round_trip: Duration,
    },
    /// There was no answer in time.
    Missed,
    /// The host answers, and nobody listens there. Its kernel has ended the connections of a process that
    /// died, so those that are left belong to one that ends in order.
    Refused,
    /// The address cannot be reached.
    Unreachable,
    /// It showed a certificate that the cluster's CA has not signed, or none.
    Foreign,
}

impl Grade {
    /// Every grade, in the order of the metric's labels.
    pub const ALL: [Self; 4] = [Self::Ready, Self::Alive, Self::Down, Self::Unproven];

    /// The value of the metric's label `state`, and the word in the log.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Alive => "alive",
            Self::Down => "down",
            Self::Unproven => "unproven",
        }
    }
}
