//! Fields of records that a newer server has written, kept when this one writes the record again.

use serde::Serialize;
use serde_ignored::Path;
use serde_json::{Map, Value};

use crate::directory::store::StoredRecord;

/// The fields of one record that this server does not know. None of them lies within a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct UnknownFields(Vec<UnknownField>);

#[derive(Debug, Clone, PartialEq)]
struct UnknownField {
    /// The names of the objects that contain it, the outermost first.
    within: Vec<String>,
    name: String,
    value: Value,
}

/// Parses a record, and the fields that are unknown here.
pub(super) fn parse<R: StoredRecord>(bytes: &[u8]) -> serde_json::Result<(R, UnknownFields)> {
    let mut paths = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let record = serde_ignored::deserialize(&mut json, |path| paths.extend(names(&path)))?;
    json.end()?;
    if paths.is_empty() {
        return Ok((record, UnknownFields::default()));
    }
    let whole: Value = serde_json::from_slice(bytes)?;
    let found = paths.into_iter().filter_map(|mut within| {
        let name = within.pop()?;
        let value = within.iter().try_fold(&whole, |value, name| value.get(name))?.get(&name)?.clone();
        Some(UnknownField { within, name, value })
    });
    Ok((record, UnknownFields(found.collect())))
}

impl UnknownFields {
    /// Serializes a record with these fields, as far as the objects around them are still there.
    pub(super) fn serialized_with(&self, record: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        if self.0.is_empty() {
            return serde_json::to_vec(record);
        }
        let mut whole = serde_json::to_value(record)?;
        for UnknownField { within, name, value } in &self.0 {
            if let Some(object) = object(&mut whole, within) {
                object.entry(name).or_insert_with(|| value.clone());
            }
        }
        serde_json::to_vec(&whole)
    }
}

fn object<'v>(whole: &'v mut Value, within: &[String]) -> Option<&'v mut Map<String, Value>> {
    within.iter().try_fold(whole, |value, name| value.get_mut(name))?.as_object_mut()
}

/// The names from the outermost object to the field; `None` within a list.
fn names(path: &Path<'_>) -> Option<Vec<String>> {
    match path {
        Path::Root => Some(Vec::new()),
        Path::Seq { .. } => None,
        Path::Map { parent, key } => {
            let mut names = names(parent)?;
            names.push(key.clone());
            Some(names)
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            names(parent)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::records::Cluster;

    #[test]
    fn fields_of_a_newer_server_survive_a_change_of_their_record() {
        let stored = r#"{"created":5,"labels":{},"networks":[],"advertise":[],"paused":{"by":"ann"},
            "tombstone":{"deleted":6,"reservedUntil":9,"reason":"moved"}}"#;
        let (mut cluster, unknown) = parse::<Cluster>(stored.as_bytes()).unwrap();
        cluster.networks.push("shop".to_owned());

        let changed: Value = serde_json::from_slice(&unknown.serialized_with(&cluster).unwrap()).unwrap();

        assert_eq!(changed["networks"], serde_json::json!(["shop"]));
        assert_eq!(changed["paused"], serde_json::json!({ "by": "ann" }));
        assert_eq!(changed["tombstone"]["reason"], "moved");
        cluster.tombstone = None;
        let changed: Value = serde_json::from_slice(&unknown.serialized_with(&cluster).unwrap()).unwrap();
        assert_eq!(changed["tombstone"], Value::Null, "what contained a field is gone");
    }

    #[test]
    fn what_follows_a_record_is_damage() {
        assert!(
            parse::<Cluster>(br#"{"created":5,"labels":{},"networks":[],"advertise":[],"tombstone":null} x"#)
                .is_err()
        );
    }
}
