//! Tests of the defaults of `tombolo kubeconfig` from the environment and from `config.yaml`.

use serde_json::Value;

use crate::workdir::{WorkDir, assert_says, stderr, stdout};

const FILE: &str = ".config/tombolo/config.yaml";
const ORDER: [&str; 3] = ["kubeconfig", "--cluster", "c"];
/// Paths relative to the file's own directory.
const COMPLETE: &str = "\
gateway: https://file.example:8443
certificateAuthority: ../../pki/server-ca.crt
clientCertificate: ../../pki/alice-caller.crt
clientKey: ../../pki/alice-caller.key
";

#[test]
fn the_file_gives_what_flags_do_not() {
    let workdir = WorkDir::with_caller();
    workdir.write(FILE, COMPLETE);
    let parsed = with(&workdir, &[], &[]);
    assert_eq!(server(&parsed), "https://file.example:8443/clusters/c");
    assert!(parsed["users"][0]["user"]["client-key-data"].is_string());

    workdir.write(FILE, format!("{COMPLETE}hostSuffix: clusters.example\n"));
    assert_eq!(server(&with(&workdir, &[], &[])), "https://c.clusters.example:8443");
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let workdir = WorkDir::with_caller();
    workdir.write(FILE, COMPLETE);
    let variable = ("TOMBOLO_GATEWAY", "https://environment.example");
    let flag = ["--gateway", "https://flag.example"];

    assert_eq!(server(&with(&workdir, &[variable], &[])), "https://environment.example/clusters/c");
    assert_eq!(server(&with(&workdir, &[variable], &flag)), "https://flag.example/clusters/c");
    assert_eq!(
        server(&with(&workdir, &[("TOMBOLO_GATEWAY", "")], &[])),
        "https://file.example:8443/clusters/c"
    );
}

#[test]
fn a_credential_is_never_combined_from_two_sources() {
    let workdir = WorkDir::with_caller();
    workdir.write(FILE, COMPLETE);
    workdir.write("token", "secret");
    let token = ("TOMBOLO_TOKEN_FILE", "token");

    assert_eq!(with(&workdir, &[token], &[])["users"][0]["user"], serde_json::json!({ "token": "secret" }));
    let pair = ["--cert", "pki/alice-caller.crt", "--key", "pki/alice-caller.key"];
    assert!(with(&workdir, &[token], &pair)["users"][0]["user"]["token"].is_null());

    let half = [("TOMBOLO_CLIENT_KEY", "k")];
    assert_says(
        &refused(&workdir, &half),
        "environment: TOMBOLO_CLIENT_KEY needs TOMBOLO_CLIENT_CERTIFICATE beside it",
    );
    let both = [("TOMBOLO_CLIENT_KEY", "k"), token];
    assert_says(
        &refused(&workdir, &both),
        "TOMBOLO_CLIENT_KEY and TOMBOLO_TOKEN_FILE exclude each other; keep one",
    );
    workdir.write(FILE, "clientCertificate: a\n");
    assert_says(&refused(&workdir, &[]), "config.yaml: clientCertificate needs clientKey beside it");
}

#[test]
fn the_file_is_found_where_the_environment_says() {
    let workdir = WorkDir::with_caller();
    workdir.write("xdg/tombolo/config.yaml", COMPLETE.replace("file.example", "xdg.example"));
    workdir.write("named/by/me.yaml", COMPLETE.replace("file.example", "named.example"));
    let xdg = workdir.path("xdg");
    let xdg = ("XDG_CONFIG_HOME", xdg.to_str().unwrap());
    let named = ("TOMBOLO_CONFIG", "named/by/me.yaml");

    assert_eq!(server(&with(&workdir, &[xdg], &[])), "https://xdg.example:8443/clusters/c");
    assert_eq!(server(&with(&workdir, &[xdg, named], &[])), "https://named.example:8443/clusters/c");
    // A relative path is no place for configuration.
    assert_says(&refused(&workdir, &[("XDG_CONFIG_HOME", "xdg")]), "no gateway");
    assert_says(
        &refused(&workdir, &[("TOMBOLO_CONFIG", "none.yaml")]),
        "cannot read none.yaml: No such file",
    );
}

#[test]
fn an_empty_file_counts_as_none() {
    let workdir = WorkDir::with_caller();
    for text in ["", "# nothing yet\n", "{}\n"] {
        workdir.write(FILE, text);
        assert_says(
            &refused(&workdir, &[]),
            "no gateway: pass --gateway https://HOST:PORT, set TOMBOLO_GATEWAY",
        );
    }
}

#[test]
fn a_missing_setting_is_named_by_flag_variable_and_key() {
    let workdir = WorkDir::with_caller();
    let gateway = ("TOMBOLO_GATEWAY", "https://g.example");
    let authority = ("TOMBOLO_CERTIFICATE_AUTHORITY", "pki/server-ca.crt");
    for (variables, part) in [
        (vec![], "set TOMBOLO_GATEWAY, or write gateway in"),
        (
            vec![gateway],
            "pass --ca FILE, set TOMBOLO_CERTIFICATE_AUTHORITY, or write certificateAuthority in",
        ),
        (vec![gateway, authority], "no credential: pass --cert FILE --key FILE or --token-file FILE"),
    ] {
        let said = refused(&workdir, &variables);
        assert_says(&said, part);
        assert_says(&said, FILE);
    }
}

#[test]
fn a_wrong_file_or_variable_is_refused_by_key_value_and_what_is_allowed() {
    let workdir = WorkDir::with_caller();
    for (text, parts) in [
        ("gatway: https://g.example\n", ["it may have the keys gateway, certificateAuthority", "gatway"]),
        ("gateway: [\n", ["config.yaml is not a valid configuration", "config.yaml:"]),
        (
            "gateway: http://g.example\n",
            ["config.yaml: gateway is \"http://g.example\"", "https only, not http"],
        ),
        ("hostSuffix: local\n", ["config.yaml: hostSuffix is \"local\"", "at least two labels"]),
    ] {
        workdir.write(FILE, text);
        for part in parts {
            assert_says(&refused(&workdir, &[]), part);
        }
    }
    workdir.write(FILE, "");
    let said = refused(&workdir, &[("TOMBOLO_GATEWAY", "https://g.example/x")]);
    assert_says(&said, "environment: TOMBOLO_GATEWAY is \"https://g.example/x\"");
    assert_says(&said, "may have no path");
}

fn with(workdir: &WorkDir, variables: &[(&str, &str)], flags: &[&str]) -> Value {
    let mut command = workdir.command(ORDER.into_iter().chain(flags.iter().copied()));
    serde_saphyr::from_str(&stdout(command.envs(variables.iter().copied()).assert().success())).unwrap()
}

fn refused(workdir: &WorkDir, variables: &[(&str, &str)]) -> String {
    stderr(workdir.command(ORDER).envs(variables.iter().copied()).assert().code(1))
}

fn server(kubeconfig: &Value) -> &str {
    kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap()
}
