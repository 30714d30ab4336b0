//! Tests of `tombolo ca issue`: names, validity, files, and refusals.

use proto::spiffe::{AgentId, parse_server};

use crate::certificate::{accepted_as_client, accepted_as_server, all, days, fields, leaf, names, only};
use crate::workdir::{WorkDir, assert_says, stderr};

/// Five roots with their keys, five intermediates with theirs, the bundle, and the record.
const AUTHORITY_FILES: usize = 5 * 2 + 5 + 1 + 1 + 1;

/// It has no other names, and each name is given once.
#[test]
fn a_server_certificate_has_the_given_names_and_the_uri_for_agents() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds(
        "ca issue server --dir pki --name Gateway.example --name 127.0.0.1 --name gateway.example --name ::1 \
         --suffix clusters.example",
    );

    let found = names(&workdir, "pki/server.crt");

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
        assert_eq!(
            accepted_as_server(&workdir, "pki/server-ca.crt", "pki/server.crt", name),
            Ok(()),
            "{name}"
        );
    }
    assert!(
        accepted_as_server(&workdir, "pki/server-ca.crt", "pki/server.crt", "a.b.clusters.example").is_err()
    );
}

#[test]
fn a_server_certificate_is_for_servers_only() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue server --dir pki --name h.example");

    assert_eq!(uses(&workdir, "pki/server.crt"), (true, false));
    assert!(accepted_as_client(&workdir, "pki/server-ca.crt", "pki/server.crt").is_err());
    for other in ["pki/agent-ca.crt", "pki/caller-ca.crt"] {
        assert!(accepted_as_server(&workdir, other, "pki/server.crt", "h.example").is_err(), "{other}");
    }
}

#[test]
fn the_id_of_a_server_comes_from_its_first_name_or_from_the_person() {
    let workdir = WorkDir::with_authority();
    for (name, id) in [("127.0.0.1", "127-0-0-1"), ("::1", "1"), ("a.b", "a-b")] {
        workdir.succeeds(&format!("ca issue server --dir pki --name {name} --force"));
        assert_eq!(
            names(&workdir, "pki/server.crt").last().unwrap(),
            &format!("URI:spiffe://tombolo/server/{id}")
        );
    }
    workdir.succeeds("ca issue server --dir pki --name a.b --id west");
    assert_eq!(names(&workdir, "pki/west-server.crt"), ["DNS:a.b", "URI:spiffe://tombolo/server/west"]);
    assert_says(
        &workdir.fails("ca issue server --dir pki --name ::"),
        "no id can be made of the name ::; give one with --id",
    );
}

#[test]
fn wrong_server_names_are_refused_with_what_is_allowed() {
    let workdir = WorkDir::with_authority();
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
        assert_says(&workdir.usage_error(&format!("ca issue server --dir pki {arguments}")), reason);
    }
    assert_says(&workdir.usage_error("ca issue server --dir pki"), "--name <HOST>");
}

#[test]
fn an_agent_certificate_names_one_cluster_and_nothing_else() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue agent --dir pki --cluster edge-1");

    let found = names(&workdir, "pki/edge-1-agent.crt");

    assert_eq!(found.len(), 1);
    let agent = AgentId::parse(found[0].strip_prefix("URI:").unwrap(), "tombolo").unwrap();
    assert_eq!(agent.cluster().as_str(), "edge-1");
    assert!(agent.instance().len() == 8 && agent.instance().bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(uses(&workdir, "pki/edge-1-agent.crt"), (false, true));
}

#[test]
fn an_agent_is_accepted_by_the_agents_root_alone() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue agent --dir pki --cluster edge-1 --id a");
    let leaf = "pki/edge-1.a-agent.crt";

    assert_eq!(names(&workdir, leaf), ["URI:spiffe://tombolo/cluster/edge-1/agent/a"]);
    assert_eq!(accepted_as_client(&workdir, "pki/agent-ca.crt", leaf), Ok(()));
    assert!(accepted_as_client(&workdir, "pki/server-ca.crt", leaf).is_err());
    assert!(accepted_as_client(&workdir, "pki/caller-ca.crt", leaf).is_err());
    assert!(accepted_as_server(&workdir, "pki/agent-ca.crt", leaf, "edge-1").is_err());
}

