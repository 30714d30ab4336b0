//! OIDC issuers, the token reviewer, and the cluster whose RBAC is asked beside the policy.

use super::*;

const ASKED: &str = "
tls: { certificateFile: server.crt, keyFile: server.key }
gateway:
  authentication:
    oidc:
    - { name: corp, issuer: 'https://login.example/realms/corp', audience: tombolo, caFile: admin-ca.crt,
        algorithms: [ES256, EdDSA], usernameClaim: email, groupsClaim: roles, requiredClaims: { tenant: acme },
        usernamePrefix: 'corp:', groupsPrefix: 'corps:' }
    - { name: partner, issuer: 'https://partner.example', audience: them, caFile: agent-ca.crt, usernamePrefix: 'p:',
        groupsPrefix: 'p:' }
    tokenReview: { name: host, server: 'https://10.0.0.1:6443/', caFile: caller-ca.crt, tokenFile: run/token,
      audiences: [tombolo, gateway], usernamePrefix: 'host:', groupsPrefix: 'host:' }
tunnel: { agentCAFile: agent-ca.crt }
policy:
  file: policy.yaml
  delegation: { server: 'https://kubernetes.default.svc', caFile: admin-ca.crt, tokenFile: /run/token }
";

#[test]
fn every_key_of_issuers_and_host_clusters_is_read() {
    let files = files();
    let config = load(&files, ASKED, &Flags::default()).unwrap();

    let [corp, partner] = config.gateway.authentication.oidc.as_slice() else { panic!("two issuers") };
    assert_eq!((corp.name.as_str(), corp.issuer.as_str()), ("corp", "https://login.example/realms/corp"));
    assert_eq!((corp.audience.as_str(), corp.roots.certificates.len()), ("tombolo", 1));
    assert_eq!(corp.algorithms, [Algorithm::ES256, Algorithm::EdDSA]);
    assert_eq!((corp.username_claim.as_str(), corp.groups_claim.as_deref()), ("email", Some("roles")));
    assert_eq!(corp.required_claims, [("tenant".to_owned(), "acme".to_owned())].into());
    assert_eq!(corp.prefixes, prefixes("corp:", "corps:"));
    assert_eq!(partner.algorithms, [Algorithm::RS256, Algorithm::ES256]);
    assert_eq!((partner.username_claim.as_str(), partner.groups_claim.as_deref()), ("sub", None));
    assert!(partner.required_claims.is_empty());

    let review = config.gateway.authentication.token_review.unwrap();
    assert_eq!(
        (review.name.as_str(), review.host.server.to_string()),
        ("host", "https://10.0.0.1:6443/".into())
    );
    assert_eq!(
        (review.host.token_file, review.host.roots.certificates.len()),
        (files.path().join("run/token"), 1)
    );
    assert_eq!(
        (review.audiences, review.prefixes),
        (vec!["tombolo".into(), "gateway".into()], prefixes("host:", "host:"))
    );

    let asked = config.delegation.unwrap();
    assert_eq!(asked.server.to_string(), "https://kubernetes.default.svc/");
    assert_eq!((asked.token_file, asked.roots.certificates.len()), (PathBuf::from("/run/token"), 1));
    assert!(load(&files, SMALLEST, &Flags::default()).unwrap().delegation.is_none());
}

