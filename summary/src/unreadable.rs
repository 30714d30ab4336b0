//! Fields that a question names and that an object has in another form: they are counted, and one is shown.

use serde::{Deserialize, Serialize};

/// The longest note about one field, in characters.
const NOTE_CHARS_MAX: usize = 300;

/// The fields that could not be read. They are in no figure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// The number of such fields.
    pub count: u64,
    /// The first note about one in the order of their texts. `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
}

impl Unreadable {
    pub(crate) fn add(&mut self, note: &str) {
        let note = note.chars().take(NOTE_CHARS_MAX).collect();
        self.merge(Self { count: 1, first: Some(note) });
    }

    /// Adds those of another aggregate. The order makes no difference.
    pub(crate) fn merge(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.first = match (self.first.take(), other.first) {
            (Some(own), Some(others)) => Some(own.min(others)),
            (own, others) => own.or(others),
        };
    }

    /// Returns true if the note is no longer than this crate writes one.
    pub(crate) fn is_valid(&self) -> bool {
        self.first.as_ref().is_none_or(|note| note.chars().count() <= NOTE_CHARS_MAX)
    }
}
