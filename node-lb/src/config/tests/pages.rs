//! The pages of the reference are those of the code, and the program does what they say.

use clap::CommandFactory as _;
use reference::{
    DaemonSchema, TriedClaims, compare, configuration_page, schema_of, try_bounds, try_defaults, yaml,
};
use serde_json::{Value, json};

use super::*;

#[test]
fn the_reference_has_the_keys_of_node_lb_yaml() {
    let schema = schema();
    compare("tombolo-node-lb.schema.json", &format!("{schema:#}\n"));
    compare("node-lb.yaml.md", &configuration_page(include_str!("reference_head.md"), &schema));
}

#[test]
fn the_reference_has_the_flags_of_the_daemon() {
    let mut command = daemon::args::with_environment(Flags::command(), "TOMBOLO_NODE_LB");
    command.build();
    compare("node-lb.md", &reference::commands_page(include_str!("command_head.md"), &command));
}

#[test]
fn every_default_of_the_schema_is_the_programs() {
    // A list that is written out has to be bound, and the default one as far as the host can.
    let skipped = [json!(LISTEN_DEFAULT)];
    let TriedClaims { count, wrong } = try_defaults(&schema(), &least(), &skipped, load_json);
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 5, "only {count} defaults were tried");
}

#[test]
fn every_bound_of_the_schema_is_the_programs() {
    let TriedClaims { count, wrong } = try_bounds(&schema(), &least(), &[], load_json);
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 2, "only {count} bounds were tried");
}

fn schema() -> Value {
    DaemonSchema {
        kind: KIND,
        title: "NodeLBConfig of node-lb",
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
    json!({ "apiServers": ["192.168.1.11:6443"], "caFile": "ca.crt" })
}
