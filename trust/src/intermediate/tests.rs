//! Tests of issued certificates, of their validity, and of loading a pair of files.

use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose};

use super::*;
use crate::fixtures::{self, DAY, copy, domain, intermediate, now, order, pair, read, root};
use crate::names::Group;

#[test]
fn an_intermediate_issues_for_its_own_role_alone() {
    for signer in Role::ALL {
        let intermediate = intermediate(signer);
        for asked in Role::ALL {
            match intermediate.sign(&order(asked, DAY)) {
                Ok(issued) => {
                    assert_eq!(asked, signer);
                    assert_eq!(issued.chain[1..], *intermediate.certificates());
                    assert_eq!(Serial::of(&read(&issued.chain[0])), Some(issued.serial));
                }
                Err(error) => {
                    assert_ne!(asked, signer);
                    let is_named = matches!(&error, SignError::OtherRole { signer: of, asked: other }
                        if (*of, *other) == (signer, asked));
                    assert!(is_named, "{error}");
                }
            }
        }
    }
}

#[test]
fn a_certificate_may_end_with_its_issuer_and_not_a_second_later() {
    let intermediate = intermediate(Role::Agent);
    let whole = INTERMEDIATE_VALIDITY.unsigned_abs();
    for (lasting, end) in [(DAY, intermediate.not_after() - whole + DAY), (whole, intermediate.not_after())] {
        let issued = intermediate.sign(&order(Role::Agent, lasting)).unwrap();
        assert_eq!(issued.not_after, end);
        assert_eq!(read(&issued.chain[0]).validity().not_after.to_datetime(), end);
    }
    let refused = intermediate.sign(&order(Role::Agent, whole + std::time::Duration::from_secs(1)));
    assert!(
        matches!(refused, Err(SignError::Outlived(end)) if end == intermediate.not_after()),
        "{refused:?}"
    );
}

#[test]
fn a_callers_groups_are_organizations_before_its_name_and_are_signed_too() {
    let intermediate = intermediate(Role::Caller);
    for (groups, expected) in
        [(&["dev", "ops"][..], "O=dev, O=ops, CN=olga"), (&["dev"], "O=dev, CN=olga"), (&[], "CN=olga")]
    {
        let groups: Vec<Group> = groups.iter().map(|group| group.parse().unwrap()).collect();
        let order = Order {
            subject: Subject::Caller { user: "olga".parse().unwrap(), groups },
            ..order(Role::Caller, DAY)
        };
        let issued = intermediate.sign(&order).unwrap();

        let leaf = read(&issued.chain[0]);
        assert_eq!(leaf.subject().to_string(), expected);
        assert_eq!(leaf.public_key().raw, order.key.spki());
        assert_eq!(Serial::of(&leaf), Some(issued.serial));
        assert!(fixtures::is_signed_by(&issued.chain[0], &issued.chain[1]), "{expected}");
    }
}

#[test]
fn a_stored_intermediate_loads_with_its_own_key_and_role() {
    let kept = intermediate(Role::Agent);
    let load = |role, key| Intermediate::load(role, domain(), kept.certificates().to_vec(), key);

    let loaded = load(Role::Agent, copy(kept.key())).unwrap();
    assert_eq!((loaded.role(), loaded.trust_domain()), (Role::Agent, &domain()));
    assert_eq!((loaded.certificates(), loaded.not_after()), (kept.certificates(), kept.not_after()));
    let issued = loaded.sign(&order(Role::Agent, DAY)).unwrap();
    assert!(fixtures::is_signed_by(&issued.chain[0], &kept.certificates()[0]));

    assert!(matches!(load(Role::Agent, pair()), Err(NotACa::Mismatch)));
    assert!(matches!(load(Role::Server, copy(kept.key())), Err(NotACa::Constraints(_))));
}

#[test]
fn a_ca_of_another_purpose_or_depth_is_no_intermediate() {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    let (ca, signs) = (IsCa::Ca(BasicConstraints::Constrained(0)), KeyUsagePurpose::KeyCertSign);
    let client = || vec![ClientAuth];
    for (what, is_ca, usage, purposes, is_taken) in [
        ("an intermediate", ca, signs, client(), true),
        ("a leaf", IsCa::ExplicitNoCa, signs, client(), false),
        ("a CA that signs no certificates", ca, KeyUsagePurpose::CrlSign, client(), false),
        ("a CA of CAs", IsCa::Ca(BasicConstraints::Constrained(1)), signs, client(), false),
        ("a CA of any depth", IsCa::Ca(BasicConstraints::Unconstrained), signs, client(), false),
        ("a CA of no purpose", ca, signs, Vec::new(), false),
        ("a CA of servers", ca, signs, vec![ServerAuth], false),
        ("a CA of servers and clients", ca, signs, vec![ServerAuth, ClientAuth], false),
        ("a CA of anything", ca, signs, vec![ClientAuth, Any], false),
    ] {
        let key = pair();
        let mut params = CertificateParams::default();
        (params.is_ca, params.key_usages, params.extended_key_usages) = (is_ca, vec![usage], purposes);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        match Intermediate::load(Role::Agent, domain(), vec![certificate], key) {
            Ok(_) => assert!(is_taken, "{what}"),
            Err(error) => assert!(matches!(error, NotACa::Constraints(_)) && !is_taken, "{what}: {error}"),
        }
    }
}

#[test]
fn an_intermediate_has_one_to_four_certificates_of_one_key() {
    let kept = intermediate(Role::Agent);
    let load = |certificates| Intermediate::load(Role::Agent, domain(), certificates, copy(kept.key()));
    let own = &kept.certificates()[0];

    assert!(load(vec![own.clone(); CERTIFICATES_MAX]).is_ok());
    for count in [0, CERTIFICATES_MAX + 1] {
        assert!(matches!(load(vec![own.clone(); count]), Err(NotACa::Constraints(_))), "{count}");
    }
    let of_another = intermediate(Role::Agent).certificates()[0].clone();
    assert!(matches!(load(vec![own.clone(), of_another]), Err(NotACa::Mismatch)));
    assert!(matches!(load(vec![own.clone(), vec![1].into()]), Err(NotACa::Unreadable)));
}

#[test]
fn another_roots_certificate_is_of_the_same_key_and_ends_with_that_root() {
    let (new, old) = (root(Role::Server), root(Role::Server));
    let mut intermediate = new.intermediate(now()).unwrap();
    let (of_new, later) = (intermediate.certificates()[0].clone(), now() + DAY * (9 * 365));

    old.cross_sign(&mut intermediate, later).unwrap();

    let [first, second] = intermediate.certificates() else { panic!("{intermediate:?}") };
    assert_eq!(*first, of_new);
    assert!(fixtures::is_signed_by(second, old.certificate()));
    assert_eq!(read(second).public_key(), read(first).public_key());
    assert_eq!(read(second).validity().not_after, read(old.certificate()).validity().not_after);
}

#[test]
fn debug_output_shows_role_and_domain_but_not_the_key() {
    let shown = format!("{:?}", intermediate(Role::Agent));
    assert_eq!(shown, "Intermediate { role: Agent, domain: TrustDomain(\"tombolo\"), .. }");
}
