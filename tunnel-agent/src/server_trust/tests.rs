//! Roots that are exchanged while the agent runs, is off, or is configured anew.

use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::time_provider::DefaultTimeProvider;
use tempfile::TempDir;
use trust::{Order, ProvenKey, Root, Subject};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn a_bundle_takes_the_place_of_the_configurations_roots_and_outlives_the_process() {
    let (site, [old, new]) = (Site::new(), [root(), root()]);
    let agent = site.start(&[&old]);
    assert_eq!(agent.roots(), certificates(&[&old]));

    assert_eq!(agent.learn(&bundle(2, &[&old, &new], &[&old, &new])).unwrap(), Some(2));
    assert_eq!(agent.roots(), certificates(&[&old, &new]));
    assert_eq!(agent.learn(&bundle(2, &[&old, &new], &[&old, &new])).unwrap(), None);

    assert_eq!(site.start(&[&old]).roots(), certificates(&[&old, &new]));
}

#[test]
fn roots_are_exchanged_under_an_agent_that_was_off_in_between() {
    let (site, [old, new]) = (Site::new(), [root(), root()]);
    // It knew the bundle of the overlap, then it was off until long after the old root had gone.
    site.start(&[&old]).learn(&bundle(2, &[&old, &new], &[&old])).unwrap();
    let agent = site.start(&[&old]);

    assert_eq!(agent.learn(&bundle(3, &[&new], &[&new])).unwrap(), Some(3));

    assert_eq!(agent.roots(), certificates(&[&new]));
    assert_eq!(
        site.start(&[&old]).roots(),
        certificates(&[&new]),
        "though its configuration names the old one"
    );
    // Whoever stole the old root signs nothing any more.
    let stolen = agent.learn(&bundle(9, &[&old], &[&old]));
    assert!(matches!(stolen, Err(NotLearned::Bundle(BundleError::Stranger))), "{stolen:?}");
}

#[test]
fn what_is_refused_changes_nothing_on_disk_or_in_memory() {
    let (site, [ours, evil]) = (Site::new(), [root(), root()]);
    let agent = site.start(&[&ours]);
    agent.learn(&bundle(5, &[&ours], &[&ours])).unwrap();
    for (what, bytes) in [
        ("a stranger's", bundle(6, &[&evil], &[&evil])),
        ("an older one", bundle(4, &[&ours, &evil], &[&ours])),
        ("another of the same version", bundle(5, &[&ours, &evil], &[&ours])),
        ("noise", vec![0xff; 100]),
    ] {
        assert!(agent.learn(&bytes).is_err(), "{what}");
        assert_eq!(agent.roots(), certificates(&[&ours]), "{what}");
        assert_eq!(site.start(&[&ours]).roots(), certificates(&[&ours]), "{what}");
    }
}

#[test]
fn other_roots_in_the_configuration_win_over_what_was_learned_before() {
    let (site, [one, other]) = (Site::new(), [root(), root()]);
    site.start(&[&one]).learn(&bundle(7, &[&one], &[&one])).unwrap();

    let agent = site.start(&[&other]);

    assert_eq!(agent.roots(), certificates(&[&other]));
    assert_eq!(agent.learn(&bundle(1, &[&other], &[&other])).unwrap(), Some(1));
}

#[test]
fn a_bundle_that_cannot_be_kept_is_not_used() {
    let (site, [old, new]) = (Site::new(), [root(), root()]);
    let agent = site.start(&[&old]);
    std::fs::remove_dir_all(site.state.path().join("agent")).unwrap();

    let learned = agent.learn(&bundle(2, &[&old, &new], &[&old]));

    assert!(matches!(learned, Err(NotLearned::State(_))), "{learned:?}");
    assert_eq!(agent.roots(), certificates(&[&old]));
}

#[test]
fn the_bundle_is_this_users_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let (site, root) = (Site::new(), root());
    site.start(&[&root]).learn(&bundle(1, &[&root], &[&root])).unwrap();
    let kept = std::fs::metadata(site.state.path().join("agent").join(BUNDLE_FILE)).unwrap();
    assert_eq!(kept.permissions().mode() & 0o777, 0o600);
}

/// Where an agent's state is, and its certificate.
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
    fn start(&self, roots: &[&Root]) -> Servers {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let meant = MeantServers { trust_domain: "tombolo".to_owned(), ids: Vec::new() };
        let state = StateDir::open(&self.state.path().join("agent")).unwrap();
        Servers::new(
            (self.chain.clone(), key),
            &certificates(roots),
            meant,
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
