//! Credentials of callers, one by one and together.

use std::time::Duration;

use futures::FutureExt as _;
use http::header::{self, HeaderValue};
use rcgen::string::Ia5String;
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType,
};
use time::OffsetDateTime;

use proto::spiffe::SpiffeError;
use trust::Role;
use trust::identity::NotOfRole;

use super::*;

mod roles;
mod tokens;

/// A token file with three holders, each behind the digest of a token.
fn tokens() -> String {
    format!(
        "{},alice,1,\"ops,dev\"\r\n{},bob,2\n\n{},\"the \"\"cook\"\"\",3,\"cooks\"\n",
        digest("sesame"),
        digest("mellon"),
        digest("quoted")
    )
}

fn digest(token: &str) -> String {
    trust::user_token::TokenDigest::of(token.as_bytes()).to_string()
}

#[test]
fn a_certificate_names_user_and_groups() {
    let caller = by_certificate(&subject("alice", "ops")).unwrap();

    assert_eq!(caller.method(), &Method::ClientCertificate);
    assert_eq!((caller.user(), caller.groups()), ("alice", &["ops".to_owned()][..]));
}

#[test]
fn prefixes_stand_in_front_of_every_name() {
    let prefixes = Prefixes { username: "cert:".to_owned(), groups: "team:".to_owned() };
    let leaf = issue(with_subject(&subject("alice", "ops")));

    let caller = of_leaf(&authenticator(Some(prefixes), None), &leaf).unwrap();

    assert_eq!((caller.user(), caller.groups()), ("cert:alice", &["team:ops".to_owned()][..]));
}

#[test]
fn names_that_cannot_be_impersonated_are_refused() {
    use NameError::{Empty, Invisible, OthersPrefix, System, TooLong};

    let long = "x".repeat(NAME_BYTES_MAX + 1);
    for (name, fault) in [
        ("", Empty),
        ("system:admin", System),
        ("system:masters", System),
        ("a\r\nImpersonate-Group: b", Invisible),
        ("a\0b", Invisible),
        ("a\u{85}", Invisible),
        (" a", Invisible),
        ("a\u{a0}", Invisible),
        ("a\u{200b}b", Invisible),
        ("\u{202e}ecila", Invisible),
        ("alice\u{2060}", Invisible),
        ("al\u{ad}ice", Invisible),
        ("al\u{e0041}ice", Invisible),
        (long.as_str(), TooLong),
        ("token:alice", OthersPrefix),
    ] {
        for subject in [subject(name, "ops"), subject("alice", name)] {
            let refused = by_certificate(&subject);
            assert_eq!(refused, Err(CertificateError::Name(fault).into()), "{name:?}");
        }
    }
    assert!(by_certificate(&subject(&long[1..], "ops")).is_ok());
}

#[test]
fn a_prefix_does_not_make_a_name_of_kubernetes() {
    for (prefix, name) in [("sys", "tem:masters"), ("x:", "system:masters")] {
        let prefixes = Prefixes { username: prefix.to_owned(), groups: String::new() };
        assert_eq!(prefixes.apply(name, &[]), Err(NameError::System), "{prefix}{name}");
    }
}

#[test]
fn at_most_64_groups_are_taken() {
    let prefixes = Prefixes { username: String::new(), groups: String::new() };
    assert!(prefixes.apply("alice", &["g"; GROUPS_MAX]).is_ok());
    assert_eq!(prefixes.apply("alice", &["g"; GROUPS_MAX + 1]), Err(NameError::TooManyGroups));
}

#[test]
fn a_subject_without_exactly_one_common_name_is_nobody() {
    let mut no_name = DistinguishedName::new();
    no_name.push(DnType::OrganizationName, "ops");
    let mut two = subject("alice", "ops");
    two.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "bob");

    for subject in [no_name, two] {
        assert_eq!(by_certificate(&subject), Err(CertificateError::CommonName.into()));
    }
}

#[test]
fn a_name_that_is_not_utf8_is_refused() {
    let mut subject = DistinguishedName::new();
    let bytes = rcgen::string::BmpString::try_from("alice").unwrap();
    subject.push(DnType::CommonName, DnValue::BmpString(bytes));

    assert_eq!(by_certificate(&subject), Err(CertificateError::Text.into()));
}