#[test]
fn two_agents_of_a_cluster_get_different_ids() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue agent --dir pki --cluster edge-1 --out one");
    workdir.succeeds("ca issue agent --dir pki --cluster edge-1 --out two");
    assert_ne!(names(&workdir, "one/edge-1-agent.crt"), names(&workdir, "two/edge-1-agent.crt"));
    assert_eq!(workdir.mode("one"), 0o700);
}

#[test]
fn an_agents_uri_begins_with_the_authoritys_trust_domain() {
    let workdir = WorkDir::new();
    workdir.succeeds("ca init --dir pki --trust-domain example.org");
    workdir.succeeds("ca issue agent --dir pki --cluster c --id a");
    assert_eq!(names(&workdir, "pki/c.a-agent.crt"), ["URI:spiffe://example.org/cluster/c/agent/a"]);
}

#[test]
fn what_is_no_cluster_name_is_refused() {
    let workdir = WorkDir::with_authority();
    for wrong in ["Edge", "a.b", "a/b", "-a", "a_b"] {
        let said = workdir.usage_error(&format!("ca issue agent --dir pki --cluster={wrong}"));
        assert_says(&said, "is not a cluster name: use 1 to 63 lower-case letters, digits and '-'");
    }
}

/// Its common name is the user, and its URI names the role of callers.
#[test]
fn a_caller_certificate_has_one_organization_for_each_group() {
    let workdir = WorkDir::with_authority();
    let order =
        ["ca", "issue", "caller", "--dir", "pki", "--user", "zoë@example.org", "--group", "dev", "--group"];
    workdir.command(order.into_iter().chain(["on, call"])).assert().success();

    let leaf = "pki/zo-@example.org-caller.crt";
    let der = all(&workdir, leaf).remove(0);
    let subject = fields(&der);
    let subject = subject.subject();

    let of = |values: Vec<_>| values.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let organizations = subject.iter_organization().map(|group| group.as_str().unwrap()).collect();
    assert_eq!(of(organizations), ["dev", "on, call"]);
    let users = subject.iter_common_name().map(|user| user.as_str().unwrap()).collect();
    assert_eq!(of(users), ["zoë@example.org"]);
    assert!(subject.iter_rdn().all(|rdn| rdn.iter().count() == 1));
    assert_eq!(names(&workdir, leaf), ["URI:spiffe://tombolo/caller"]);
    assert_eq!(uses(&workdir, leaf), (false, true));
    assert_eq!(accepted_as_client(&workdir, "pki/caller-ca.crt", leaf), Ok(()));
    assert!(accepted_as_client(&workdir, "pki/agent-ca.crt", leaf).is_err());
}

#[test]
fn a_caller_without_groups_or_with_as_many_as_allowed_is_accepted() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue caller --dir pki --user ci");
    let groups: String = (0..32).map(|number| format!(" --group {number}")).collect();
    workdir.succeeds(&format!("ca issue caller --dir pki --user many{groups}"));
    for leaf in ["pki/ci-caller.crt", "pki/many-caller.crt"] {
        assert_eq!(accepted_as_client(&workdir, "pki/caller-ca.crt", leaf), Ok(()), "{leaf}");
    }
    let said = workdir.fails(&format!("ca issue caller --dir pki --user more{groups} --group 33"));
    assert_says(&said, "a certificate has at most 32 groups");
}

#[test]
fn names_that_no_caller_may_have_are_refused_with_the_reason() {
    let workdir = WorkDir::with_authority();
    let long = "x".repeat(65);
    for (name, reason) in [
        ("system:admin", "names that begin with system: belong to Kubernetes itself"),
        ("", "the name is empty"),
        ("a\nb", "the name has a control or invisible character"),
        ("a\u{7f}", "the name has a control or invisible character"),
        ("a\u{200b}b", "the name has a control or invisible character"),
        ("\u{202e}ab", "the name has a control or invisible character"),
        (" a", "white space at an end"),
        (long.as_str(), "the name is longer than 64 characters"),
    ] {
        for order in [["--user", name, "--group", "g"], ["--user", "u", "--group", name]] {
            let run = workdir.command(["ca", "issue", "caller", "--dir", "pki"].into_iter().chain(order));
            assert_says(&stderr({ run }.assert().code(2)), reason);
        }
    }
    assert_eq!(workdir.list("pki").len(), AUTHORITY_FILES);
}

