//! Tests of the identity that a certificate proves.

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, SanType};

use super::*;
use crate::fixtures;

const SERVER: &str = "spiffe://tombolo/server/gateway";
const AGENT: &str = "spiffe://tombolo/cluster/edge-a/agent/0f3c";
const CALLER: &str = "spiffe://tombolo/caller";
const ADMIN: &str = "spiffe://tombolo/admin/olga";
const PEER: &str = "spiffe://tombolo/peer/gateway";

#[test]
fn a_certificate_is_accepted_for_its_own_role_only() {
    for role in Role::ALL {
        let leaf = fixtures::issued(role).chain.remove(0);
        let agent = agent(&leaf, "tombolo").map(|agent| agent.uri("tombolo"));
        assert_eq!(agent.ok().as_deref(), (role == Role::Agent).then_some(AGENT), "{role}");
        let admin = admin(&leaf, "tombolo").map(|name| name.to_string());
        assert_eq!(admin.ok().as_deref(), (role == Role::Admin).then_some("olga"), "{role}");
        let server = server(&leaf, "tombolo").map(|id| id.to_string());
        assert_eq!(server.ok().as_deref(), (role == Role::Server).then_some("gateway"), "{role}");
        let peer = peer(&leaf, "tombolo").map(|id| id.to_string());
        assert_eq!(peer.ok().as_deref(), (role == Role::Peer).then_some("gateway"), "{role}");
        assert_eq!(caller(&fixtures::read(&leaf), "tombolo").is_ok(), role == Role::Caller, "{role}");
    }
}

#[test]
fn a_certificate_is_accepted_in_its_own_trust_domain_only() {
    let leaf = |role| fixtures::issued(role).chain.remove(0);
    assert!(matches!(agent(&leaf(Role::Agent), "elsewhere"), Err(NotOfRole::Uri(_))));
    assert!(matches!(admin(&leaf(Role::Admin), "elsewhere"), Err(NotOfRole::Uri(_))));
    assert!(matches!(server(&leaf(Role::Server), "elsewhere"), Err(NotOfRole::Uri(_))));
    assert!(matches!(peer(&leaf(Role::Peer), "elsewhere"), Err(NotOfRole::Uri(_))));
}

#[test]
fn a_certificate_is_for_the_roles_side_of_tls_alone() {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    for (usages, serves, calls) in [
        (vec![], false, false),
        (vec![ServerAuth], true, false),
        (vec![ClientAuth], false, true),
        (vec![ServerAuth, ClientAuth], false, false),
        (vec![Any], false, false),
        (vec![ServerAuth, Any], false, false),
        (vec![ClientAuth, Any], false, false),
        (vec![ServerAuth, ClientAuth, Any], false, false),
    ] {
        let leaf = |name| leaf(usages.clone(), vec![uri(name)]);
        assert_eq!(judged(server(&leaf(SERVER), "tombolo")), taken(serves, Role::Server), "{usages:?}");
        assert_eq!(judged(agent(&leaf(AGENT), "tombolo")), taken(calls, Role::Agent), "{usages:?}");
        assert_eq!(judged(admin(&leaf(ADMIN), "tombolo")), taken(calls, Role::Admin), "{usages:?}");
        assert_eq!(judged(peer(&leaf(PEER), "tombolo")), taken(calls, Role::Peer), "{usages:?}");
    }
}

