//! Encodes events as an API server does and decodes them as a caller does, independently of the product's
//! code.

use std::collections::HashMap;

use prost::Message;
use serde_json::{Map, Value, json};

use super::super::Encoding;

/// The format of events: an encoding, with or without Tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Table,
    Protobuf,
    Cbor,
    CborTable,
}

#[derive(Message)]
struct ProtoWatchEvent {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(message, tag = "2")]
    object: Option<ProtoRawExtension>,
}

#[derive(Message)]
struct ProtoRawExtension {
    #[prost(bytes, tag = "1")]
    raw: Vec<u8>,
}

#[derive(Message)]
struct ProtoUnknown {
    #[prost(message, tag = "1")]
    type_meta: Option<ProtoTypeMeta>,
    #[prost(bytes, tag = "2")]
    raw: Vec<u8>,
    #[prost(string, tag = "3")]
    content_encoding: String,
    #[prost(string, tag = "4")]
    content_type: String,
}

#[derive(Message)]
struct ProtoTypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Message)]
struct ProtoObject {
    #[prost(message, tag = "1")]
    metadata: Option<ProtoMetadata>,
    /// The message of a Status, or the value of an object.
    #[prost(string, tag = "3")]
    text: String,
    #[prost(int32, tag = "6")]
    code: i32,
}

#[derive(Message)]
struct ProtoMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(int64, tag = "7")]
    generation: i64,
    #[prost(map = "string, string", tag = "12")]
    annotations: HashMap<String, String>,
}

impl Form {
    pub(super) fn encoding(self) -> Encoding {
        match self {
            Self::Json | Self::Table => Encoding::Json,
            Self::Protobuf => Encoding::Protobuf,
            Self::Cbor | Self::CborTable => Encoding::Cbor,
        }
    }

    /// Encodes the events of a stream from its beginning.
    pub(super) fn encode(self, events: &[Value]) -> Vec<u8> {
        events.iter().enumerate().flat_map(|(index, event)| self.event(event, index == 0)).collect()
    }

    /// Encodes one event. The first one of a stream of Tables has the column definitions.
    pub(super) fn event(self, event: &Value, is_first: bool) -> Vec<u8> {
        let table = || json!({"type": event["type"], "object": tabled(&event["object"], is_first)});
        match self {
            Self::Json => format!("{event}\n").into_bytes(),
            Self::Table => format!("{}\n", table()).into_bytes(),
            Self::Protobuf => {
                let object = Some(ProtoRawExtension { raw: self.object(&event["object"]) });
                let event = ProtoWatchEvent { kind: text(&event["type"]), object }.encode_to_vec();
                [u32::try_from(event.len()).unwrap().to_be_bytes().as_slice(), &event].concat()
            }
            Self::Cbor => item(event),
            Self::CborTable => item(&table()),
        }
    }

    /// Encodes an object that is the body of an answer.
    pub(super) fn object(self, object: &Value) -> Vec<u8> {
        match self {
            Self::Json | Self::Table => format!("{object}\n").into_bytes(),
            Self::Cbor | Self::CborTable => item(object),
            Self::Protobuf => {
                let metadata = &object["metadata"];
                let annotations = metadata["annotations"].as_object().into_iter().flatten();
                let metadata = ProtoMetadata {
                    name: text(&metadata["name"]),
                    resource_version: text(&metadata["resourceVersion"]),
                    generation: 300,
                    annotations: annotations.map(|(key, value)| (key.clone(), text(value))).collect(),
                };
                let message = text(&object["message"]);
                let raw = ProtoObject {
                    metadata: Some(metadata),
                    text: if message.is_empty() { text(&object["value"]) } else { message },
                    code: object["code"].as_i64().unwrap_or(0).try_into().unwrap(),
                };
                let type_meta =
                    ProtoTypeMeta { api_version: text(&object["apiVersion"]), kind: text(&object["kind"]) };
                let unknown = ProtoUnknown {
                    type_meta: Some(type_meta),
                    raw: raw.encode_to_vec(),
                    ..ProtoUnknown::default()
                };
                [b"k8s\0".as_slice(), &unknown.encode_to_vec()].concat()
            }
        }
    }
}

