//! Tests of `tombolo ca secrets`: two Secrets, of which neither alone issues certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::workdir::{WorkDir, assert_says};

#[test]
fn the_sealing_key_has_a_secret_of_its_own_and_no_roots_key_is_in_one() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue server --dir pki --name gateway.example");

    let made = workdir.succeeds("ca secrets --dir pki --namespace edge");

    let (server, sealing) = made.split_once("---\n").unwrap();
    for (secret, name) in [(server, "tunnel-server"), (sealing, "tunnel-server-sealing-key")] {
        assert!(secret.contains(&format!("kind: Secret\nmetadata:\n  name: {name}\n  namespace: edge\n")));
    }
    let files = [
        "server.crt",
        "server.key",
        "caller-ca.crt",
        "agent-ca.crt",
        "admin-ca.crt",
        "agent-intermediate.sealed",
        "trust.bundle",
    ];
    assert_eq!(names(server), files);
    assert_eq!(names(sealing), ["sealing.key"]);
    for (secret, name) in files.iter().map(|file| (server, *file)).chain([(sealing, "sealing.key")]) {
        let line = secret.lines().find_map(|line| line.strip_prefix(&format!("  {name}: "))).unwrap();
        assert_eq!(
            BASE64.decode(line).unwrap(),
            std::fs::read(workdir.path(&format!("pki/{name}"))).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn certificates_of_an_id_and_of_the_proxy_keep_the_configurations_names() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue server --dir pki --name gateway.example --id west");
    workdir.succeeds("ca issue proxy --dir pki --name gateway.example");

    let made = workdir.succeeds("ca secrets --dir pki --id west");

    let (server, _) = made.split_once("---\n").unwrap();
    let encoded = BASE64.encode(workdir.text("pki/west-server.crt"));
    assert!(server.contains(&format!("  server.crt: {encoded}\n")), "{server}");
    assert!(names(server).ends_with(&["proxy.crt", "proxy.key"]), "{server}");
    assert!(server.contains("  namespace: tombolo-system\n"), "{server}");
}

#[test]
fn the_peer_certificate_of_this_server_is_in_the_secret_once_it_is_issued() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue server --dir pki --name gateway.example --id west");
    workdir.succeeds("ca issue peer --dir pki --id east");
    let secret =
        || workdir.succeeds("ca secrets --dir pki --id west").split_once("---\n").unwrap().0.to_owned();
    assert!(
        !names(&secret()).iter().any(|name| name.contains("peer")),
        "another server's is not for this one"
    );

    workdir.succeeds("ca issue peer --dir pki --id west");

    let server = secret();
    for (name, file) in [
        ("peer.crt", "west-peer.crt"),
        ("peer.key", "west-peer.key"),
        ("peer-ca.crt", "peer-ca.crt"),
        ("server-ca.crt", "server-ca.crt"),
    ] {
        let encoded = BASE64.encode(workdir.text(&format!("pki/{file}")));
        assert!(server.contains(&format!("  {name}: {encoded}\n")), "{name}");
    }
    workdir.write("pki/west-peer.key", workdir.text("pki/east-peer.key"));
    assert_says(
        &workdir.fails("ca secrets --dir pki --id west"),
        "issue both again with `tombolo ca issue peer --dir pki --id west --force`",
    );
}

#[test]
fn several_servers_have_one_secret_with_their_ids_before_the_names() {
    let workdir = WorkDir::with_authority();
    for id in ["west", "east"] {
        workdir.succeeds(&format!("ca issue server --dir pki --name gateway.example --id {id}"));
    }
    workdir.succeeds("ca issue peer --dir pki --id west");
    assert_says(
        &workdir.fails("ca secrets --dir pki --id west --id east"),
        "there is no pki/east-peer.crt; make it with `tombolo ca issue peer --dir pki --id east`",
    );
    workdir.succeeds("ca issue peer --dir pki --id east");

    let made = workdir.succeeds("ca secrets --dir pki --id west --id east");

    let (server, _) = made.split_once("---\n").unwrap();
    for id in ["west", "east"] {
        for file in ["server.crt", "server.key", "peer.crt", "peer.key"].map(|name| format!("{id}-{name}")) {
            let encoded = BASE64.encode(workdir.text(&format!("pki/{file}")));
            assert!(server.contains(&format!("  {file}: {encoded}\n")), "{file}");
        }
    }
    assert!(names(server).ends_with(&["peer-ca.crt", "server-ca.crt"]), "{server}");
}

#[test]
fn a_missing_or_wrong_file_of_the_secrets_names_the_command_that_makes_it() {
    let workdir = WorkDir::with_authority();
    let without = workdir.fails("ca secrets --dir pki");
    assert_says(
        &without,
        "there is no pki/server.crt; make it with `tombolo ca issue server --dir pki --name HOST`",
    );

    workdir.succeeds("ca issue server --dir pki --name gateway.example");
    workdir.succeeds("ca issue server --dir pki --name gateway.example --id other");
    workdir.write("pki/server.key", workdir.text("pki/other-server.key"));
    assert_says(
        &workdir.fails("ca secrets --dir pki"),
        "pki/server.crt and pki/server.key do not belong together",
    );

    std::fs::remove_file(workdir.path("pki/sealing.key")).unwrap();
    let without = workdir.fails("ca secrets --dir pki --id other");
    assert_says(
        &without,
        "there is no pki/sealing.key; make it with `tombolo ca intermediate --dir pki --role agent`",
    );
    assert_says(&workdir.fails("ca secrets --dir none"), "none holds no finished authority");
}

/// The names of the files in a Secret, in its order.
fn names(secret: &str) -> Vec<&str> {
    let data = secret.split_once("\ndata:\n").unwrap().1;
    data.lines().map(|line| line.trim().split_once(": ").unwrap().0).collect()
}
