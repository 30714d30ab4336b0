//! Encodes a `Status` (meta/v1) in protobuf and CBOR.

use serde_json::Value;

/// Fields of `k8s.io.apimachinery.pkg.runtime.Unknown` and `TypeMeta`.
const UNKNOWN_TYPE_META: u64 = 1;
const UNKNOWN_RAW: u64 = 2;
const TYPE_META_API_VERSION: u64 = 1;
const TYPE_META_KIND: u64 = 2;

/// Fields of `Status`, `StatusDetails` and `StatusCause`.
const STATUS_STATUS: u64 = 2;
const STATUS_MESSAGE: u64 = 3;
const STATUS_REASON: u64 = 4;
const STATUS_DETAILS: u64 = 5;
const STATUS_CODE: u64 = 6;
const DETAILS_CAUSES: u64 = 4;
const DETAILS_RETRY_AFTER_SECONDS: u64 = 5;
const CAUSE_REASON: u64 = 1;
const CAUSE_MESSAGE: u64 = 2;

/// Encodes a `Status`, given in JSON, in protobuf.
pub(super) fn protobuf(status: &Value) -> Vec<u8> {
    let mut type_meta = ProtobufMessage::default();
    type_meta.text(TYPE_META_API_VERSION, &status["apiVersion"]);
    type_meta.text(TYPE_META_KIND, &status["kind"]);
    let mut details = ProtobufMessage::default();
    for cause in status["details"]["causes"].as_array().into_iter().flatten() {
        let mut encoded = ProtobufMessage::default();
        encoded.text(CAUSE_REASON, &cause["reason"]);
        encoded.text(CAUSE_MESSAGE, &cause["message"]);
        details.bytes(DETAILS_CAUSES, &encoded.0);
    }
    details.number(DETAILS_RETRY_AFTER_SECONDS, &status["details"]["retryAfterSeconds"]);
    let mut raw = ProtobufMessage::default();
    raw.text(STATUS_STATUS, &status["status"]);
    raw.text(STATUS_MESSAGE, &status["message"]);
    raw.text(STATUS_REASON, &status["reason"]);
    raw.bytes(STATUS_DETAILS, &details.0);
    raw.number(STATUS_CODE, &status["code"]);
    let mut unknown = ProtobufMessage(b"k8s\0".to_vec());
    unknown.bytes(UNKNOWN_TYPE_META, &type_meta.0);
    unknown.bytes(UNKNOWN_RAW, &raw.0);
    unknown.0
}

/// Encodes a `Status`, given in JSON, in CBOR.
pub(super) fn cbor(status: &Value) -> Vec<u8> {
    // The tag of self-described CBOR, with which Kubernetes begins each object.
    let mut bytes = vec![0xd9, 0xd9, 0xf7];
    write_item(&mut bytes, status);
    bytes
}

/// A protobuf message that is being written.
#[derive(Default)]
struct ProtobufMessage(Vec<u8>);

impl ProtobufMessage {
    fn text(&mut self, field: u64, text: &Value) {
        if let Some(text) = text.as_str() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn number(&mut self, field: u64, number: &Value) {
        if let Some(number) = number.as_u64() {
            self.varint(field << 3);
            self.varint(number);
        }
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

fn write_item(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => bytes.push(0xf6),
        Value::Bool(is) => bytes.push(0xf4 + u8::from(*is)),
        // A Status has only small numbers.
        Value::Number(number) => write_head(bytes, 0, number.as_u64().unwrap_or(0)),
        Value::String(text) => write_text(bytes, text),
        Value::Array(items) => {
            write_head(bytes, 4, items.len() as u64);
            items.iter().for_each(|item| write_item(bytes, item));
        }
        Value::Object(map) => {
            write_head(bytes, 5, map.len() as u64);
            for (key, value) in map {
                write_text(bytes, key);
                write_item(bytes, value);
            }
        }
    }
}

/// Writes a text as a byte string, as Kubernetes does.
fn write_text(bytes: &mut Vec<u8>, text: &str) {
    write_head(bytes, 2, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn write_head(bytes: &mut Vec<u8>, major: u8, argument: u64) {
    let (low, length) = match argument {
        0..=23 => (argument as u8, 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    bytes.push(major << 5 | low);
    bytes.extend_from_slice(&argument.to_be_bytes()[8 - length..]);
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    #[derive(prost::Message)]
    struct DecodedUnknown {
        #[prost(message, tag = "1")]
        type_meta: Option<Pair>,
        #[prost(bytes, tag = "2")]
        raw: Vec<u8>,
    }

    #[derive(prost::Message)]
    struct Pair {
        #[prost(string, tag = "1")]
        first: String,
        #[prost(string, tag = "2")]
        second: String,
    }

    #[derive(prost::Message)]
    struct DecodedStatus {
        #[prost(string, tag = "2")]
        status: String,
        #[prost(string, tag = "3")]
        message: String,
        #[prost(string, tag = "4")]
        reason: String,
        #[prost(message, tag = "5")]
        details: Option<DecodedDetails>,
        #[prost(int32, tag = "6")]
        code: i32,
    }

    #[derive(prost::Message)]
    struct DecodedDetails {
        #[prost(message, repeated, tag = "4")]
        causes: Vec<Pair>,
        #[prost(int32, tag = "5")]
        retry_after_seconds: i32,
    }

    #[test]
    fn a_status_in_protobuf_has_the_fields_of_the_one_in_json() {
        let bytes = protobuf(&status());

        let unknown = DecodedUnknown::decode(bytes.strip_prefix(b"k8s\0").unwrap()).unwrap();
        let Pair { first, second } = unknown.type_meta.unwrap();
        assert_eq!((first.as_str(), second.as_str()), ("v1", "Status"));
        let status = DecodedStatus::decode(unknown.raw.as_slice()).unwrap();
        assert_eq!((status.status.as_str(), status.reason.as_str()), ("Failure", "Expired"));
        assert_eq!((status.message.len(), status.code), (300, 410));
        let details = status.details.unwrap();
        assert_eq!((details.causes[0].first.as_str(), details.retry_after_seconds), ("X", 70_000));
    }

    #[test]
    fn a_status_in_cbor_has_heads_of_every_length() {
        let bytes = cbor(&json!({"a": "x".repeat(24), "b": [1, 256, 70_000, null, true]}));

        let expected = [
            b"\xd9\xd9\xf7\xa2\x41a\x58\x18".as_slice(),
            &[b'x'; 24],
            b"\x41b\x85\x01\x19\x01\x00\x1a\x00\x01\x11\x70\xf6\xf5",
        ];
        assert_eq!(bytes, expected.concat());
    }

    fn status() -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "m".repeat(300), "reason": "Expired", "code": 410,
            "details": {"causes": [{"reason": "X", "message": "tombolo gateway"}], "retryAfterSeconds": 70_000}})
    }
}
