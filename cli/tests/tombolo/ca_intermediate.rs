//! Tests of `tombolo ca intermediate` and of issuing without root keys.

use crate::certificate::{accepted_as_client, all, fields, only};
use crate::workdir::{WorkDir, assert_says};

#[test]
fn roots_go_offline_and_certificates_are_issued_without_them() {
    let workdir = WorkDir::new();
    workdir.succeeds("ca init --dir roots --roots-only");
    assert!(!workdir.path("roots/sealing.key").exists());
    workdir.succeeds("ca intermediate --dir roots --role agent");
    assert_eq!(workdir.mode("roots/agent-intermediate.sealed"), 0o600);
    assert_eq!(workdir.mode("roots/sealing.key"), 0o600);
    for role in ["server", "agent", "caller", "admin"] {
        std::fs::remove_file(workdir.path(&format!("roots/{role}-ca.key"))).unwrap();
    }

    workdir.succeeds("ca issue agent --dir roots --cluster c");

    assert_eq!(accepted_as_client(&workdir, "roots/agent-ca.crt", "roots/c-agent.crt"), Ok(()));
    let said = workdir.fails("ca intermediate --dir roots --role agent --force");
    assert_says(&said, "cannot read roots/agent-ca.key: No such file");
}

#[test]
fn an_intermediate_signs_no_ca_and_only_for_its_role() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue server --dir pki --name h.example");
    let chain = all(&workdir, "pki/server.crt");
    let intermediate = fields(&chain[1]);
    let constraints = intermediate.basic_constraints().unwrap().unwrap();
    assert_eq!((constraints.value.ca, constraints.value.path_len_constraint), (true, Some(0)));
    let usage = intermediate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth && !usage.any);
}

#[test]
fn certificates_of_the_old_intermediate_stay_valid() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue agent --dir pki --cluster old");
    assert_says(&workdir.fails("ca intermediate --dir pki --role agent"), "pass --force to replace it");

    workdir.succeeds("ca intermediate --dir pki --role agent --force");
    workdir.succeeds("ca issue agent --dir pki --cluster new");

    for leaf in ["pki/old-agent.crt", "pki/new-agent.crt"] {
        assert_eq!(accepted_as_client(&workdir, "pki/agent-ca.crt", leaf), Ok(()), "{leaf}");
    }
    assert_ne!(all(&workdir, "pki/old-agent.crt")[1], all(&workdir, "pki/new-agent.crt")[1]);
}

#[test]
fn out_and_sealing_key_name_the_files() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca intermediate --dir pki --role agent --out a.sealed --sealing-key a.key");
    assert_eq!((workdir.mode("a.sealed"), workdir.mode("a.key")), (0o600, 0o600));
    assert_ne!(workdir.text("a.key"), workdir.text("pki/sealing.key"));

    workdir.write("wide.key", workdir.text("a.key"));
    std::fs::set_permissions(workdir.path("wide.key"), std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .unwrap();
    let said = workdir.fails("ca intermediate --dir pki --role agent --out b.sealed --sealing-key wide.key");
    assert_says(&said, "others may use wide.key (mode 644), run: chmod 600 wide.key");
    assert!(!workdir.path("b.sealed").exists());
}

#[test]
fn a_root_that_cannot_be_used_is_named() {
    let workdir = WorkDir::with_authority();
    let order = "ca intermediate --dir pki --role agent --force";

    workdir.write("pki/agent-ca.key", workdir.text("pki/caller-ca.key"));
    assert_says(
        &workdir.fails(order),
        "the key pki/agent-ca.key does not belong to the certificate pki/agent-ca.crt",
    );
    workdir.write("pki/agent-ca.key", "");
    assert_says(&workdir.fails(order), "pki/agent-ca.key holds no private key");
    workdir.write("pki/agent-ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    workdir.write("pki/agent-ca.key", workdir.text("pki/caller-ca.key"));
    assert_says(&workdir.fails(order), "certificate 1 of pki/agent-ca.crt is not a valid X.509 certificate");

    workdir.succeeds("ca issue caller --dir pki --user u");
    workdir.write("pki/agent-ca.crt", workdir.text("pki/u-caller.crt"));
    workdir.write("pki/agent-ca.key", workdir.text("pki/u-caller.key"));
    assert_says(&workdir.fails(order), "pki/agent-ca.crt is not a root that may sign certificates");
    let root = only(&workdir, "pki/caller-ca.crt");
    assert_eq!(fields(&root).subject().to_string(), "O=tombolo, CN=tombolo caller root");
}
