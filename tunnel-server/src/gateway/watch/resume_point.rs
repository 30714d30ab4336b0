//! From where a watch may be begun again without a gap and without a duplicate. Pure.
//!
//! The ADDED events with which a watch begins that was not given a version are made up from what there is, sorted by key
//! and not by version: whoever goes on from the last of them loses what stands behind it. So a watch has a safe point only
//! if it began at a version, or once a bookmark has said that everything up to a version was told.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-watch>

use super::event::{Event, EventKind};
use super::query::Start;

/// Longest resource version that is followed, in bytes; etcd's have at most 19.
const VERSION_BYTES_MAX: usize = 64;

/// A resource version: a decimal number of any size, as Kubernetes promises for its own resources and those of CRDs since
/// 1.35, and has always written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version(Box<str>);

/// Where a watch would be begun again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResumePoint {
    /// Everything up to this version was told, and nothing beyond.
    At(Version),
    /// Not yet known: the next bookmark tells.
    NextBookmark,
    /// Not yet known: the bookmark behind the initial events tells.
    InitialEventsEnd,
    /// Nowhere, whatever comes.
    Never(NotResumable),
}

/// Why a watch cannot be begun again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotResumable {
    /// Its tunnel was lost before a safe point was known.
    #[error("no point was known yet from which nothing is missed")]
    NotYet,
    /// What the query says could be read in two ways, or its version is no number.
    #[error("its query does not say where it begins")]
    Query,
    /// An event was larger than may be held.
    #[error("an event was larger than it may be")]
    TooLarge,
    /// All events that are being held are larger than they may be together.
    #[error("the events of all watches were larger than they may be")]
    NoRoom,
    /// What came is no event, or no event that is known.
    #[error("something came that is no event of a watch")]
    NotAnEvent,
    /// A version came that is not newer than the one before.
    #[error("events came that are not in the order of their versions")]
    Unordered,
    /// The API server has ended it with an ERROR event.
    #[error("the API server has ended it with an error")]
    TerminationReason,
}

