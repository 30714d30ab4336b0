//! The effect of a rule: it allows or denies.

/// The effect of a rule on the requests in its scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Allow,
    Deny,
}

impl Effect {
    /// The allowed texts, for error messages.
    pub(super) const ALLOWED: &str = "Allow or Deny";

    /// Parses the value of the key `effect`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "Allow" => Some(Self::Allow),
            "Deny" => Some(Self::Deny),
            _ => None,
        }
    }
}
