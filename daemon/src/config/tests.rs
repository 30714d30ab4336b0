//! Claims about what a person is told about a wrong file.

use std::{collections::BTreeMap, fs};

use serde::Deserialize;

use super::*;

const KIND: &str = "ServerConfig";

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    listen: Option<String>,
    drain_grace_seconds: Option<u64>,
    labels: Option<BTreeMap<String, String>>,
    api_server: Option<Nested>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Nested {
    kind: Option<String>,
    port: Option<u16>,
}

#[test]
fn the_head_is_checked_and_taken_off_and_the_rest_is_read() {
    let written = written(
        "kind: ServerConfig\nlisten: 0.0.0.0:8443\nlabels: {a: b}\napiVersion: tombolo.dev/v1alpha1\n",
    );

    let written = written.unwrap();

    assert_eq!(written.listen.as_deref(), Some("0.0.0.0:8443"));
    assert_eq!(written.labels, Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])));
}

#[test]
fn a_key_named_kind_below_the_head_is_an_ordinary_key() {
    let written = written(&headed("apiServer:\n  kind: x\n")).unwrap();

    assert_eq!(written.api_server, Some(Nested { kind: Some("x".into()), port: None }));
}

#[test]
fn a_head_alone_is_a_whole_file() {
    assert!(written(&headed("")).is_ok());
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_the_keys_there_are() {
    let text = refusal(&headed("listen: a\ndrainGrace: 5\n"));

    assert_eq!(
        text,
        "server.yaml:4:1: unknown field `drainGrace`, expected one of listen, drainGraceSeconds, labels, apiServer"
    );
}

#[test]
fn an_unknown_key_deep_inside_has_its_own_place() {
    let text = refusal(&headed("apiServer:\n  kinds: x\n"));

    assert!(text.starts_with("server.yaml:4:3: unknown field `kinds`"), "{text}");
}

#[test]
fn a_value_of_a_wrong_type_is_named_with_its_place_its_key_and_what_is_allowed() {
    for (line, place, found) in [
        ("drainGraceSeconds: soon  # or later\n", "3:20", "drainGraceSeconds: soon"),
        ("drainGraceSeconds: -1\n", "3:20", "drainGraceSeconds: -1"),
        ("apiServer: {kind: x, port: abc}\n", "3:28", "port: abc"),
    ] {
        let text = refusal(&headed(line));

        let allowed = "a whole number of 0 or more, within reason";
        assert_eq!(text, format!("server.yaml:{place}: {found} is not allowed, use {allowed}"));
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_not_quoted() {
    const SECRET: &str = "5ecre7-5ecre7-5ecre7-5ecre7";
    for line in [
        "drainGraceSeconds: $",
        "apiServer: { port: $ }",
        "apiServer: $",
        "listen: { token: $ }",
        "apiServer: { kind:http://me:$@proxy.test }",
        "http://me:$@a.test: 1\nhttp://me:$@a.test: 2",
        "listen: \"$",
        "listen: $: x",
        "listen: *$",
        "apiVersion: http://me:$@a.test",
    ] {
        let text = refusal(&headed(&line.replace('$', SECRET)));
        assert!(!text.contains("5ecre7"), "{line}: {text}");
    }
}

#[test]
fn a_mapping_in_the_place_of_a_value_is_named_with_its_key() {
    assert_eq!(refusal(&headed("listen: {a: b}\n")), "server.yaml:3:9: listen: expected string scalar");
}

#[test]
fn duplicate_keys_are_refused_in_head_and_rest() {
    let rest = refusal(&headed("listen: a\nlisten: b\n"));
    let head = refusal(&headed("kind: ServerConfig\n"));

    assert_eq!(rest, "server.yaml:4:1: duplicate mapping key `listen` is not allowed here");
    assert_eq!(head, "server.yaml:3:1: duplicate mapping key `kind` is not allowed here");
}

#[test]
fn what_is_not_yaml_is_refused_in_one_line_with_its_place() {
    let text = refusal(&headed("listen: [a\n"));

    assert!(text.starts_with("server.yaml:"), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn two_documents_in_one_file_are_refused() {
    assert!(written(&format!("{0}---\n{0}", headed(""))).is_err());
}

#[test]
fn a_wrong_kind_says_which_is_right() {
    let text = refusal("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n");

    assert_eq!(text, "server.yaml:2:7: kind: AgentConfig is not what this program reads, use ServerConfig");
}

#[test]
fn a_wrong_version_says_which_is_right_whatever_else_is_wrong() {
    let text = refusal("apiVersion: tombolo.dev/v2\nkind: ServerConfig\nnewKey: 1\n");

    assert_eq!(
        text,
        "server.yaml:1:13: apiVersion: tombolo.dev/v2 is not what this program reads, use tombolo.dev/v1alpha1"
    );
}

#[test]
fn a_missing_head_says_what_to_write() {
    assert_eq!(
        refusal("listen: a\n"),
        "server.yaml: apiVersion is missing, add the line `apiVersion: tombolo.dev/v1alpha1`"
    );
    assert_eq!(
        refusal("apiVersion: tombolo.dev/v1alpha1\n"),
        "server.yaml: kind is missing, add the line `kind: ServerConfig`"
    );
    assert_eq!(
        refusal(""),
        "server.yaml: apiVersion is missing, add the line `apiVersion: tombolo.dev/v1alpha1`"
    );
}

#[test]
fn a_missing_file_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("server.yaml");

    let error = load::<Written>(&path, KIND).unwrap_err();

    let shown = path.display();
    assert_eq!(
        error.to_string(),
        format!("there is no configuration file {shown}, create it or name another one with --config")
    );
}

#[test]
fn a_file_of_the_limit_is_read_and_one_byte_more_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("server.yaml");
    let mut text = headed("");
    text.push('#');
    text.push_str(&"x".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() - text.len()));

    fs::write(&path, &text).unwrap();
    assert!(load::<Written>(&path, KIND).is_ok());

    text.push('x');
    fs::write(&path, &text).unwrap();
    assert!(matches!(load::<Written>(&path, KIND), Err(LoadError::TooLarge(_))));
}

#[test]
fn a_directory_is_not_a_file() {
    let home = tempfile::tempdir().unwrap();

    assert!(matches!(load::<Written>(home.path(), KIND), Err(LoadError::Unreadable { .. })));
}

fn headed(rest: &str) -> String {
    format!("apiVersion: tombolo.dev/v1alpha1\nkind: ServerConfig\n{rest}")
}

fn written(text: &str) -> Result<Written, LoadError> {
    parse(text, Path::new("server.yaml"), KIND)
}

fn refusal(text: &str) -> String {
    written(text).unwrap_err().to_string()
}
