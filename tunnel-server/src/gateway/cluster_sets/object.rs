//! Adds the cluster's name to an object, and leaves everything else as it came.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use proto::ClusterId;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The annotation with the name of the cluster that has the object.
pub(super) const CLUSTER: &str = "tombolo.dev/cluster";

/// The members of a JSON object in their order, each as it came.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A name as JSON has it, without a copy where it has no escape.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// Writes an object with the name of its cluster. What is no object is written as it came.
pub(super) fn write(object: &[u8], cluster: &ClusterId, into: &mut Vec<u8>) {
    let parsed = serde_json::from_slice::<Members<'_>>(object).ok();
    let Some(Members(members)) = parsed else { return into.extend_from_slice(object) };
    with_member(&members, "metadata", into, |metadata, into| {
        let metadata = metadata.and_then(|text| serde_json::from_str::<Members<'_>>(text.get()).ok());
        let metadata = metadata.map_or_else(Vec::new, |Members(members)| members);
        with_member(&metadata, "annotations", into, |annotations, into| {
            let annotations =
                annotations.and_then(|text| serde_json::from_str::<Members<'_>>(text.get()).ok());
            let annotations = annotations.map_or_else(Vec::new, |Members(members)| members);
            with_member(&annotations, CLUSTER, into, |_, into| {
                into.push(b'"');
                into.extend_from_slice(cluster.as_str().as_bytes());
                into.push(b'"');
            });
        });
    });
}

/// Writes an object, with the value of one member as `value` writes it. A member that is not there is added.
fn with_member(
    members: &[(Cow<'_, str>, &RawValue)],
    name: &str,
    into: &mut Vec<u8>,
    value: impl FnOnce(Option<&RawValue>, &mut Vec<u8>),
) {
    let (mut value, mut separator) = (Some(value), b'{');
    for (own, raw) in members {
        begin_member(own, &mut separator, into);
        match value.take_if(|_| own == name) {
            Some(value) => value(Some(raw), into),
            None => into.extend_from_slice(raw.get().as_bytes()),
        }
    }
    if let Some(value) = value {
        begin_member(name, &mut separator, into);
        value(None, into);
    }
    into.push(b'}');
}

fn begin_member(name: &str, separator: &mut u8, into: &mut Vec<u8>) {
    into.push(std::mem::replace(separator, b','));
    into.extend_from_slice(serde_json::to_string(name).expect("a string").as_bytes());
    into.push(b':');
}

/// The part of `body` that this value is, without a copy.
pub(super) fn part_of(body: &Bytes, value: &RawValue) -> Bytes {
    body.slice_ref(value.get().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_gets_the_name_of_its_cluster_and_stays_as_it_came() {
        for (object, written) in [
            (
                r#"{"kind":"Pod","metadata":{"name":"a","annotations":{"x":"y"}},"n":1.50,"big":12345678901234567890}"#,
                r#"{"kind":"Pod","metadata":{"name":"a","annotations":{"x":"y","tombolo.dev/cluster":"edge-a"}},"n":1.50,"big":12345678901234567890}"#,
            ),
            (
                r#"{"metadata":{"name":"a"},"spec":{}}"#,
                r#"{"metadata":{"name":"a","annotations":{"tombolo.dev/cluster":"edge-a"}},"spec":{}}"#,
            ),
            (
                r#"{"metadata":{"annotations":{"tombolo.dev/cluster":"other","z":"1"}}}"#,
                r#"{"metadata":{"annotations":{"tombolo.dev/cluster":"edge-a","z":"1"}}}"#,
            ),
            (r#"{"a\"b":1}"#, r#"{"a\"b":1,"metadata":{"annotations":{"tombolo.dev/cluster":"edge-a"}}}"#),
            (
                r#"{"metadata":{"annotations":null}}"#,
                r#"{"metadata":{"annotations":{"tombolo.dev/cluster":"edge-a"}}}"#,
            ),
            ("{}", r#"{"metadata":{"annotations":{"tombolo.dev/cluster":"edge-a"}}}"#),
            ("null", "null"),
            ("[1]", "[1]"),
        ] {
            let mut into = Vec::new();
            write(object.as_bytes(), &"edge-a".parse().unwrap(), &mut into);
            assert_eq!(String::from_utf8(into).unwrap(), written, "{object}");
        }
    }
}
