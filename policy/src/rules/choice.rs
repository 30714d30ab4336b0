//! A list in which the entry `*` means every value.

/// A set of values, or every value.
#[derive(Debug, Clone)]
pub(super) enum Choice<T> {
    /// `*` stands in the list.
    Any,
    /// These values and no others.
    Of(Vec<T>),
}

/// The entry that means every value.
pub(super) const ANY: &str = "*";

impl<T> Choice<T> {
    /// Returns true if a chosen value matches.
    pub(super) fn has(&self, matches: impl FnMut(&T) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::Of(some) => some.iter().any(matches),
        }
    }

    /// Returns true if every value is chosen.
    pub(super) fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }
}
