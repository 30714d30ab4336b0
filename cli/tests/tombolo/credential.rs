//! Tests of `tombolo credential`: the answer to a client, and that nothing else is ever on standard output.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::workdir::{WorkDir, assert_says, stderr, stdout};

const BY_CERTIFICATE: &str = "credential --cert pki/alice-caller.crt --key pki/alice-caller.key";
const BY_TOKEN: &str = "credential --token-file token";

/// The question of a client of this version.
fn question(version: &str) -> String {
    json!({ "kind": "ExecCredential", "apiVersion": version, "spec": { "interactive": false } }).to_string()
}

/// A JWT that ends at this time, in seconds since 1970.
fn jwt(end: i64) -> String {
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(json!({ "exp": end }).to_string()))
}

/// The status of an answer, with its end in seconds since 1970.
fn answer(text: &str) -> (Value, i64) {
    let mut answer: Value = serde_json::from_str(text).unwrap();
    assert_eq!(answer["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(answer["kind"], "ExecCredential");
    let mut status = answer["status"].take();
    let end = status.as_object_mut().unwrap().remove("expirationTimestamp").unwrap();
    (status, OffsetDateTime::parse(end.as_str().unwrap(), &Rfc3339).unwrap().unix_timestamp())
}

#[test]
fn a_certificate_is_answered_with_its_end() {
    let workdir = WorkDir::with_caller();
    let line = BY_CERTIFICATE.split_whitespace();
    let asked = workdir
        .command(line)
        .env("KUBERNETES_EXEC_INFO", question("client.authentication.k8s.io/v1"))
        .assert()
        .success();
    let (status, end) = answer(&stdout(asked));
    let expected = json!({
        "clientCertificateData": workdir.text("pki/alice-caller.crt"),
        "clientKeyData": workdir.text("pki/alice-caller.key"),
    });
    assert_eq!(status, expected);
    let pem = workdir.text("pki/alice-caller.crt");
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    assert_eq!(end, pem.parse_x509().unwrap().validity().not_after.timestamp());
}

#[test]
fn a_token_is_answered_with_its_own_end_or_with_a_near_one() {
    let workdir = WorkDir::new();
    let now = || OffsetDateTime::now_utc().unix_timestamp();
    let later = now() + 3600;
    workdir.write("token", jwt(later) + "\n");
    let (status, end) = answer(&workdir.succeeds(BY_TOKEN));
    assert_eq!((status, end), (json!({ "token": jwt(later) }), later));

    // It says nothing of its end, and the file may be exchanged at any time.
    workdir.write("token", "0123456789");
    let began = now();
    let (status, end) = answer(&workdir.succeeds(BY_TOKEN));
    assert_eq!(status, json!({ "token": "0123456789" }));
    assert!((began + 60..=now() + 60).contains(&end), "{end}");

    workdir.write("token", "exchanged");
    let (status, _) = answer(&workdir.succeeds(BY_TOKEN));
    assert_eq!(status["token"], "exchanged", "the file is read each time");
}

#[test]
fn nothing_is_on_standard_output_but_the_answer() {
    let workdir = WorkDir::with_caller();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.not_after = OffsetDateTime::now_utc() - time::Duration::days(1);
    workdir.write("old.crt", params.self_signed(&key).unwrap().pem());
    workdir.write("old.key", key.serialize_pem());
    workdir.write("ended", jwt(1));
    workdir.write("empty", "");
    for (line, info, says) in [
        (
            "credential --cert old.crt --key old.key",
            "",
            "have a new one issued with `tombolo ca issue caller`",
        ),
        (
            "credential --cert old.crt --key pki/alice-caller.key",
            "",
            "pass the pair that was issued together",
        ),
        ("credential --token-file ended", "", "exchange it for a new one"),
        ("credential --token-file empty", "", "the token file empty is empty"),
        ("credential --token-file nowhere", "", "cannot read nowhere"),
        ("credential", "", "no credential: pass --cert FILE --key FILE or --token-file FILE"),
        (BY_CERTIFICATE, "{", "KUBERNETES_EXEC_INFO is no ExecCredential in JSON"),
        (
            BY_CERTIFICATE,
            &question("client.authentication.k8s.io/v1beta1"),
            "set `apiVersion: client.authentication.k8s.io/v1`",
        ),
    ] {
        let failed =
            workdir.command(line.split_whitespace()).env("KUBERNETES_EXEC_INFO", info).assert().code(1);
        assert_eq!(failed.get_output().stdout, b"", "{line}");
        assert_says(&stderr(failed), says);
    }
    let misused = workdir.run("credential --cert pki/alice-caller.crt").code(2);
    assert_eq!(misused.get_output().stdout, b"");
}

#[test]
fn a_kubeconfig_runs_the_plugin_in_place_of_a_credential() {
    let workdir = WorkDir::with_caller();
    let line = "kubeconfig --gateway https://gateway.example:8443 --ca pki/server-ca.crt --cluster edge-1 \
                --cert pki/alice-caller.crt --key pki/alice-caller.key";
    let text = workdir.succeeds(&format!("{line} --exec"));
    let parsed: Value = serde_saphyr::from_str(&text).unwrap();
    let user = &parsed["users"][0]["user"];
    let at = |name: &str| workdir.path(name).canonicalize().unwrap().display().to_string();
    let expected =
        json!(["credential", "--cert", at("pki/alice-caller.crt"), "--key", at("pki/alice-caller.key"),]);
    assert_eq!(user.as_object().unwrap().len(), 1, "there is no other credential: {text}");
    assert_eq!((&user["exec"]["command"], &user["exec"]["args"]), (&json!("tombolo"), &expected));
    assert_eq!(user["exec"]["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(
        (&user["exec"]["interactiveMode"], &user["exec"]["provideClusterInfo"]),
        (&json!("Never"), &json!(false))
    );
    assert!(user["exec"]["installHint"].as_str().unwrap().contains("install tombolo"), "{text}");
    assert!(parsed["clusters"][0]["cluster"]["certificate-authority-data"].is_string(), "{text}");

    // A projected token is in a pod alone.
    let of_pod = line.replace(
        "--cert pki/alice-caller.crt --key pki/alice-caller.key",
        "--token-file /var/run/secrets/gateway/token",
    );
    let text = workdir.succeeds(&format!("{of_pod} --exec=/plugins/tombolo"));
    let parsed: Value = serde_saphyr::from_str(&text).unwrap();
    let exec = &parsed["users"][0]["user"]["exec"];
    assert_eq!(exec["command"], "/plugins/tombolo");
    assert_eq!(exec["args"], json!(["credential", "--token-file", "/var/run/secrets/gateway/token"]));

    workdir.write("empty", "");
    let wrong = line.replace("--cert pki/alice-caller.crt --key pki/alice-caller.key", "--token-file empty");
    assert_says(&workdir.fails(&format!("{wrong} --exec")), "the token file empty is empty");
}

#[test]
fn the_program_copies_itself_for_an_init_container() {
    let workdir = WorkDir::new();
    workdir.write("plugins/tombolo", "an older one");
    assert_eq!(workdir.succeeds("credential --install plugins/tombolo"), "");
    let copy = workdir.path("plugins/tombolo");
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o755);
    let own = std::fs::read(Path::new(env!("CARGO_BIN_EXE_tombolo"))).unwrap();
    assert!(std::fs::read(&copy).unwrap() == own, "it is the same program");
    let version = stdout(workdir.program(&copy, ["version"]).assert().success());
    assert_says(&version, "tombolo ");
}