#[test]
fn a_users_name_cannot_lead_out_of_the_directory_or_onto_a_root() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue caller --dir pki --user ../../up");
    workdir.succeeds("ca issue caller --dir pki --user ca --force");
    workdir.succeeds("ca issue agent --dir pki --cluster ca --force");
    assert!(workdir.path("pki/..-..-up-caller.crt").exists());
    assert_eq!(
        fields(&only(&workdir, "pki/caller-ca.crt")).subject().to_string(),
        "O=tombolo, CN=tombolo caller root"
    );
    assert_eq!(
        fields(&only(&workdir, "pki/agent-ca.crt")).subject().to_string(),
        "O=tombolo, CN=tombolo agent root"
    );
}

#[test]
fn a_certificate_matches_its_key_file_which_is_private() {
    let workdir = WorkDir::with_authority();
    let said = workdir.succeeds("ca issue agent --dir pki --cluster c");
    let key = rcgen::KeyPair::from_pem(&workdir.text("pki/c-agent.key")).unwrap();
    let der = leaf(&workdir, "pki/c-agent.crt");

    assert_eq!(fields(&der).public_key().raw, rcgen::PublicKeyData::subject_public_key_info(&key));
    assert_eq!(workdir.mode("pki/c-agent.key"), 0o600);
    assert_eq!(workdir.mode("pki/c-agent.crt"), 0o644);
    assert_says(&said, "wrote pki/c-agent.crt");
    assert_says(&said, "wrote pki/c-agent.key");
}

#[test]
fn nothing_is_overwritten_without_force() {
    let workdir = WorkDir::with_authority();
    workdir.succeeds("ca issue agent --dir pki --cluster c");
    let pair = || (workdir.text("pki/c-agent.crt"), workdir.text("pki/c-agent.key"));
    let before = pair();

    let said = workdir.fails("ca issue agent --dir pki --cluster c");
    assert_says(&said, "is already there and is not overwritten; pass --force to replace it");
    assert_eq!(pair(), before);

    // The certificate alone is there: no key may be left beside it that does not belong to it.
    std::fs::remove_file(workdir.path("pki/c-agent.key")).unwrap();
    workdir.fails("ca issue agent --dir pki --cluster c");
    assert!(!workdir.path("pki/c-agent.key").exists());

    workdir.succeeds("ca issue agent --dir pki --cluster c --force");
    assert_ne!(pair().0, before.0);
    assert_eq!(workdir.mode("pki/c-agent.key"), 0o600);
    assert_eq!(workdir.list("pki").len(), AUTHORITY_FILES + 2, "nothing else is left behind");
}

#[test]
fn validity_has_a_default_and_a_maximum_for_each_kind() {
    let workdir = WorkDir::with_authority();
    let kinds = [
        ("server --name h.example", "server", 90, 824),
        ("agent --cluster c", "c-agent", 90, 365),
        ("caller --user u", "u-caller", 30, 365),
        ("admin --name o", "o-admin", 30, 365),
        ("peer --id p", "p-peer", 90, 365),
    ];
    for (order, name, default, max) in kinds {
        let leaf = format!("pki/{name}.crt");
        workdir.succeeds(&format!("ca issue {order} --dir pki"));
        assert_eq!(days(&workdir, &leaf), default, "{order}");
        workdir.succeeds(&format!("ca issue {order} --dir pki --force --validity {max}d"));
        assert_eq!(days(&workdir, &leaf), max, "{order}");
        workdir.succeeds(&format!("ca issue {order} --dir pki --force --validity 48h"));
        assert_eq!(days(&workdir, &leaf), 2, "{order}");

        let said = workdir.fails(&format!("ca issue {order} --dir pki --force --validity {}d", max + 1));
        assert_says(&said, &format!("{}d is longer than the {max}d that a certificate for", max + 1));
        assert_eq!(days(&workdir, &leaf), 2, "{order}");
    }
    for wrong in ["0d", "d", "1", "1y", "-1d", "1.5h", "99999999999999999999d", "36501d", "1ä"] {
        let said = workdir.usage_error(&format!("ca issue caller --dir pki --user v --validity={wrong}"));
        assert_says(&said, "use a whole number with m, h or d");
    }
}

