//! Tests of replacing roots while an agent is offline. Time is an argument.

#![expect(clippy::unwrap_used, reason = "a test stops where something is not as it must be")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use trust::bundle::{Anchors, TrustBundle};
use trust::names::TrustDomain;
use trust::{Intermediate, Order, ProvenKey, Role, Root, Subject};

#[test]
fn an_agent_offline_for_80_days_survives_a_root_rotation() {
    let old = root(day(0));
    let pinned = Anchors::new(domain()).and_pin(old.pin());
    let first = pinned.accept(&bundle(1, &[&old], &[&old], day(0)), None).unwrap().unwrap();
    // Then it goes offline, and the root is replaced ten days later.
    let new = root(day(10));
    let mut overlapping = new.intermediate(day(10)).unwrap();
    old.cross_sign(&mut overlapping, day(10)).unwrap();
    let overlap = bundle(2, &[&old, &new], &[&old, &new], day(10));

    // Day 80: it comes back, and trusts what it trusted.
    let shown = chain(&overlapping, day(75));
    assert!(trusts(first.roots(Role::Server), &shown, day(80)));
    let known = pinned.replaced_by(first.roots(Role::Server));
    let held = known.accept(&overlap, Some(&first)).unwrap().unwrap();
    assert!(trusts(held.roots(Role::Server), &shown, day(80)));

    // Day 100, beyond the longest time that an agent may be off: the old root goes.
    let after = new.intermediate(day(100)).unwrap();
    let last = bundle(3, &[&new], &[&new], day(100));
    let shown = chain(&after, day(100));
    assert!(trusts(held.roots(Role::Server), &shown, day(101)));
    let held = known.replaced_by(held.roots(Role::Server)).accept(&last, Some(&held)).unwrap().unwrap();
    assert!(trusts(held.roots(Role::Server), &shown, day(101)));
    assert!(!trusts(
        held.roots(Role::Server),
        &chain(&old.intermediate(day(100)).unwrap(), day(100)),
        day(101)
    ));
}

#[test]
fn an_agent_that_missed_the_overlap_does_not_trust_the_new_root() {
    let (old, new) = (root(day(0)), root(day(10)));
    let pinned = Anchors::new(domain()).and_pin(old.pin());
    let first = pinned.accept(&bundle(1, &[&old], &[&old], day(0)), None).unwrap().unwrap();

    let shown = chain(&new.intermediate(day(100)).unwrap(), day(100));

    assert!(!trusts(first.roots(Role::Server), &shown, day(101)));
    assert!(pinned.accept(&bundle(3, &[&new], &[&new], day(100)), Some(&first)).is_err());
}

#[test]
fn an_intermediate_signs_no_ca_and_for_no_other_purpose() {
    let root = root(day(0));
    let intermediate = root.intermediate(day(0)).unwrap();
    let shown = chain(&intermediate, day(1));
    assert!(trusts(&[root.certificate().clone()], &shown, day(2)));
    // The same with a root of agents, whose intermediates are for clients alone.
    let agents = Root::generate(Role::Agent, domain(), day(0)).unwrap();
    let order = Order {
        subject: Subject::Agent(proto::spiffe::AgentId::new("edge-a".parse().unwrap(), "x").unwrap()),
        ..order(day(1))
    };
    let shown = agents.intermediate(day(0)).unwrap().sign(&order).unwrap().chain;
    assert!(!trusts(&[agents.certificate().clone()], &shown, day(2)));
}

/// Returns true if a peer with these roots accepts the chain as the gateway's at that time.
fn trusts(roots: &[CertificateDer<'static>], chain: &[CertificateDer<'static>], now: SystemTime) -> bool {
    let mut store = RootCertStore::empty();
    roots.iter().for_each(|root| store.add(root.clone()).unwrap());
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(store.into(), provider).build().unwrap();
    let name = ServerName::try_from("gateway.example").unwrap();
    let now = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], now).is_ok()
}

fn chain(issuer: &Intermediate, now: SystemTime) -> Vec<CertificateDer<'static>> {
    issuer.sign(&order(now)).unwrap().chain
}

fn order(now: SystemTime) -> Order {
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let names = vec!["gateway.example".parse().unwrap()];
    let subject = Subject::Server { id: "gateway".parse().unwrap(), names };
    Order { subject, key: ProvenKey::of_pair(&pair).unwrap(), now, lasting: Duration::from_secs(30 * 86_400) }
}

fn bundle(version: u64, roots: &[&Root], by: &[&Root], now: SystemTime) -> Vec<u8> {
    let roots = roots.iter().map(|root| (Role::Server, root.certificate().clone()));
    TrustBundle::new(version, domain(), now, roots).unwrap().sign(by).unwrap()
}

fn root(now: SystemTime) -> Root {
    Root::generate(Role::Server, domain(), now).unwrap()
}

fn day(number: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + number * 86_400)
}

fn domain() -> TrustDomain {
    "tombolo".parse().unwrap()
}