#[test]
fn a_certificate_ends_while_its_connection_lives() {
    let leaf = issue(with_subject(&subject("alice", "ops")));
    let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).unwrap();
    let at = |seconds: i64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.try_into().unwrap());
    let (begin, end) = (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
    let (both, once) = (both(), std::slice::from_ref(&leaf));
    let certified = both.read_certificate(once);
    let asked = |now| at_once(both.authenticate(certified.as_ref(), &HeaderMap::new(), now)).map(drop);

    assert_eq!(asked(at(begin - 1)), Err(CertificateError::NotYetValid.into()));
    assert_eq!(asked(at(begin)), Ok(()));
    assert_eq!(asked(at(end)), Ok(()));
    assert_eq!(asked(at(end + 1)), Err(CertificateError::Expired.into()));
    assert_eq!(
        asked(SystemTime::UNIX_EPOCH - Duration::from_secs(1)),
        Err(CertificateError::NotYetValid.into())
    );
}

#[test]
fn a_certificates_id_is_its_serial_number_and_it_ends_exactly() {
    let mut params = with_subject(&subject("alice", "ops"));
    params.serial_number = Some(0x4fa2_u64.into());
    let leaf = issue(params);
    let caller = of_leaf(&both(), &leaf).unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).unwrap();
    let end = SystemTime::from(parsed.validity().not_after.to_datetime());

    assert_eq!(*caller.credential().id, format!("{:032x}", 0x4fa2));
    assert_eq!(caller.credential().expires, Some(end + Duration::from_secs(1)));
    assert_eq!(caller.credential().issued, Some(parsed.validity().not_before.to_datetime().into()));

    let mut params = with_subject(&subject("alice", "ops"));
    params.serial_number = Some(vec![0x7f; 20].into());
    assert_eq!(*of_leaf(&both(), &issue(params)).unwrap().credential().id, "7f".repeat(20));
}

#[test]
fn only_one_known_token_is_accepted() {
    let accepted = AcceptedMethods { certificates: true, tokens: true };
    for (headers, refused) in [
        (&["Bearer sesame", "Bearer sesame"][..], NotAuthenticated::TwoAuthorizations),
        (&["Bearer open"], NotAuthenticated::UnknownToken),
        (&["Bearer Sesame"], NotAuthenticated::UnknownToken),
        (&["Bearer "], NotAuthenticated::NotAToken),
        (&["Bearer  sesame"], NotAuthenticated::NotAToken),
        (&["Bearer sesame "], NotAuthenticated::NotAToken),
        (&["Bearer sesame, Bearer sesame"], NotAuthenticated::NotAToken),
        (&["Bearer"], NotAuthenticated::Scheme(accepted)),
        (&["Bearer\tsesame"], NotAuthenticated::Scheme(accepted)),
        (&["Basic c2VzYW1lOg=="], NotAuthenticated::Scheme(accepted)),
        (&["sesame"], NotAuthenticated::Scheme(accepted)),
        (&[""], NotAuthenticated::Scheme(accepted)),
        (&[], NotAuthenticated::NoCredential(accepted)),
    ] {
        assert_eq!(by_header(headers), Err(refused), "{headers:?}");
    }
    let longest = format!("Bearer {}", "x".repeat(TOKEN_BYTES_MAX));
    assert_eq!(by_header(&[&longest]), Err(NotAuthenticated::UnknownToken));
    assert_eq!(by_header(&[&format!("{longest}x")]), Err(NotAuthenticated::NotAToken));
}

#[test]
fn a_certificate_and_a_token_together_are_refused_whatever_they_are() {
    let leaf = issue(with_subject(&subject("alice", "ops")));
    for value in ["Bearer sesame", "Bearer wrong", "Basic x", ""] {
        let certified = both().read_certificate(std::slice::from_ref(&leaf));
        let known = at_once(both().authenticate(certified.as_ref(), &headers(&[value]), SystemTime::now()));
        assert_eq!(
            known.unwrap().require_single_credential(),
            Err(NotAuthenticated::TwoCredentials),
            "{value}"
        );
    }
}

