//! The part of CBOR that Kubernetes uses, to and from JSON values.
//!
//! The API server writes a map's keys in a random order, so answers in CBOR are compared as values.

use serde_json::{Map, Number, Value};

/// Items behind each other: an object is one, a watch has one for each event.
///
/// # Panics
/// If they are incomplete, or not in the form that Kubernetes writes.
pub fn decode(mut bytes: &[u8]) -> Vec<Value> {
    let mut items = Vec::new();
    while !bytes.is_empty() {
        items.push(item(&mut bytes));
    }
    items
}

/// One item that the API server takes.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, value);
    bytes
}

fn item(bytes: &mut &[u8]) -> Value {
    let first = take(bytes, 1)[0];
    let (major, low) = (first >> 5, first & 0x1f);
    match (major, low) {
        (7, 20) => return Value::Bool(false),
        (7, 21) => return Value::Bool(true),
        (7, 22) => return Value::Null,
        (7, 27) => {
            let float = f64::from_be_bytes(take(bytes, 8).try_into().expect("eight bytes"));
            return Number::from_f64(float).map_or(Value::Null, Value::Number);
        }
        _ => {}
    }
    let count = argument(bytes, low);
    match major {
        0 => Value::from(count),
        1 => Value::from(-1 - i64::try_from(count).expect("a number of Kubernetes")),
        2 | 3 => Value::String(String::from_utf8_lossy(take(bytes, size(count))).into_owned()),
        4 => (0..count).map(|_| item(bytes)).collect(),
        5 => Value::Object((0..count).map(|_| (key(bytes), item(bytes))).collect::<Map<_, _>>()),
        6 => item(bytes),
        _ => panic!("{first:#x} is nothing that Kubernetes writes"),
    }
}

fn key(bytes: &mut &[u8]) -> String {
    match item(bytes) {
        Value::String(key) => key,
        other => panic!("{other} is no key"),
    }
}

fn argument(bytes: &mut &[u8], low: u8) -> u64 {
    let length = match low {
        0..=23 => return low.into(),
        24..=27 => 1 << (low - 24),
        _ => panic!("an item of unknown length"),
    };
    take(bytes, length).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn take<'bytes>(bytes: &mut &'bytes [u8], count: usize) -> &'bytes [u8] {
    let (taken, rest) = bytes.split_at_checked(count).expect("the item is whole");
    *bytes = rest;
    taken
}

fn write(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => bytes.push(0xf6),
        Value::Bool(is) => bytes.push(0xf4 + u8::from(*is)),
        Value::Number(number) => write_head(bytes, 0, number.as_u64().expect("a whole number")),
        Value::String(text) => write_text(bytes, text),
        Value::Array(items) => {
            write_head(bytes, 4, items.len() as u64);
            items.iter().for_each(|item| write(bytes, item));
        }
        Value::Object(map) => {
            write_head(bytes, 5, map.len() as u64);
            for (key, value) in map {
                write_text(bytes, key);
                write(bytes, value);
            }
        }
    }
}

fn write_text(bytes: &mut Vec<u8>, text: &str) {
    write_head(bytes, 3, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn write_head(bytes: &mut Vec<u8>, major: u8, argument: u64) {
    let (low, length) = match argument {
        0..=23 => (u8::try_from(argument).expect("small"), 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    bytes.push(major << 5 | low);
    bytes.extend_from_slice(&argument.to_be_bytes()[8 - length..]);
}

fn size(count: u64) -> usize {
    usize::try_from(count).expect("a size")
}
