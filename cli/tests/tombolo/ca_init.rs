//! Tests of `tombolo ca init`: the files, their modes, and refusals.

use std::os::unix::fs::PermissionsExt;

use crate::certificate::{days, fields, only};
use crate::workdir::{WorkDir, assert_says};

const ALL: [&str; 15] = [
    "admin-ca.crt",
    "admin-ca.key",
    "admin-intermediate.sealed",
    "agent-ca.crt",
    "agent-ca.key",
    "agent-intermediate.sealed",
    "ca.yaml",
    "caller-ca.crt",
    "caller-ca.key",
    "caller-intermediate.sealed",
    "sealing.key",
    "server-ca.crt",
    "server-ca.key",
    "server-intermediate.sealed",
    "trust.bundle",
];

const ROLES: [&str; 4] = ["server", "agent", "caller", "admin"];

#[test]
fn init_makes_roots_and_intermediates_that_only_their_owner_can_use() {
    let workdir = WorkDir::new();

    let said = workdir.succeeds("ca init --dir deep/pki");

    assert_eq!(workdir.list("deep/pki"), ALL);
    assert_eq!(workdir.mode("deep/pki"), 0o700);
    for name in ALL {
        let is_secret = name.ends_with(".key") || name.ends_with(".sealed");
        let mode = if is_secret { 0o600 } else { 0o644 };
        assert_eq!(workdir.mode(&format!("deep/pki/{name}")), mode, "{name}");
        assert_says(&said, name.trim_end_matches(".yaml"));
    }
}

#[test]
fn roots_sign_certificates_and_nothing_else_for_ten_years() {
    let workdir = WorkDir::with_authority();
    for role in ROLES {
        let der = only(&workdir, &format!("pki/{role}-ca.crt"));
        let root = fields(&der);
        let constraints = root.basic_constraints().unwrap().unwrap();
        let usage = root.key_usage().unwrap().unwrap();

        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, Some(1));
        assert!(usage.critical && usage.value.key_cert_sign() && usage.value.crl_sign());
        assert!(!usage.value.digital_signature() && !usage.value.key_encipherment());
        assert_eq!(days(&workdir, &format!("pki/{role}-ca.crt")), 3650);
        assert_eq!(root.subject().to_string(), format!("O=tombolo, CN=tombolo {role} root"));
        root.verify_signature(None).unwrap();
    }
}

#[test]
fn each_root_has_a_key_of_its_own() {
    let workdir = WorkDir::with_authority();
    let keys = ROLES.map(|role| workdir.text(&format!("pki/{role}-ca.key")));
    assert_eq!(keys.into_iter().collect::<std::collections::HashSet<_>>().len(), ROLES.len());
}

#[test]
fn roots_are_never_overwritten() {
    let workdir = WorkDir::with_authority();
    let bytes = |name| std::fs::read(workdir.path(&format!("pki/{name}"))).unwrap();
    let before = ALL.map(bytes);

    let said = workdir.fails("ca init --dir pki");

    assert_says(&said, "pki already holds");
    assert_says(
        &said,
        "roots are never overwritten; issue from it with `tombolo ca issue`, or name another directory",
    );
    assert_eq!(before, ALL.map(bytes));
}

#[test]
fn what_an_interrupted_init_left_is_not_completed_with_other_roots() {
    let workdir = WorkDir::with_authority();
    std::fs::remove_file(workdir.path("pki/ca.yaml")).unwrap();
    std::fs::remove_file(workdir.path("pki/caller-ca.crt")).unwrap();

    assert_says(&workdir.fails("ca init --dir pki"), "an earlier `tombolo ca init` did not finish");
    assert_says(
        &workdir.fails("ca issue agent --dir pki --cluster c"),
        "pki holds no finished authority; make one with `tombolo ca init --dir pki`",
    );
    assert!(!workdir.path("pki/caller-ca.crt").exists());
}

#[test]
fn a_directory_that_others_can_enter_is_refused() {
    let workdir = WorkDir::new();
    workdir.write("open/notes", "");
    std::fs::set_permissions(workdir.path("open"), std::fs::Permissions::from_mode(0o755)).unwrap();

    assert_says(&workdir.fails("ca init --dir open"), "open can be entered by others; run `chmod 700 open`");
    assert_eq!(workdir.list("open"), ["notes"]);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let workdir = WorkDir::new();
    workdir.write("file", "");
    assert_says(&workdir.fails("ca init --dir file/pki"), "cannot write file/pki: Not a directory");
}

#[test]
fn the_trust_domain_is_stored_and_checked() {
    let workdir = WorkDir::new();
    workdir.succeeds("ca init --dir pki --trust-domain edge.example.org");
    assert_eq!(workdir.text("pki/ca.yaml"), "trustDomain: edge.example.org\n");

    for wrong in ["Edge", "a/b", "a%62", "a:1"] {
        let said = workdir.usage_error(&format!("ca init --dir other --trust-domain {wrong}"));
        assert_says(&said, "use 1 to 255 lower-case letters, digits, '.', '-' and '_'");
    }
}

#[test]
fn a_damaged_ca_yaml_is_refused() {
    let workdir = WorkDir::with_authority();
    workdir.write("pki/ca.yaml", "trustDomain: tombolo\ntrustDomian: x\n");
    let said = workdir.fails("ca issue agent --dir pki --cluster c");
    assert_says(&said, "pki/ca.yaml is not the file that `tombolo ca init` wrote");
    assert_says(&said, "trustDomian");

    workdir.write("pki/ca.yaml", "trustDomain: a/b\n");
    assert_says(
        &workdir.fails("ca issue agent --dir pki --cluster c"),
        "trustDomain in pki/ca.yaml is not a trust domain",
    );
}