/// Without a certificate the header is the caller's own credential for this server.
#[test]
fn only_beside_a_certificate_an_authorization_can_be_for_the_cluster() {
    let leaf = issue(with_subject(&subject("alice", "ops")));
    let certified = both().read_certificate(std::slice::from_ref(&leaf));
    for values in [[].as_slice(), &["Bearer of-the-clusters-own"], &["Bearer sesame"], &["Basic x"], &[""]] {
        let known = at_once(both().authenticate(certified.as_ref(), &headers(values), SystemTime::now()));
        let known = known.unwrap();
        let caller = known.require_certificate().unwrap();
        assert_eq!((caller.method(), caller.user()), (&Method::ClientCertificate, "alice"), "{values:?}");
    }
    let by_token = at_once(both().authenticate(None, &headers(&["Bearer sesame"]), SystemTime::now()));
    assert_eq!(by_token.unwrap().require_certificate(), Err(NotAuthenticated::NoCertificate));
    let twice = at_once(both().authenticate(
        certified.as_ref(),
        &headers(&["Bearer a", "Bearer b"]),
        SystemTime::now(),
    ));
    assert_eq!(twice, Err(NotAuthenticated::TwoAuthorizations));
}

#[test]
fn a_cookie_a_proxys_credential_and_a_subprotocol_authenticate_nobody() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("cookie", "Authorization=Bearer sesame"),
        ("proxy-authorization", "Bearer sesame"),
        ("x-remote-user", "alice"),
        ("impersonate-user", "alice"),
        ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VzYW1l"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
        let refused = at_once(both().authenticate(None, &headers, SystemTime::now()));
        assert!(matches!(refused, Err(NotAuthenticated::NoCredential(_))), "{name}");
    }
}

#[test]
fn a_method_that_is_not_configured_accepts_nobody() {
    let leaf = issue(with_subject(&subject("alice", "ops")));
    let none = authenticator(None, None);
    let refused = of_leaf(&none, &leaf);
    assert!(matches!(refused, Err(NotAuthenticated::NoCredential(_))));
    let refused = at_once(none.authenticate(None, &headers(&["Bearer sesame"]), SystemTime::now()));
    assert!(matches!(refused, Err(NotAuthenticated::Scheme(_))));
}

#[test]
fn an_agents_certificate_names_cluster_and_instance() {
    let agent = agent_identity(&[issue(with_uri("spiffe://tombolo/cluster/edge-a/agent/one"))], "tombolo")
        .unwrap()
        .into_inner()
        .agent;
    assert_eq!((agent.cluster().as_str(), agent.instance()), ("edge-a", "one"));
}

#[test]
fn only_an_exact_agents_certificate_is_accepted() {
    let names = with_names;
    let usage = |purposes: &[ExtendedKeyUsagePurpose]| {
        let mut params = with_uri("spiffe://tombolo/cluster/edge-a/agent/one");
        params.extended_key_usages = purposes.to_vec();
        params
    };
    let (client, server) = (ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth);
    let uri = || uri("spiffe://tombolo/cluster/edge-a/agent/one");
    let dns = || SanType::DnsName(Ia5String::try_from("edge-b").unwrap());
    let other_domain = with_uri("spiffe://other/cluster/edge-a/agent/one");
    let a_server = with_uri("spiffe://tombolo/server/one");
    let a_peer = with_uri("spiffe://tombolo/peer/one");
    let mut authority = with_uri("spiffe://tombolo/cluster/edge-a/agent/one");
    authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    for (params, refused) in [
        (names(vec![]), NotOfRole::Names),
        (names(vec![dns()]), NotOfRole::Names),
        (names(vec![uri(), uri()]), NotOfRole::Names),
        (names(vec![uri(), dns()]), NotOfRole::Names),
        (usage(&[]), NotOfRole::Usage(Role::Agent)),
        (usage(std::slice::from_ref(&server)), NotOfRole::Usage(Role::Agent)),
        (usage(&[client.clone(), server]), NotOfRole::Usage(Role::Agent)),
        (usage(&[client, ExtendedKeyUsagePurpose::Any]), NotOfRole::Usage(Role::Agent)),
        (authority, NotOfRole::Authority),
        (other_domain, NotOfRole::Uri(SpiffeError::NotAnAgent { domain: "tombolo".to_owned() })),
        (a_server, NotOfRole::Uri(SpiffeError::NotAnAgent { domain: "tombolo".to_owned() })),
        (a_peer, NotOfRole::Uri(SpiffeError::NotAnAgent { domain: "tombolo".to_owned() })),
    ] {
        assert_eq!(agent_identity(&[issue(params)], "tombolo"), Err(refused.into()));
    }
    assert_eq!(agent_identity(&[], "tombolo"), Err(NotAnAgent::NoCertificate));
    assert_eq!(
        agent_identity(&[CertificateDer::from(vec![0x30, 0])], "tombolo"),
        Err(NotOfRole::Unreadable.into())
    );
}

