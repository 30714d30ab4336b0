//! Tests of `tombolo kubeconfig`: contents, file modes, and refusals.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::workdir::{WorkDir, assert_says, stdout};

const BY_CERTIFICATE: &str = "kubeconfig --gateway https://gateway.example:8443 --ca pki/server-ca.crt \
                              --cert pki/alice-caller.crt --key pki/alice-caller.key";
const BY_TOKEN: &str =
    "kubeconfig --gateway https://gateway.example:8443 --ca pki/server-ca.crt --token-file token";

#[test]
fn a_kubeconfig_has_one_context_per_cluster_and_everything_in_it() {
    let workdir = WorkDir::with_caller();

    let text = workdir.succeeds(&format!("{BY_CERTIFICATE} --cluster edge-1 --cluster edge-2"));
    let parsed = parsed(&text);

    let data = |name: &str| BASE64.encode(workdir.text(name));
    let cluster = |name: &str| {
        json!({ "name": name, "cluster": {
            "server": format!("https://gateway.example:8443/clusters/{name}"),
            "certificate-authority-data": data("pki/server-ca.crt"),
        }})
    };
    let context = |name: &str| json!({ "name": name, "context": { "cluster": name, "user": "tombolo@gateway.example" } });
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster("edge-1"), cluster("edge-2")],
        "contexts": [context("edge-1"), context("edge-2")],
        "current-context": "edge-1",
        "users": [{ "name": "tombolo@gateway.example", "user": {
            "client-certificate-data": data("pki/alice-caller.crt"),
            "client-key-data": data("pki/alice-caller.key"),
        }}],
    });
    assert_eq!(parsed, expected);
    let line = format!("    client-key-data: {}\n", data("pki/alice-caller.key"));
    assert!(text.contains(&line), "each value stands on a line of its own");
}

