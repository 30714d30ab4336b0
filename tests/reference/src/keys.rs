//! The keys of a configuration, for tests that try their defaults and bounds.

use serde_json::{Map, Value};

/// A key with a value of its own, outside of lists.
#[derive(Debug, Clone)]
pub(crate) struct ConfigKey {
    /// The keys from the top of the file to this one.
    pub(crate) path: Vec<String>,
    /// The default, if the schema has one.
    pub(crate) default: Option<Value>,
    /// The least and the greatest number, if the schema has a greatest.
    pub(crate) bounds: Option<(u64, u64)>,
}

/// Every key of a schema that is no section and not below a list.
pub(crate) fn keys(schema: &Value) -> Vec<ConfigKey> {
    let mut all = Vec::new();
    collect(schema, &mut Vec::new(), &mut all);
    all
}

/// The file with another value at this place. Sections that are not there are made.
pub(crate) fn with_value(file: &Value, path: &[String], value: Value) -> Value {
    let mut file = file.clone();
    let mut place = &mut file;
    for key in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[key.as_str()];
    }
    *place = value;
    file
}

fn collect(schema: &Value, path: &mut Vec<String>, all: &mut Vec<ConfigKey>) {
    let Some(properties) = schema["properties"].as_object() else {
        let bounds = schema["minimum"].as_u64().zip(schema["maximum"].as_u64());
        all.push(ConfigKey { path: path.clone(), default: schema.get("default").cloned(), bounds });
        return;
    };
    for (key, schema) in properties {
        path.push(key.clone());
        collect(schema, path, all);
        path.pop();
    }
}