#[test]
fn a_nul_in_a_uri_hides_nothing() {
    // GeneralNames with one URI (RFC 5280, section 4.2.1.6), which rcgen would not write.
    let text = b"spiffe://tombolo/cluster/edge-a/agent/one\0";
    let names = [&[0x30, text.len() as u8 + 2, 0x86, text.len() as u8], &text[..]].concat();
    let mut params = params();
    params.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], names)];

    assert!(matches!(agent_identity(&[issue(params)], "tombolo"), Err(NotAnAgent::Role(NotOfRole::Uri(_)))));
}

#[test]
fn a_certificate_of_another_role_is_no_callers_with_any_issuer() {
    for (names, is_taken) in [
        (vec![], true),
        (vec![uri("spiffe://tombolo/caller")], true),
        (vec![uri("spiffe://elsewhere/workload"), uri("https://example.org/alice")], true),
        (vec![uri("spiffe://tombolo/cluster/edge-a/agent/one")], false),
        (vec![uri("spiffe://tombolo/server/gateway")], false),
        (vec![uri("spiffe://tombolo/admin/olga")], false),
        (vec![uri("spiffe://tombolo/peer/gateway")], false),
        (vec![uri("SPIFFE://TOMBOLO/admin/olga")], false),
        (vec![uri("spiffe://tombolo/caller"), uri("spiffe://tombolo/admin/olga")], false),
    ] {
        let mut params = with_subject(&subject("alice", "ops"));
        params.subject_alt_names = names.clone();

        let found = of_leaf(&both(), &issue(params));

        match found {
            Ok(caller) => assert!(is_taken && caller.user() == "alice", "{names:?}"),
            Err(error) => {
                assert!(!is_taken, "{names:?}: {error}");
                assert_eq!(error, CertificateError::Role.into());
            }
        }
    }
}

fn both() -> Authenticator {
    let certificates = Prefixes { username: String::new(), groups: String::new() };
    authenticator(
        Some(certificates),
        Some(StaticTokens::parse(tokens().as_bytes(), token_prefixes()).unwrap()),
    )
}

fn authenticator(certificates: Option<Prefixes>, tokens: Option<StaticTokens>) -> Authenticator {
    let tokens = tokens.map(SharedTokens::new);
    Authenticator::new("tombolo".to_owned(), AuthMethods { certificates, tokens, ..AuthMethods::default() })
}

/// The result of authenticating by certificate or static token, which never waits.
fn at_once<T>(asked: impl Future<Output = T>) -> T {
    asked.now_or_never().expect("it is known at once")
}

fn token_prefixes() -> Prefixes {
    Prefixes { username: "token:".to_owned(), groups: "token:".to_owned() }
}

fn by_certificate(subject: &DistinguishedName) -> Result<Caller, NotAuthenticated> {
    of_leaf(&both(), &issue(with_subject(subject)))
}

fn of_leaf(
    authenticator: &Authenticator,
    leaf: &CertificateDer<'static>,
) -> Result<Caller, NotAuthenticated> {
    let certified = authenticator.read_certificate(std::slice::from_ref(leaf));
    let none = HeaderMap::new();
    let asked = authenticator.authenticate(certified.as_ref(), &none, SystemTime::now());
    at_once(asked)?.require_single_credential().cloned()
}

fn by_header(values: &[&str]) -> Result<Caller, NotAuthenticated> {
    at_once(both().authenticate(None, &headers(values), SystemTime::now()))?
        .require_single_credential()
        .cloned()
}

fn headers(values: &[&str]) -> HeaderMap {
    values.iter().map(|value| (header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())).collect()
}

fn subject(user: &str, group: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, group);
    subject.push(DnType::CommonName, user);
    subject
}

fn with_subject(subject: &DistinguishedName) -> CertificateParams {
    let mut params = params();
    params.distinguished_name = subject.clone();
    params
}

fn with_uri(text: &str) -> CertificateParams {
    with_names(vec![uri(text)])
}

fn with_names(names: Vec<SanType>) -> CertificateParams {
    let mut params = params();
    params.subject_alt_names = names;
    params
}

fn uri(text: &str) -> SanType {
    SanType::URI(Ia5String::try_from(text).unwrap())
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = OffsetDateTime::now_utc() - Duration::from_secs(60);
    params.not_after = OffsetDateTime::now_utc() + Duration::from_secs(3600);
    params
}

fn issue(params: CertificateParams) -> CertificateDer<'static> {
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}
