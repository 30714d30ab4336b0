//! Claims about the bytes that pass the relay, those that are suppressed, and the resume point.

mod event_codec;
mod model;

use serde_json::{Value, json};

use super::*;
use event_codec::{Form, events_in};

const ALL: [Form; 5] = [Form::Json, Form::Table, Form::Protobuf, Form::Cbor, Form::CborTable];

const EVENT_BYTES_MAX: usize = 4096;

#[test]
fn complete_events_pass_unchanged_in_whatever_pieces_they_come() {
    for form in ALL {
        let events =
            [change("ADDED", "a", 7), change("MODIFIED", "a", 8), bookmark(9), change("DELETED", "a", 10)];
        let stream = form.encode(&events);
        for piece_bytes in [1, 2, 3, 7, 100, stream.len()] {
            let mut relay = relay(form, "resourceVersion=5&allowWatchBookmarks=true");
            let mut passed = Vec::new();
            for piece in stream.chunks(piece_bytes) {
                passed.extend_from_slice(&relay.pass(&Bytes::copy_from_slice(piece)));
                assert_eq!(events_in(form, &passed).1, 0, "{form:?}: a part of an event was passed on");
            }
            assert!(passed == stream, "{form:?} in pieces of {piece_bytes}");
            assert_eq!(relay.resume_point().unwrap().as_str(), "10", "{form:?}");
        }
    }
}

#[test]
fn complete_events_of_one_piece_are_not_copied() {
    for form in ALL {
        let stream = Bytes::from(form.encode(&[change("ADDED", "a", 7), change("MODIFIED", "a", 8)]));
        let passed = relay(form, "resourceVersion=5").pass(&stream);
        assert_eq!((passed.as_ptr(), passed.len()), (stream.as_ptr(), stream.len()), "{form:?}");
    }
}

#[test]
fn unwanted_bookmarks_are_suppressed_and_advance_the_resume_point() {
    for form in ALL {
        let (first, second) = (change("ADDED", "a", 7), change("ADDED", "b", 9));
        let stream = form.encode(&[first.clone(), bookmark(8), second.clone(), bookmark(12)]);
        for piece_bytes in [1, 5, stream.len()] {
            let (passed, relay) = pass_all(form, "resourceVersion=5", &stream, piece_bytes);
            let (events, rest) = events_in(form, &passed);
            assert_eq!((kinds(&events), rest), (vec!["ADDED", "ADDED"], 0), "{form:?}");
            assert_eq!(relay.resume_point().unwrap().as_str(), "12", "{form:?}");
        }
        let (passed, _) = pass_all(form, "resourceVersion=5&allowWatchBookmarks=1", &stream, 64);
        assert!(passed == stream, "{form:?}: they pass if the caller has asked for them");
    }
}

#[test]
fn columns_of_a_suppressed_bookmark_come_with_the_first_row() {
    for form in [Form::Table, Form::CborTable] {
        let stream =
            form.encode(&[bookmark(6), bookmark(7), change("ADDED", "a", 8), change("ADDED", "b", 9)]);
        for piece_bytes in [1, 11, stream.len()] {
            let (passed, _) = pass_all(form, "resourceVersion=5", &stream, piece_bytes);
            let (events, _) = events_in(form, &passed);
            let columns: Vec<_> =
                events.iter().map(|event| event["object"]["columnDefinitions"].is_array()).collect();
            assert_eq!(columns, [true, false], "{form:?}");
        }
    }
}

#[test]
fn columns_that_were_passed_on_do_not_come_again_after_a_bookmark() {
    for form in [Form::Table, Form::CborTable] {
        let mut relay = relay(form, "resourceVersion=5");
        let first = relay.pass(&form.encode(&[change("ADDED", "a", 8)]).into());
        assert!(events_in(form, &first).0[0]["object"]["columnDefinitions"].is_array());

        relay.resume();
        let second = relay.pass(&form.encode(&[bookmark(9), change("ADDED", "b", 10)]).into());

        let (events, _) = events_in(form, &second);
        assert_eq!(kinds(&events), ["ADDED"]);
        assert!(events[0]["object"]["columnDefinitions"].is_null(), "{form:?}");
    }
}

