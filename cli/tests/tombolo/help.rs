//! Tests of help, completion, and the two names of the command.

use std::path::Path;

use crate::workdir::{WorkDir, assert_says, stderr, stdout};

const COMMANDS: [&str; 58] = [
    "",
    "ca",
    "ca init",
    "ca intermediate",
    "ca rotate",
    "ca issue",
    "ca issue server",
    "ca issue agent",
    "ca issue caller",
    "ca issue admin",
    "ca issue proxy",
    "ca show",
    "kubeconfig",
    "clusters",
    "passthrough",
    "proxy",
    "rbac",
    "cluster",
    "cluster create",
    "cluster list",
    "cluster label",
    "cluster update",
    "cluster check",
    "cluster delete",
    "cluster attestation",
    "cluster attestation show",
    "cluster attestation set-keys",
    "cluster attestation forget",
    "cluster attestation reopen",
    "agent",
    "agent list",
    "agent revoke",
    "user",
    "user revoke",
    "user list",
    "user restore",
    "token",
    "token create",
    "token list",
    "token revoke",
    "doctor",
    "doctor server",
    "doctor agent",
    "policy",
    "policy check",
    "policy explain",
    "audit",
    "audit verify",
    "user token",
    "user token create",
    "user token hash",
    "user dial-token",
    "user dial-token create",
    "user dial-token kubeconfig",
    "user dial-token list",
    "user dial-token revoke",
    "vip",
    "completion",
];

#[test]
fn every_commands_help_has_an_example_of_it() {
    let workdir = WorkDir::new();
    for command in COMMANDS.into_iter().chain(["version"]) {
        let help = workdir.succeeds(&format!("{command} --help"));
        let (_, examples) = help.split_once("Examples:").unwrap_or_else(|| panic!("no example: {command}"));
        assert_says(examples, format!("tombolo {command}").trim_end());
        for line in examples.lines() {
            // With "kubectl " before it, it is still not wrapped in a terminal of 80 columns.
            assert!(line.len() <= 72, "{line}");
        }
    }
}

#[test]
fn no_command_is_missing_from_these_tests() {
    let workdir = WorkDir::new();
    let groups = [
        "",
        "ca",
        "ca issue",
        "cluster",
        "cluster attestation",
        "agent",
        "token",
        "doctor",
        "policy",
        "audit",
        "user",
        "user token",
        "user dial-token",
    ];
    for group in groups {
        let help = workdir.succeeds(&format!("{group} --help"));
        let (_, listed) = help.split_once("Commands:\n").unwrap();
        let names = listed.lines().take_while(|line| !line.is_empty());
        for name in names
            .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
            .filter(|name| !name.is_empty())
        {
            let command = format!("{group} {name}");
            let known = COMMANDS.contains(&command.trim()) || ["help", "version"].contains(&name);
            assert!(known, "{command} is not in COMMANDS");
        }
    }
}

#[test]
fn as_a_plugin_help_names_kubectl_tombolo() {
    let workdir = WorkDir::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tombolo"), workdir.path("kubectl-tombolo")).unwrap();
    let plugin = |arguments: &[&str]| {
        workdir.program(&workdir.path("kubectl-tombolo"), arguments.iter().copied()).assert()
    };

    let help = stdout(plugin(&["ca", "init", "--help"]).success());
    assert_says(&help, "Usage: kubectl tombolo ca init");
    assert_says(&help, "Examples: kubectl tombolo ca init --dir pki");
    assert_says(&stderr(plugin(&["ca", "init"]).code(2)), "Usage: kubectl tombolo ca init --dir <DIR>");
    assert_says(&workdir.succeeds("ca init --help"), "Usage: tombolo ca init");
    assert_says(&stdout(plugin(&["completion", "bash"]).success()), "kubectl-tombolo");
}

#[test]
fn every_shell_gets_a_completion_script_that_knows_the_commands() {
    let workdir = WorkDir::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = workdir.succeeds(&format!("completion {shell}"));
        for word in ["kubeconfig", "trust-domain"] {
            assert!(script.contains(word), "{word} is not completed in {shell}");
        }
    }
    assert_says(
        &workdir.usage_error("completion tcsh"),
        "possible values: bash, elvish, fish, powershell, zsh",
    );
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let workdir = WorkDir::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = std::process::Command::new(Path::new(env!("CARGO_BIN_EXE_tombolo")))
        .args(["completion", "bash"])
        .current_dir(workdir.path(""))
        .stdout(writer)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn the_version_is_printed() {
    let workdir = WorkDir::new();
    let version = format!("tombolo {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(workdir.succeeds("version"), version);
    assert_eq!(workdir.succeeds("--version"), version);
}

#[test]
fn wrong_usage_and_failure_have_different_exit_codes() {
    let workdir = WorkDir::new();
    assert_says(&workdir.usage_error("frob"), "unrecognized subcommand 'frob'");
    assert_says(&workdir.usage_error("ca init"), "--dir <DIR>");
    workdir.fails("ca show none");
}
