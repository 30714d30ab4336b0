//! Certificates that an agent accepts as its own, and others that it refuses.

use std::fs;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair, SanType};
use time::OffsetDateTime;

use trust::OutsideValidity;

use super::*;

const AGENT: &str = "spiffe://tombolo/cluster/edge-a/agent/0f3c";

#[test]
fn a_good_certificate_names_the_agent() {
    let files = Files::with_uris(&[AGENT]);

    let identity = files.load("edge-a").unwrap();

    assert_eq!(identity.agent.to_string(), "edge-a/0f3c");
    assert_eq!((identity.chain.len(), identity.server_roots.len()), (1, 1));
}

#[test]
fn another_clusters_certificate_is_refused_in_words_that_name_both() {
    let error = Files::with_uris(&[AGENT]).load("edge-b").unwrap_err();

    let said = error.to_string();
    assert!(said.contains("is for cluster edge-a and this agent is configured for edge-b"), "{said}");
    assert!(said.contains("tombolo ca issue agent --cluster edge-b"), "{said}");
}

#[test]
fn a_certificate_that_names_no_agent_is_refused() {
    let none = Files::with_uris(&[]).load("edge-a");
    let two = Files::with_uris(&[AGENT, "spiffe://tombolo/cluster/edge-b/agent/x"]).load("edge-a");
    let server = Files::with_uris(&["spiffe://tombolo/server/x"]).load("edge-a");
    let foreign = Files::with_uris(&["spiffe://other/cluster/edge-a/agent/x"]).load("edge-a");

    assert!(matches!(none, Err(IdentityError::NoUri { .. })), "{none:?}");
    assert!(matches!(two, Err(IdentityError::NoUri { .. })), "{two:?}");
    assert!(matches!(server, Err(IdentityError::NotAnAgent { .. })), "{server:?}");
    assert!(matches!(foreign, Err(IdentityError::NotAnAgent { .. })), "{foreign:?}");
}

/// The clock of a device without a battery is wrong until somebody sets it.
#[test]
fn a_certificate_outside_of_its_validity_is_read_and_says_so() {
    let files = Files::with_uris(&[AGENT]);
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(files.not_after);

    let identity = files.load("edge-a").unwrap();
    let outside = |now| OutsideValidity::of_certificate(&identity.chain[0], now);

    assert_eq!(outside(end), None);
    let second = Duration::from_secs(1);
    assert_eq!(outside(end + second), Some(OutsideValidity::Expired(second)));
    let early = outside(SystemTime::UNIX_EPOCH);
    assert!(matches!(early, Some(OutsideValidity::NotYet(_))), "{early:?}");
}

#[test]
fn anothers_key_is_refused() {
    let files = Files::with_uris(&[AGENT]);
    fs::write(files.path("agent.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();

    let refused = files.load("edge-a");

    assert!(matches!(refused, Err(IdentityError::NotAPair { .. })), "{refused:?}");
}

#[test]
fn an_unusable_file_is_reported_with_its_key_and_path() {
    for (name, key) in [
        ("agent.crt", "tls.certificateFile"),
        ("agent.key", "tls.keyFile"),
        ("server-ca.crt", "tls.serverCAFile"),
    ] {
        let files = Files::with_uris(&[AGENT]);
        fs::write(files.path(name), "nothing of the kind").unwrap();
        let not_pem = files.load("edge-a").unwrap_err().to_string();
        fs::remove_file(files.path(name)).unwrap();
        let missing = files.load("edge-a").unwrap_err().to_string();

        for said in [not_pem, missing] {
            assert!(said.starts_with(&format!("{key}: ")) && said.contains(name), "{said}");
        }
    }
}

struct Files {
    home: tempfile::TempDir,
    /// The end of its validity, in Unix seconds.
    not_after: u64,
}

impl Files {
    fn with_uris(uris: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
        let not_after = OffsetDateTime::now_utc().unix_timestamp() + 3600;
        params.not_before = OffsetDateTime::from_unix_timestamp(not_after - 7200).unwrap();
        params.not_after = OffsetDateTime::from_unix_timestamp(not_after).unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        fs::write(home.path().join("agent.crt"), &certificate).unwrap();
        fs::write(home.path().join("agent.key"), key.serialize_pem()).unwrap();
        fs::write(home.path().join("server-ca.crt"), certificate).unwrap();
        Self { home, not_after: u64::try_from(not_after).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn load(&self, cluster: &str) -> Result<Identity, IdentityError> {
        let files = TlsFiles {
            certificate: self.path("agent.crt"),
            key: self.path("agent.key"),
            server_ca: self.path("server-ca.crt"),
        };
        Identity::load(&files, &named(cluster), "tombolo")
    }
}

fn named(cluster: &str) -> ClusterId {
    cluster.parse().unwrap()
}
