//! Tests of signatures, and of replacing one bundle by another.

use proptest::prelude::*;

use super::*;
use crate::fixtures::{self, domain, now};

#[test]
fn a_root_known_by_certificate_or_by_pin_signs_valid_bundles() {
    let root = server_root();
    let bytes = bundle(1, &[&root]).sign(&[&root]).unwrap();
    for anchors in [anchors().and_pin(root.pin()), anchors().and_roots(&[root.certificate().clone()])] {
        let taken = anchors.accept(&bytes, None).unwrap().unwrap();
        assert_eq!(
            (taken.version(), taken.roots(Role::Server)),
            (1, [root.certificate().clone()].as_slice())
        );
    }
}

#[test]
fn a_bundle_has_its_creation_time_and_domain() {
    let root = server_root();
    let read = TrustBundle::decode_unverified(&bundle(7, &[&root]).sign(&[&root]).unwrap()).unwrap();
    assert_eq!((read.created_seconds(), read.version(), read.domain()), (1_800_000_000, 7, &domain()));
    for role in Role::ALL.into_iter().filter(|role| *role != Role::Server) {
        assert!(read.roots(role).is_empty(), "{role}");
    }
}

#[test]
fn a_bundle_keeps_the_roots_of_each_role_apart() {
    let roots = Role::ALL.map(fixtures::root);
    let all = roots.iter().map(|root| (root.role(), root.certificate().clone()));
    let signed = TrustBundle::new(1, domain(), now(), all).unwrap().sign(&[&roots[0]]).unwrap();

    let read = TrustBundle::decode_unverified(&signed).unwrap();

    for root in &roots {
        assert_eq!(read.roots(root.role()), [root.certificate().clone()], "{}", root.role());
    }
}

#[test]
fn an_untrusted_root_cannot_sign_a_bundle() {
    let (root, evil) = (server_root(), server_root());
    let known = anchors().and_pin(root.pin());
    let both = bundle(2, &[&root, &evil]);
    let signed = SignedBundle::decode(both.sign(&[&evil]).unwrap().as_slice()).unwrap();
    let mut borrowed = signed.clone();
    borrowed.signatures[0].pin = root.pin().as_bytes().to_vec();
    let mut unsigned = signed.clone();
    unsigned.signatures.clear();
    for forged in [signed, borrowed, unsigned] {
        assert_eq!(known.accept(&forged.encode_to_vec(), None), Err(BundleError::Untrusted));
    }
    assert!(matches!(both.sign(&[&fixtures::root(Role::Agent)]), Err(SignBundleError::NotByServers)));
}

#[test]
fn every_byte_of_a_bundle_is_signed_those_of_later_fields_too() {
    let root = server_root();
    let known = anchors().and_pin(root.pin());
    let bytes = bundle(1, &[&root]).sign(&[&root]).unwrap();
    let mut signed = SignedBundle::decode(bytes.as_slice()).unwrap();
    // Field 99, a varint, of a later version.
    signed.bundle.extend_from_slice(&[0x98, 0x06, 0x01]);
    assert_eq!(known.accept(&signed.encode_to_vec(), None), Err(BundleError::Untrusted));

    signed.signatures[0].signature = root.key().sign(&[LABEL, &signed.bundle].concat()).unwrap();
    assert!(known.accept(&signed.encode_to_vec(), None).unwrap().is_some());
}

#[test]
fn newer_replaces_older_and_never_the_other_way_round() {
    let root = server_root();
    let known = anchors().and_pin(root.pin());
    let signed = |version| bundle(version, &[&root]).sign(&[&root]).unwrap();
    let second = known.accept(&signed(2), None).unwrap().unwrap();
    let held = Some(&second);

    assert_eq!(known.accept(&signed(3), held).unwrap().unwrap().version(), 3);
    assert_eq!(known.accept(&signed(2), held), Ok(None));
    assert_eq!(known.accept(&signed(1), held), Err(BundleError::Outdated { found: 1, current: 2 }));
    let other = bundle(2, &[&root, &server_root()]).sign(&[&root]).unwrap();
    assert_eq!(known.accept(&other, held), Err(BundleError::Conflict(2)));
}

