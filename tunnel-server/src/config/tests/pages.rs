//! The pages of the reference are those of the code, and the program does what they say.

use clap::CommandFactory as _;
use reference::{DaemonSchema, compare, configuration_page, keys, schema_of, with_value};
use serde_json::{Value, json};

use super::*;

/// Keys whose bounds are the values of other keys, as their meanings say.
const RELATIVE: [&str; 2] = ["limits.agents.unprovedHandshakes", "parking.callerLimitSeconds"];

#[test]
fn the_reference_has_the_keys_of_server_yaml() {
    let schema = schema();
    compare("tombolo-server.schema.json", &format!("{schema:#}\n"));
    compare("server.yaml.md", &configuration_page(include_str!("reference_head.md"), &schema));
}

#[test]
fn the_reference_has_the_flags_of_the_daemon() {
    let mut command = daemon::args::with_environment(Flags::command(), "TOMBOLO_SERVER");
    command.build();
    compare("tunnel-server.md", &reference::commands_page(include_str!("command_head.md"), &command));
}

/// A file with the default written out means the same as one without the key.
#[test]
fn every_default_of_the_schema_is_the_programs() {
    let files = files();
    let base = format!("{:?}", load_json(&files, &least()).unwrap());
    let (mut tried, mut wrong) = (0, Vec::new());
    for key in keys(&schema()) {
        let Some(default) = key.default.filter(|default| !default.is_null()) else { continue };
        // A section that needs other keys, too, is not valid with this one alone.
        if let Ok(config) = load_json(&files, &with_value(&least(), &key.path, default.clone())) {
            tried += 1;
            if format!("{config:?}") != base {
                wrong.push(format!("{} is not {default} without the key", key.path.join(".")));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(tried >= 35, "only {tried} defaults were tried");
}

/// The numbers at the bounds are taken, and the ones beyond are refused by the name of the key.
#[test]
fn every_bound_of_the_schema_is_the_programs() {
    let files = files();
    let (mut tried, mut wrong) = (0, Vec::new());
    for key in keys(&schema()) {
        let Some((least_number, most)) = key.bounds else { continue };
        let name = key.path.join(".");
        if RELATIVE.contains(&name.as_str()) {
            continue;
        }
        let load = |number: u64| load_json(&files, &with_value(&least(), &key.path, json!(number)));
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
        tried += 1;
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(tried >= 25, "only {tried} bounds were tried");
}

fn schema() -> Value {
    DaemonSchema {
        kind: KIND,
        title: "ServerConfig of tunnel-server",
        api_version: daemon::config::API_VERSION,
        defaults: &[
            (&["stateDir"], json!(COMMON_DEFAULTS.state_dir)),
            (&["probes", "listen"], json!(COMMON_DEFAULTS.probes_listen.to_string())),
        ],
    }
    .with_own_keys(schema_of::<RawConfig>())
}

/// The lines of a file, with each value in the form of JSON, which is YAML too.
fn yaml(file: &Value) -> String {
    file.as_object().unwrap().iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

fn load_json(files: &TempDir, file: &Value) -> Result<Config, ConfigError> {
    load(files, &yaml(file), &Flags::default())
}

fn least() -> Value {
    json!({
        "tls": { "certificateFile": "server.crt", "keyFile": "server.key" },
        "gateway": {
            "authentication": { "tokenFile": { "path": "tokens.csv", "usernamePrefix": "", "groupsPrefix": "g:" } },
        },
        "tunnel": { "agentCAFile": "agent-ca.crt" },
        "policy": { "file": "policy.yaml" },
    })
}
