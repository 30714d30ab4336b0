//! The part of Kubernetes' protobuf that a watch of ConfigMaps uses, to JSON values.

use serde_json::{Map, Value, json};

/// The events of a watch (`meta.v1.WatchEvent`, each behind its length).
///
/// # Panics
/// If they are incomplete, or not in the form that Kubernetes writes.
pub fn watch_events(mut bytes: &[u8]) -> Vec<Value> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk().expect("a length");
        let (event, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        let object = first(first(event, 2), 1).strip_prefix(b"k8s\0").expect("an object");
        events.push(json!({ "type": text(first(event, 1)), "object": config_map(first(object, 2)) }));
        bytes = rest;
    }
    events
}

fn config_map(object: &[u8]) -> Value {
    let metadata = first(object, 1);
    json!({
        "metadata": {
            "name": text(first(metadata, 1)),
            "resourceVersion": text(first(metadata, 6)),
            "annotations": map(metadata, 12),
        },
        "data": map(object, 2),
    })
}

fn map(message: &[u8], number: u64) -> Map<String, Value> {
    let entries = fields(message).into_iter().filter(|(found, _)| *found == number);
    entries.map(|(_, entry)| (text(first(entry, 1)), text(first(entry, 2)).into())).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// The bytes of a field; empty if it is absent.
fn first(message: &[u8], number: u64) -> &[u8] {
    fields(message).into_iter().find(|(found, _)| *found == number).map_or(&[], |(_, bytes)| bytes)
}

/// The fields that hold bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        match tag & 7 {
            0 => drop(varint(&mut message)),
            2 => {
                let length = usize::try_from(varint(&mut message)).expect("a length");
                let (bytes, rest) = message.split_at(length);
                fields.push((tag >> 3, bytes));
                message = rest;
            }
            other => panic!("wire type {other} is nothing that a ConfigMap has"),
        }
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}
