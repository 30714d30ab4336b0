//! The pages of the reference are those of the code, and the program does what they say.

use clap::CommandFactory as _;
use reference::{
    DaemonSchema, TriedClaims, compare, configuration_page, schema_of, try_bounds, try_defaults, yaml,
};
use serde_json::{Value, json};

use super::*;

#[test]
fn the_reference_has_the_keys_of_agent_yaml() {
    let schema = schema();
    compare("tombolo-agent.schema.json", &format!("{schema:#}\n"));
    compare("agent.yaml.md", &configuration_page(include_str!("reference_head.md"), &schema));
}

#[test]
fn the_reference_has_the_flags_of_the_daemon() {
    let mut command = daemon::args::with_environment(Flags::command(), "TOMBOLO_AGENT");
    command.build();
    compare("tunnel-agent.md", &reference::commands_page(include_str!("command_head.md"), &command));
}

#[test]
fn every_default_of_the_schema_is_the_programs() {
    let TriedClaims { count, wrong } = try_defaults(&schema(), &least(), &[json!([])], load_json);
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 12, "only {count} defaults were tried");
}

#[test]
fn every_bound_of_the_schema_is_the_programs() {
    let TriedClaims { count, wrong } = try_bounds(&schema(), &least(), &[], load_json);
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 6, "only {count} bounds were tried");
}

fn schema() -> Value {
    DaemonSchema {
        kind: KIND,
        title: "AgentConfig of tunnel-agent",
        api_version: daemon::config::API_VERSION,
        defaults: &[
            (&["stateDir"], json!(validate::COMMON_DEFAULTS.state_dir)),
            (&["probes", "listen"], json!(validate::COMMON_DEFAULTS.probes_listen.to_string())),
            (&["runtime", "threads"], json!(validate::COMMON_DEFAULTS.threads)),
        ],
    }
    .with_own_keys(schema_of::<RawConfig>())
}

fn load_json(file: &Value) -> Result<Config, KeyError> {
    valid(&yaml(file), &Flags::default())
}

fn least() -> Value {
    json!({
        "cluster": "edge-a",
        "servers": ["gateway.example:8443"],
        "tls": { "certificateFile": "agent.crt", "keyFile": "agent.key", "serverCAFile": "server-ca.crt" },
    })
}
