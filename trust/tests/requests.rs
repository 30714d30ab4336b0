//! Tests of malicious requests: the certificate names the subject of our own store, whatever the request asks
//! for, or none is issued.

#![expect(clippy::unwrap_used, reason = "a test stops where something is not as it must be")]

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use rcgen::{
    CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData as _,
    SanType, SignatureAlgorithm,
};
use trust::{CSR_BYTES_MAX, CsrError, Issued, Order, ProvenKey, Role, Root, Subject};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Requests that rcgen does not write, made by openssl.
const MADE_ELSEWHERE: [(&str, &[u8], Option<CsrError>); 7] = [
    ("two common names and groups", include_bytes!("requests/two-common-names.der"), None),
    ("no subject", include_bytes!("requests/empty-subject.der"), None),
    ("RSA-1024", include_bytes!("requests/rsa-1024.der"), Some(CsrError::Key)),
    ("another curve", include_bytes!("requests/secp256k1.der"), Some(CsrError::Key)),
    ("a curve of its own", include_bytes!("requests/p256-explicit.der"), Some(CsrError::Key)),
    ("another encoding", include_bytes!("requests/p256-compressed.der"), Some(CsrError::Key)),
    ("SHA-1", include_bytes!("requests/sha1.der"), Some(CsrError::NotItsOwn)),
];

#[test]
fn a_certificate_names_our_stored_subject_whatever_is_requested() {
    type Ask = fn(&mut CertificateParams);
    let asks: [(&str, Ask); 12] = [
        ("nothing", |_| {}),
        ("another cluster's common name", |csr| csr.distinguished_name.push(DnType::CommonName, "edge-b")),
        ("a group", |csr| csr.distinguished_name.push(DnType::OrganizationName, "system:masters")),
        ("another cluster's URI", |csr| {
            csr.subject_alt_names = vec![uri("spiffe://tombolo/cluster/edge-b/agent/x")]
        }),
        ("the server's URI", |csr| csr.subject_alt_names = vec![uri("spiffe://tombolo/server/gateway")]),
        ("an administrator's URI", |csr| csr.subject_alt_names = vec![uri("spiffe://tombolo/admin/root")]),
        ("a NUL in its URI", |csr| {
            csr.subject_alt_names = vec![uri("spiffe://tombolo/cluster/edge-a\0/agent/x")]
        }),
        ("the gateway's name", |csr| csr.subject_alt_names = vec![dns("gateway.example"), dns("*.example")]),
        ("an address", |csr| csr.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())]),
        ("to be a CA", |csr| {
            let ca = CustomExtension::from_oid_content(&[2, 5, 29, 19], vec![0x30, 3, 1, 1, 0xff]);
            csr.custom_extensions = vec![ca];
        }),
        ("to serve", |csr| csr.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
        ("to do anything", |csr| csr.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any]),
    ];
    let issuer = issuer();
    for (what, ask) in asks {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        ask(&mut params);
        let request = params.serialize_request(&pair).unwrap();

        let key = ProvenKey::of_csr(request.der()).unwrap_or_else(|error| panic!("{what}: {error}"));

        names_our_subject(what, &issuer.sign(&order(key)).unwrap(), &pair.subject_public_key_info());
    }
}

#[test]
fn requests_of_other_tools_get_our_stored_subject_or_a_refusal() {
    let issuer = issuer();
    for (what, der, refused) in MADE_ELSEWHERE {
        match (ProvenKey::of_csr(der), refused) {
            (Ok(key), None) => {
                let spki = key.spki();
                names_our_subject(what, &issuer.sign(&order(key)).unwrap(), &spki);
            }
            (found, expected) => assert_eq!(found.err(), expected, "{what}"),
        }
    }
}

#[test]
fn a_key_is_of_one_of_three_kinds() {
    for (algorithm, is_taken) in [
        (&PKCS_ECDSA_P256_SHA256, true),
        (&PKCS_ECDSA_P384_SHA384, true),
        (&PKCS_ED25519, true),
        (&PKCS_ECDSA_P521_SHA512, false),
        (&PKCS_RSA_SHA256, false),
    ] {
        let found = ProvenKey::of_csr(&request(algorithm)).err();
        assert_eq!(found, (!is_taken).then_some(CsrError::Key), "{algorithm:?}");
    }
}

