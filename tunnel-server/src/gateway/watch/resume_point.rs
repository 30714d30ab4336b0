//! The resource version from which a watch can be resumed without a gap and without a duplicate. Pure.
//!
//! A watch without a version begins with ADDED events for the existing objects, sorted by key and not by
//! version. Resuming from the last of them would lose events. A watch therefore has a resume point only if it
//! began at a version, or after a bookmark has confirmed everything up to a version.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-watch>

use super::event::{Event, EventKind};
use super::version::{Start, Version};

/// The point from which a watch would be resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResumePoint {
    /// Everything up to this version was sent, and nothing beyond.
    At(Version),
    /// Not known before the next bookmark.
    NextBookmark,
    /// Not known before the bookmark that ends the initial events.
    InitialEventsEnd,
    /// The watch cannot be resumed any more.
    Never(NotResumable),
}

/// The reason why a watch cannot be resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotResumable {
    /// Its tunnel was lost before a resume point was known.
    #[error("no point was known yet from which nothing is missed")]
    NotYet,
    /// Its query is ambiguous, or its version is no number.
    #[error("its query does not say where it begins")]
    Query,
    /// An event was larger than the limit.
    #[error("an event was larger than it may be")]
    TooLarge,
    /// The incomplete events of all watches together exceeded their limit.
    #[error("the events of all watches were larger than they may be")]
    OverBudget,
    /// The stream brought something that is no event, or no known event.
    #[error("something came that is no event of a watch")]
    NotAnEvent,
    /// An event's version was not newer than the one before.
    #[error("events came that are not in the order of their versions")]
    Unordered,
    /// The API server has ended the watch with an ERROR event.
    #[error("the API server has ended it with an error")]
    ErrorEvent,
}

impl ResumePoint {
    /// The resume point of a watch that begins at `start`.
    pub(super) fn new(start: Start) -> Self {
        match start {
            Start::At(version) => Self::At(version),
            Start::Anywhere => Self::NextBookmark,
            Start::InitialEvents => Self::InitialEventsEnd,
            Start::Unclear => Self::Never(NotResumable::Query),
        }
    }

    /// Advances the point after an event was sent.
    pub(super) fn advance(&mut self, event: &Event) {
        if let Self::Never(_) = self {
            return;
        }
        let version = event.version.as_deref().and_then(Version::parse);
        *self = match (event.kind, version) {
            (EventKind::Error, _) => Self::Never(NotResumable::ErrorEvent),
            (EventKind::Other, _) => Self::Never(NotResumable::NotAnEvent),
            (EventKind::Bookmark, Some(version)) => self.after_bookmark(version, event.ends_initial_events),
            (EventKind::Change, Some(version)) => self.after_change(version),
            // A watch that resumed from the point before would send this change twice.
            (EventKind::Change, None) if matches!(self, Self::At(_)) => Self::NextBookmark,
            (EventKind::Change | EventKind::Bookmark, None) => return,
        };
    }

    /// Gives up resuming. The first reason stays.
    pub(super) fn give_up(&mut self, reason: NotResumable) {
        if !matches!(self, Self::Never(_)) {
            *self = Self::Never(reason);
        }
    }

    /// The version from which to resume.
    ///
    /// # Errors
    /// The reason why the watch cannot be resumed.
    pub(super) fn version(&self) -> Result<&Version, NotResumable> {
        match self {
            Self::At(version) => Ok(version),
            Self::NextBookmark | Self::InitialEventsEnd => Err(NotResumable::NotYet),
            Self::Never(reason) => Err(*reason),
        }
    }

    /// The point after a bookmark at `version`.
    fn after_bookmark(&self, version: Version, ends_initial_events: bool) -> Self {
        match self {
            Self::At(last) if last.is_newer_than(&version) => Self::Never(NotResumable::Unordered),
            Self::InitialEventsEnd if !ends_initial_events => Self::InitialEventsEnd,
            Self::At(_) | Self::NextBookmark | Self::InitialEventsEnd => Self::At(version),
            Self::Never(reason) => Self::Never(*reason),
        }
    }

    /// The point after a change at `version`.
    fn after_change(&self, version: Version) -> Self {
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
    fn a_watch_from_a_version_can_resume_at_once_and_advances_with_events() {
        let mut point = ResumePoint::new(Start::At(version("5")));
        assert_eq!(point.version(), Ok(&version("5")));

        point.advance(&change(Some("7")));
        point.advance(&bookmark("7", false));
        point.advance(&bookmark("9", false));

        assert_eq!(point.version(), Ok(&version("9")));
    }

    #[test]
    fn initial_events_make_no_resume_point_and_a_bookmark_does() {
        let mut point = ResumePoint::new(Start::Anywhere);
        point.advance(&change(Some("7")));
        point.advance(&change(Some("3")));
        assert_eq!(point.version(), Err(NotResumable::NotYet));

        point.advance(&bookmark("8", false));
        assert_eq!(point.version(), Ok(&version("8")));
    }

    #[test]
    fn a_streamed_list_can_resume_after_the_bookmark_that_ends_it_only() {
        let mut point = ResumePoint::new(Start::InitialEvents);
        point.advance(&change(Some("7")));
        point.advance(&bookmark("8", false));
        assert_eq!(point.version(), Err(NotResumable::NotYet));

        point.advance(&bookmark("8", true));
        assert_eq!(point.version(), Ok(&version("8")));
    }

    #[test]
    fn after_a_change_without_a_version_only_a_bookmark_allows_resuming() {
        for text in [None, Some(""), Some("0"), Some("x")] {
            let mut point = ResumePoint::new(Start::At(version("5")));
            point.advance(&change(text));
            assert_eq!(point.version(), Err(NotResumable::NotYet), "{text:?}");
            point.advance(&bookmark("6", false));
            assert_eq!(point.version(), Ok(&version("6")));
        }
    }

    #[test]
    fn a_watch_whose_versions_go_back_can_never_resume() {
        for event in [change(Some("5")), change(Some("4")), bookmark("4", false)] {
            let mut point = ResumePoint::new(Start::At(version("5")));
            point.advance(&event);
            point.advance(&bookmark("9", true));
            assert_eq!(point.version(), Err(NotResumable::Unordered), "{event:?}");
        }
    }

    #[test]
    fn a_watch_cannot_resume_after_an_error_event() {
        let mut point = ResumePoint::new(Start::At(version("5")));
        point.advance(&Event { kind: EventKind::Error, ..change(None) });
        point.advance(&bookmark("9", true));
        assert_eq!(point.version(), Err(NotResumable::ErrorEvent));
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
