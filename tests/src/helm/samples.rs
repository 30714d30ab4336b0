//! Values of a chart that its schema allows, made from the schema: each key is there, and has a value of its own.

use serde_json::{Map, Value, json};

/// The first port of a sample. Those of the charts' defaults are below.
const PORTS_FROM: u64 = 20_000;

/// The part of a schema below keys such as `networkPolicy.from`, without references at its top.
///
/// # Panics
/// If there is no such key.
pub fn part<'a>(schema: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(schema, |part, key| {
        let inner = resolved(schema, part)["properties"].get(key);
        inner.unwrap_or_else(|| panic!("the schema has no {key} of {path}"))
    })
}

/// The schema to which a reference leads, or the part itself.
pub fn resolved<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    let target =
        part["$ref"].as_str().and_then(|reference| schema.pointer(reference.trim_start_matches('#')));
    target.map_or(part, |target| resolved(schema, target))
}

/// Makes samples, no two of which are the same if their type allows it.
#[derive(Debug)]
pub struct Samples<'a> {
    schema: &'a Value,
    made: u64,
}

impl<'a> Samples<'a> {
    /// A source of samples for parts of this schema.
    pub fn new(schema: &'a Value) -> Self {
        Self { schema, made: 0 }
    }

    /// A value that this part allows, with each of its keys. Lists have as few entries as they may, and one at least.
    pub fn of(&mut self, part: &Value) -> Value {
        let part = resolved(self.schema, part);
        if let Some(last) = part["enum"].as_array().and_then(|words| words.last()) {
            return last.clone();
        }
        let kind = part["type"].as_str().or_else(|| part["type"][0].as_str());
        match kind.expect("every part has a type") {
            "object" => self.object(part),
            "array" => {
                let count = part["minItems"].as_u64().unwrap_or(1).max(1);
                (0..count).map(|_| self.of(&part["items"])).collect()
            }
            "boolean" => json!(true),
            "integer" | "number" => {
                let least = part["minimum"].as_u64().unwrap_or(1);
                let most = part["maximum"].as_u64().unwrap_or(u64::from(u16::MAX)).max(least);
                json!(least + self.number() % (most - least + 1))
            }
            _ => json!(self.text(part["pattern"].as_str().unwrap_or_default())),
        }
    }

    fn object(&mut self, part: &Value) -> Value {
        let Some(properties) = part["properties"].as_object() else {
            return json!({ "sample": self.of(&part["additionalProperties"]) });
        };
        let keys: Map<String, Value> =
            properties.iter().map(|(key, part)| (key.clone(), self.of(part))).collect();
        Value::Object(keys)
    }

    /// A text for one of the patterns of the charts, by what tells the pattern apart.
    fn text(&mut self, pattern: &str) -> String {
        let number = self.number();
        if pattern.contains("sha256") {
            format!("sha256:{number:064x}")
        } else if pattern.contains("[0-9]{1,5}") {
            format!("192.0.2.7:{}", PORTS_FROM + number)
        } else if pattern.contains("kKMGTPE") {
            format!("{number}Mi")
        } else {
            format!("sample-{number}")
        }
    }

    fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }
}
