//! Tests of `tombolo ca show` for certificates, bundles and other files.

use aws_lc_rs::digest::{SHA256, digest};

use crate::certificate::{fields, leaf, only};
use crate::workdir::{WorkDir, assert_says};

#[test]
fn show_prints_names_dates_and_fingerprint() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue server --dir pki --name h.example --name 10.0.0.1 --validity 30d");

    let said = workdir.succeeds("ca show pki/server.crt");

    assert_says(&said, "subject CN=h-example");
    assert_says(&said, "issuer O=tombolo, CN=tombolo server intermediate");
    assert_says(&said, "issuer O=tombolo, CN=tombolo server root");
    assert_says(&said, "names DNS:h.example, IP:10.0.0.1, URI:spiffe://tombolo/server/h-example");
    assert_says(&said, "for TLS servers");
    assert_says(&said, "(29 days left)");
    let bytes = digest(&SHA256, &leaf(&workdir, "pki/server.crt"));
    let fingerprint: Vec<_> = bytes.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    assert_says(&said, &format!("SHA-256 {}", fingerprint.join(":")));
}

#[test]
fn show_prints_the_pin_of_a_root() {
    let workdir = WorkDir::with_authority();
    let said = workdir.succeeds("ca show pki/server-ca.crt");
    let root = only(&workdir, "pki/server-ca.crt");
    let pin: String = digest(&SHA256, fields(&root).public_key().raw)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_says(&said, &format!("pin sha256:{pin}"));
}

#[test]
fn show_shows_every_certificate_of_a_bundle() {
    let workdir = WorkDir::with_authority();
    workdir.write("bundle", workdir.text("pki/agent-ca.crt") + &workdir.text("pki/caller-ca.crt"));
    let said = workdir.succeeds("ca show bundle");
    assert_says(&said, "subject O=tombolo, CN=tombolo agent root");
    assert_says(&said, "subject O=tombolo, CN=tombolo caller root");
    assert_says(&said, "for signing certificates");
}

#[test]
fn show_names_an_expired_certificate_without_control_characters() {
    let workdir = WorkDir::new();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "a\u{1b}[2Jb");
    params.not_after = time::OffsetDateTime::now_utc() - time::Duration::days(3);
    workdir.write("old", params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem());

    let said = workdir.succeeds("ca show old");

    assert_says(&said, "(expired 3 days ago)");
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn what_is_no_certificate_is_named() {
    let workdir = WorkDir::with_authority();
    workdir.write("der", [0x30, 0x82, 0xff]);
    workdir.write("large", vec![b'\n'; 1024 * 1024 + 1]);
    workdir.write("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    for (file, reason) in [
        ("none", "cannot read none: No such file"),
        ("pki", "cannot read pki: Is a directory"),
        ("pki/ca.yaml", "pki/ca.yaml holds no certificate (no BEGIN CERTIFICATE block)"),
        ("pki/agent-ca.key", "pki/agent-ca.key holds a private key"),
        ("der", "a PEM file is needed"),
        ("large", "large is larger than 1048576 bytes"),
        ("broken", "broken is damaged PEM"),
    ] {
        assert_says(&workdir.fails(&format!("ca show {file}")), reason);
    }
}