#[test]
fn a_bundle_of_another_domain_is_refused() {
    let root = server_root();
    let bytes = bundle(1, &[&root]).sign(&[&root]).unwrap();
    let elsewhere = Anchors::new("elsewhere".parse().unwrap()).and_pin(root.pin());
    assert!(matches!(elsewhere.accept(&bytes, None), Err(BundleError::OtherDomain { .. })));
}

#[test]
fn the_old_root_introduces_the_new_one_and_goes() {
    let (old, new) = (server_root(), server_root());
    let pinned = anchors().and_pin(old.pin());

    let overlap = bundle(2, &[&old, &new]).sign(&[&old, &new]).unwrap();
    let held = pinned.accept(&overlap, None).unwrap().unwrap();
    let after = bundle(3, &[&new]).sign(&[&new]).unwrap();

    assert_eq!(pinned.accept(&after, Some(&held)), Err(BundleError::Untrusted), "by the pin alone");
    let learned = pinned.replaced_by(held.roots(Role::Server));
    let last = learned.accept(&after, Some(&held)).unwrap().unwrap();
    assert_eq!(last.roots(Role::Server), [new.certificate().clone()]);
}

#[test]
fn limits_are_enforced_by_signer_and_reader() {
    let root = server_root();
    let many: Vec<Root> = (0..=ROOTS_PER_ROLE_MAX).map(|_| server_root()).collect();
    let of = |roots: Vec<(Role, CertificateDer<'static>)>| TrustBundle::new(1, domain(), now(), roots);
    let mut all: Vec<_> = many.iter().map(|root| (Role::Server, root.certificate().clone())).collect();
    assert_eq!(of(all.clone()), Err(BundleError::TooMany));
    all.pop();
    assert_eq!(of(all).unwrap().roots(Role::Server).len(), ROOTS_PER_ROLE_MAX);
    assert_eq!(of(vec![(Role::Agent, root.certificate().clone())]), Err(BundleError::NoServers));
    let twice = vec![(Role::Server, root.certificate().clone()), (Role::Agent, root.certificate().clone())];
    assert_eq!(of(twice), Err(BundleError::NotARoot(Role::Agent)));
    let leafless = vec![(Role::Server, root.certificate().clone()), (Role::Admin, vec![1, 2].into())];
    assert_eq!(of(leafless), Err(BundleError::NotARoot(Role::Admin)));

    let known = anchors().and_pin(root.pin());
    let mut signed = SignedBundle::decode(bundle(1, &[&root]).sign(&[&root]).unwrap().as_slice()).unwrap();
    signed.signatures = vec![signed.signatures[0].clone(); SIGNATURES_MAX];
    assert!(known.accept(&signed.encode_to_vec(), None).is_ok());
    signed.signatures.push(signed.signatures[0].clone());
    assert_eq!(known.accept(&signed.encode_to_vec(), None), Err(BundleError::TooMany));
    assert_eq!(known.accept(&vec![0; BUNDLE_BYTES_MAX], None), Err(BundleError::Malformed));
    assert_eq!(known.accept(&vec![0; BUNDLE_BYTES_MAX + 1], None), Err(BundleError::TooLarge));
    assert_eq!(known.accept(&[], None), Err(BundleError::Malformed));
}

#[test]
fn anchors_are_the_same_in_every_order_and_differ_by_domain() {
    let (one, two) = (server_root().pin(), server_root().pin());
    let mark = |first, second| anchors().and_pin(first).and_pin(second).mark();
    assert_eq!(mark(one, two), mark(two, one));
    assert_ne!(mark(one, two), anchors().and_pin(one).mark());
    assert_ne!(anchors().mark(), Anchors::new("elsewhere".parse().unwrap()).mark());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(TrustBundle::decode_unverified(&bytes).is_err());
    }
}

fn server_root() -> Root {
    fixtures::root(Role::Server)
}

fn bundle(version: u64, roots: &[&Root]) -> TrustBundle {
    let roots = roots.iter().map(|root| (Role::Server, root.certificate().clone()));
    TrustBundle::new(version, domain(), now(), roots).unwrap()
}

fn anchors() -> Anchors {
    Anchors::new(domain())
}
