//! Events in protobuf: messages after their lengths, as far as the gateway reads them.
//!
//! The numbers of the fields are those of `k8s.io/apimachinery`, in `pkg/apis/meta/v1/generated.proto` and
//! `pkg/runtime/generated.proto`. Tables and custom resources do not exist in this encoding.

use std::borrow::Cow;

use super::event::{Event, EventKind, EventParseError, ScanStep};

/// The prefix of every object. A `runtime.Unknown` follows, which names the object's type and contains it.
const MAGIC: &[u8] = b"k8s\0";

/// Number of bytes of a message's length.
const LENGTH_BYTES: u8 = 4;

const WATCH_EVENT_TYPE: u64 = 1;
const WATCH_EVENT_OBJECT: u64 = 2;
const RAW_EXTENSION_RAW: u64 = 1;
const UNKNOWN_TYPE_META: u64 = 1;
const UNKNOWN_RAW: u64 = 2;
const UNKNOWN_CONTENT_ENCODING: u64 = 3;
const UNKNOWN_CONTENT_TYPE: u64 = 4;
const TYPE_META_KIND: u64 = 2;
/// The field of the metadata, which is the same for all kinds of objects.
const OBJECT_METADATA: u64 = 1;
const METADATA_RESOURCE_VERSION: u64 = 6;
const METADATA_ANNOTATIONS: u64 = 12;
const ENTRY_KEY: u64 = 1;
const ENTRY_VALUE: u64 = 2;

/// Finds the ends of protobuf messages.
#[derive(Debug, Default)]
pub(super) struct ProtobufScanner {
    /// Number of bytes of the length that have arrived, and their value.
    length_bytes: u8,
    length: u32,
}

impl ProtobufScanner {
    pub(super) fn step(&mut self, bytes: &[u8]) -> ScanStep {
        let mut at = 0;
        while self.length_bytes < LENGTH_BYTES {
            let Some(byte) = bytes.get(at) else { return ScanStep::Within(at) };
            self.length = self.length << 8 | u32::from(*byte);
            self.length_bytes += 1;
            at += 1;
        }
        let rest = u32::try_from(bytes.len() - at).unwrap_or(u32::MAX);
        let taken = self.length.min(rest);
        self.length -= taken;
        at += taken as usize;
        if self.length > 0 {
            return ScanStep::Within(at);
        }
        self.length_bytes = 0;
        ScanStep::End(at)
    }
}

/// Reads a complete event, which includes its length.
pub(super) fn read(event: &[u8]) -> Result<Event, EventParseError> {
    let event = event.get(LENGTH_BYTES.into()..).ok_or(EventParseError)?;
    let kind = EventKind::parse(last(event, WATCH_EVENT_TYPE)?.ok_or(EventParseError)?);
    let raw = last(event, WATCH_EVENT_OBJECT)?.map_or(Ok(None), |object| last(object, RAW_EXTENSION_RAW))?;
    let unknown = raw.and_then(|raw| raw.strip_prefix(MAGIC)).ok_or(EventParseError)?;
    let embeds = [UNKNOWN_CONTENT_ENCODING, UNKNOWN_CONTENT_TYPE];
    for field in embeds {
        if last(unknown, field)?.is_some_and(|text| !text.is_empty()) {
            return Err(EventParseError);
        }
    }
    let (mut version, mut ends_initial_events) = (None, false);
    // The object of an ERROR is a Status, whose metadata is that of a list.
    let object = last(unknown, UNKNOWN_RAW)?.filter(|_| kind != EventKind::Error);
    if let Some(metadata) = object.map_or(Ok(None), |object| last(object, OBJECT_METADATA))? {
        version = last(metadata, METADATA_RESOURCE_VERSION)?;
        for entry in ProtobufFields(metadata) {
            if let (METADATA_ANNOTATIONS, entry) = entry? {
                ends_initial_events |= last(entry, ENTRY_KEY)? == Some(b"k8s.io/initial-events-end")
                    && last(entry, ENTRY_VALUE)? == Some(b"true");
            }
        }
    }
    let version = version.map(|version| String::from_utf8_lossy(version).into());
    Ok(Event { kind, version, ends_initial_events, columns: None })
}

/// The kind of an object, if it is one.
pub(super) fn kind_of(object: &[u8]) -> Option<Cow<'_, str>> {
    let unknown = object.strip_prefix(MAGIC)?;
    let type_meta = last(unknown, UNKNOWN_TYPE_META).ok()??;
    last(type_meta, TYPE_META_KIND).ok()?.map(String::from_utf8_lossy)
}

/// An ERROR event with `status`, an object with the usual prefix.
pub(super) fn error_event(status: &[u8]) -> Vec<u8> {
    let mut object = Vec::new();
    write(&mut object, RAW_EXTENSION_RAW, status);
    let mut event = Vec::new();
    write(&mut event, WATCH_EVENT_TYPE, b"ERROR");
    write(&mut event, WATCH_EVENT_OBJECT, &object);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), event.as_slice()].concat()
}

/// The fields of a message that contain bytes, by number. Other fields are skipped.
struct ProtobufFields<'a>(&'a [u8]);

impl<'a> Iterator for ProtobufFields<'a> {
    type Item = Result<(u64, &'a [u8]), EventParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match self.field() {
                Ok(Some(field)) => return Some(Ok(field)),
                Ok(None) => {}
                Err(error) => {
                    self.0 = &[];
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl<'a> ProtobufFields<'a> {
    fn field(&mut self) -> Result<Option<(u64, &'a [u8])>, EventParseError> {
        let tag = self.varint()?;
        match tag & 7 {
            0 => self.varint().map(|_| None),
            1 => self.take(8).map(|_| None),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| EventParseError)?;
                self.take(length).map(|bytes| Some((tag >> 3, bytes)))
            }
            5 => self.take(4).map(|_| None),
            // Groups, which Kubernetes does not use, and invalid wire types.
            _ => Err(EventParseError),
        }
    }

    fn varint(&mut self) -> Result<u64, EventParseError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(EventParseError)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], EventParseError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(EventParseError)?;
        self.0 = rest;
        Ok(taken)
    }
}

/// The last field with this number, which is the one that counts.
fn last(message: &[u8], number: u64) -> Result<Option<&[u8]>, EventParseError> {
    ProtobufFields(message).try_fold(None, |last, field| {
        let (found, bytes) = field?;
        Ok(if found == number { Some(bytes) } else { last })
    })
}

fn write(message: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    write_varint(message, field << 3 | 2);
    write_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

fn write_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}
