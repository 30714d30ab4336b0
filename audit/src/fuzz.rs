//! Fuzz targets for logs and checkpoints that an attacker has written or changed.

use std::time::SystemTime;

use crate::chain::{Chain, Head};
use crate::checkpoint::Checkpoint;
use crate::event::line::{Line, Stage};
use crate::event::{Annotation, Event, User, without_values};
use crate::keys::{ChainKey, SigningKey};
use crate::reader::{ChainReader, RawLine};

/// Random inputs that `make test` tries beside the corpus. `make fuzz` sets another number by the
/// environment.
const ITERATIONS: usize = 2_000;

/// Accepted lines have consecutive numbers. With the key, only lines of the log's writer are accepted.
#[test]
fn lines() {
    let key = ChainKey::generate().unwrap();
    let mut chain = Chain::new(&key, Head::START);
    let written: Vec<Vec<u8>> = (1..=2).map(|number| chain.seal(line(number))).collect();
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let mut keyless = ChainReader::new(None);
        let mut last = None;
        for line in bytes.split(|byte| *byte == b'\n') {
            if let Ok(head) = keyless.line(RawLine { bytes: line, is_complete: true }) {
                assert!(last.is_none_or(|last| head.sequence == last + 1));
                last = Some(head.sequence);
            }
        }
        let mut keyed = ChainReader::new(Some(&key));
        for line in &written {
            let bytes = line.strip_suffix(b"\n").unwrap();
            keyed.line(RawLine { bytes, is_complete: true }).unwrap();
        }
        for line in bytes.split(|byte| *byte == b'\n') {
            assert!(
                keyed.line(RawLine { bytes: line, is_complete: true }).is_err(),
                "a line without its writer's key"
            );
        }
    });
}

/// Bytes that no key signed are never a checkpoint.
#[test]
fn checkpoints() {
    let public = SigningKey::generate().unwrap().public().unwrap();
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        assert!(Checkpoint::read(bytes, Some(&public)).is_err());
        if let Ok(checkpoint) = Checkpoint::read(bytes, None) {
            let again: Checkpoint =
                serde_json::from_slice(&serde_json::to_vec(&checkpoint).unwrap()).unwrap();
            assert_eq!(again, checkpoint);
        }
    });
}

/// The logged form of a path contains no value of its query.
#[test]
fn request_uris() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let kept = without_values(text);
        let query = kept.split_once('?').map_or("", |(_, query)| query);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        for parameter in query.split('&') {
            let name = parameter.strip_suffix('=').unwrap_or(parameter);
            assert!(name.bytes().all(fits) && name.len() <= 64, "{kept}");
        }
    });
}

fn line(number: u64) -> Vec<u8> {
    let event = Event::new("get".to_owned(), "/".to_owned(), User::default());
    let event = if number == 1 { event.with(Annotation::Previous, Head::START.mac.to_text()) } else { event };
    let at = SystemTime::UNIX_EPOCH;
    let line = Line { event: &event, stage: Stage::RequestReceived, completion: None, sequence: number, at };
    serde_json::to_vec(&line).unwrap()
}
