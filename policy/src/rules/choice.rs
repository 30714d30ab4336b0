//! A list in which `*` alone means everything.

/// Some, or whatever there is.
#[derive(Debug, Clone)]
pub(super) enum Choice<T> {
    /// `*` stands in the list.
    Any,
    /// These and no others.
    Of(Vec<T>),
}

/// What stands for everything.
pub(super) const ANY: &str = "*";

impl<T> Choice<T> {
    /// Whether one of them is meant.
    pub(super) fn has(&self, is_meant: impl FnMut(&T) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::Of(some) => some.iter().any(is_meant),
        }
    }

    /// Whether everything is.
    pub(super) fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }
}
