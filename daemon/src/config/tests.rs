//! Tests of error messages about invalid files.

use std::{collections::BTreeMap, fs};

use serde::Deserialize;

use super::*;

/// The programs' own schemas have these keys, too.
#[test]
fn the_reference_has_the_keys_of_every_daemon() {
    let schema = reference::schema_of::<RawCommon>();
    let keys: Vec<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut common = common::COMMON_KEYS;
    common.sort_unstable();
    assert_eq!(keys, common);
    reference::compare("tombolo-daemon.schema.json", &format!("{schema:#}\n"));
}

const KIND: &str = "ServerConfig";

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawTest {
    listen: Option<String>,
    drain_grace_seconds: Option<u64>,
    labels: Option<BTreeMap<String, String>>,
    api_server: Option<Nested>,
}

/// The keys of a daemon beside the common ones.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawOwn {
    listen: Option<String>,
    #[serde(rename = "apiServer")]
    _api_server: Option<Nested>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Nested {
    kind: Option<String>,
    port: Option<u16>,
}

#[test]
fn the_head_is_checked_and_hidden_and_the_rest_is_read() {
    let raw = parsed(
        "kind: ServerConfig\nlisten: 0.0.0.0:8443\nlabels: {a: b}\napiVersion: tombolo.dev/v1alpha1\n",
    );

    let raw = raw.unwrap();

    assert_eq!(raw.listen.as_deref(), Some("0.0.0.0:8443"));
    assert_eq!(raw.labels, Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])));
}

#[test]
fn common_keys_are_read_beside_a_daemons_own_keys() {
    let text = headed(
        "listen: a\nstateDir: state\nprobes: {listen: b}\nlog: {level: debug}\ndrainGraceSeconds: 7\n\
         runtime: {threads: 3}\n",
    );

    let (common, own) = with_common(&text).unwrap();

    assert_eq!(own.listen.as_deref(), Some("a"));
    let RawCommon { state_dir, probes, drain_grace_seconds, log, runtime } = common;
    assert_eq!(state_dir.as_deref(), Some(Path::new("state")));
    assert_eq!(probes.unwrap().listen.as_deref(), Some("b"));
    assert_eq!(drain_grace_seconds, Some(7));
    assert_eq!(log.unwrap().level.as_deref(), Some("debug"));
    assert_eq!(runtime.unwrap().threads, Some(3));
}

#[test]
fn common_keys_alone_or_none_at_all_are_a_valid_file() {
    let (common, own) = with_common(&headed("stateDir: state\n")).unwrap();
    assert!(common.state_dir.is_some() && own.listen.is_none());
    let (common, own) = with_common(&headed("listen: a\n")).unwrap();
    assert!(common.state_dir.is_none() && own.listen.is_some());
}

#[test]
fn an_unknown_key_lists_own_and_common_keys() {
    let text = with_common(&headed("listen: a\ndrainGrace: 5\n")).unwrap_err().to_string();

    assert_eq!(
        text,
        "server.yaml:4:1: unknown field `drainGrace`, expected one of listen, apiServer, stateDir, probes, \
         drainGraceSeconds, log, runtime; the line is `drainGrace: 5`"
    );
    let nested = with_common(&headed("apiServer: {ports: 1}\n")).unwrap_err().to_string();
    assert_eq!(
        nested,
        "server.yaml:3:13: unknown field `ports`, expected one of kind, port; the line is `apiServer: {ports: 1}`"
    );
    let common = with_common(&headed("log: {depth: 1}\n")).unwrap_err().to_string();
    assert_eq!(
        common,
        "server.yaml:3:7: unknown field `depth`, expected one of format, level; the line is `log: {depth: 1}`"
    );
}

#[test]
fn a_duplicate_common_key_is_refused() {
    let text = with_common(&headed("stateDir: a\nstateDir: b\n")).unwrap_err().to_string();

    assert_eq!(
        text,
        "server.yaml:4:1: duplicate mapping key `stateDir` is not allowed here; the line is `stateDir: b`"
    );
}

#[test]
fn a_key_named_kind_below_the_head_is_an_ordinary_key() {
    let raw = parsed(&headed("apiServer:\n  kind: x\n")).unwrap();

    assert_eq!(raw.api_server, Some(Nested { kind: Some("x".into()), port: None }));
}

#[test]
fn a_head_alone_is_a_valid_file() {
    assert!(parsed(&headed("")).is_ok());
}

#[test]
fn an_unknown_key_is_named_with_its_position_and_the_known_keys() {
    let text = refusal(&headed("listen: a\ndrainGrace: 5\n"));

    assert_eq!(
        text,
        "server.yaml:4:1: unknown field `drainGrace`, expected one of listen, drainGraceSeconds, labels, apiServer; \
         the line is `drainGrace: 5`"
    );
}

#[test]
fn an_unknown_nested_key_has_its_own_position() {
    let text = refusal(&headed("apiServer:\n  kinds: x\n"));

    assert!(text.starts_with("server.yaml:4:3: unknown field `kinds`"), "{text}");
}

