//! The claims of a schema about values, tried with the program that reads them.

use std::fmt::{Debug, Display};

use serde_json::{Value, json};

use crate::keys::{keys, with_value};

/// The outcome of trying the claims of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedClaims {
    /// The number of keys that were tried.
    pub count: usize,
    /// The claims that do not hold, in words.
    pub wrong: Vec<String>,
}

/// Tries every default of a schema but those in `skipped`: a file with the default written out must mean the same as `least`
/// alone.
///
/// # Panics
///
/// `least` is not valid.
pub fn try_defaults<C: Debug, E: Debug>(
    schema: &Value,
    least: &Value,
    skipped: &[Value],
    load: impl Fn(&Value) -> Result<C, E>,
) -> TriedClaims {
    let base = format!("{:?}", load(least).expect("a file with the least keys is valid"));
    let (mut count, mut wrong) = (0, Vec::new());
    for key in keys(schema) {
        let Some(default) = key.default.filter(|default| !skipped.contains(default)) else { continue };
        // A section that needs other keys, too, is not valid with this one alone.
        if let Ok(config) = load(&with_value(least, &key.path, default.clone())) {
            count += 1;
            if format!("{config:?}") != base {
                wrong.push(format!("{} is not {default} without the key", key.path.join(".")));
            }
        }
    }
    TriedClaims { count, wrong }
}

/// Tries every bound of a schema but those of the keys `skipped`: the numbers at the bounds must be taken, and the ones beyond
/// refused by the name of the key.
pub fn try_bounds<C, E: Display>(
    schema: &Value,
    least: &Value,
    skipped: &[&str],
    load: impl Fn(&Value) -> Result<C, E>,
) -> TriedClaims {
    let (mut count, mut wrong) = (0, Vec::new());
    for key in keys(schema) {
        let Some((least_number, most)) = key.bounds else { continue };
        let name = key.path.join(".");
        if skipped.contains(&name.as_str()) {
            continue;
        }
        let load = |number: u64| load(&with_value(least, &key.path, json!(number)));
        let refused = |number: u64| load(number).is_err_and(|error| error.to_string().starts_with(&name));
        if load(most).is_err_and(|error| !error.to_string().starts_with(&name)) {
            continue;
        }
        let is_open = |number: u64| !refused(number);
        let below = least_number > 0 && is_open(least_number - 1);
        let beyond = most != u64::from(u16::MAX) && is_open(most + 1);
        if refused(least_number) || refused(most) || below || beyond {
            wrong.push(format!("{name} is not {least_number} to {most}"));
        }
        count += 1;
    }
    TriedClaims { count, wrong }
}

/// The lines of a file, with each value in the form of JSON, which is YAML too.
///
/// # Panics
///
/// `file` is not an object.
#[must_use]
pub fn yaml(file: &Value) -> String {
    let keys = file.as_object().expect("a file has keys");
    keys.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}
