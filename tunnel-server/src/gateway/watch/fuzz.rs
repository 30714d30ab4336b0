//! Fuzz targets: what an edge sends as the events of a watch.

use super::encoding::{Encoding, EventScanner};
use super::event::{EventParseError, ScanStep};
use super::query::Query;
use super::version::{Start, Version};

/// Number of random inputs that `make test` tries, beside the corpus. `make fuzz` sets another one by the
/// environment.
const ITERATIONS: usize = 2_000;

/// The end of an event does not depend on the pieces in which it arrives, and its columns are inside it.
#[test]
fn events() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        for encoding in [Encoding::Json, Encoding::Protobuf, Encoding::Cbor] {
            let at_once = ends(encoding, bytes, bytes.len().max(1));
            for piece_bytes in [1, 3] {
                assert_eq!(
                    ends(encoding, bytes, piece_bytes),
                    at_once,
                    "{encoding:?} in pieces of {piece_bytes}"
                );
            }
            let mut start = 0;
            for end in at_once.0 {
                let event = &bytes[start..end];
                start = end;
                if let Ok(event_read) = encoding.read(event) {
                    let columns = event_read.columns.map(|columns| columns.place);
                    assert!(columns.is_none_or(|place| event.get(place).is_some()));
                }
                let _ = encoding.kind_of(event);
                let _ = encoding.error_event(event);
            }
            // What no scanner has looked at, too: an answer's body is read complete.
            let _ = (encoding.read(bytes), encoding.kind_of(bytes));
        }
    });
}

/// A version is a number, and a query that says one is read as it says.
#[test]
fn queries() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        if let Some(version) = Version::parse(text) {
            assert!(version.as_str() == text && text.bytes().all(|byte| byte.is_ascii_digit()));
        }
        let Some(query) = Query::parse(Some(text)) else { return };
        let version = Version::parse("7").unwrap();
        let resumed = Query::parse(Some(&query.resume_after(&version, None)));
        assert!(resumed.is_some_and(|query| query.start == Start::At(version)));
    });
}

/// The ends of the events, and the error if other bytes came. The bytes are fed in pieces of `piece_bytes`.
fn ends(encoding: Encoding, bytes: &[u8], piece_bytes: usize) -> (Vec<usize>, Option<EventParseError>) {
    let (mut scanner, mut ends, mut at) = (EventScanner::new(encoding), Vec::new(), 0);
    for piece in bytes.chunks(piece_bytes) {
        let mut rest = piece;
        while !rest.is_empty() {
            let taken = match scanner.step(rest) {
                Ok(ScanStep::Between(taken) | ScanStep::Within(taken)) => taken,
                Ok(ScanStep::End(taken)) => {
                    ends.push(at + taken);
                    taken
                }
                Err(unframed) => return (ends, Some(unframed)),
            };
            assert!(taken > 0 && taken <= rest.len());
            at += taken;
            rest = &rest[taken..];
        }
    }
    (ends, None)
}