impl Version {
    /// `None` for what is no number but zero.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let fits = (1..=VERSION_BYTES_MAX).contains(&text.len());
        (digits && fits && !text.starts_with('0')).then(|| Self(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn is_newer_than(&self, other: &Self) -> bool {
        (self.0.len(), &self.0) > (other.0.len(), &other.0)
    }
}

impl ResumePoint {
    pub(super) fn of(start: Start) -> Self {
        match start {
            Start::At(version) => Self::At(version),
            Start::Anywhere => Self::NextBookmark,
            Start::InitialEvents => Self::InitialEventsEnd,
            Start::Unclear => Self::Never(NotResumable::Query),
        }
    }

    /// An event has been told.
    pub(super) fn advance(&mut self, event: &Event) {
        if let Self::Never(_) = self {
            return;
        }
        let version = event.version.as_deref().and_then(Version::parse);
        *self = match (event.kind, version) {
            (EventKind::Error, _) => Self::Never(NotResumable::TerminationReason),
            (EventKind::Other, _) => Self::Never(NotResumable::NotAnEvent),
            (EventKind::Bookmark, Some(version)) => self.marked(version, event.ends_initial_events),
            (EventKind::Change, Some(version)) => self.changed(version),
            // Whoever began again at the point before would be told of this change twice.
            (EventKind::Change, None) if matches!(self, Self::At(_)) => Self::NextBookmark,
            (EventKind::Change | EventKind::Bookmark, None) => return,
        };
    }

    /// Whatever comes, there is none any more; the first reason stays.
    pub(super) fn never(&mut self, reason: NotResumable) {
        if !matches!(self, Self::Never(_)) {
            *self = Self::Never(reason);
        }
    }

    /// The version from which to begin again.
    pub(super) fn version(&self) -> Result<&Version, NotResumable> {
        match self {
            Self::At(version) => Ok(version),
            Self::NextBookmark | Self::InitialEventsEnd => Err(NotResumable::NotYet),
            Self::Never(reason) => Err(*reason),
        }
    }

    fn marked(&self, version: Version, ends_initial_events: bool) -> Self {
        match self {
            Self::At(last) if last.is_newer_than(&version) => Self::Never(NotResumable::Unordered),
            Self::InitialEventsEnd if !ends_initial_events => Self::InitialEventsEnd,
            Self::At(_) | Self::NextBookmark | Self::InitialEventsEnd => Self::At(version),
            Self::Never(reason) => Self::Never(*reason),
        }
    }

    fn changed(&self, version: Version) -> Self {
        match self {
            Self::At(last) if version.is_newer_than(last) => Self::At(version),
            Self::At(_) => Self::Never(NotResumable::Unordered),
            Self::NextBookmark | Self::InitialEventsEnd | Self::Never(_) => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_number_and_not_zero() {
        for text in ["1", "99", &"9".repeat(VERSION_BYTES_MAX)] {
            assert!(Version::parse(text).is_some(), "{text}");
        }
        for text in ["", "0", "01", "-1", "1 ", "a", "1a", &"9".repeat(VERSION_BYTES_MAX + 1)] {
            assert!(Version::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version("10").is_newer_than(&version("9")));
        assert!(!version("9").is_newer_than(&version("10")));
        assert!(!version("9").is_newer_than(&version("9")));
    }

    #[test]
    fn a_watch_from_a_version_is_safe_at_once_and_goes_along_with_its_events() {
        let mut point = ResumePoint::of(Start::At(version("5")));
        assert_eq!(point.version(), Ok(&version("5")));

        point.advance(&change(Some("7")));
        point.advance(&bookmark("7", false));
        point.advance(&bookmark("9", false));

        assert_eq!(point.version(), Ok(&version("9")));
    }

    #[test]
    fn made_up_events_make_nothing_safe_and_a_bookmark_does() {
        let mut point = ResumePoint::of(Start::Anywhere);
        point.advance(&change(Some("7")));
        point.advance(&change(Some("3")));
        assert_eq!(point.version(), Err(NotResumable::NotYet));

        point.advance(&bookmark("8", false));
        assert_eq!(point.version(), Ok(&version("8")));
    }

    #[test]
    fn a_streamed_list_is_safe_behind_the_bookmark_that_says_so_and_no_other() {
        let mut point = ResumePoint::of(Start::InitialEvents);
        point.advance(&change(Some("7")));
        point.advance(&bookmark("8", false));
        assert_eq!(point.version(), Err(NotResumable::NotYet));

        point.advance(&bookmark("8", true));
        assert_eq!(point.version(), Ok(&version("8")));
    }

    #[test]
    fn a_change_without_a_version_makes_a_watch_unsafe_until_a_bookmark() {
        for text in [None, Some(""), Some("0"), Some("x")] {
            let mut point = ResumePoint::of(Start::At(version("5")));
            point.advance(&change(text));
            assert_eq!(point.version(), Err(NotResumable::NotYet), "{text:?}");
            point.advance(&bookmark("6", false));
            assert_eq!(point.version(), Ok(&version("6")));
        }
    }

    #[test]
    fn what_goes_back_is_never_safe_again() {
        for event in [change(Some("5")), change(Some("4")), bookmark("4", false)] {
            let mut point = ResumePoint::of(Start::At(version("5")));
            point.advance(&event);
            point.advance(&bookmark("9", true));
            assert_eq!(point.version(), Err(NotResumable::Unordered), "{event:?}");
        }
    }

    #[test]
    fn behind_an_error_nothing_is_safe() {
        let mut point = ResumePoint::of(Start::At(version("5")));
        point.advance(&Event { kind: EventKind::Error, ..change(None) });
        point.advance(&bookmark("9", true));
        assert_eq!(point.version(), Err(NotResumable::TerminationReason));
    }

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    fn change(version: Option<&str>) -> Event {
        Event {
            kind: EventKind::Change,
            version: version.map(Into::into),
            ends_initial_events: false,
            columns: None,
        }
    }

    fn bookmark(version: &str, ends_initial_events: bool) -> Event {
        Event { kind: EventKind::Bookmark, ends_initial_events, ..change(Some(version)) }
    }
}
