//! Lists of several clusters as one: objects, their metadata, or the rows of a table.

use bytes::Bytes;
use proto::ClusterId;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::accepted::Accepted;
use super::answer::SetAnswer;
use super::columns::{self, Column};
use super::error::ClusterSetError;
use super::object;
use super::outcome::{Member, Outcome};
use super::pages::Part;
use super::question::Answered;
use super::report::Report;

/// One cluster's part of a list. Its objects share the bytes of the answer.
pub(super) struct ListPart {
    kind: String,
    api_version: String,
    entries: Entries,
    next: Option<String>,
}

enum Entries {
    Items(Vec<Bytes>),
    Rows(Vec<Column>, Vec<Row>),
}

/// A row of a table.
struct Row {
    cells: Bytes,
    conditions: Option<Bytes>,
    object: Option<Bytes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawList<'a> {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
    column_definitions: Option<Vec<Column>>,
    #[serde(borrow, default)]
    rows: Option<Vec<RawRow<'a>>>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(rename = "continue", default)]
    next: String,
}

#[derive(Deserialize)]
struct RawRow<'a> {
    #[serde(borrow)]
    cells: &'a RawValue,
    #[serde(borrow, default)]
    conditions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

impl Part for ListPart {
    fn len(&self) -> u64 {
        match &self.entries {
            Entries::Items(items) => items.len() as u64,
            Entries::Rows(_, rows) => rows.len() as u64,
        }
    }

    fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }
}

/// Reads the answer of one cluster.
pub(super) fn parse(answered: Answered, accepted: Accepted) -> Outcome<ListPart> {
    let body = answered.body;
    let garbled = |what: &str| Outcome::failed("NotAList", format!("the cluster answered {what}"));
    let raw: RawList<'_> = match serde_json::from_slice(&body) {
        Ok(raw) => raw,
        Err(_) => return garbled("what is no list in JSON"),
    };
    let part = |value: &RawValue| object::part_of(&body, value);
    let entries = match (accepted.is_table(), raw.items, raw.rows) {
        (true, None, rows) if raw.kind == "Table" => {
            let rows = rows.unwrap_or_default().into_iter().map(|row| Row {
                cells: part(row.cells),
                conditions: row.conditions.map(part),
                object: row.object.map(part),
            });
            Entries::Rows(raw.column_definitions.unwrap_or_default(), rows.collect())
        }
        (true, ..) => return garbled("no table, which was asked for"),
        (false, items, _) if raw.kind.ends_with("List") => {
            Entries::Items(items.unwrap_or_default().into_iter().map(part).collect())
        }
        (false, ..) => return garbled("no list, which was asked for"),
    };
    let next = Some(raw.metadata.next).filter(|next| !next.is_empty());
    Outcome::Fresh(ListPart { kind: raw.kind, api_version: raw.api_version, entries, next })
}

/// Makes one list of the parts. `next` makes the token of the next page, for which a table's columns are fixed.
///
/// # Errors
/// No cluster has answered, or none has the resource.
pub(super) fn merge(
    members: Vec<Member<ListPart>>,
    accepted: Accepted,
    fixed: Option<Vec<Column>>,
    next: impl FnOnce(Option<Vec<Column>>) -> Option<String>,
) -> Result<SetAnswer, ClusterSetError> {
    let report = Report::of(&members);
    report.check_answered()?;
    let parts: Vec<(ClusterId, ListPart)> = members
        .into_iter()
        .filter_map(|member| match member.outcome {
            Outcome::Fresh(part) => Some((member.cluster, part)),
            Outcome::Absent | Outcome::Failed(_) => None,
        })
        .collect();
    let is_first = fixed.is_none();
    let mut columns = fixed.unwrap_or_default();
    for (_, part) in parts.iter().filter(|_| is_first) {
        if let Entries::Rows(own, _) = &part.entries {
            columns::join(&mut columns, own);
        }
    }
    let next = next(accepted.is_table().then(|| columns.clone()));
    let mut list = Writer::begin(parts.first().map(|(_, part)| part), accepted, next.as_deref(), &report);
    if accepted.is_table() {
        list.rows(&columns, &parts);
    } else {
        list.items(&parts);
    }
    Ok(SetAnswer::json(list.0, accepted, report))
}

/// Writes a list as JSON.
struct Writer(Vec<u8>);

impl Writer {
    fn begin(first: Option<&ListPart>, accepted: Accepted, next: Option<&str>, report: &Report) -> Self {
        let (kind, api_version) = match first {
            Some(part) => (part.kind.as_str(), part.api_version.as_str()),
            None if accepted.is_table() => ("Table", accepted.table_version()),
            None => ("List", "v1"),
        };
        let text = |text: &str| serde_json::to_string(text).expect("a string");
        let metadata = match next {
            Some(next) => format!("{{\"continue\":{}}}", text(next)),
            None => "{}".to_owned(),
        };
        let (kind, api_version, clusters) = (text(kind), text(api_version), report.json());
        Self(
            format!("{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":{metadata},\"clusters\":{clusters}")
                .into_bytes(),
        )
    }

    fn items(&mut self, parts: &[(ClusterId, ListPart)]) {
        let into = &mut self.0;
        into.extend_from_slice(b",\"items\":[");
        let mut is_first = true;
        for (cluster, part) in parts {
            let Entries::Items(items) = &part.entries else { continue };
            for item in items {
                if !std::mem::take(&mut is_first) {
                    into.push(b',');
                }
                object::write(item, cluster, into);
            }
        }
        into.extend_from_slice(b"]}");
    }

    fn rows(&mut self, columns: &[Column], parts: &[(ClusterId, ListPart)]) {
        let into = &mut self.0;
        let all: Vec<Column> = [Column::cluster()].into_iter().chain(columns.iter().cloned()).collect();
        into.extend_from_slice(b",\"columnDefinitions\":");
        into.extend(serde_json::to_vec(&all).expect("names are strings"));
        into.extend_from_slice(b",\"rows\":[");
        let mut is_first = true;
        for (cluster, part) in parts {
            let Entries::Rows(own, rows) = &part.entries else { continue };
            let places = columns::places(columns, own);
            for row in rows {
                if !std::mem::take(&mut is_first) {
                    into.push(b',');
                }
                row.write(cluster, &places, into);
            }
        }
        into.extend_from_slice(b"]}");
    }
}

impl Row {
    fn write(&self, cluster: &ClusterId, places: &[Option<usize>], into: &mut Vec<u8>) {
        let cells: Vec<&RawValue> = serde_json::from_slice(&self.cells).unwrap_or_default();
        into.extend_from_slice(b"{\"cells\":[\"");
        into.extend_from_slice(cluster.as_str().as_bytes());
        into.push(b'"');
        for place in places {
            let cell = place.and_then(|place| cells.get(place)).map_or("null", |cell| cell.get());
            into.push(b',');
            into.extend_from_slice(cell.as_bytes());
        }
        into.push(b']');
        if let Some(conditions) = &self.conditions {
            into.extend_from_slice(b",\"conditions\":");
            into.extend_from_slice(conditions);
        }
        if let Some(object) = &self.object {
            into.extend_from_slice(b",\"object\":");
            object::write(object, cluster, into);
        }
        into.push(b'}');
    }
}

#[cfg(test)]
mod tests;
