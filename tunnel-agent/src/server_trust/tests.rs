//! Roots that are exchanged while the agent runs, is down, or is reconfigured.

use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::time_provider::DefaultTimeProvider;
use tempfile::TempDir;
use trust::{Order, ProvenKey, Root, Subject};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn a_bundle_replaces_the_configured_roots_and_outlives_the_process() {
    let (site, [old, new]) = (Site::new(), [root(), root()]);
    let agent = site.start(&[&old]);
    assert_eq!(agent.roots(), certificates(&[&old]));

    assert_eq!(agent.accept_bundle(&bundle(2, &[&old, &new], &[&old, &new])).unwrap(), Some(2));
    assert_eq!(agent.roots(), certificates(&[&old, &new]));
    assert_eq!(agent.accept_bundle(&bundle(2, &[&old, &new], &[&old, &new])).unwrap(), None);

    assert_eq!(site.start(&[&old]).roots(), certificates(&[&old, &new]));
}

#[test]
fn roots_are_exchanged_under_an_agent_that_was_off_in_between() {
    let (site, [old, new]) = (Site::new(), [root(), root()]);
    // It had the bundle of the overlap, and was down until long after the old root was retired.
    site.start(&[&old]).accept_bundle(&bundle(2, &[&old, &new], &[&old])).unwrap();
    let agent = site.start(&[&old]);

    assert_eq!(agent.accept_bundle(&bundle(3, &[&new], &[&new])).unwrap(), Some(3));

    assert_eq!(agent.roots(), certificates(&[&new]));
    assert_eq!(
        site.start(&[&old]).roots(),
        certificates(&[&new]),
        "though its configuration names the old one"
    );
    // A stolen old root signs no bundles any more.
    let stolen = agent.accept_bundle(&bundle(9, &[&old], &[&old]));
    assert!(matches!(stolen, Err(TrustBundleError::Bundle(BundleError::Untrusted))), "{stolen:?}");
}

#[test]
fn a_refused_bundle_changes_nothing_on_disk_or_in_memory() {
    let (site, [ours, evil]) = (Site::new(), [root(), root()]);
    let agent = site.start(&[&ours]);
    agent.accept_bundle(&bundle(5, &[&ours], &[&ours])).unwrap();
    for (what, bytes) in [
        ("of an unknown root", bundle(6, &[&evil], &[&evil])),
        ("an older one", bundle(4, &[&ours, &evil], &[&ours])),
        ("another of the same version", bundle(5, &[&ours, &evil], &[&ours])),
        ("noise", vec![0xff; 100]),
    ] {
        assert!(agent.accept_bundle(&bytes).is_err(), "{what}");
        assert_eq!(agent.roots(), certificates(&[&ours]), "{what}");
        assert_eq!(site.start(&[&ours]).roots(), certificates(&[&ours]), "{what}");
    }
}

#[test]
fn other_configured_roots_win_over_a_stored_bundle() {
    let (site, [one, other]) = (Site::new(), [root(), root()]);
    site.start(&[&one]).accept_bundle(&bundle(7, &[&one], &[&one])).unwrap();

    let agent = site.start(&[&other]);

    assert_eq!(agent.roots(), certificates(&[&other]));
    assert_eq!(agent.accept_bundle(&bundle(1, &[&other], &[&other])).unwrap(), Some(1));
}

/// The site stays reachable, because a server that the configured roots vouch for sends the bundle again.
#[test]
fn a_damaged_stored_bundle_is_kept_beside_and_configured_roots_hold() {
    let (site, [old, new]) = (Site::new(), [root(), root()]);
    let both = bundle(2, &[&old, &new], &[&old, &new]);
    site.start(&[&old]).accept_bundle(&both).unwrap();
    let directory = site.state.path().join("agent");
    let whole = std::fs::read(directory.join(BUNDLE_FILE.name())).unwrap();
    for damaged in [&b""[..], b"short", &whole[..whole.len() / 2]] {
        std::fs::write(directory.join(BUNDLE_FILE.name()), damaged).unwrap();

        let agent = site.start(&[&old]);

        assert_eq!(agent.roots(), certificates(&[&old]));
        assert_eq!(std::fs::read(directory.join("trust.bundle.bad")).unwrap(), damaged);
        assert_eq!(agent.accept_bundle(&both).unwrap(), Some(2));
    }
}

