//! Decides which handshakes of agents may begin, and which agents must first prove their source address.
//! Pure.

use crate::config::AgentLimits;

/// The decision about an agent that begins a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Accept,
    /// The agent must come back with a token that was sent to its address (QUIC Retry).
    Retry,
    Refuse,
}

impl Admission {
    /// Decides about an agent whose address `is_validated` or not, while `in_progress` handshakes run.
    /// `is_within_rate` is false if too many came from its network lately.
    pub(super) fn decide(
        limits: AgentLimits,
        in_progress: usize,
        is_validated: bool,
        is_within_rate: bool,
    ) -> Self {
        if in_progress >= limits.handshakes {
            Self::Refuse
        } else if (in_progress >= limits.unproved || !is_within_rate) && !is_validated {
            Self::Retry
        } else {
            Self::Accept
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_admitted_up_to_the_limit_on_handshakes() {
        for limits in
            [AgentLimits::default(), AgentLimits { handshakes: 7, unproved: 3, ..AgentLimits::default() }]
        {
            for (in_progress, unproved, proved) in [
                (0, Admission::Accept, Admission::Accept),
                (limits.unproved - 1, Admission::Accept, Admission::Accept),
                (limits.unproved, Admission::Retry, Admission::Accept),
                (limits.handshakes - 1, Admission::Retry, Admission::Accept),
                (limits.handshakes, Admission::Refuse, Admission::Refuse),
            ] {
                let decide = |is_validated, is_within_rate| {
                    Admission::decide(limits, in_progress, is_validated, is_within_rate)
                };
                assert_eq!(decide(false, true), unproved, "{in_progress}");
                assert_eq!(decide(true, true), proved, "{in_progress}");
                assert_eq!(decide(true, false), proved, "{in_progress} of many");
                let over_rate = if unproved == Admission::Accept { Admission::Retry } else { unproved };
                assert_eq!(decide(false, false), over_rate, "{in_progress} of many");
            }
        }
    }
}