#[test]
fn an_error_in_issuers_and_host_clusters_names_key_and_value() {
    let files = files();
    let issuer = |key: &str| format!("gateway.authentication.oidc[0].{key}");
    let review = |key: &str| format!("gateway.authentication.tokenReview.{key}");
    let asked = |key: &str| format!("policy.delegation.{key}");
    let http = "http://login.example";
    for (from, to, key, value) in [
        ("name: corp,", "", issuer("name"), "nothing"),
        ("name: corp,", "name: Corp,", issuer("name"), "\"Corp\""),
        ("name: partner", "name: corp", "gateway.authentication.oidc[1].name".into(), "corp"),
        ("https://login.example/realms/corp", http, issuer("issuer"), "\"http://login.example\""),
        ("https://login.example/realms/corp", "https://a@b.c", issuer("issuer"), "\"https://a@b.c\""),
        ("https://login.example/realms/corp", "https://b.c/?d", issuer("issuer"), "\"https://b.c/?d\""),
        ("audience: tombolo", "audience: ''", issuer("audience"), "nothing"),
        (" caFile: admin-ca.crt,\n", "\n", issuer("caFile"), "nothing"),
        ("algorithms: [ES256, EdDSA]", "algorithms: [HS256]", issuer("algorithms"), "\"HS256\""),
        ("algorithms: [ES256, EdDSA]", "algorithms: [none]", issuer("algorithms"), "\"none\""),
        ("algorithms: [ES256, EdDSA]", "algorithms: []", issuer("algorithms"), "0"),
        ("usernameClaim: email", "usernameClaim: ''", issuer("usernameClaim"), "nothing"),
        ("usernamePrefix: 'corp:', ", "", issuer("usernamePrefix"), "nothing"),
        ("name: host,", "name: 'a b',", review("name"), "\"a b\""),
        ("https://10.0.0.1:6443/", "http://10.0.0.1:6443", review("server"), "\"http://10.0.0.1:6443\""),
        ("https://10.0.0.1:6443/", "https://10.0.0.1/x", review("server"), "https://10.0.0.1/x"),
        (", tokenFile: run/token", "", review("tokenFile"), "nothing"),
        (" caFile: caller-ca.crt,", "", review("caFile"), "nothing"),
        ("audiences: [tombolo, gateway]", "audiences: []", review("audiences"), "0"),
        ("audiences: [tombolo, gateway]", "audiences: ['']", review("audiences"), "nothing"),
        ("usernamePrefix: 'host:'", "usernamePrefix: ''", review("usernamePrefix"), "\"\""),
        ("groupsPrefix: 'host:'", "groupsPrefix: ''", review("groupsPrefix"), "\"\""),
        ("server: 'https://kubernetes.default.svc', ", "", asked("server"), "nothing"),
        (
            "https://kubernetes.default.svc",
            "kubernetes.default.svc",
            asked("server"),
            "\"kubernetes.default.svc\"",
        ),
        ("https://kubernetes.default.svc", "https://k/api", asked("server"), "https://k/api"),
        (", tokenFile: /run/token", "", asked("tokenFile"), "nothing"),
        (" caFile: admin-ca.crt, tokenFile: /run", " tokenFile: /run", asked("caFile"), "nothing"),
    ] {
        assert!(ASKED.contains(from), "{from}");
        let error = key_error(&files, &ASKED.replacen(from, to, 1));
        assert_eq!((&error.key, error.value.as_str()), (&key, value), "{to}");
    }
    for (from, to) in
        [("issuer:", "url:"), ("audiences:", "audience:"), ("delegation: { server", "delegation: { url")]
    {
        assert!(ASKED.contains(from), "{from}");
        let refused = load(&files, &ASKED.replacen(from, to, 1), &Flags::default());
        assert!(matches!(refused, Err(ConfigError::Load(LoadError::Invalid { .. }))), "{to}: {refused:?}");
    }
}

#[test]
fn the_number_of_issuers_is_limited() {
    let files = files();
    let with = |count: usize| {
        let issuers: String = (0..count)
            .map(|n| {
                format!(
                    "{{ name: i{n}, issuer: 'https://i{n}.example', audience: a, caFile: admin-ca.crt, usernamePrefix: 'i{n}:', \
                     groupsPrefix: 'i{n}:' }},"
                )
            })
            .collect();
        SMALLEST.replace("authentication: {", &format!("authentication: {{ oidc: [{issuers}],"))
    };
    let config = load(&files, &with(ISSUERS_MAX), &Flags::default()).unwrap();
    assert_eq!(config.gateway.authentication.oidc.len(), ISSUERS_MAX);
    assert_eq!(key_error(&files, &with(ISSUERS_MAX + 1)).key, "gateway.authentication.oidc");
}