#[test]
fn a_certificate_never_outlives_its_root() {
    let workdir = WorkDir::with_authority();
    replace_root(&workdir, "agent", time::Duration::days(10));
    workdir.succeeds("ca intermediate --dir pki --role agent --force");
    let said = workdir.fails("ca issue agent --dir pki --cluster c");
    assert_says(&said, "a certificate of 90d would outlive its issuer pki/agent-intermediate.sealed");
    workdir.succeeds("ca issue agent --dir pki --cluster c --validity 9d");
}

#[test]
fn administrators_and_peers_are_accepted_by_their_own_root_alone() {
    let workdir = WorkDir::with_authority();
    for (own, order, file, uri) in [
        ("admin", "admin --name olga", "pki/olga-admin.crt", "URI:spiffe://tombolo/admin/olga"),
        ("peer", "peer --id west", "pki/west-peer.crt", "URI:spiffe://tombolo/peer/west"),
    ] {
        workdir.succeeds(&format!("ca issue {order} --dir pki"));
        assert_eq!(names(&workdir, file), [uri]);
        assert_eq!(uses(&workdir, file), (false, true), "{own}");
        for role in ["server", "agent", "caller", "admin", "peer"] {
            let accepted = accepted_as_client(&workdir, &format!("pki/{role}-ca.crt"), file);
            assert_eq!(accepted.is_ok(), role == own, "{own} by the root of {role}");
        }
        assert!(accepted_as_server(&workdir, &format!("pki/{own}-ca.crt"), file, "west").is_err());
    }
    assert_says(
        &workdir.usage_error("ca issue peer --dir pki --id West"),
        "with a letter or digit at both ends",
    );
    assert_says(&workdir.usage_error("ca issue peer --dir pki"), "--id <ID>");
}

#[test]
fn nothing_is_issued_without_an_intermediate_or_with_another_sealing_key() {
    let workdir = WorkDir::with_authority();
    let order = "ca issue agent --dir pki --cluster c";
    let other = WorkDir::with_authority();
    workdir.write("pki/sealing.key", other.text("pki/sealing.key"));
    let said = workdir.fails(order);
    assert_says(
        &said,
        "pki/agent-intermediate.sealed cannot be used as a signer: the sealing key does not open it",
    );

    std::fs::remove_file(workdir.path("pki/agent-intermediate.sealed")).unwrap();
    let said = workdir.fails(order);
    assert_says(&said, "pki has no intermediate that issues certificates for the role agent; make it with");
    assert_says(&said, "`tombolo ca intermediate --dir pki --role agent`");
    assert!(!workdir.path("pki/c-agent.key").exists());
}

/// Tells whether a certificate's extended key usage has (server, client) authentication; it must have nothing else.
fn uses(workdir: &WorkDir, file: &str) -> (bool, bool) {
    let der = leaf(workdir, file);
    let certificate = fields(&der);
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(!usage.any && !usage.code_signing && !usage.email_protection && !usage.time_stamping);
    assert!(!usage.ocsp_signing && usage.other.is_empty() && !certificate.is_ca());
    (usage.server_auth, usage.client_auth)
}

/// Puts a root of this remaining life in place of one that was made by `init`.
fn replace_root(workdir: &WorkDir, role: &str, life: time::Duration) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(1));
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    params.not_before = time::OffsetDateTime::now_utc() - time::Duration::days(1);
    params.not_after = time::OffsetDateTime::now_utc() + life;
    workdir.write(&format!("pki/{role}-ca.crt"), params.self_signed(&key).unwrap().pem());
    workdir.write(&format!("pki/{role}-ca.key"), key.serialize_pem());
}
