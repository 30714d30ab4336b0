//! A page of a configuration's keys, from its schema.

use serde_json::Value;

/// The endings of keys that say a unit, and the unit.
const UNITS: [(&str, &str); 7] = [
    ("PerSecondOfNetwork", "per second"),
    ("PerSecond", "per second"),
    ("PerMinute", "per minute"),
    ("Seconds", "seconds"),
    ("Days", "days"),
    ("BytesMax", "bytes"),
    ("Bytes", "bytes"),
];

/// The page: `head`, and then a table for each section of the file.
#[must_use]
pub fn configuration_page(head: &str, schema: &Value) -> String {
    let mut page = format!("{}\n", head.trim_end());
    section("", schema, &mut page);
    page
}

/// The table of one section, and the sections below it.
fn section(path: &str, schema: &Value, page: &mut String) {
    let title = if path.is_empty() { "The file" } else { path };
    page.push_str(&format!("\n## {title}\n\n"));
    if let Some(text) = schema["description"].as_str().filter(|_| !path.is_empty()) {
        page.push_str(&format!("{text}\n\n"));
    }
    page.push_str("| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n");
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut below = Vec::new();
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let mut shown = format!("`{key}`");
        if let Some((inner, schema)) = subsection(inner, value) {
            shown = format!("[{shown}](#{})", anchor(&inner));
            below.push((inner, schema));
        }
        let default = match value.get("default") {
            _ if required.contains(&key.as_str()) => "*required*".to_owned(),
            Some(default) => format!("`{default}`"),
            None => String::new(),
        };
        let meaning = value["description"].as_str().unwrap_or_default().replace('|', "\\|");
        page.push_str(&format!(
            "| {shown} | {} | {default} | {} | {meaning} |\n",
            kind(key, value),
            allowed(value)
        ));
    }
    for (path, schema) in below {
        section(&path, schema, page);
    }
}

/// The path and the schema of the section that a key has: its own, or that of each entry of a list.
fn subsection(path: String, schema: &Value) -> Option<(String, &Value)> {
    if schema["properties"].is_object() {
        return Some((path, schema));
    }
    schema["items"]["properties"].is_object().then(|| (format!("{path}[]"), &schema["items"]))
}

/// The anchor that renderers of Markdown give the heading of a section.
fn anchor(path: &str) -> String {
    path.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

fn kind(key: &str, schema: &Value) -> String {
    let of = |schema: &Value| types(schema).into_iter().next().unwrap_or_else(|| "string".to_owned());
    let unit = UNITS.iter().find(|(ending, _)| key.ends_with(ending)).map(|(_, unit)| *unit);
    match (of(schema).as_str(), unit) {
        ("array", _) => format!("list of {}s", of(&schema["items"])),
        ("object", _) if schema["additionalProperties"].is_object() => "map of strings".to_owned(),
        ("object", _) => "section".to_owned(),
        ("integer", Some(unit)) => format!("integer, {unit}"),
        (other, _) => other.to_owned(),
    }
}

/// The types of a value but `null`, which is a key without a value.
fn types(schema: &Value) -> Vec<String> {
    let all = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
    all.iter().filter_map(Value::as_str).filter(|name| *name != "null").map(str::to_owned).collect()
}

fn allowed(schema: &Value) -> String {
    let words = words(schema);
    if !words.is_empty() {
        return words.join(", ");
    }
    let number = |key: &str| schema[key].as_u64();
    let entries = ["Items", "Properties"].into_iter().find_map(|of| {
        let bounds = number(&format!("min{of}")).zip(number(&format!("max{of}")));
        bounds.map(|(least, most)| format!("{least} to {most} entries"))
    });
    match (number("minimum").zip(number("maximum")), entries) {
        (Some((least, most)), _) => format!("{least} to {most}"),
        (None, Some(entries)) => {
            [entries].into_iter().chain(self::words(&schema["items"])).collect::<Vec<_>>().join(", ")
        }
        (None, None) => String::new(),
    }
}

/// The words that a value may be, if the schema lists them.
fn words(schema: &Value) -> Vec<String> {
    let list = |key: &str| schema[key].as_array().into_iter().flatten();
    let direct = list("enum").chain(schema.get("const"));
    let direct = direct.filter_map(Value::as_str).map(|word| format!("`{word}`"));
    direct.chain(list("oneOf").chain(list("anyOf")).flat_map(words)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_has_each_key_with_its_unit_default_and_bounds() {
        let schema = json!({
            "required": ["tls"],
            "properties": {
                "tls": { "description": "A section of keys.", "type": ["object", "null"], "properties": {
                    "waitSeconds": { "type": ["integer", "null"], "minimum": 1, "maximum": 9, "default": 3,
                        "description": "The time a|b." },
                } },
                "list": { "type": ["array", "null"], "items": { "type": "object", "properties": {
                    "word": { "anyOf": [{ "enum": ["x", "y"] }, { "type": "null" }] },
                    "words": { "type": "array", "minItems": 1, "maxItems": 2, "items": { "enum": ["x", "y"] } },
                    "map": { "type": "object", "minProperties": 1, "maxProperties": 2,
                        "additionalProperties": { "type": "string" } },
                } } },
            },
        });
        let page = configuration_page("# Head", &schema);

        for line in [
            "# Head",
            "| [`tls`](#tls) | section | *required* |  | A section of keys. |",
            "| `waitSeconds` | integer, seconds | `3` | 1 to 9 | The time a\\|b. |",
            "| [`list`](#list) | list of objects |  |  |  |",
            "## list[]",
            "| `word` | string |  | `x`, `y` |  |",
            "| `words` | list of strings |  | 1 to 2 entries, `x`, `y` |  |",
            "| `map` | map of strings |  | 1 to 2 entries |  |",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
