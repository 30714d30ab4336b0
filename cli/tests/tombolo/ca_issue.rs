//! `tombolo ca issue`.

use proto::spiffe::{AgentId, parse_server};

use crate::bench::{Bench, assert_says, stderr};
use crate::certificate::{accepted_as_client, accepted_as_server, all, days, fields, leaf, names, only};

/// Four roots with their keys, four intermediates with theirs, the bundle, and the record.
const AUTHORITY_FILES: usize = 4 * 2 + 4 + 1 + 1 + 1;

#[test]
fn a_server_certificate_has_exactly_the_names_asked_for_and_the_uri_that_agents_require() {
    let bench = Bench::with_authority();
    bench.done(
        "ca issue server --dir pki --name Gateway.example --name 127.0.0.1 --name gateway.example --name ::1 \
         --suffix clusters.example",
    );

    let found = names(&bench, "pki/server.crt");

    let address_v6 = format!("IP:{:?}", std::net::Ipv6Addr::LOCALHOST.octets());
    let expected = [
        "DNS:gateway.example",
        "IP:[127, 0, 0, 1]",
        address_v6.as_str(),
        "DNS:clusters.example",
        "DNS:*.clusters.example",
        "URI:spiffe://tombolo/server/gateway-example",
    ];
    assert_eq!(found, expected);
    assert_eq!(parse_server(&found[5]["URI:".len()..], "tombolo"), Ok("gateway-example"));
    for name in ["gateway.example", "127.0.0.1", "::1", "clusters.example", "edge-1.clusters.example"] {
        assert_eq!(accepted_as_server(&bench, "pki/server-ca.crt", "pki/server.crt", name), Ok(()), "{name}");
    }
    assert!(
        accepted_as_server(&bench, "pki/server-ca.crt", "pki/server.crt", "a.b.clusters.example").is_err()
    );
}

#[test]
fn a_server_certificate_is_for_servers_only() {
    let bench = Bench::with_authority();
    bench.done("ca issue server --dir pki --name h.example");

    assert_eq!(uses(&bench, "pki/server.crt"), (true, false));
    assert!(accepted_as_client(&bench, "pki/server-ca.crt", "pki/server.crt").is_err());
    for other in ["pki/agent-ca.crt", "pki/caller-ca.crt"] {
        assert!(accepted_as_server(&bench, other, "pki/server.crt", "h.example").is_err(), "{other}");
    }
}

#[test]
fn the_id_of_a_server_comes_from_its_first_name_or_from_the_person() {
    let bench = Bench::with_authority();
    for (name, id) in [("127.0.0.1", "127-0-0-1"), ("::1", "1"), ("a.b", "a-b")] {
        bench.done(&format!("ca issue server --dir pki --name {name} --force"));
        assert_eq!(
            names(&bench, "pki/server.crt").last().unwrap(),
            &format!("URI:spiffe://tombolo/server/{id}")
        );
    }
    bench.done("ca issue server --dir pki --name a.b --id west");
    assert_eq!(names(&bench, "pki/west-server.crt"), ["DNS:a.b", "URI:spiffe://tombolo/server/west"]);
    assert_says(
        &bench.failed("ca issue server --dir pki --name ::"),
        "no id can be made of the name ::; give one with --id",
    );
}

#[test]
fn wrong_server_names_are_refused_with_what_is_allowed() {
    let bench = Bench::with_authority();
    for (arguments, reason) in [
        ("--name *.example.org", "a wildcard is asked for by --suffix"),
        ("--name https://h.example", "without scheme or port"),
        ("--name h.example:8443", "without scheme or port"),
        ("--name 1.2.3", "use a DNS name"),
        ("--name=-h.example", "use a DNS name"),
        ("--name h..example", "use a DNS name"),
        ("--name h.example --suffix local", "a DNS name of at least two labels"),
        ("--name h.example --suffix 10.0.0.1", "an address has no names under it"),
        ("--name h.example --id A", "with a letter or digit at both ends"),
    ] {
        assert_says(&bench.misused(&format!("ca issue server --dir pki {arguments}")), reason);
    }
    assert_says(&bench.misused("ca issue server --dir pki"), "--name <HOST>");
}