#[test]
fn a_certificate_needs_possession_of_the_private_key() {
    let (mine, theirs) = (request(&PKCS_ECDSA_P256_SHA256), request(&PKCS_ECDSA_P256_SHA256));
    let spki = |der: &[u8]| ProvenKey::of_csr(der).unwrap().spki();
    let (my_key, their_key) = (spki(&mine), spki(&theirs));
    let at = mine.windows(my_key.len()).position(|part| part == my_key).unwrap();
    let mut stolen = mine.clone();
    stolen[at..at + their_key.len()].copy_from_slice(&their_key);

    assert_eq!(ProvenKey::of_csr(&stolen).err(), Some(CsrError::NotItsOwn));
}

#[test]
fn oversized_and_concatenated_requests_are_refused() {
    let one = request(&PKCS_ECDSA_P256_SHA256);
    for (bytes, error) in [
        (Vec::new(), CsrError::Malformed),
        (vec![0x30; CSR_BYTES_MAX], CsrError::Malformed),
        (vec![0x30; CSR_BYTES_MAX + 1], CsrError::TooLarge),
        (vec![0; 64 * 1024], CsrError::TooLarge),
        ([one.clone(), one.clone()].concat(), CsrError::Malformed),
        ([one.clone(), vec![0]].concat(), CsrError::Malformed),
        (one[..one.len() - 1].to_vec(), CsrError::Malformed),
    ] {
        assert_eq!(ProvenKey::of_csr(&bytes).err(), Some(error), "{} bytes", bytes.len());
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(ProvenKey::of_csr(&bytes).is_err());
    }

    #[test]
    fn no_change_of_a_request_makes_it_panic_or_gives_another_key(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = MADE_ELSEWHERE[0].1;
        let mut bytes = whole[..whole.len() - cut.index(3)].to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(key) = ProvenKey::of_csr(&bytes) {
            prop_assert_eq!(key, ProvenKey::of_csr(whole).unwrap());
        }
    }
}

fn names_our_subject(what: &str, issued: &Issued, spki: &[u8]) {
    let (_, leaf) = X509Certificate::from_der(&issued.chain[0]).unwrap();
    assert_eq!(leaf.subject().to_string(), "CN=edge-a", "{what}");
    let names = leaf.subject_alternative_name().unwrap().unwrap();
    let uri = "spiffe://tombolo/cluster/edge-a/agent/0f3c";
    assert_eq!(names.value.general_names, [GeneralName::URI(uri)], "{what}");
    let constraints = leaf.basic_constraints().unwrap().unwrap();
    assert!(!constraints.value.ca, "{what}");
    let usage = leaf.extended_key_usage().unwrap().unwrap();
    assert!(usage.value.client_auth && !usage.value.server_auth && !usage.value.any, "{what}");
    assert_eq!(leaf.public_key().raw, spki, "{what}");
    let extensions: Vec<_> = leaf.extensions().iter().map(|extension| extension.oid.to_string()).collect();
    // Authority's key, alternative names, key usage, its extension, own key, basic constraints: nothing else.
    assert_eq!(extensions.len(), 6, "{what}: {extensions:?}");
}

fn issuer() -> trust::Intermediate {
    let now = SystemTime::now();
    Root::generate(Role::Agent, "tombolo".parse().unwrap(), now).unwrap().intermediate(now).unwrap()
}

fn order(key: ProvenKey) -> Order {
    let agent = proto::spiffe::AgentId::new("edge-a".parse().unwrap(), "0f3c").unwrap();
    Order {
        subject: Subject::Agent(agent),
        key,
        now: SystemTime::now(),
        lasting: Duration::from_secs(86_400),
    }
}

fn request(algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
    let pair = KeyPair::generate_for(algorithm).unwrap();
    CertificateParams::default().serialize_request(&pair).unwrap().der().to_vec()
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}
