//! The pages of the reference are those of the code, and the program does what they say.

use clap::CommandFactory as _;
use reference::{
    DaemonSchema, TriedClaims, compare, configuration_page, schema_of, try_bounds, try_defaults, yaml,
};
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

#[test]
fn every_default_of_the_schema_is_the_programs() {
    let files = files();
    let TriedClaims { count, wrong } =
        try_defaults(&schema(), &least(), &[Value::Null], |file| load_json(&files, file));
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 35, "only {count} defaults were tried");
}

#[test]
fn every_bound_of_the_schema_is_the_programs() {
    let files = files();
    let TriedClaims { count, wrong } =
        try_bounds(&schema(), &least(), &RELATIVE, |file| load_json(&files, file));
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 25, "only {count} bounds were tried");
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
