//! The encodings of watch events: where an event ends, and what the gateway reads of it. Pure.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::event::{Event, EventParseError, ScanStep};
use super::{cbor, json, protobuf};

/// The encoding of a watch's events, and their framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// A sequence of JSON objects. Tables are objects too.
    Json,
    /// A sequence of protobuf messages, each after its length in four bytes.
    Protobuf,
    /// A sequence of CBOR items.
    Cbor,
}

/// Finds the ends of events in a stream of pieces.
#[derive(Debug)]
pub(super) enum EventScanner {
    Json(json::JsonScanner),
    Protobuf(protobuf::ProtobufScanner),
    Cbor(cbor::CborScanner),
}

impl Encoding {
    /// The encoding of the events in an answer with these headers. `None` if they cannot be followed, because
    /// they are compressed or in another format.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
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

    /// Reads a complete event in this encoding.
    ///
    /// # Errors
    /// The bytes are no event in this encoding.
    pub(super) fn read(self, event: &[u8]) -> Result<Event, EventParseError> {
        match self {
            Self::Json => json::read(event),
            Self::Protobuf => protobuf::read(event),
            Self::Cbor => cbor::read(event),
        }
    }

    /// The kind of an object that is the body of an answer. `None` if it is no object.
    pub(super) fn kind_of(self, object: &[u8]) -> Option<Cow<'_, str>> {
        match self {
            Self::Json => json::kind_of(object),
            Self::Protobuf => protobuf::kind_of(object),
            Self::Cbor => cbor::kind_of(object),
        }
    }

    /// An ERROR event with `status`, which is a `Status` object in this encoding.
    pub(super) fn error_event(self, status: &[u8]) -> Vec<u8> {
        match self {
            Self::Json => json::error_event(status),
            Self::Protobuf => protobuf::error_event(status),
            Self::Cbor => cbor::error_event(status),
        }
    }
}

impl EventScanner {
    pub(super) fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Json(json::JsonScanner::default()),
            Encoding::Protobuf => Self::Protobuf(protobuf::ProtobufScanner::default()),
            Encoding::Cbor => Self::Cbor(cbor::CborScanner::default()),
        }
    }

    /// Scans the front of `bytes`, which are not empty.
    ///
    /// # Errors
    /// The bytes are no events in this encoding.
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
    fn the_encoding_comes_from_the_answer_and_compression_is_not_followed() {
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
            assert_eq!(Encoding::from_headers(&headers), encoding, "{content_type}");
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            assert_eq!(Encoding::from_headers(&headers), None, "{content_type}");
        }
        assert_eq!(Encoding::from_headers(&HeaderMap::new()), None);
    }
}
