//! Events in JSON: a sequence of objects, one on each line where Kubernetes writes them.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::event::{Columns, Event, EventKind, EventParseError, ScanStep};

/// Deepest nesting of objects that is accepted. Go's decoder has the same limit.
const DEPTH_MAX: u32 = 10_000;

/// Finds the ends of JSON objects.
#[derive(Debug, Default)]
pub(super) struct JsonScanner {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl JsonScanner {
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<ScanStep, EventParseError> {
        if self.depth == 0 {
            let blanks = bytes.iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
            if blanks > 0 {
                return Ok(ScanStep::Between(blanks));
            }
            if bytes.first() != Some(&b'{') {
                return Err(EventParseError);
            }
        }
        for (index, byte) in bytes.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' if self.depth == DEPTH_MAX => return Err(EventParseError),
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Ok(ScanStep::End(index + 1));
                    }
                }
                _ => {}
            }
        }
        Ok(ScanStep::Within(bytes.len()))
    }
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: JsonObject<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonObject<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<JsonMetadata<'a>>,
    /// Not parsed unless the object is a Table, because any object may have a field of this name. Null counts
    /// as present.
    #[serde(borrow, default, deserialize_with = "some")]
    column_definitions: Option<&'a RawValue>,
    #[serde(borrow)]
    rows: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonMetadata<'a> {
    #[serde(borrow)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    annotations: Option<JsonAnnotations<'a>>,
}

#[derive(Deserialize)]
struct JsonAnnotations<'a> {
    #[serde(rename = "k8s.io/initial-events-end", borrow)]
    initial_events_end: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct TableRow<'a> {
    #[serde(borrow)]
    object: Option<TableRowObject<'a>>,
}

#[derive(Deserialize)]
struct TableRowObject<'a> {
    #[serde(borrow)]
    metadata: Option<JsonMetadata<'a>>,
}

/// Reads a complete event, which is one object.
pub(super) fn read(event: &[u8]) -> Result<Event, EventParseError> {
    let JsonEvent { kind, object } = serde_json::from_slice(event).map_err(|_| EventParseError)?;
    let kind = EventKind::parse(kind.as_bytes());
    let is_table = object.kind.as_deref() == Some("Table")
        && object.api_version.as_deref().is_some_and(|version| version.starts_with("meta.k8s.io/"));
    let mut ends_initial_events = object.metadata.as_ref().is_some_and(JsonMetadata::ends_initial_events);
    if is_table && kind == EventKind::Bookmark {
        ends_initial_events |= rows(object.rows)?.iter().any(TableRow::ends_initial_events);
    }
    let columns = object.column_definitions.filter(|_| is_table).and_then(|columns| place(event, columns));
    let version = object.metadata.and_then(|metadata| metadata.resource_version);
    Ok(Event { kind, version: version.map(|version| version.into()), ends_initial_events, columns })
}

/// The kind of an object, if it is one.
pub(super) fn kind_of(object: &[u8]) -> Option<Cow<'_, str>> {
    serde_json::from_slice::<JsonObject<'_>>(object).ok()?.kind
}

/// An ERROR event with `status`, a JSON object, on a line.
pub(super) fn error_event(status: &[u8]) -> Vec<u8> {
    [b"{\"type\":\"ERROR\",\"object\":", status.trim_ascii(), b"}\n"].concat()
}

impl JsonMetadata<'_> {
    fn ends_initial_events(&self) -> bool {
        let annotation = self.annotations.as_ref().and_then(|all| all.initial_events_end.as_deref());
        annotation == Some("true")
    }
}

impl TableRow<'_> {
    fn ends_initial_events(&self) -> bool {
        let metadata = self.object.as_ref().and_then(|object| object.metadata.as_ref());
        metadata.is_some_and(JsonMetadata::ends_initial_events)
    }
}

fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

fn rows(raw: Option<&RawValue>) -> Result<Vec<TableRow<'_>>, EventParseError> {
    let rows: Option<Vec<TableRow<'_>>> =
        raw.map_or(Ok(None), |rows| serde_json::from_str(rows.get())).map_err(|_| EventParseError)?;
    Ok(rows.unwrap_or_default())
}

/// The position of a part of an event.
fn place(event: &[u8], part: &RawValue) -> Option<Columns> {
    let start = (part.get().as_ptr() as usize).checked_sub(event.as_ptr() as usize)?;
    let text: String = part.get().split_ascii_whitespace().collect();
    Some(Columns { place: start..start + part.get().len(), empty: text == "[]" || text == "null" })
}
