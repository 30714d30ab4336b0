//! Tests of `tombolo ca init`: the files, their modes, and refusals.

use std::os::unix::fs::PermissionsExt;

use trust::bundle::{Anchors, TrustBundle};
use trust::{Pin, Role};

use crate::certificate::{accepted_as_client, days, fields, names, only};
use crate::workdir::{WorkDir, assert_says};

const ALL: [&str; 18] = [
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
    "peer-ca.crt",
    "peer-ca.key",
    "peer-intermediate.sealed",
    "sealing.key",
    "server-ca.crt",
    "server-ca.key",
    "server-intermediate.sealed",
    "trust.bundle",
];

const ROLES: [&str; 5] = ["server", "agent", "caller", "admin", "peer"];

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

/// Agents know the old bundle and the root of servers. They accept the new bundle.
#[test]
fn init_adds_the_peer_root_to_an_authority_of_an_earlier_version() {
    let workdir = WorkDir::with_authority_of_an_earlier_version("edge.example");
    let others = || {
        let kept = workdir
            .list("pki")
            .into_iter()
            .filter(|name| !name.starts_with("peer-") && name != "trust.bundle");
        kept.map(|name| (workdir.text(&format!("pki/{name}")), name)).collect::<Vec<_>>()
    };
    let before = others();
    let root = Pin::of_certificate(&fields(&only(&workdir, "pki/server-ca.crt")));
    let anchors = Anchors::new("edge.example".parse().unwrap()).and_pin(root);
    let bundle = || std::fs::read(workdir.path("pki/trust.bundle")).unwrap();
    let known = anchors.accept(&bundle(), None).unwrap().unwrap();
    assert!(known.roots(Role::Peer).is_empty());

    let said = workdir.succeeds("ca init --dir pki");

    assert_eq!(workdir.list("pki"), ALL);
    assert_eq!(others(), before);
    for name in ["peer-ca.crt", "peer-ca.key", "peer-intermediate.sealed", "trust.bundle"] {
        assert_says(&said, &format!("wrote pki/{name}"));
    }
    let newer = anchors.accept(&bundle(), Some(&known)).unwrap().unwrap();
    assert_eq!(newer.version(), known.version() + 1);
    assert_eq!(newer.roots(Role::Peer), [only(&workdir, "pki/peer-ca.crt")]);
    assert_eq!(newer.roots(Role::Caller), known.roots(Role::Caller));
    workdir.succeeds("ca issue peer --dir pki --id west");
    assert_eq!(names(&workdir, "pki/west-peer.crt"), ["URI:spiffe://edge.example/peer/west"]);
    assert_eq!(accepted_as_client(&workdir, "pki/peer-ca.crt", "pki/west-peer.crt"), Ok(()));
    assert_says(&workdir.fails("ca init --dir pki"), "pki already holds");
}

#[test]
fn only_the_peer_role_needs_the_root_that_earlier_versions_lack() {
    let workdir = WorkDir::with_authority_of_an_earlier_version("tombolo");

    for order in [
        "ca issue server --dir pki --name h.example",
        "ca issue agent --dir pki --cluster c",
        "ca issue caller --dir pki --user u",
        "ca issue admin --dir pki --name o",
        "ca intermediate --dir pki --role agent --force",
        "ca rotate --dir pki --role caller",
        "ca secrets --dir pki",
    ] {
        workdir.succeeds(order);
    }
    for order in [
        "ca issue peer --dir pki --id west",
        "ca intermediate --dir pki --role peer",
        "ca rotate --dir pki --role peer",
    ] {
        let said = workdir.fails(order);
        assert_says(
            &said,
            "pki has no root of the role peer, because an earlier version made this authority",
        );
        assert_says(&said, "add it with `tombolo ca init --dir pki`");
    }
    assert!(!workdir.list("pki").iter().any(|name| name.contains("peer")));
}

#[test]
fn a_peer_root_is_not_added_where_that_would_be_wrong() {
    let workdir = WorkDir::with_authority_of_an_earlier_version("edge.example");
    let before = workdir.list("pki");
    let said = workdir.fails("ca init --dir pki --trust-domain other.example");
    assert_says(&said, "pki is the authority of the trust domain edge.example, not of other.example");

    let key = workdir.text("pki/server-ca.key");
    std::fs::remove_file(workdir.path("pki/server-ca.key")).unwrap();
    let said = workdir.fails("ca init --dir pki");
    assert_says(
        &said,
        "needs a new trust bundle, which the root of servers signs; bring its files back into pki",
    );
    workdir.write("pki/server-ca.key", key);
    assert_eq!(workdir.list("pki"), before);

    // All files of the role are offline, and the bundle still has the root.
    workdir.succeeds("ca init --dir pki");
    for name in ["peer-ca.crt", "peer-ca.key", "peer-intermediate.sealed"] {
        std::fs::remove_file(workdir.path(&format!("pki/{name}"))).unwrap();
    }
    assert_says(&workdir.fails("ca init --dir pki"), "pki already holds");
    assert_eq!(workdir.list("pki"), before);
}

#[test]
fn both_server_roots_sign_the_bundle_that_adds_the_peer_root() {
    let workdir = WorkDir::with_authority_of_an_earlier_version("tombolo");
    let pin = || Pin::of_certificate(&fields(&crate::certificate::all(&workdir, "pki/server-ca.crt")[0]));
    let old = pin();
    workdir.succeeds("ca rotate --dir pki --role server");

    workdir.succeeds("ca init --dir pki");

    let bundle = std::fs::read(workdir.path("pki/trust.bundle")).unwrap();
    for pin in [old, pin()] {
        let anchors = Anchors::new("tombolo".parse().unwrap()).and_pin(pin);
        assert_eq!(anchors.accept(&bundle, None).unwrap().unwrap().roots(Role::Peer).len(), 1);
    }
    assert_eq!(TrustBundle::decode_unverified(&bundle).unwrap().roots(Role::Server).len(), 2);
}
