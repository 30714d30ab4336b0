//! What a watch's event says of itself, and where it ends, in each of the encodings. Pure.

use std::borrow::Cow;
use std::ops::Range;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::{cbor, json, protobuf};

/// How a watch's events are written and how they stand behind each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// One JSON object behind the other; Tables are objects too.
    Json,
    /// Protobuf messages, each behind its length in four bytes.
    Protobuf,
    /// One CBOR item behind the other.
    Cbor,
}

/// As much of an event as whoever passes it on has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    /// Its object's resource version, as it is written.
    pub(super) version: Option<Box<str>>,
    /// It is the bookmark behind the events with which the watch began.
    pub(super) ends_initial_events: bool,
    /// Its object is a Table.
    pub(super) columns: Option<Columns>,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    /// ADDED, MODIFIED or DELETED.
    Change,
    /// BOOKMARK.
    Bookmark,
    /// ERROR.
    Error,
    /// What no Kubernetes up to now sends.
    Other,
}

/// The column definitions of a Table. The first Table of a watch has them and no other, whichever event that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns {
    /// Where they stand in the event.
    pub(super) place: Range<usize>,
    /// There are none.
    pub(super) empty: bool,
}

/// What stands at the front of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanStep {
    /// So many bytes that belong to no event.
    Between(usize),
    /// So many bytes of an event that goes on.
    Within(usize),
    /// So many bytes, with which an event ends.
    End(usize),
}

/// The bytes are no events in this encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are no events")]
pub(super) struct EventParseError;

/// Finds the ends of events, in whatever pieces they come.
#[derive(Debug)]
pub(super) enum Scanner {
    Json(json::JsonScanner),
    Protobuf(protobuf::ProtobufScanner),
    Cbor(cbor::CborScanner),
}

impl Encoding {
    /// In which encoding the answer with these headers brings its events; `None` where they cannot be followed, because
    /// they are compressed or of another kind.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut types = headers.get_all(CONTENT_TYPE).iter();
        let (Some(content_type), None) = (types.next(), types.next()) else {
            return None;
        };
        if headers.contains_key(CONTENT_ENCODING) {
            return None;
        }
        let mut parts = content_type.to_str().ok()?.split(';').map(str::trim);
        let media_type = parts.next()?.to_ascii_lowercase();
        match media_type.as_str() {
            "application/json" => Some(Self::Json),
            "application/vnd.kubernetes.protobuf" => {
                parts.any(|part| part == "stream=watch").then_some(Self::Protobuf)
            }
            "application/cbor-seq" => Some(Self::Cbor),
            _ => None,
        }
    }

    /// What an event says of itself.
    pub(super) fn read(self, event: &[u8]) -> Result<Event, EventParseError> {
        match self {
            Self::Json => json::read(event),
            Self::Protobuf => protobuf::read(event),
            Self::Cbor => cbor::read(event),
        }
    }

    /// Of which kind an object is that stands alone, as an answer's body has it; `None` for what is no object.
    pub(super) fn kind_of(self, object: &[u8]) -> Option<Cow<'_, str>> {
        match self {
            Self::Json => json::kind_of(object),
            Self::Protobuf => protobuf::kind_of(object),
            Self::Cbor => cbor::kind_of(object),
        }
    }

    /// An ERROR event about `status`, a `Status` object as an answer of this encoding holds it.
    pub(super) fn error_event(self, status: &[u8]) -> Vec<u8> {
        match self {
            Self::Json => json::error_event(status),
            Self::Protobuf => protobuf::error_event(status),
            Self::Cbor => cbor::error_event(status),
        }
    }
}

impl EventKind {
    pub(super) fn of(word: &[u8]) -> Self {
        match word {
            b"ADDED" | b"MODIFIED" | b"DELETED" => Self::Change,
            b"BOOKMARK" => Self::Bookmark,
            b"ERROR" => Self::Error,
            _ => Self::Other,
        }
    }
}

impl Scanner {
    pub(super) fn of(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Json(json::JsonScanner::default()),
            Encoding::Protobuf => Self::Protobuf(protobuf::ProtobufScanner::default()),
            Encoding::Cbor => Self::Cbor(cbor::CborScanner::default()),
        }
    }

    /// What stands at the front of `bytes`, of which there is at least one.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<ScanStep, EventParseError> {
        match self {
            Self::Json(scanner) => scanner.step(bytes),
            Self::Protobuf(scanner) => Ok(scanner.step(bytes)),
            Self::Cbor(scanner) => scanner.step(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_encoding_is_the_answers_and_a_compressed_one_is_not_followed() {
        for (content_type, encoding) in [
            ("application/json", Some(Encoding::Json)),
            ("application/json;stream=watch", Some(Encoding::Json)),
            ("Application/JSON; charset=utf-8", Some(Encoding::Json)),
            ("application/vnd.kubernetes.protobuf;stream=watch", Some(Encoding::Protobuf)),
            ("application/vnd.kubernetes.protobuf", None),
            ("application/cbor-seq", Some(Encoding::Cbor)),
            ("application/cbor", None),
            ("application/yaml", None),
            ("text/plain", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            assert_eq!(Encoding::of(&headers), encoding, "{content_type}");
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            assert_eq!(Encoding::of(&headers), None, "{content_type}");
        }
        assert_eq!(Encoding::of(&HeaderMap::new()), None);
    }
}
