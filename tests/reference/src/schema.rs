//! JSON Schemas of configuration files, from the structs that read them.

use std::fs;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The schema of the keys of every daemon, which the crate `daemon` writes.
const COMMON: &str = "tombolo-daemon.schema.json";

/// The name and the head of a daemon's configuration, and its defaults of keys that every daemon has.
pub struct DaemonSchema<'a> {
    /// The `kind` at the head of the file.
    pub kind: &'a str,
    /// The title of the schema.
    pub title: &'a str,
    /// The `apiVersion` at the head of the file.
    pub api_version: &'a str,
    /// The default of each common key that has another one in each daemon, by its path.
    pub defaults: &'a [(&'a [&'a str], Value)],
}

/// The schema of a struct, without references to others: an editor shows each key by its place.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

impl DaemonSchema<'_> {
    /// Joins the keys of one daemon, the keys of every daemon, and the two at the head.
    ///
    /// # Panics
    ///
    /// The schema of the common keys is missing, or has no place for a default.
    #[must_use]
    pub fn with_own_keys(&self, mut own: Value) -> Value {
        let path = crate::folder().join(COMMON);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut common: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{COMMON}: {error}"));
        for (path, default) in self.defaults {
            let mut place = &mut common;
            for key in *path {
                place = &mut place["properties"][key];
            }
            assert!(place.is_object(), "{path:?} is no common key");
            place["default"] = default.clone();
        }
        for (key, value) in common["properties"].as_object().into_iter().flatten() {
            own["properties"][key] = value.clone();
        }
        file_schema(self.kind, self.title, self.api_version, own)
    }
}

/// The schema of a file: its own keys, and the two at the head.
#[must_use]
pub fn file_schema(kind: &str, title: &str, api_version: &str, mut own: Value) -> Value {
    let head = json!({
        "apiVersion": { "const": api_version, "description": "The version of the format." },
        "kind": { "const": kind, "description": "The kind of the file." },
    });
    let mut properties = Map::new();
    for part in [&head, &own["properties"]] {
        properties
            .extend(part.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    }
    let required = own["required"].as_array().cloned().unwrap_or_default();
    let required: Vec<Value> = [json!("apiVersion"), json!("kind")].into_iter().chain(required).collect();
    own["title"] = json!(title);
    own["description"] = json!("Made from the structs of the program that read the file.");
    own["properties"] = Value::Object(properties);
    own["required"] = json!(required);
    own
}

/// Removes what only Rust knows: names of types, formats of integers, absent values, and the line breaks of comments.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("format").is_some_and(Value::is_string) {
                map.remove("format");
            }
            if map.get("title").is_some_and(Value::is_string) {
                map.remove("title");
            }
            // serde's default of a key that may be absent. The file must not say null.
            if map.get("default") == Some(&Value::Null)
                && map.get("type").is_some_and(|kind| !allows_null(kind))
            {
                map.remove("default");
            }
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn allows_null(kind: &Value) -> bool {
    kind == "null" || kind.as_array().is_some_and(|kinds| kinds.contains(&json!("null")))
}