#[test]
fn agents_administrators_and_peers_are_named_by_one_uri_alone() {
    type Read = fn(&CertificateDer<'_>) -> Result<(), NotOfRole>;
    let agents: Read = |leaf| judged(agent(leaf, "tombolo"));
    let admins: Read = |leaf| judged(admin(leaf, "tombolo"));
    let peers: Read = |leaf| judged(peer(leaf, "tombolo"));
    for (name, read, others) in [
        (AGENT, agents, uri(ADMIN)),
        (ADMIN, admins, uri(PEER)),
        (PEER, peers, uri(AGENT)),
        (PEER, peers, uri(SERVER)),
    ] {
        let ask = |names| read(&leaf(vec![ExtendedKeyUsagePurpose::ClientAuth], names));
        assert_eq!(ask(vec![uri(name)]), Ok(()));
        assert!(matches!(ask(vec![others.clone()]), Err(NotOfRole::Uri(_))), "{name}");
        for names in [
            vec![],
            vec![dns()],
            vec![uri(name), dns()],
            vec![dns(), uri(name)],
            vec![uri(name), uri(name)],
            vec![uri(name), others],
        ] {
            assert_eq!(ask(names.clone()), Err(NotOfRole::Names), "{names:?}");
        }
    }
}

#[test]
fn a_server_is_named_by_one_uri_wherever_it_stands_among_its_names() {
    let ask = |names| {
        let leaf = leaf(vec![ExtendedKeyUsagePurpose::ServerAuth], names);
        server(&leaf, "tombolo").map(|id| id.to_string())
    };
    for names in [vec![uri(SERVER)], vec![dns(), uri(SERVER)], vec![uri(SERVER), dns()]] {
        assert_eq!(ask(names.clone()).as_deref(), Ok("gateway"), "{names:?}");
    }
    for names in [vec![], vec![dns()], vec![uri(SERVER), uri(SERVER)], vec![uri(ADMIN), uri(SERVER)]] {
        assert_eq!(ask(names.clone()), Err(NotOfRole::Names), "{names:?}");
    }
    assert!(matches!(ask(vec![uri(ADMIN), dns()]), Err(NotOfRole::Uri(_))));
}

#[test]
fn a_callers_certificate_needs_no_uri_but_none_of_another_role() {
    let ask = |names| {
        let leaf = leaf(vec![ExtendedKeyUsagePurpose::ClientAuth], names);
        caller(&fixtures::read(&leaf), "tombolo")
    };
    let foreign = || uri("spiffe://elsewhere/server/gateway");
    for names in [vec![], vec![dns()], vec![uri(CALLER)], vec![foreign()], vec![foreign(), uri(CALLER)]] {
        assert_eq!(ask(names.clone()), Ok(()), "{names:?}");
    }
    for other in [SERVER, AGENT, ADMIN, PEER, "SPIFFE://Tombolo/caller"] {
        let refused = Err(NotOfRole::NotACaller(other.to_owned()));
        assert_eq!(ask(vec![uri(other)]), refused);
        assert_eq!(ask(vec![dns(), uri(CALLER), uri(other)]), refused);
    }
}

#[test]
fn a_ca_and_malformed_bytes_identify_nobody() {
    let key = fixtures::pair();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.subject_alt_names = vec![uri(AGENT)];
    let ca = params.self_signed(&key).unwrap();

    assert_eq!(agent(ca.der(), "tombolo"), Err(NotOfRole::Authority));
    let mut two = fixtures::issued(Role::Agent).chain.remove(0).to_vec();
    two.push(0);
    for bytes in [vec![], vec![0x30, 0], two] {
        assert_eq!(agent(&bytes.into(), "tombolo"), Err(NotOfRole::Unreadable));
    }
}

fn judged<T>(found: Result<T, NotOfRole>) -> Result<(), NotOfRole> {
    found.map(drop)
}

fn taken(is_taken: bool, role: Role) -> Result<(), NotOfRole> {
    if is_taken { Ok(()) } else { Err(NotOfRole::Usage(role)) }
}

/// A certificate as a foreign CA might issue it.
fn leaf(usages: Vec<ExtendedKeyUsagePurpose>, names: Vec<SanType>) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    (params.extended_key_usages, params.subject_alt_names) = (usages, names);
    params.self_signed(&fixtures::pair()).unwrap().der().clone()
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns() -> SanType {
    SanType::DnsName("gateway.example".try_into().unwrap())
}