#[test]
fn kubectl_reads_names_and_tokens_that_look_like_other_things() {
    let workdir = WorkDir::with_caller();
    let names = [
        "on",
        "no",
        "y",
        "n",
        "null",
        "nan",
        "1e3",
        "0x10",
        "0o7",
        "0b1",
        "007",
        "12345",
        "2026-11-21",
        "true",
    ];
    let clusters: String = names.iter().map(|name| format!(" --cluster {name}")).collect();
    workdir.write("token", "0123456789\n");

    workdir.succeeds(&format!("{BY_TOKEN}{clusters} --output config"));

    let seen = seen_by_kubectl(&workdir, "config");
    let contexts: Vec<_> =
        seen["contexts"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    // kubectl lists contexts by name.
    let mut sorted = names;
    sorted.sort_unstable();
    assert_eq!(contexts, sorted);
    assert_eq!(seen["current-context"], "on");
    assert_eq!(seen["users"][0]["user"], json!({ "token": "0123456789" }));
}

#[test]
fn kubectl_sees_the_very_bytes_of_certificates_and_key() {
    let workdir = WorkDir::with_caller();
    workdir.succeeds(&format!("{BY_CERTIFICATE} --cluster edge-1 --output config"));

    let seen = seen_by_kubectl(&workdir, "config");

    let bytes = |value: &Value| String::from_utf8(BASE64.decode(value.as_str().unwrap()).unwrap()).unwrap();
    let user = &seen["users"][0]["user"];
    assert_eq!(bytes(&user["client-certificate-data"]), workdir.text("pki/alice-caller.crt"));
    assert_eq!(bytes(&user["client-key-data"]), workdir.text("pki/alice-caller.key"));
    let cluster = &seen["clusters"][0]["cluster"];
    assert_eq!(bytes(&cluster["certificate-authority-data"]), workdir.text("pki/server-ca.crt"));
    assert_eq!(cluster["server"], "https://gateway.example:8443/clusters/edge-1");
}

#[test]
fn files_can_be_named_by_absolute_paths_in_place_of_their_contents() {
    let workdir = WorkDir::with_caller();
    workdir.write("token", "secret");
    let path = |name: &str| workdir.path(name).canonicalize().unwrap().to_str().unwrap().to_owned();

    let by_certificate =
        parsed(&workdir.succeeds(&format!("{BY_CERTIFICATE} --cluster c --embed-certs=false")));
    let by_token = parsed(&workdir.succeeds(&format!("{BY_TOKEN} --cluster c --embed-certs=false")));

    assert_eq!(by_certificate["clusters"][0]["cluster"]["certificate-authority"], path("pki/server-ca.crt"));
    let user = json!({ "client-certificate": path("pki/alice-caller.crt"), "client-key": path("pki/alice-caller.key") });
    assert_eq!(by_certificate["users"][0]["user"], user);
    assert_eq!(by_token["users"][0]["user"], json!({ "tokenFile": path("token") }));
}

#[test]
fn host_names_replace_the_path_and_keep_the_port() {
    let workdir = WorkDir::with_caller();
    workdir.write("token", "secret");
    let server = |gateway: &str| {
        let order =
            format!("kubeconfig --gateway {gateway} --ca pki/server-ca.crt --token-file token --cluster c");
        let of = |order: &str| {
            parsed(&workdir.succeeds(order))["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
        };
        (of(&order), of(&format!("{order} --host-names clusters.example")))
    };
    let pair = |by_path: &str, by_name: &str| (by_path.to_owned(), by_name.to_owned());

    let with_port = pair("https://g.example:8443/clusters/c", "https://c.clusters.example:8443");
    assert_eq!(server("https://g.example:8443"), with_port);
    assert_eq!(server("https://g.example:8443/"), with_port);
    assert_eq!(
        server("https://g.example:443"),
        pair("https://g.example/clusters/c", "https://c.clusters.example")
    );
    assert_eq!(
        server("https://[::1]:8443"),
        pair("https://[::1]:8443/clusters/c", "https://c.clusters.example:8443")
    );
}

#[test]
fn a_url_that_is_not_a_gateways_is_refused_with_what_is_allowed() {
    let workdir = WorkDir::with_caller();
    for (url, reason) in [
        ("http://g.example:8443", "reached by https only, not http"),
        ("g.example:8443", "reached by https only, not g.example"),
        ("g.example", "the gateway's URL is https://HOST[:PORT]"),
        ("https://", "the gateway's URL is https://HOST[:PORT]"),
        ("https://g.example:99999", "the gateway's URL is https://HOST[:PORT]"),
        ("https://g.example/clusters/c", "may have no path"),
        ("https://g.example/?a=b", "may have no query"),
        ("https://g.example/#a", "may have no fragment"),
        ("https://alice@g.example", "may carry no user name or password"),
        ("https://@g.example", "may carry no user name or password"),
        ("https://alice:secret@g.example", "may carry no user name or password"),
    ] {
        let said = workdir.usage_error(&format!("kubeconfig --cluster c --gateway {url}"));
        assert_says(&said, reason);
        assert_says(&said, "https://HOST[:PORT]");
    }
}

#[test]
fn a_written_kubeconfig_is_private_and_never_replaced_unasked() {
    let workdir = WorkDir::with_caller();
    let said = workdir.succeeds(&format!("{BY_CERTIFICATE} --cluster one --output config"));
    assert_eq!(workdir.mode("config"), 0o600);
    assert_says(&said, "wrote config (private)");
    assert_says(&said, "kubectl --kubeconfig config --context one get namespaces");

    let refused = workdir.fails(&format!("{BY_CERTIFICATE} --cluster two --output config"));
    assert_says(&refused, "config is already there and is not overwritten; pass --force");
    assert_eq!(parsed(&workdir.text("config"))["current-context"], "one");

    workdir.succeeds(&format!("{BY_CERTIFICATE} --cluster two --output config --force"));
    assert_eq!(parsed(&workdir.text("config"))["current-context"], "two");
    assert_says(
        &workdir.fails(&format!("{BY_CERTIFICATE} --cluster c --output no/config")),
        "cannot write no/config",
    );
}

#[test]
fn a_key_that_does_not_belong_to_the_certificate_is_refused() {
    let workdir = WorkDir::with_caller();
    workdir.succeeds("ca issue caller --dir pki --user bob");
    let said = workdir.fails(
        "kubeconfig --gateway https://g.example --ca pki/server-ca.crt --cert pki/alice-caller.crt \
         --key pki/bob-caller.key --cluster c",
    );
    assert_says(&said, "the key pki/bob-caller.key does not belong to the certificate pki/alice-caller.crt");
}

#[test]
fn a_private_key_never_stands_where_a_certificate_belongs() {
    let workdir = WorkDir::with_caller();
    workdir.write("both", workdir.text("pki/alice-caller.crt") + &workdir.text("pki/alice-caller.key"));
    workdir.write("token", "secret");
    let order = "kubeconfig --gateway https://g.example --cluster c";
    for rest in
        ["--ca both --token-file token", "--ca pki/server-ca.crt --cert both --key pki/alice-caller.key"]
    {
        assert_says(&workdir.fails(&format!("{order} {rest}")), "both holds a private key");
    }
}

#[test]
fn an_expired_certificate_is_refused() {
    let workdir = WorkDir::with_caller();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.not_after = time::OffsetDateTime::now_utc() - time::Duration::days(1);
    workdir.write("old.crt", params.self_signed(&key).unwrap().pem());
    workdir.write("old.key", key.serialize_pem());
    let order = "kubeconfig --gateway https://g.example --ca pki/server-ca.crt --cert old.crt --key old.key --cluster c";
    assert_says(&workdir.fails(order), "the certificate old.crt has expired on");
}

#[test]
fn a_token_that_no_header_can_carry_is_refused() {
    let workdir = WorkDir::with_caller();
    for (token, reason) in [
        ("".to_owned(), "the token file token is empty"),
        ("\n".to_owned(), "the token file token is empty"),
        ("a\nb\n".to_owned(), "has more than one line"),
        ("a\n\n".to_owned(), "has more than one line"),
        ("a b".to_owned(), "a character that a header may not carry"),
        ("a\u{0}".to_owned(), "a character that a header may not carry"),
        ("ä".to_owned(), "a character that a header may not carry"),
        ("x".repeat(8 * 1024 + 1), "is longer than 8192 bytes"),
    ] {
        workdir.write("token", &token);
        let said = workdir.fails(&format!("{BY_TOKEN} --cluster c"));
        assert_says(&said, reason);
        assert!(!said.contains("xxxx"), "the token itself is not shown");
    }
    workdir.write("token", "fine\r\n");
    assert_eq!(
        parsed(&workdir.succeeds(&format!("{BY_TOKEN} --cluster c")))["users"][0]["user"]["token"],
        "fine"
    );
}

#[test]
fn flags_that_do_not_go_together_are_wrong_usage() {
    let workdir = WorkDir::with_caller();
    for (arguments, reason) in [
        ("--cluster c --cert a", "--key <FILE>"),
        ("--cluster c --key a", "--cert <FILE>"),
        ("--cluster c --cert a --key b --token-file c", "cannot be used with"),
        ("--cluster c --force", "--output <FILE>"),
        ("--cluster C", "is not a cluster name"),
        ("", "--cluster <CLUSTER>"),
    ] {
        assert_says(&workdir.usage_error(&format!("kubeconfig {arguments}")), reason);
    }
    let twice = workdir.fails(&format!("{BY_CERTIFICATE} --cluster c --cluster c"));
    assert_says(&twice, "two contexts would have the name c");
    let twice = workdir.fails(&format!("{BY_CERTIFICATE} --cluster global --cluster-set global"));
    assert_says(&twice, "two contexts would have the name global");
}

#[test]
fn a_cluster_set_is_a_context_beside_clusters() {
    let workdir = WorkDir::with_caller();
    let document = parsed(&workdir.succeeds(&format!("{BY_CERTIFICATE} --cluster c --cluster-set global")));
    let servers: Vec<&str> = document["clusters"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["cluster"]["server"].as_str())
        .collect();
    assert_eq!(servers.len(), 2);
    assert!(
        servers[0].ends_with("/clusters/c") && servers[1].ends_with("/clustersets/global"),
        "{servers:?}"
    );
    assert_eq!(document["current-context"], "c");
}

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn seen_by_kubectl(workdir: &WorkDir, file: &str) -> Value {
    let arguments = ["config", "view", "--raw", "--output", "json", "--kubeconfig", file];
    serde_json::from_str(&stdout(workdir.program(&kubectl(), arguments).assert().success())).unwrap()
}

/// kubectl that the end-to-end tests build, or the one of this machine. Without either, the test fails.
fn kubectl() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kube-assets");
    let built = std::fs::read_dir(assets).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    built
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join("kubectl"))
        .find(|candidate| candidate.is_file())
        .expect("kubectl is needed: install it, or build the assets of the end-to-end tests")
}
