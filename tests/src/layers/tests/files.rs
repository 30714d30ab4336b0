//! The rules for single files are enforced, and only where they hold.

use std::path::Path;

use super::super::files::{LINES_ALARM, LINES_MAX, check_names, check_shape};
use super::super::source::Crate;
use super::{Workspace, lines};

#[test]
fn a_concurrent_map_outside_the_registry_is_found_in_every_form() {
    for code in [
        "use dashmap::DashMap;",
        "use {dashmap::{DashMap as Map}};",
        "use dashmap as maps;",
        "use dashmap::*;",
        "type T = Vec<dashmap::DashMap<u8, u8>>;",
        "wrap! { dashmap::DashMap::new() }",
    ] {
        let found = named("tunnel-server", "policy.rs", code);

        assert_eq!(found.len(), 1, "{code}: {found:?}");
        assert!(found[0].starts_with("tunnel-server/src/policy.rs:2: `dashmap"), "{found:?}");
        assert!(found[0].ends_with("only the registry holds a concurrent map"), "{found:?}");
    }
}

#[test]
fn the_registry_may_hold_a_concurrent_map() {
    assert_eq!(named("tunnel-server", "registry.rs", "use dashmap::DashMap;"), [""; 0]);
    assert_eq!(named("tunnel-server", "registry/table.rs", "use dashmap::DashMap;"), [""; 0]);
    assert_eq!(named("tunnel-server", "registry2.rs", "use dashmap::DashMap;").len(), 1);
}

#[test]
fn a_second_place_that_accepts_tcp_connections_is_found_in_every_form() {
    for code in [
        "use tokio::net::TcpListener;",
        "use tokio::net::{TcpListener, TcpStream};",
        "use tokio::net::*;",
        "use tokio::net::TcpSocket;",
        "use std::net::{IpAddr, TcpListener};",
        "async fn f() { tokio::net::TcpListener::bind(\"[::]:1\").await?.accept().await?; }",
    ] {
        for krate in ["daemon", "cli", "tunnel-server", "tunnel-agent", "transport"] {
            assert!(!named(krate, "probes.rs", code).is_empty(), "{krate}: {code}");
        }
    }
    assert_eq!(named("daemon", "listen/guard.rs", "use tokio::net::TcpListener;"), [""; 0]);
    assert_eq!(named("daemon", "probes.rs", "use tokio::net::TcpStream;"), [""; 0]);
}

#[test]
fn starting_a_program_is_found_in_every_form() {
    for code in [
        "use std::process::Command;",
        "use std::{process::{Command, exit}};",
        "use std::process::*;",
        "fn f() { std::process::Command::new(\"sh\"); }",
        "use std::process; fn f() { process::Command::new(\"sh\"); }",
        "use tokio::process::Child;",
    ] {
        assert_eq!(named("tunnel-agent", "forward.rs", code).len(), 1, "{code}");
    }
}

#[test]
fn ending_a_process_and_reading_a_command_line_are_no_programs_started() {
    let code = "use std::process::ExitCode; use clap::Command; fn f() { std::process::exit(1) }";

    assert_eq!(named("daemon", "args.rs", code), [""; 0]);
}

#[test]
fn a_status_outside_refusal_is_found_in_every_form() {
    for code in [
        r#"const KIND: &str = "Status";"#,
        r#"fn f() { json!({ "kind": "Status" }) }"#,
        "const BODY: &str = r#\"{\"kind\": \"Status\", \"code\": 503}\"#;",
        r#"const BODY: &str = "{\"kind\":\"Status\"}";"#,
    ] {
        let found = named("tunnel-server", "agents.rs", code);

        assert_eq!(
            found,
            ["tunnel-server/src/agents.rs:2: a Kubernetes `Status` is written in \
              tunnel-server/src/gateway/refusal.rs only (see tests/src/layers/table.rs)"],
            "{code}"
        );
    }
}

#[test]
fn a_status_in_refusal_tests_cli_and_documentation_is_allowed() {
    let code = r#"const KIND: &str = "Status";"#;

    assert_eq!(named("tunnel-server", "gateway/refusal.rs", code), [""; 0]);
    assert_eq!(
        named("tunnel-server", "gateway.rs", &format!("#[cfg(test)] mod tests {{ {code} }}")),
        [""; 0]
    );
    assert_eq!(named("cli", "print.rs", code), [""; 0]);
    let documented = r#"#[doc = "{\"kind\": \"Status\"}"] pub struct Answer;"#;
    assert_eq!(named("tunnel-agent", "forward.rs", documented), [""; 0]);
}

#[test]
fn a_mod_rs_is_found() {
    assert_eq!(
        shape("proto/src/session/mod.rs", "//! Session.\n"),
        ["proto/src/session/mod.rs: a module is `name.rs` beside `name/`, not `mod.rs`"]
    );
}

#[test]
fn a_source_without_a_purpose_is_found_and_a_test_without_one_is_not() {
    assert_eq!(
        shape("proto/src/session.rs", "use std::fmt;\n"),
        ["proto/src/session.rs:1: the first line says what the file is for: `//! …`"]
    );
    assert_eq!(shape("proto/tests/session.rs", "use std::fmt;\n"), [""; 0]);
}

#[test]
fn a_long_file_warns_and_a_longer_one_fails() {
    let file = Path::new("proto/src/session.rs");
    let text = |lines: usize| format!("//! Session.\n{}", "\n".repeat(lines - 1));

    assert_eq!(check_shape(file, &text(LINES_ALARM)), (vec![], None));
    assert!(matches!(check_shape(file, &text(LINES_ALARM + 1)), (wrong, Some(_)) if wrong.is_empty()));
    assert!(matches!(check_shape(file, &text(LINES_MAX)), (wrong, Some(_)) if wrong.is_empty()));
    assert_eq!(
        shape("proto/src/session.rs", &text(LINES_MAX + 1)),
        ["proto/src/session.rs: 801 lines; split it, 800 is the limit"]
    );
}

fn named(folder: &str, file: &str, code: &str) -> Vec<String> {
    let workspace = Workspace::clean();
    let root = workspace.0.path();
    std::fs::rename(root.join("sample"), root.join(folder)).unwrap();
    let path = root.join(folder).join("src").join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("//! Changed.\n{code}\n")).unwrap();
    lines(&check_names(folder, &Crate::read(root, folder).unwrap()))
}

fn shape(file: &str, text: &str) -> Vec<String> {
    lines(&check_shape(Path::new(file), text).0)
}
