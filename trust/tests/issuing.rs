//! Tests of each role's certificates, and of what an intermediate does not issue.

#![expect(clippy::unwrap_used, reason = "a test stops where something is not as it must be")]

use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls_pki_types::CertificateDer;
use trust::names::GROUPS_MAX;
use trust::{
    Intermediate, NotACa, Order, ProvenKey, Role, Root, SERVER_NAMES_MAX, Serial, SignError, Subject,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn an_intermediate_signs_leaves_of_its_role_and_nothing_else() {
    for role in Role::ALL {
        let issuer = issuer(role);
        let (_, certificate) = X509Certificate::from_der(&issuer.certificates()[0]).unwrap();
        let constraints = certificate.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca, "{role}");
        assert_eq!(constraints.value.path_len_constraint, Some(0), "{role}");
        let usage = certificate.extended_key_usage().unwrap().unwrap().value;
        assert_eq!(
            (usage.server_auth, usage.client_auth),
            (role == Role::Server, role != Role::Server),
            "{role}"
        );
        for asked in Role::ALL {
            let signed = issuer.sign(&order(asked, DAY));
            if asked == role {
                let chain = signed.unwrap().chain;
                is_signed_by(&chain[0], &chain[1]);
            } else {
                assert!(matches!(signed, Err(SignError::OtherRole { .. })), "{role} signed {asked}");
            }
        }
    }
}

#[test]
fn every_certificate_has_the_uri_of_its_role() {
    let expected = ["server/gateway", "cluster/edge-a/agent/0f3c", "caller", "admin/olga", "peer/gateway"];
    for (role, expected) in Role::ALL.into_iter().zip(expected) {
        let issued = issuer(role).sign(&order(role, DAY)).unwrap();
        let (_, leaf) = X509Certificate::from_der(&issued.chain[0]).unwrap();
        let names = leaf.subject_alternative_name().unwrap().unwrap().value.general_names.clone();
        assert_eq!(names.last().unwrap().to_string(), format!("URI(spiffe://tombolo/{expected})"));
    }
}

#[test]
fn a_callers_groups_are_organizations_and_its_certificate_still_verifies() {
    let issued = issuer(Role::Caller).sign(&order(Role::Caller, DAY)).unwrap();
    let (_, leaf) = X509Certificate::from_der(&issued.chain[0]).unwrap();
    assert_eq!(leaf.subject().to_string(), "O=dev, O=ops, CN=olga");
    is_signed_by(&issued.chain[0], &issued.chain[1]);
}

#[test]
fn serial_numbers_have_128_random_bits_and_never_come_again() {
    let issuer = issuer(Role::Agent);
    let mut serials = std::collections::BTreeSet::new();
    for _ in 0..64 {
        let issued = issuer.sign(&order(Role::Agent, DAY)).unwrap();
        let (_, leaf) = X509Certificate::from_der(&issued.chain[0]).unwrap();
        assert_eq!(Serial::of(&leaf), Some(issued.serial));
        assert!(serials.insert(issued.serial));
    }
    // Each hexadecimal digit at each place is as likely as the others: none is fixed.
    let texts: Vec<_> = serials.iter().map(Serial::to_string).collect();
    for place in 0..32 {
        assert!(texts.iter().any(|text| text.as_bytes()[place] != texts[0].as_bytes()[place]), "{place}");
    }
}

#[test]
fn a_certificate_ends_before_its_issuer() {
    let issuer = issuer(Role::Agent);
    assert!(issuer.sign(&order(Role::Agent, DAY * (3 * 365 - 1))).is_ok());
    for lasting in [DAY * (3 * 365 + 1), DAY * 100_000] {
        let signed = issuer.sign(&order(Role::Agent, lasting));
        assert!(matches!(signed, Err(SignError::Outlived(_))), "{signed:?}");
    }
    for lasting in [DAY * 10_000_000, Duration::MAX] {
        let signed = issuer.sign(&order(Role::Agent, lasting));
        assert!(matches!(signed, Err(SignError::Dates)), "{signed:?}");
    }
    let early = Order { now: SystemTime::UNIX_EPOCH - DAY, ..order(Role::Agent, DAY) };
    assert!(matches!(issuer.sign(&early), Err(SignError::Dates)));
}

