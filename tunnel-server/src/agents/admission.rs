//! Who may begin to shake hands, and who has to show first that its address is its own. Pure.

use crate::config::AgentLimits;

/// What becomes of an agent that knocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Granted,
    /// It is asked to come again with a token that was sent to its address.
    AddressFirst,
    Refused,
}

impl Entry {
    /// For one whose address is known to be its own or not, while so many handshakes are `in_progress`, and few came of late
    /// from where it comes, or not.
    pub(super) fn of(limits: AgentLimits, in_progress: usize, is_validated: bool, is_easy: bool) -> Self {
        if in_progress >= limits.handshakes {
            Self::Refused
        } else if (in_progress >= limits.unproved || !is_easy) && !is_validated {
            Self::AddressFirst
        } else {
            Self::Granted
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
                (0, Entry::Granted, Entry::Granted),
                (limits.unproved - 1, Entry::Granted, Entry::Granted),
                (limits.unproved, Entry::AddressFirst, Entry::Granted),
                (limits.handshakes - 1, Entry::AddressFirst, Entry::Granted),
                (limits.handshakes, Entry::Refused, Entry::Refused),
            ] {
                let of = |is_validated, is_easy| Entry::of(limits, in_progress, is_validated, is_easy);
                assert_eq!(of(false, true), unproved, "{in_progress}");
                assert_eq!(of(true, true), proved, "{in_progress}");
                assert_eq!(of(true, false), proved, "{in_progress} of many");
                let of_many = if unproved == Entry::Granted { Entry::AddressFirst } else { unproved };
                assert_eq!(of(false, false), of_many, "{in_progress} of many");
            }
        }
    }
}