#[test]
fn a_value_of_a_wrong_type_is_named_with_position_and_key() {
    for (line, place, found) in [
        ("drainGraceSeconds: soon  # or later\n", "3:20", "drainGraceSeconds: soon"),
        ("drainGraceSeconds: -1\n", "3:20", "drainGraceSeconds: -1"),
        ("apiServer: {kind: x, port: abc}\n", "3:28", "port: abc"),
    ] {
        let text = refusal(&headed(line));

        let allowed = "a whole number of 0 or more, within reason";
        let line = line.trim_end();
        assert_eq!(
            text,
            format!("server.yaml:{place}: {found} is not allowed, use {allowed}; the line is `{line}`")
        );
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
        "drainGraceSeconds: http://a:5ecre7,x@p",
    ] {
        let text = refusal(&headed(&line.replace('$', SECRET)));
        assert!(!text.contains("5ecre7"), "{line}: {text}");
    }
}

#[test]
fn a_mapping_instead_of_a_value_is_named_with_its_key() {
    assert_eq!(
        refusal(&headed("listen: {a: b}\n")),
        "server.yaml:3:9: listen: expected string scalar; the line is `listen: {a: b}`"
    );
}

#[test]
fn duplicate_keys_are_refused_in_head_and_rest() {
    let rest = refusal(&headed("listen: a\nlisten: b\n"));
    let head = refusal(&headed("kind: ServerConfig\n"));

    assert_eq!(
        rest,
        "server.yaml:4:1: duplicate mapping key `listen` is not allowed here; the line is `listen: b`"
    );
    assert_eq!(
        head,
        "server.yaml:3:1: duplicate mapping key `kind` is not allowed here; the line is `kind: ServerConfig`"
    );
}

#[test]
fn invalid_yaml_is_refused_in_one_line_with_its_position() {
    let text = refusal(&headed("listen: [a\n"));

    assert!(text.starts_with("server.yaml:"), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn an_error_of_syntax_shows_the_line_of_the_file() {
    for (rest, line) in [
        ("apiServer:\n  kind: 'a\n", "kind: 'a"),
        ("listen: a: b\n", "listen: a: b"),
        ("apiServer:\n\tkind: a\n", "kind: a"),
        ("labels: {a: b\nlisten: c\n", "listen: c"),
    ] {
        let text = refusal(&headed(rest));
        assert!(text.ends_with(&format!("; the line is `{line}`")), "{rest:?}: {text}");
    }
}

#[test]
fn two_documents_in_one_file_are_refused() {
    assert!(parsed(&format!("{0}---\n{0}", headed(""))).is_err());
}

#[test]
fn a_wrong_kind_is_refused_with_the_right_one() {
    let text = refusal("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n");

    assert_eq!(text, "server.yaml:2:7: kind: AgentConfig is not what this program reads, use ServerConfig");
}

#[test]
fn a_wrong_version_is_refused_first_with_the_right_one() {
    let text = refusal("apiVersion: tombolo.dev/v2\nkind: ServerConfig\nnewKey: 1\n");

    assert_eq!(
        text,
        "server.yaml:1:13: apiVersion: tombolo.dev/v2 is not what this program reads, use tombolo.dev/v1alpha1"
    );
}

#[test]
fn a_missing_head_is_refused_with_the_line_to_add() {
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
fn a_missing_file_is_refused_with_the_remedy() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("server.yaml");

    let error = load::<RawTest>(&path, KIND).unwrap_err();

    let shown = path.display();
    assert_eq!(
        error.to_string(),
        format!("there is no configuration file {shown}, create it or name another one with --config")
    );
}

#[test]
fn a_file_beyond_the_limit_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("server.yaml");
    let mut text = headed("");
    text.push('#');
    text.push_str(&"x".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() - text.len()));

    fs::write(&path, &text).unwrap();
    assert!(load::<RawTest>(&path, KIND).is_ok());

    text.push('x');
    fs::write(&path, &text).unwrap();
    assert!(matches!(load::<RawTest>(&path, KIND), Err(LoadError::TooLarge(_))));
}

#[test]
fn a_directory_is_not_a_file() {
    let home = tempfile::tempdir().unwrap();

    assert!(matches!(load::<RawTest>(home.path(), KIND), Err(LoadError::Unreadable { .. })));
}

fn headed(rest: &str) -> String {
    format!("apiVersion: tombolo.dev/v1alpha1\nkind: ServerConfig\n{rest}")
}

fn parsed(text: &str) -> Result<RawTest, LoadError> {
    parse(text, Path::new("server.yaml"), KIND)
}

fn with_common(text: &str) -> Result<(RawCommon, RawOwn), LoadError> {
    parse_with_common(text, Path::new("server.yaml"), KIND)
}

fn refusal(text: &str) -> String {
    parsed(text).unwrap_err().to_string()
}