#[test]
fn issued_names_and_groups_are_bounded() {
    let server = |count: usize| {
        let names = (0..count).map(|number| format!("h{number}.example").parse().unwrap()).collect();
        let subject = Subject::Server { id: "gateway".parse().unwrap(), names };
        issuer(Role::Server).sign(&Order { subject, ..order(Role::Server, DAY) })
    };
    let caller = |count: usize| {
        let groups = (0..count).map(|number| format!("g{number}").parse().unwrap()).collect();
        let subject = Subject::Caller { user: "olga".parse().unwrap(), groups };
        issuer(Role::Caller).sign(&Order { subject, ..order(Role::Caller, DAY) })
    };
    assert!(server(SERVER_NAMES_MAX).is_ok() && caller(GROUPS_MAX).is_ok());
    for signed in [server(0), server(SERVER_NAMES_MAX + 1), caller(GROUPS_MAX + 1)] {
        assert!(matches!(signed, Err(SignError::Subject(_))), "{signed:?}");
    }
}

#[test]
fn only_an_intermediate_of_the_role_with_its_own_key_is_loaded() {
    let now = SystemTime::now();
    let root = Root::generate(Role::Agent, domain(), now).unwrap();
    let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let load = |role, certificate: &CertificateDer<'static>, key| {
        Intermediate::load(role, domain(), vec![certificate.clone()], key)
    };
    let intermediate = root.intermediate(now).unwrap();
    let own = &intermediate.certificates()[0];
    let leaf = &intermediate.sign(&order(Role::Agent, DAY)).unwrap().chain[0];

    assert!(matches!(load(Role::Agent, own, key()), Err(NotACa::Mismatch)));
    assert!(matches!(load(Role::Server, own, key()), Err(NotACa::Constraints(_))));
    assert!(matches!(load(Role::Agent, root.certificate(), key()), Err(NotACa::Constraints(_))));
    assert!(matches!(load(Role::Agent, leaf, key()), Err(NotACa::Constraints(_))));
    assert!(matches!(load(Role::Agent, &vec![1].into(), key()), Err(NotACa::Unreadable)));
    assert!(Intermediate::load(Role::Agent, domain(), Vec::new(), key()).is_err());
    assert!(matches!(Root::load(Role::Agent, domain(), own.clone(), key()), Err(NotACa::Constraints(_))));
    let certificate = root.certificate().clone();
    assert!(matches!(Root::load(Role::Agent, domain(), certificate, key()), Err(NotACa::Mismatch)));
}

fn is_signed_by(leaf: &CertificateDer<'_>, issuer: &CertificateDer<'_>) {
    let (_, leaf) = X509Certificate::from_der(leaf).unwrap();
    let (_, issuer) = X509Certificate::from_der(issuer).unwrap();
    leaf.verify_signature(Some(issuer.public_key())).unwrap();
}

fn issuer(role: Role) -> Intermediate {
    let now = SystemTime::now();
    Root::generate(role, domain(), now).unwrap().intermediate(now).unwrap()
}

fn domain() -> trust::names::TrustDomain {
    "tombolo".parse().unwrap()
}

fn order(role: Role, lasting: Duration) -> Order {
    let label = |text: &str| text.parse().unwrap();
    let subject = match role {
        Role::Server => {
            Subject::Server { id: label("gateway"), names: vec!["gateway.example".parse().unwrap()] }
        }
        Role::Agent => {
            Subject::Agent(proto::spiffe::AgentId::new("edge-a".parse().unwrap(), "0f3c").unwrap())
        }
        Role::Caller => Subject::Caller {
            user: "olga".parse().unwrap(),
            groups: vec!["dev".parse().unwrap(), "ops".parse().unwrap()],
        },
        Role::Admin => Subject::Admin { name: label("olga") },
        Role::Peer => Subject::Peer { id: label("gateway") },
    };
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    Order { subject, key: ProvenKey::of_pair(&pair).unwrap(), now: SystemTime::now(), lasting }
}
