//! Fixtures for the tests of several modules: signers, an order of each role, and keys that are not what they
//! claim.

use std::time::{Duration, SystemTime};

use proto::spiffe::AgentId;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm, SigningKey};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::X509Certificate;

use crate::ca;
use crate::intermediate::Intermediate;
use crate::key::ProvenKey;
use crate::names::TrustDomain;
use crate::role::Role;
use crate::root::Root;
use crate::signer::{Issued, Order};
use crate::subject::Subject;

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// Bytes that claim to be a key of this algorithm; its signatures are invalid.
pub(crate) struct FakeKey(pub(crate) &'static SignatureAlgorithm, pub(crate) Vec<u8>);

impl PublicKeyData for FakeKey {
    fn der_bytes(&self) -> &[u8] {
        &self.1
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.0
    }
}

impl SigningKey for FakeKey {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(b"no signature".to_vec())
    }
}

pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

pub(crate) fn domain() -> TrustDomain {
    "tombolo".parse().unwrap()
}

pub(crate) fn pair() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

/// A copy of the key, as it is read from a file.
pub(crate) fn copy(key: &KeyPair) -> KeyPair {
    KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.serialize_der())).unwrap()
}

pub(crate) fn root(role: Role) -> Root {
    Root::generate(role, domain(), now()).unwrap()
}

pub(crate) fn intermediate(role: Role) -> Intermediate {
    root(role).intermediate(now()).unwrap()
}

/// A certificate of `role` for one day, as our intermediates issue it.
pub(crate) fn issued(role: Role) -> Issued {
    intermediate(role).sign(&order(role, DAY)).unwrap()
}

pub(crate) fn order(role: Role, lasting: Duration) -> Order {
    Order { subject: subject(role), key: ProvenKey::of_pair(&pair()).unwrap(), now: now(), lasting }
}

pub(crate) fn subject(role: Role) -> Subject {
    match role {
        Role::Server => {
            let names = vec!["gateway.example".parse().unwrap(), "192.0.2.1".parse().unwrap()];
            Subject::Server { id: "gateway".parse().unwrap(), names }
        }
        Role::Agent => Subject::Agent(AgentId::new("edge-a".parse().unwrap(), "0f3c").unwrap()),
        Role::Caller => {
            let groups = vec!["dev".parse().unwrap(), "ops".parse().unwrap()];
            Subject::Caller { user: "olga".parse().unwrap(), groups }
        }
        Role::Admin => Subject::Admin { name: "olga".parse().unwrap() },
        Role::Peer => Subject::Peer { id: "gateway".parse().unwrap() },
    }
}

pub(crate) fn read<'a>(der: &'a CertificateDer<'_>) -> X509Certificate<'a> {
    ca::parse(der).unwrap()
}

/// Returns true if the issuer's key signed it.
pub(crate) fn is_signed_by(certificate: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> bool {
    read(certificate).verify_signature(Some(read(issuer).public_key())).is_ok()
}