/// One byte more makes the watch end with its tunnel.
#[test]
fn an_event_at_the_limit_can_be_resumed_after_and_a_larger_one_not() {
    for form in [Form::Json, Form::Protobuf, Form::Cbor] {
        let event = |padding: usize| {
            let mut event = change("ADDED", "a", 7);
            event["object"]["value"] = "x".repeat(padding).into();
            event
        };
        let one = |padding| form.encode(&[event(padding)]).len() - usize::from(form == Form::Json);
        // A larger length takes more bytes, so that the padding that fits is searched for.
        let at_limit = (0..EVENT_BYTES_MAX).rev().find(|padding| one(*padding) <= EVENT_BYTES_MAX).unwrap();
        assert_eq!(one(at_limit), EVENT_BYTES_MAX, "{form:?}");
        for (padding, resume_point) in [(at_limit, Ok("8")), (at_limit + 1, Err(NotResumable::TooLarge))] {
            let stream = form.encode(&[event(padding), change("MODIFIED", "a", 8), bookmark(8)]);
            for piece_bytes in [1, 1000, stream.len()] {
                let (passed, relay) = pass_all(form, "resourceVersion=5", &stream, piece_bytes);
                let (events, rest) = events_in(form, &passed);
                assert_eq!((kinds(&events), rest), (vec!["ADDED", "MODIFIED"], 0), "{form:?}");
                assert_eq!(relay.resume_point().map(Version::as_str), resume_point, "{form:?}");
            }
        }
    }
}

#[test]
fn without_budget_for_an_event_it_passes_as_it_comes() {
    for form in ALL {
        let query = Query::parse(Some("resourceVersion=5")).unwrap();
        let stream = form.encode(&[change("ADDED", "a", 7)]);
        let mut relay =
            Relay::new(form.encoding(), &query, EVENT_BYTES_MAX, &BufferBudget::new(stream.len() / 2));
        let passed: Vec<u8> =
            stream.iter().flat_map(|byte| relay.pass(&Bytes::copy_from_slice(&[*byte]))).collect();
        assert!(passed == stream, "{form:?}");
        assert_eq!(relay.resume_point(), Err(NotResumable::OverBudget), "{form:?}");
    }
}

#[test]
fn what_is_no_event_passes_unchanged_and_prevents_resuming() {
    for (form, stream) in [
        (Form::Json, b"[1,2]\n".as_slice()),
        (Form::Json, b"{\"type\":\"ADDED\",\"object\":{}}\nxyz{}"),
        (Form::Json, b"{\"kind\":\"Pod\"}\n"),
        (Form::Json, b"{\"type\":\"RENAMED\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}"),
        (Form::Protobuf, b"\0\0\0\x03abc"),
        (Form::Protobuf, b"\0\0\0\0"),
        (Form::Cbor, b"\x80"),
        (Form::Cbor, b"\xff"),
        (Form::Cbor, b"\x1c"),
    ] {
        for piece_bytes in [1, stream.len()] {
            let (mut passed, mut relay) = pass_all(form, "resourceVersion=5", stream, piece_bytes);
            passed.extend_from_slice(&relay.rest());
            assert_eq!(passed, stream, "{form:?}");
            assert_eq!(relay.resume_point(), Err(NotResumable::NotAnEvent), "{form:?} {stream:?}");
        }
    }
}