/// As after a restart: a bundle of the old roots counts no more.
#[test]
fn other_configured_roots_are_trusted_without_a_restart() {
    let (site, [one, other]) = (Site::new(), [root(), root()]);
    let agent = site.start(&[&one]);
    agent.accept_bundle(&bundle(7, &[&one], &[&one])).unwrap();

    assert!(!agent.replace_roots(&certificates(&[&one])).unwrap(), "the same");
    assert!(agent.replace_roots(&certificates(&[&other])).unwrap());

    assert_eq!(agent.roots(), certificates(&[&other]));
    assert!(agent.replace_roots(&[]).is_err());
    assert_eq!(agent.roots(), certificates(&[&other]), "the last valid ones stay");
    assert_eq!(agent.accept_bundle(&bundle(1, &[&other], &[&other])).unwrap(), Some(1));
    assert_eq!(site.start(&[&other]).roots(), certificates(&[&other]));
}

#[test]
fn a_bundle_that_cannot_be_stored_is_not_used() {
    let (site, [old, new]) = (Site::new(), [root(), root()]);
    let agent = site.start(&[&old]);
    std::fs::remove_dir_all(site.state.path().join("agent")).unwrap();

    let accepted = agent.accept_bundle(&bundle(2, &[&old, &new], &[&old]));

    assert!(matches!(accepted, Err(TrustBundleError::State(_))), "{accepted:?}");
    assert_eq!(agent.roots(), certificates(&[&old]));
}

#[test]
fn the_bundle_is_this_users_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let (site, root) = (Site::new(), root());
    site.start(&[&root]).accept_bundle(&bundle(1, &[&root], &[&root])).unwrap();
    let kept = std::fs::metadata(site.state.path().join("agent").join(BUNDLE_FILE.name())).unwrap();
    assert_eq!(kept.permissions().mode() & 0o777, 0o600);
}

/// An agent's state directory and its certificate.
struct Site {
    state: TempDir,
    chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
}

impl Site {
    fn new() -> Self {
        let (now, key) = (SystemTime::now(), KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap());
        let agents = Root::generate(Role::Agent, domain(), now).unwrap().intermediate(now).unwrap();
        let agent = proto::spiffe::AgentId::new("edge-a".parse().unwrap(), "x").unwrap();
        let order = Order {
            subject: Subject::Agent(agent),
            key: ProvenKey::of_pair(&key).unwrap(),
            now,
            lasting: DAY,
        };
        Self { state: tempfile::tempdir().unwrap(), chain: agents.sign(&order).unwrap().chain, key }
    }

    /// A process of the agent whose configuration names these roots.
    fn start(&self, roots: &[&Root]) -> ServerTrust {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let expected = ExpectedServers { trust_domain: "tombolo".to_owned(), ids: Vec::new() };
        let state = StateDir::open(&self.state.path().join("agent")).unwrap();
        ServerTrust::new(
            (self.chain.clone(), key),
            &certificates(roots),
            expected,
            state,
            Arc::new(DefaultTimeProvider),
        )
        .unwrap()
    }
}

fn root() -> Root {
    Root::generate(Role::Server, domain(), SystemTime::now()).unwrap()
}

fn bundle(version: u64, roots: &[&Root], by: &[&Root]) -> Vec<u8> {
    let roots = certificates(roots).into_iter().map(|root| (Role::Server, root));
    TrustBundle::new(version, domain(), SystemTime::now(), roots).unwrap().sign(by).unwrap()
}

fn certificates(roots: &[&Root]) -> Vec<CertificateDer<'static>> {
    roots.iter().map(|root| root.certificate().clone()).collect()
}

fn domain() -> TrustDomain {
    "tombolo".parse().unwrap()
}
