//! Edges between crates are judged by metadata that these tests make up.

use serde_json::{Value, json};

use super::super::edges::{Graph, Metadata, check, check_banned};
use super::lines;

const OURS: [&str; 21] = [
    "sys",
    "proto",
    "policy",
    "summary",
    "trust",
    "transport",
    "daemon",
    "audit",
    "etcd",
    "records",
    "api-servers",
    "tunnel-server",
    "tunnel-agent",
    "node-lb",
    "fleet",
    "cli",
    "linksim",
    "reference",
    "sbom",
    "tests",
    "loadtest",
];

#[test]
fn edges_that_point_down_are_allowed() {
    let edges = [
        ("transport", "proto"),
        ("transport", "trust"),
        ("trust", "proto"),
        ("transport", "quinn"),
        ("tunnel-server", "transport"),
        ("tunnel-server", "daemon"),
        ("tunnel-server", "dashmap"),
        ("cli", "proto"),
        ("tests", "tunnel-server"),
        ("tests", "h2"),
        ("loadtest", "tests"),
    ];

    assert_eq!(wrong(&edges, &OURS), [""; 0]);
}

#[test]
fn an_upward_edge_is_found() {
    assert_eq!(
        wrong(&[("transport", "tunnel-server")], &OURS),
        [
            "transport/Cargo.toml: `transport` depends up on `tunnel-server`; a crate sees only what is below it"
        ]
    );
}

#[test]
fn crates_of_one_floor_do_not_see_each_other() {
    for (from, to) in [("daemon", "transport"), ("cli", "tunnel-server"), ("tunnel-agent", "tunnel-server")] {
        assert_eq!(
            wrong(&[(from, to)], &OURS),
            [format!(
                "{from}/Cargo.toml: `{from}` depends sideways on `{to}`; a crate sees only what is below it"
            )]
        );
    }
}

#[test]
fn what_tests_stand_on_does_not_lean_on_what_measures() {
    assert_eq!(wrong(&[("tests", "loadtest")], &OURS).len(), 1);
}

#[test]
fn a_reserved_dependency_is_for_few() {
    assert_eq!(
        wrong(&[("tunnel-server", "quinn"), ("daemon", "h2"), ("tunnel-agent", "dashmap")], &OURS),
        [
            "daemon/Cargo.toml: `daemon` depends on `h2`, which is for transport, loadtest, tests only",
            "tunnel-server/Cargo.toml: `tunnel-server` depends on `quinn`, which is for transport, loadtest, tests only",
            "tunnel-agent/Cargo.toml: `tunnel-agent` depends on `dashmap`, which is for tunnel-server only",
        ]
    );
}

#[test]
fn proto_does_no_io() {
    assert_eq!(
        wrong(&[("proto", "tokio"), ("proto", "hyper")], &OURS),
        [
            "proto/Cargo.toml: `proto` must not depend on `tokio`: proto does no I/O",
            "proto/Cargo.toml: `proto` must not depend on `hyper`: proto does no I/O",
        ]
    );
}

#[test]
fn a_banned_crate_is_found_however_deep() {
    let graph = Graph::parse("proto v0.1.0 (proto)\nring v0.17.14\nstring v1.0.0\n");

    assert_eq!(
        lines(&check_banned(&graph)),
        ["Cargo.lock: `ring` is in the graph and must not be; `cargo tree --invert ring` says why it is"]
    );
}

#[test]
fn an_unknown_and_an_absent_crate_are_told() {
    let ours: Vec<&str> = OURS.into_iter().filter(|name| *name != "cli").chain(["attic"]).collect();

    assert_eq!(
        wrong(&[], &ours),
        [
            "attic/Cargo.toml: the layer table has no crate `attic`; add it in tests/src/layers/table.rs",
            "tests/src/layers/table.rs: the workspace has no crate `cli`; build it, or call it planned in this table",
        ]
    );
}

fn wrong(edges: &[(&str, &str)], ours: &[&str]) -> Vec<String> {
    let package = |name: &str| -> Value {
        let dependencies = edges.iter().filter(|(from, _)| *from == name);
        let dependencies: Vec<Value> =
            dependencies.map(|(_, to)| json!({ "name": to, "kind": "dev" })).collect();
        json!({ "id": format!("id {name}"), "name": name, "dependencies": dependencies })
    };
    let packages: Vec<Value> = ours.iter().map(|name| package(name)).collect();
    let members: Vec<String> = ours.iter().map(|name| format!("id {name}")).collect();
    let json = json!({ "packages": packages, "workspace_members": members });
    lines(&check(&Metadata::parse(json.to_string().as_bytes()).unwrap()))
}
