//! Tests of help, completion, and the two names of the command.

use std::path::Path;

use crate::workdir::{WorkDir, assert_says, stderr, stdout};

const COMMANDS: [&str; 88] = [
    "",
    "ca",
    "ca init",
    "ca intermediate",
    "ca rotate",
    "ca secrets",
    "ca issue",
    "ca issue server",
    "ca issue agent",
    "ca issue caller",
    "ca issue admin",
    "ca issue peer",
    "ca issue proxy",
    "ca show",
    "kubeconfig",
    "credential",
    "summarize",
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
    "cluster undelete",
    "cluster attestation",
    "cluster attestation show",
    "cluster attestation set-keys",
    "cluster attestation forget",
    "cluster attestation reopen",
    "agent",
    "agent list",
    "agent revoke",
    "agent restore",
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
    "doctor node",
    "node",
    "node join-command",
    "node join",
    "node rotate-ca",
    "node reset",
    "tenant",
    "tenant create",
    "tenant bootstrap",
    "tenant list",
    "tenant status",
    "tenant kubeconfig",
    "tenant join-command",
    "tenant register",
    "tenant upgrade",
    "tenant certificates",
    "tenant certificates renew",
    "tenant certificates rotate-ca",
    "tenant delete",
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
    "server",
    "server export",
    "server import",
    "server list",
    "server remove",
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
        "server",
        "tenant",
        "tenant certificates",
    ];
    for group in groups {
        let help = workdir.succeeds(&format!("{group} --help"));
        // The first help has its commands under several headings, up to the options.
        let (_, listed) = help.split_once("Usage:").unwrap();
        let listed = listed.split_once("Commands:\n").map_or(listed, |(_, listed)| listed);
        let names = listed.lines().take_while(|line| *line != "Options:");
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
fn the_first_help_groups_the_commands_by_who_types_them() {
    let workdir = WorkDir::new();
    for flag in ["--help", "-h"] {
        let help = workdir.succeeds(flag);
        let first = help.lines().next().unwrap();
        assert!(first.starts_with("Tombolo connects kubectl to Kubernetes clusters at the edge"), "{first}");
        let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text:?} is not in {help}"));
        let places = [
            "Usage: tombolo <COMMAND>",
            "Callers, who use kubectl:",
            "\n  kubeconfig ",
            "Operators, who run the server:",
            "\n  cluster ",
            "\n  doctor server ",
            "Sites, where agents run:",
            "\n  rbac ",
            "\n  doctor agent ",
            "Workers, where node-lb runs:",
            "\n  node ",
            "\n  doctor node ",
            "\nOptions:\n",
        ]
        .map(place);
        assert!(places.is_sorted(), "{help}");
        assert!(!help.contains("\n  clusters "), "{help}");
        let (groups, _) = help.split_once("\nOptions:").unwrap();
        assert!(groups.lines().skip(2).all(|line| line.len() <= 80 || !line.starts_with("  ")), "{help}");
    }
}

#[test]
fn the_old_spelling_of_cluster_list_goes_on_working() {
    let workdir = WorkDir::new();
    for command in ["clusters", "cluster list"] {
        let said = workdir.fails(&format!("{command} -l stage=live --show-labels --socket none.sock"));
        assert_says(&said, "there is no socket none.sock");
    }
    assert_says(&workdir.succeeds("cluster list --help"), "`tombolo clusters` is the old spelling");
    assert_says(&workdir.succeeds("clusters --help"), "The old spelling of `tombolo cluster list`");
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

/// The hidden commands have none.
#[test]
fn every_command_has_a_manual_page() {
    let workdir = WorkDir::new();

    workdir.succeeds("man pages");

    let visible = COMMANDS.into_iter().filter(|command| *command != "clusters");
    let expected: Vec<String> =
        visible.map(|command| format!("tombolo {command}.1").replace(" .", ".").replace(' ', "-")).collect();
    let pages = workdir.list("pages");
    for page in expected.iter().chain([&"tombolo-version.1".to_owned()]) {
        assert!(pages.contains(page), "{page} is missing: {pages:?}");
    }
    let page = workdir.text("pages/tombolo-ca-init.1");
    assert!(page.contains(".TH tombolo-ca-init 1") && page.contains("Examples:"), "{page}");
    let hidden = ["man.1", "help", "clusters.1"];
    assert!(!pages.iter().any(|page| hidden.iter().any(|name| page.contains(name))), "{pages:?}");
}

/// A page refers to another as `tombolo-ca-init(1)`, with its hyphens escaped.
#[test]
fn every_page_that_a_manual_page_names_exists() {
    let workdir = WorkDir::new();
    workdir.succeeds("man pages");
    let pages = workdir.list("pages");
    let mut named = 0;

    for page in &pages {
        let text = workdir.text(&format!("pages/{page}")).replace("\\-", "-");
        for reference in text.lines().filter_map(|line| line.strip_suffix("(1)")) {
            assert!(
                pages.contains(&format!("{reference}.1")),
                "{page} names {reference}, which is not there"
            );
            named += 1;
        }
    }

    assert_eq!(named, pages.len() - 1, "each page but the first is named once");
}

#[test]
fn kubectl_gets_candidates_for_the_plugins_command_line() {
    let workdir = WorkDir::new();
    let name = workdir.path("kubectl_complete-tombolo");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tombolo"), &name).unwrap();

    let answer = stdout(workdir.program(&name, ["cluster", "cre"]).assert().success());

    assert!(answer.starts_with("create\t") && answer.ends_with("\n:4\n"), "{answer}");
}