#[test]
fn nesting_is_accepted_up_to_a_depth_and_no_further() {
    let deep = |depth| [vec![0x81; depth], vec![0x01]].concat();
    for (form, fits, stream) in [
        (Form::Cbor, true, deep(64)),
        (Form::Cbor, false, deep(65)),
        (Form::Json, true, format!("{{\"a\":{}", "[".repeat(9_999)).into_bytes()),
        (Form::Json, false, format!("{{\"a\":{}", "[".repeat(10_000)).into_bytes()),
    ] {
        let mut scanner = EventScanner::new(form.encoding());
        assert_eq!(scanner.step(&stream).is_ok(), fits, "{form:?}");
    }
}

#[test]
fn any_object_may_have_the_field_names_of_a_table() {
    let event = json!({"type": "ADDED", "object": {"kind": "Chess", "apiVersion": "games.example/v1",
        "metadata": {"resourceVersion": "7"}, "rows": 8, "columnDefinitions": {"a": 1}}});
    for form in [Form::Json, Form::Cbor] {
        let stream = form.encode(std::slice::from_ref(&event));
        let (passed, relay) = pass_all(form, "resourceVersion=5", &stream, 10);
        assert!(passed == stream, "{form:?}");
        assert_eq!(relay.resume_point().unwrap().as_str(), "7", "{form:?}");
    }
}

#[test]
fn a_resumed_watch_begins_on_a_new_line() {
    let line = Form::Json.encode(&[change("ADDED", "a", 7)]);
    for cut in [line.len() - 1, line.len()] {
        let mut relay = relay(Form::Json, "resourceVersion=5");
        let mut passed = relay.pass(&Bytes::copy_from_slice(&line[..cut])).to_vec();
        passed.extend_from_slice(&relay.resume());
        passed.extend_from_slice(&relay.pass(&Form::Json.encode(&[change("ADDED", "b", 8)]).into()));
        let lines: Vec<_> = passed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        assert_eq!((lines.len(), passed.split(|byte| *byte == b'\n').count()), (2, 3), "cut at {cut}");
    }
}

#[test]
fn an_error_is_the_last_event_and_in_the_callers_encoding() {
    for form in [Form::Json, Form::Protobuf, Form::Cbor] {
        let mut relay = relay(form, "resourceVersion=5");
        let stream = form.encode(&[change("ADDED", "a", 7), change("ADDED", "b", 8)]);
        let mut passed = relay.pass(&Bytes::copy_from_slice(&stream[..stream.len() - 3])).to_vec();
        let status = json!({"kind": "Status", "apiVersion": "v1", "message": "gone", "code": 410});

        passed.extend_from_slice(&relay.fail(&form.object(&status)));

        let (events, rest) = events_in(form, &passed);
        assert_eq!((kinds(&events), rest), (vec!["ADDED", "ERROR"], 0), "{form:?}");
        assert_eq!(events[1]["object"]["message"], "gone", "{form:?}");
        assert_eq!(
            (relay.resume_point(), relay.encoding()),
            (Err(NotResumable::ErrorEvent), form.encoding())
        );
    }
}

fn relay(form: Form, query: &str) -> Relay {
    let query = Query::parse(Some(query)).unwrap();
    Relay::new(form.encoding(), &query, EVENT_BYTES_MAX, &BufferBudget::new(1 << 20))
}

fn pass_all(form: Form, query: &str, stream: &[u8], piece_bytes: usize) -> (Vec<u8>, Relay) {
    let mut relay = relay(form, query);
    let pieces = stream.chunks(piece_bytes).map(Bytes::copy_from_slice);
    let passed = pieces.flat_map(|piece| relay.pass(&piece)).collect();
    (passed, relay)
}

fn change(kind: &str, name: &str, version: u64) -> Value {
    json!({"type": kind, "object": {"kind": "Thing", "apiVersion": "v1",
        "metadata": {"name": name, "resourceVersion": version.to_string()}, "value": "{\"}]"}})
}

fn bookmark(version: u64) -> Value {
    json!({"type": "BOOKMARK", "object": {"kind": "Thing", "apiVersion": "v1",
        "metadata": {"resourceVersion": version.to_string()}}})
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}
