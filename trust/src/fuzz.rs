//! Fuzz targets for input from unauthenticated peers: requests, certificates, bundles, proofs and pins.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::{Anchors, Pin, ProvenKey, Role, Root, Serial, TrustBundle, identity, proof};

/// Random inputs that `make test` tries beside the corpus. `make fuzz` sets another number by the
/// environment.
const ITERATIONS: usize = 1_000;

/// An accepted request gives only its key, in that key's one encoding.
#[test]
fn certificate_requests() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(key) = ProvenKey::of_csr(bytes) else { return };
        let spki = key.spki();
        let (rest, read) = SubjectPublicKeyInfo::from_der(&spki).unwrap();
        assert!(rest.is_empty() && read.raw == spki);
        assert!(
            bytes.windows(spki.len()).any(|window| window == spki),
            "a key that the request does not have"
        );
    });
}

/// A bundle is accepted only with a trusted signature. Each input is tried as a bundle, and as a list of changes to a signed
/// one: three bytes give an offset and a value.
#[test]
fn bundles() {
    let (root, signed) = signed();
    let anchors = Anchors::new("tombolo".parse().unwrap()).and_pin(root.pin());
    let original = anchors.accept(signed, None).unwrap().unwrap();
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        assert!(anchors.accept(bytes, None).is_err() || bytes == signed, "a bundle that nobody signed");
        let mut changed = signed.clone();
        for pair in bytes.chunks_exact(3) {
            let place = usize::from(pair[0]) << 8 | usize::from(pair[1]);
            let bytes = changed.len();
            changed[place % bytes] = pair[2];
        }
        if let Ok(taken) = anchors.accept(&changed, None) {
            assert_eq!(taken.as_ref(), Some(&original), "a bundle that was changed");
        }
        if let Ok(bundle) = TrustBundle::decode_unverified(bytes) {
            assert!(!bundle.roots(Role::Server).is_empty() && bundle.version() > 0);
        }
    });
}

/// Bytes that nobody issued as a certificate identify nobody in two roles.
#[test]
fn certificates() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let der = CertificateDer::from(bytes);
        if let Ok(agent) = identity::agent(&der, "tombolo") {
            let uri = agent.uri("tombolo");
            assert!(bytes.windows(uri.len()).any(|window| window == uri.as_bytes()));
            assert!(identity::admin(&der, "tombolo").is_err() && identity::server(&der, "tombolo").is_err());
            assert!(identity::peer(&der, "tombolo").is_err());
        }
        let _ = (identity::admin(&der, "tombolo"), identity::server(&der, "tombolo"));
        if identity::peer(&der, "tombolo").is_ok() {
            assert!(identity::admin(&der, "tombolo").is_err());
        }
    });
}

/// No bytes are a valid proof. An accepted pin or serial number is displayed as it was written.
#[test]
fn proofs_and_pins() {
    let key = signed().0.key();
    let spki = rcgen::PublicKeyData::subject_public_key_info(key);
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let exporter = [7; proof::EXPORTER_BYTES];
        let serial = Serial::from([1; 16]);
        for purpose in [proof::Purpose::Renewal, proof::Purpose::Extension] {
            let proof = proof::Proof { purpose, exporter: &exporter, serial, spki: bytes };
            assert!(!proof.is_signed(&spki, bytes) && !proof.is_signed(bytes, bytes));
        }
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        if let Ok(pin) = text.parse::<Pin>() {
            assert_eq!(pin.to_string().parse(), Ok(pin));
        }
        if let Ok(serial) = text.parse::<Serial>() {
            assert_eq!(serial.to_string().parse(), Ok(serial));
        }
    });
}

/// A server root and a bundle that it signed, made once.
fn signed() -> &'static (Root, Vec<u8>) {
    static SIGNED: OnceLock<(Root, Vec<u8>)> = OnceLock::new();
    SIGNED.get_or_init(|| {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let domain = || "tombolo".parse().unwrap();
        let root = Root::generate(Role::Server, domain(), now).unwrap();
        let roots = [(Role::Server, root.certificate().clone())];
        let bytes = TrustBundle::new(1, domain(), now, roots).unwrap().sign(&[&root]).unwrap();
        (root, bytes)
    })
}
