//! Fuzz targets for questions, lists and the answers of agents.

use serde_json::Value;

use crate::{EdgeAnswer, ListReader, NotAList, Path, Question};

/// Random inputs that `make test` tries beside the corpus. `make fuzz` sets another number by the
/// environment.
const ITERATIONS: usize = 2_000;

/// A question and a path are read or refused, and an accepted path leads somewhere or nowhere in any object.
#[test]
fn questions() {
    let object = serde_json::json!({ "a": [{ "b": 1 }, { "b": "x" }], "c": { "d": null } });
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        drop(Question::parse(text));
        if let Ok(path) = text.parse::<Path>() {
            drop(path.find(&object));
        }
    });
}

/// A list in two pieces is read as in one, and an accepted one is JSON with the same objects.
#[test]
fn lists() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let read = |cut: usize| {
            let (mut reader, mut objects) = (ListReader::default(), Vec::new());
            let mut each = |object: &Value| {
                objects.push(object.clone());
                Ok::<(), NotAList>(())
            };
            reader.push(&bytes[..cut], &mut each)?;
            reader.push(&bytes[cut..], &mut each)?;
            reader.finish().map(|head| (head, objects))
        };
        let whole = read(bytes.len());
        assert_eq!(read(bytes.len() / 2), whole);
        if let Ok((head, objects)) = whole {
            let parsed: Value = serde_json::from_slice(bytes).unwrap();
            assert_eq!(parsed["kind"], head.kind);
            assert_eq!(parsed["items"].as_array().cloned().unwrap_or_default(), objects);
        }
    });
}

/// An accepted answer of an agent is written as it was read.
#[test]
fn answers() {
    let question = Question::parse(
        r#"{"groupBy":[".a"],"values":[{"sum":".b"}],"top":{"count":2,"by":".b"},"select":[".a"]}"#,
    );
    let question = question.unwrap();
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(answer) = EdgeAnswer::decode(bytes, &question) else { return };
        if let Ok(written) = answer.encode() {
            assert_eq!(EdgeAnswer::decode(&written, &question), Ok(answer));
        }
    });
}
