//! Who may begin to shake hands, and who has to show first that its address is its own. Pure.

use crate::config::AgentLimits;

/// What becomes of an agent that knocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Accept,
    /// It is asked to come again with a token that was sent to its address.
    Retry,
    Refuse,
}

impl Admission {
    /// For one whose address is known to be its own or not, while so many handshakes are `in_progress`, and few came of late
    /// from where it comes, or not.
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
    fn agents_are_let_in_until_too_many_shake_hands() {
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