#[test]
fn an_agent_certificate_names_one_cluster_and_nothing_else() {
    let bench = Bench::with_authority();
    bench.done("ca issue agent --dir pki --cluster edge-1");

    let found = names(&bench, "pki/edge-1-agent.crt");

    assert_eq!(found.len(), 1);
    let agent = AgentId::parse(found[0].strip_prefix("URI:").unwrap(), "tombolo").unwrap();
    assert_eq!(agent.cluster().as_str(), "edge-1");
    assert!(agent.instance().len() == 8 && agent.instance().bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(uses(&bench, "pki/edge-1-agent.crt"), (false, true));
}

#[test]
fn an_agent_is_accepted_by_the_agents_root_alone() {
    let bench = Bench::with_authority();
    bench.done("ca issue agent --dir pki --cluster edge-1 --id a");
    let leaf = "pki/edge-1.a-agent.crt";

    assert_eq!(names(&bench, leaf), ["URI:spiffe://tombolo/cluster/edge-1/agent/a"]);
    assert_eq!(accepted_as_client(&bench, "pki/agent-ca.crt", leaf), Ok(()));
    assert!(accepted_as_client(&bench, "pki/server-ca.crt", leaf).is_err());
    assert!(accepted_as_client(&bench, "pki/caller-ca.crt", leaf).is_err());
    assert!(accepted_as_server(&bench, "pki/agent-ca.crt", leaf, "edge-1").is_err());
}

#[test]
fn two_agents_of_a_cluster_get_different_ids() {
    let bench = Bench::with_authority();
    bench.done("ca issue agent --dir pki --cluster edge-1 --out one");
    bench.done("ca issue agent --dir pki --cluster edge-1 --out two");
    assert_ne!(names(&bench, "one/edge-1-agent.crt"), names(&bench, "two/edge-1-agent.crt"));
    assert_eq!(bench.mode("one"), 0o700);
}

#[test]
fn an_agents_uri_begins_with_the_authoritys_trust_domain() {
    let bench = Bench::new();
    bench.done("ca init --dir pki --trust-domain example.org");
    bench.done("ca issue agent --dir pki --cluster c --id a");
    assert_eq!(names(&bench, "pki/c.a-agent.crt"), ["URI:spiffe://example.org/cluster/c/agent/a"]);
}

#[test]
fn what_is_no_cluster_name_is_refused() {
    let bench = Bench::with_authority();
    for wrong in ["Edge", "a.b", "a/b", "-a", "a_b"] {
        let said = bench.misused(&format!("ca issue agent --dir pki --cluster={wrong}"));
        assert_says(&said, "is not a cluster name: use 1 to 63 lower-case letters, digits and '-'");
    }
}

#[test]
fn a_caller_certificate_names_the_user_and_each_group_in_an_organization_of_its_own() {
    let bench = Bench::with_authority();
    let order =
        ["ca", "issue", "caller", "--dir", "pki", "--user", "zoë@example.org", "--group", "dev", "--group"];
    bench.command(order.into_iter().chain(["on, call"])).assert().success();

    let leaf = "pki/zo-@example.org-caller.crt";
    let der = all(&bench, leaf).remove(0);
    let subject = fields(&der);
    let subject = subject.subject();

    let of = |values: Vec<_>| values.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let organizations = subject.iter_organization().map(|group| group.as_str().unwrap()).collect();
    assert_eq!(of(organizations), ["dev", "on, call"]);
    let users = subject.iter_common_name().map(|user| user.as_str().unwrap()).collect();
    assert_eq!(of(users), ["zoë@example.org"]);
    assert!(subject.iter_rdn().all(|rdn| rdn.iter().count() == 1));
    assert_eq!(names(&bench, leaf), ["URI:spiffe://tombolo/caller"]);
    assert_eq!(uses(&bench, leaf), (false, true));
    assert_eq!(accepted_as_client(&bench, "pki/caller-ca.crt", leaf), Ok(()));
    assert!(accepted_as_client(&bench, "pki/agent-ca.crt", leaf).is_err());
}

#[test]
fn a_caller_without_groups_or_with_as_many_as_allowed_is_accepted() {
    let bench = Bench::with_authority();
    bench.done("ca issue caller --dir pki --user ci");
    let groups: String = (0..32).map(|number| format!(" --group {number}")).collect();
    bench.done(&format!("ca issue caller --dir pki --user many{groups}"));
    for leaf in ["pki/ci-caller.crt", "pki/many-caller.crt"] {
        assert_eq!(accepted_as_client(&bench, "pki/caller-ca.crt", leaf), Ok(()), "{leaf}");
    }
    let said = bench.failed(&format!("ca issue caller --dir pki --user more{groups} --group 33"));
    assert_says(&said, "a certificate has at most 32 groups");
}

#[test]
fn names_that_no_caller_may_have_are_refused_with_the_reason() {
    let bench = Bench::with_authority();
    let long = "x".repeat(65);
    for (name, reason) in [
        ("system:admin", "names that begin with system: belong to Kubernetes itself"),
        ("", "the name is empty"),
        ("a\nb", "the name has a control character"),
        ("a\u{7f}", "the name has a control character"),
        (" a", "white space at an end"),
        (long.as_str(), "the name is longer than 64 characters"),
    ] {
        for order in [["--user", name, "--group", "g"], ["--user", "u", "--group", name]] {
            let run = bench.command(["ca", "issue", "caller", "--dir", "pki"].into_iter().chain(order));
            assert_says(&stderr({ run }.assert().code(2)), reason);
        }
    }
    assert_eq!(bench.list("pki").len(), AUTHORITY_FILES);
}

#[test]
fn a_users_name_cannot_lead_out_of_the_directory_or_onto_a_root() {
    let bench = Bench::with_authority();
    bench.done("ca issue caller --dir pki --user ../../up");
    bench.done("ca issue caller --dir pki --user ca --force");
    bench.done("ca issue agent --dir pki --cluster ca --force");
    assert!(bench.path("pki/..-..-up-caller.crt").exists());
    assert_eq!(
        fields(&only(&bench, "pki/caller-ca.crt")).subject().to_string(),
        "O=tombolo, CN=tombolo caller root"
    );
    assert_eq!(
        fields(&only(&bench, "pki/agent-ca.crt")).subject().to_string(),
        "O=tombolo, CN=tombolo agent root"
    );
}

#[test]
fn a_certificate_is_for_the_key_beside_it_and_only_the_owner_reads_the_key() {
    let bench = Bench::with_authority();
    let said = bench.done("ca issue agent --dir pki --cluster c");
    let key = rcgen::KeyPair::from_pem(&bench.text("pki/c-agent.key")).unwrap();
    let der = leaf(&bench, "pki/c-agent.crt");

    assert_eq!(fields(&der).public_key().raw, rcgen::PublicKeyData::subject_public_key_info(&key));
    assert_eq!(bench.mode("pki/c-agent.key"), 0o600);
    assert_eq!(bench.mode("pki/c-agent.crt"), 0o644);
    assert_says(&said, "wrote pki/c-agent.crt");
    assert_says(&said, "wrote pki/c-agent.key");
}

#[test]
fn nothing_is_overwritten_without_force() {
    let bench = Bench::with_authority();
    bench.done("ca issue agent --dir pki --cluster c");
    let pair = || (bench.text("pki/c-agent.crt"), bench.text("pki/c-agent.key"));
    let before = pair();

    let said = bench.failed("ca issue agent --dir pki --cluster c");
    assert_says(&said, "is already there and is not overwritten; pass --force to replace it");
    assert_eq!(pair(), before);

    // The certificate alone is there: no key may be left beside it that does not belong to it.
    std::fs::remove_file(bench.path("pki/c-agent.key")).unwrap();
    bench.failed("ca issue agent --dir pki --cluster c");
    assert!(!bench.path("pki/c-agent.key").exists());

    bench.done("ca issue agent --dir pki --cluster c --force");
    assert_ne!(pair().0, before.0);
    assert_eq!(bench.mode("pki/c-agent.key"), 0o600);
    assert_eq!(bench.list("pki").len(), AUTHORITY_FILES + 2, "nothing else is left behind");
}

#[test]
fn validity_has_a_default_and_a_maximum_for_each_kind() {
    let bench = Bench::with_authority();
    let kinds = [
        ("server --name h.example", "server", 90, 824),
        ("agent --cluster c", "c-agent", 90, 365),
        ("caller --user u", "u-caller", 30, 365),
        ("admin --name o", "o-admin", 30, 365),
    ];
    for (order, name, default, max) in kinds {
        let leaf = format!("pki/{name}.crt");
        bench.done(&format!("ca issue {order} --dir pki"));
        assert_eq!(days(&bench, &leaf), default, "{order}");
        bench.done(&format!("ca issue {order} --dir pki --force --validity {max}d"));
        assert_eq!(days(&bench, &leaf), max, "{order}");
        bench.done(&format!("ca issue {order} --dir pki --force --validity 48h"));
        assert_eq!(days(&bench, &leaf), 2, "{order}");

        let said = bench.failed(&format!("ca issue {order} --dir pki --force --validity {}d", max + 1));
        assert_says(&said, &format!("{}d is longer than the {max}d that a certificate for", max + 1));
        assert_eq!(days(&bench, &leaf), 2, "{order}");
    }
    for wrong in ["0d", "d", "1", "1y", "-1d", "1.5h", "99999999999999999999d", "36501d", "1ä"] {
        let said = bench.misused(&format!("ca issue caller --dir pki --user v --validity={wrong}"));
        assert_says(&said, "use a whole number with m, h or d");
    }
}

#[test]
fn a_certificate_never_outlives_its_root() {
    let bench = Bench::with_authority();
    replace_root(&bench, "agent", time::Duration::days(10));
    bench.done("ca intermediate --dir pki --role agent --force");
    let said = bench.failed("ca issue agent --dir pki --cluster c");
    assert_says(&said, "a certificate of 90d would outlive its issuer pki/agent-intermediate.sealed");
    bench.done("ca issue agent --dir pki --cluster c --validity 9d");
}

#[test]
fn an_administrators_certificate_is_accepted_by_the_admin_root_alone() {
    let bench = Bench::with_authority();
    bench.done("ca issue admin --dir pki --name olga");
    assert_eq!(names(&bench, "pki/olga-admin.crt"), ["URI:spiffe://tombolo/admin/olga"]);
    assert_eq!(uses(&bench, "pki/olga-admin.crt"), (false, true));
    for role in ["server", "agent", "caller", "admin"] {
        let accepted = accepted_as_client(&bench, &format!("pki/{role}-ca.crt"), "pki/olga-admin.crt");
        assert_eq!(accepted.is_ok(), role == "admin", "{role}");
    }
}

#[test]
fn nothing_is_issued_without_an_intermediate_or_with_another_sealing_key() {
    let bench = Bench::with_authority();
    let order = "ca issue agent --dir pki --cluster c";
    let other = Bench::with_authority();
    bench.write("pki/sealing.key", other.text("pki/sealing.key"));
    let said = bench.failed(order);
    assert_says(
        &said,
        "pki/agent-intermediate.sealed cannot be used as a signer: the sealing key does not open it",
    );

    std::fs::remove_file(bench.path("pki/agent-intermediate.sealed")).unwrap();
    let said = bench.failed(order);
    assert_says(&said, "pki has nothing that issues certificates for the role agent; make it with");
    assert_says(&said, "`tombolo ca intermediate --dir pki --role agent`");
    assert!(!bench.path("pki/c-agent.key").exists());
}

/// Whether a certificate's extended key usage has (server, client) authentication; it must have nothing else.
fn uses(bench: &Bench, file: &str) -> (bool, bool) {
    let der = leaf(bench, file);
    let certificate = fields(&der);
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(!usage.any && !usage.code_signing && !usage.email_protection && !usage.time_stamping);
    assert!(!usage.ocsp_signing && usage.other.is_empty() && !certificate.is_ca());
    (usage.server_auth, usage.client_auth)
}

/// Puts a root of this remaining life in place of one that was made by `init`.
fn replace_root(bench: &Bench, role: &str, life: time::Duration) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(1));
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    params.not_before = time::OffsetDateTime::now_utc() - time::Duration::days(1);
    params.not_after = time::OffsetDateTime::now_utc() + life;
    bench.write(&format!("pki/{role}-ca.crt"), params.self_signed(&key).unwrap().pem());
    bench.write(&format!("pki/{role}-ca.key"), key.serialize_pem());
}
