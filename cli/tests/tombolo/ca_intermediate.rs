//! `tombolo ca intermediate`.

use crate::bench::{Bench, assert_says};
use crate::certificate::{accepted_as_client, all, fields, only};

#[test]
fn roots_go_offline_and_certificates_are_issued_without_them() {
    let bench = Bench::new();
    bench.done("ca init --dir roots --roots-only");
    assert!(!bench.path("roots/sealing.key").exists());
    bench.done("ca intermediate --dir roots --role agent");
    assert_eq!(bench.mode("roots/agent-intermediate.sealed"), 0o600);
    assert_eq!(bench.mode("roots/sealing.key"), 0o600);
    for role in ["server", "agent", "caller", "admin"] {
        std::fs::remove_file(bench.path(&format!("roots/{role}-ca.key"))).unwrap();
    }

    bench.done("ca issue agent --dir roots --cluster c");

    assert_eq!(accepted_as_client(&bench, "roots/agent-ca.crt", "roots/c-agent.crt"), Ok(()));
    let said = bench.failed("ca intermediate --dir roots --role agent --force");
    assert_says(&said, "cannot read roots/agent-ca.key: No such file");
}

#[test]
fn what_issues_can_sign_no_ca_and_only_for_its_role() {
    let bench = Bench::with_authority();
    bench.done("ca issue server --dir pki --name h.example");
    let chain = all(&bench, "pki/server.crt");
    let intermediate = fields(&chain[1]);
    let constraints = intermediate.basic_constraints().unwrap().unwrap();
    assert_eq!((constraints.value.ca, constraints.value.path_len_constraint), (true, Some(0)));
    let usage = intermediate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth && !usage.any);
}

#[test]
fn a_new_intermediate_leaves_what_the_old_one_issued() {
    let bench = Bench::with_authority();
    bench.done("ca issue agent --dir pki --cluster old");
    assert_says(&bench.failed("ca intermediate --dir pki --role agent"), "pass --force to replace it");

    bench.done("ca intermediate --dir pki --role agent --force");
    bench.done("ca issue agent --dir pki --cluster new");

    for leaf in ["pki/old-agent.crt", "pki/new-agent.crt"] {
        assert_eq!(accepted_as_client(&bench, "pki/agent-ca.crt", leaf), Ok(()), "{leaf}");
    }
    assert_ne!(all(&bench, "pki/old-agent.crt")[1], all(&bench, "pki/new-agent.crt")[1]);
}

#[test]
fn it_goes_where_it_is_told_to_under_a_key_of_its_own() {
    let bench = Bench::with_authority();
    bench.done("ca intermediate --dir pki --role agent --out a.sealed --sealing-key a.key");
    assert_eq!((bench.mode("a.sealed"), bench.mode("a.key")), (0o600, 0o600));
    assert_ne!(bench.text("a.key"), bench.text("pki/sealing.key"));

    bench.write("wide.key", bench.text("a.key"));
    std::fs::set_permissions(bench.path("wide.key"), std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .unwrap();
    let said = bench.failed("ca intermediate --dir pki --role agent --out b.sealed --sealing-key wide.key");
    assert_says(&said, "others may use wide.key (mode 644), run: chmod 600 wide.key");
    assert!(!bench.path("b.sealed").exists());
}

#[test]
fn a_root_that_cannot_be_used_is_named() {
    let bench = Bench::with_authority();
    let order = "ca intermediate --dir pki --role agent --force";

    bench.write("pki/agent-ca.key", bench.text("pki/caller-ca.key"));
    assert_says(
        &bench.failed(order),
        "the key pki/agent-ca.key does not belong to the certificate pki/agent-ca.crt",
    );
    bench.write("pki/agent-ca.key", "");
    assert_says(&bench.failed(order), "pki/agent-ca.key holds no private key");
    bench.write("pki/agent-ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    bench.write("pki/agent-ca.key", bench.text("pki/caller-ca.key"));
    assert_says(&bench.failed(order), "certificate 1 of pki/agent-ca.crt is not a valid X.509 certificate");

    bench.done("ca issue caller --dir pki --user u");
    bench.write("pki/agent-ca.crt", bench.text("pki/u-caller.crt"));
    bench.write("pki/agent-ca.key", bench.text("pki/u-caller.key"));
    assert_says(&bench.failed(order), "pki/agent-ca.crt is not a root that may sign certificates");
    let root = only(&bench, "pki/caller-ca.crt");
    assert_eq!(fields(&root).subject().to_string(), "O=tombolo, CN=tombolo caller root");
}
