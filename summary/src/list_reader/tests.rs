//! Lists are read in any pieces, object by object, and whatever is no list is refused.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Reads a list in pieces of this many bytes.
fn read(bytes: &[u8], piece: usize) -> Result<(ListHead, Vec<Value>), NotAList> {
    let (mut reader, mut objects) = (ListReader::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        reader.push(piece, |object| {
            objects.push(object.clone());
            Ok::<(), NotAList>(())
        })?;
    }
    Ok((reader.finish()?, objects))
}

#[test]
fn a_list_is_read_whatever_its_pieces() {
    let objects = json!([{ "a": "}]\"\\" }, { "items": [{ "b": [1, 2] }] }, {}]);
    let list = json!({ "kind": "PodList", "metadata": { "continue": "next", "x": { "items": [1] } }, "items": objects });
    for text in [list.to_string(), serde_json::to_string_pretty(&list).unwrap()] {
        for piece in [1, 2, 7, 4096] {
            let (head, found) = read(text.as_bytes(), piece).unwrap();
            assert_eq!(head, ListHead { kind: "PodList".to_owned(), continue_token: "next".to_owned() });
            assert_eq!(json!(found), objects);
        }
    }
}

#[test]
fn empty_lists_have_no_objects_and_no_next_page() {
    for text in [
        r#"{"kind":"PodList","metadata":{},"items":[]}"#,
        r#"{"items":null,"kind":"PodList"}"#,
        r#"{"kind":"PodList","metadata":null,"items":[ ]}"#,
    ] {
        let (head, objects) = read(text.as_bytes(), 3).unwrap();
        assert!(head.continue_token.is_empty() && objects.is_empty(), "{text}");
    }
}

#[test]
fn answers_that_are_no_list_are_refused() {
    for (text, fault) in [
        ("", NotAList::NotJson),
        ("<html>", NotAList::NotJson),
        (r#"{"kind":"PodList","items":[{}"#, NotAList::NotJson),
        (r#"{"kind":"PodList","items":[{}]"#, NotAList::NotJson),
        (r#"{"kind":"PodList","items":[{]]}"#, NotAList::NotJson),
        (r#"{"kind":"PodList","items":[{}}]}"#, NotAList::NotAList),
        (r#"{"kind":"PodList","items":[1]}"#, NotAList::NotAList),
        (r#"{"kind":"PodList","items":[{},]}"#, NotAList::NotAList),
        (r#"{"kind":"PodList","items":[{} {}]}"#, NotAList::NotAList),
        (r#"{"kind":"PodList","items":[,{}]}"#, NotAList::NotAList),
        (r#"{"kind":"PodList","items":[{}],"items":[{}]}"#, NotAList::NotAList),
        (r#"{"kind":"PodList","items":{}}"#, NotAList::NotAList),
        (r#"{"kind":"PodList"}"#, NotAList::NotAList),
        (r#"{"kind":"Pod","items":[]}"#, NotAList::NotAList),
        (r#"{"items":[]}"#, NotAList::NotAList),
        ("[]", NotAList::NotAList),
        ("}", NotAList::NotJson),
        (r#"{"kind":"PodList","items":[{"a":"\x"}]}"#, NotAList::NotJson),
    ] {
        assert_eq!(read(text.as_bytes(), 5).map(drop), Err(fault), "{text}");
    }
}

#[test]
fn an_object_and_the_rest_of_a_list_have_limits() {
    let list = |object: &str, rest: &str| {
        format!(r#"{{"kind":"PodList","x":"{rest}","items":[{{"a":"{object}"}}]}}"#)
    };
    let (large, long) = ("a".repeat(ITEM_BYTES_MAX), "a".repeat(SKELETON_BYTES_MAX));
    assert_eq!(read(list(&large, "").as_bytes(), 4096).map(drop), Err(NotAList::ItemTooLarge));
    assert_eq!(read(list("", &long).as_bytes(), 4096).map(drop), Err(NotAList::SkeletonTooLarge));
    let deep = format!(r#"{{"kind":"PodList","items":[{{"a":{}"#, "[".repeat(DEPTH_MAX));
    assert_eq!(read(deep.as_bytes(), 4096).map(drop), Err(NotAList::NotAList));
    assert!(read(list(&large[9..], "").as_bytes(), 4096).is_ok());
}

proptest! {
    /// Spaces and line ends between the parts of a list change nothing either, as `serde_json` itself shows.
    #[test]
    fn any_texts_in_objects_are_read_as_serde_json_reads_them(texts in prop::collection::vec(".*", 0..5), piece in 1_usize..20) {
        let objects: Vec<Value> = texts.iter().map(|text| json!({ text: [text, { "x": text }] })).collect();
        let list = json!({ "kind": "List", "metadata": { "continue": texts.first() .map_or("", |text| text) }, "items": objects });
        let (head, found) = read(list.to_string().as_bytes(), piece).unwrap();
        prop_assert_eq!(found, objects);
        prop_assert_eq!(head.continue_token, texts.first().cloned().unwrap_or_default());
    }
}
