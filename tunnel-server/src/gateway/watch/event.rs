//! The parts of a watch event that the gateway reads, whatever its encoding. Pure.

use std::ops::Range;

/// The parts of an event that the gateway needs in order to pass it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    /// The resource version of the event's object, as it is written.
    pub(super) version: Option<Box<str>>,
    /// True if the event is the bookmark after the initial events.
    pub(super) ends_initial_events: bool,
    /// The column definitions, if the object is a Table.
    pub(super) columns: Option<Columns>,
}

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    /// ADDED, MODIFIED or DELETED: an object has changed.
    Change,
    /// BOOKMARK: everything up to its version was sent.
    Bookmark,
    /// ERROR: the API server ends the watch.
    Error,
    /// A type that no Kubernetes release sends so far.
    Other,
}

/// The column definitions of a Table. Only the first Table of a watch has them, whichever event it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns {
    /// Their position in the event.
    pub(super) place: Range<usize>,
    /// True if the list of definitions is empty.
    pub(super) empty: bool,
}

/// The result of scanning the front of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanStep {
    /// This many bytes belong to no event.
    Between(usize),
    /// This many bytes belong to an event that continues.
    Within(usize),
    /// This many bytes belong to an event that ends with them.
    End(usize),
}

/// The bytes are no events in the expected encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are no events")]
pub(super) struct EventParseError;

impl EventKind {
    /// Parses the `type` of an event.
    pub(super) fn parse(word: &[u8]) -> Self {
        match word {
            b"ADDED" | b"MODIFIED" | b"DELETED" => Self::Change,
            b"BOOKMARK" => Self::Bookmark,
            b"ERROR" => Self::Error,
            _ => Self::Other,
        }
    }
}
