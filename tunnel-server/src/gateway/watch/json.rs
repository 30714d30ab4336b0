//! Events in JSON: objects behind each other, one a line where Kubernetes writes them.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::event::{Columns, Event, Kind, Step, Unframed};

/// Objects within objects that are borne while looking for an event's end, as many as Go's decoder bears.
const DEPTH_MAX: u32 = 10_000;

/// Finds the ends of objects.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl Scanner {
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Step, Unframed> {
        if self.depth == 0 {
            let blanks = bytes.iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
            if blanks > 0 {
                return Ok(Step::Between(blanks));
            }
            if bytes.first() != Some(&b'{') {
                return Err(Unframed);
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
                b'{' | b'[' if self.depth == DEPTH_MAX => return Err(Unframed),
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Ok(Step::End(index + 1));
                    }
                }
                _ => {}
            }
        }
        Ok(Step::Within(bytes.len()))
    }
}

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    /// Unread until it is known that this is a Table: any object may have a field of this name. Null is something, too.
    #[serde(borrow, default, deserialize_with = "some")]
    column_definitions: Option<&'a RawValue>,
    #[serde(borrow)]
    rows: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    annotations: Option<Annotations<'a>>,
}

#[derive(Deserialize)]
struct Annotations<'a> {
    #[serde(rename = "k8s.io/initial-events-end", borrow)]
    initial_events_end: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    object: Option<RowObject<'a>>,
}

#[derive(Deserialize)]
struct RowObject<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
}

/// What an event says of itself.
pub(super) fn read(event: &[u8]) -> Result<Event, Unframed> {
    let Written { kind, object } = serde_json::from_slice(event).map_err(|_| Unframed)?;
    let kind = Kind::of(kind.as_bytes());
    let is_table = object.kind.as_deref() == Some("Table")
        && object.api_version.as_deref().is_some_and(|version| version.starts_with("meta.k8s.io/"));
    let mut ends_initial_events = object.metadata.as_ref().is_some_and(Metadata::ends_initial_events);
    if is_table && kind == Kind::Bookmark {
        ends_initial_events |= rows(object.rows)?.iter().any(Row::ends_initial_events);
    }
    let columns = object.column_definitions.filter(|_| is_table).and_then(|columns| place(event, columns));
    let version = object.metadata.and_then(|metadata| metadata.resource_version);
    Ok(Event { kind, version: version.map(|version| version.into()), ends_initial_events, columns })
}

/// Of which kind an object is.
pub(super) fn kind_of(object: &[u8]) -> Option<Cow<'_, str>> {
    serde_json::from_slice::<Object<'_>>(object).ok()?.kind
}

/// An ERROR event about `status`, a JSON object, as a line.
pub(super) fn error_event(status: &[u8]) -> Vec<u8> {
    [b"{\"type\":\"ERROR\",\"object\":", status.trim_ascii(), b"}\n"].concat()
}

impl Metadata<'_> {
    fn ends_initial_events(&self) -> bool {
        let annotation = self.annotations.as_ref().and_then(|all| all.initial_events_end.as_deref());
        annotation == Some("true")
    }
}

impl Row<'_> {
    fn ends_initial_events(&self) -> bool {
        let metadata = self.object.as_ref().and_then(|object| object.metadata.as_ref());
        metadata.is_some_and(Metadata::ends_initial_events)
    }
}

fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

fn rows(written: Option<&RawValue>) -> Result<Vec<Row<'_>>, Unframed> {
    let rows: Option<Vec<Row<'_>>> =
        written.map_or(Ok(None), |rows| serde_json::from_str(rows.get())).map_err(|_| Unframed)?;
    Ok(rows.unwrap_or_default())
}

/// Where a part of an event stands in it.
fn place(event: &[u8], part: &RawValue) -> Option<Columns> {
    let start = (part.get().as_ptr() as usize).checked_sub(event.as_ptr() as usize)?;
    let text: String = part.get().split_ascii_whitespace().collect();
    Some(Columns { place: start..start + part.get().len(), empty: text == "[]" || text == "null" })
}