/// The complete events that a caller has received, and the number of bytes of an incomplete one after them.
pub(super) fn events_in(form: Form, bytes: &[u8]) -> (Vec<Value>, usize) {
    match form {
        Form::Json | Form::Table => {
            let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
            let mut events = Vec::new();
            let mut end = 0;
            while let Some(Ok(event)) = stream.next() {
                events.push(event);
                end = stream.byte_offset();
            }
            (events, bytes[end..].trim_ascii().len())
        }
        Form::Protobuf => {
            let (mut events, mut rest) = (Vec::new(), bytes);
            while let Some((length, after)) = rest.split_first_chunk() {
                let length = u32::from_be_bytes(*length) as usize;
                let Some((event, after)) = after.split_at_checked(length) else { break };
                events.push(event_of(event));
                rest = after;
            }
            (events, rest.len())
        }
        Form::Cbor | Form::CborTable => {
            let (mut events, mut rest) = (Vec::new(), bytes);
            loop {
                let mut after = rest;
                match read_item(&mut after) {
                    Some(event) => events.push(event),
                    None => return (events, rest.len()),
                }
                rest = after;
            }
        }
    }
}

fn event_of(event: &[u8]) -> Value {
    let ProtoWatchEvent { kind, object } = ProtoWatchEvent::decode(event).unwrap();
    let raw = object.unwrap().raw;
    let unknown = ProtoUnknown::decode(raw.strip_prefix(b"k8s\0").unwrap()).unwrap();
    let ProtoObject { metadata, text, code } = ProtoObject::decode(unknown.raw.as_slice()).unwrap();
    let metadata = metadata.unwrap_or_default();
    json!({"type": kind, "object": {"kind": unknown.type_meta.unwrap().kind, "value": text, "message": text,
        "code": code, "metadata": {"name": metadata.name, "resourceVersion": metadata.resource_version,
        "annotations": metadata.annotations}}})
}

/// The Table that an API server makes of an object for a caller that asks for Tables.
fn tabled(object: &Value, is_first: bool) -> Value {
    if object["kind"] == "Status" {
        return object.clone();
    }
    let columns = if is_first { json!([{"name": "Name", "type": "string"}]) } else { Value::Null };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
        "columnDefinitions": columns,
        "rows": [{"cells": [object["metadata"]["name"], object["value"]],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}}]})
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// An item with the tag of self-described CBOR, as Kubernetes writes it. Objects inside it have the tag too.
fn item(value: &Value) -> Vec<u8> {
    let mut bytes = b"\xd9\xd9\xf7".to_vec();
    write(&mut bytes, value);
    bytes
}

fn write(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => bytes.push(0xf6),
        Value::Bool(is) => bytes.push(0xf4 + u8::from(*is)),
        Value::Number(number) => write_head(bytes, 0, number.as_u64().unwrap()),
        Value::String(text) => write_text(bytes, text),
        Value::Array(items) => {
            write_head(bytes, 4, items.len() as u64);
            items.iter().for_each(|item| write(bytes, item));
        }
        Value::Object(map) => {
            write_head(bytes, 5, map.len() as u64);
            // The API server writes a random order. Here the object comes before the type.
            for (key, value) in map {
                write_text(bytes, key);
                if key == "object" {
                    bytes.extend_from_slice(b"\xd9\xd9\xf7");
                }
                write(bytes, value);
            }
        }
    }
}

/// Kubernetes writes texts as byte strings, and reads both.
fn write_text(bytes: &mut Vec<u8>, text: &str) {
    write_head(bytes, if text.len().is_multiple_of(3) { 3 } else { 2 }, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn write_head(bytes: &mut Vec<u8>, major: u8, argument: u64) {
    let [.., high, low] = argument.to_be_bytes();
    match argument {
        0..=23 => bytes.push(major << 5 | low),
        24..=0xff => bytes.extend([major << 5 | 24, low]),
        0x100..=0xffff => bytes.extend([major << 5 | 25, high, low]),
        _ => panic!("too large for a trial"),
    }
}

fn read_item(bytes: &mut &[u8]) -> Option<Value> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    let length = match first & 0x1f {
        low @ 24..=25 => 1 << (low - 24),
        _ => 0,
    };
    let (argument, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    let argument = argument.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
    let argument = if length == 0 { usize::from(first & 0x1f) } else { argument };
    Some(match first >> 5 {
        0 => argument.into(),
        2 | 3 => {
            let (text, rest) = bytes.split_at_checked(argument)?;
            *bytes = rest;
            String::from_utf8(text.to_vec()).unwrap().into()
        }
        4 => (0..argument).map(|_| read_item(bytes)).collect::<Option<_>>()?,
        5 => {
            let pair = |bytes: &mut &[u8]| Some((text(&read_item(bytes)?), read_item(bytes)?));
            Value::Object((0..argument).map(|_| pair(bytes)).collect::<Option<Map<_, _>>>()?)
        }
        6 => read_item(bytes)?,
        _ => match argument {
            20 => false.into(),
            21 => true.into(),
            _ => Value::Null,
        },
    })
}
