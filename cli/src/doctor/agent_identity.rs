//! Reads what an agent keeps in its state directory: the identity that it has enrolled for, and the roots that it trusts.

use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::StateFile;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::Deserialize;
use trust::{Anchors, OutsideValidity, Pin, Role, TrustBundle};

use super::check::Check;
use super::report::Report;
use crate::files::{self, ReadError};
use crate::tls::ClientIdentity;

/// The version of the identity's file that is read here.
const VERSION: u32 = 1;

/// Bytes before a stored trust bundle that say which roots have led to it.
const MARK_BYTES: usize = 32;

/// The state of an agent that gets its certificate by itself.
#[derive(Default)]
pub(super) struct EnrolledState {
    /// Its certificate; `None` before it is enrolled.
    pub(super) identity: Option<ClientIdentity>,
    /// The roots that it trusts since it is enrolled.
    pub(super) roots: Vec<CertificateDer<'static>>,
    /// The public key with which it enrolls, a `SubjectPublicKeyInfo` in DER. Empty before the agent's first start.
    pub(super) public_key: Vec<u8>,
}

/// The file of the agent's identity. Certificates and keys are base64 of DER.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityFile {
    version: u32,
    key: String,
    chain: Vec<String>,
    server_roots: Vec<String>,
}

/// Reads the state of an agent that enrolls. `None` if it cannot be used; the report says why.
pub(super) fn read(report: &mut Report, state_dir: &Path, now: SystemTime) -> Option<EnrolledState> {
    let path = state_dir.join(StateFile::Identity.name());
    let bytes = match files::read_bytes(&path) {
        Ok(bytes) => bytes,
        Err(ReadError::Io(_, error)) if error.kind() == ErrorKind::NotFound => {
            return Some(EnrolledState::default());
        }
        Err(ReadError::Io(_, error)) if error.kind() == ErrorKind::PermissionDenied => {
            let found = format!("{} may not be read by you", path.display());
            report.fail(Check::StateDir, found, "run this as root or as the agent's user");
            return None;
        }
        Err(error) => {
            report.fail_by(Check::StateDir, &error);
            return None;
        }
    };
    let Some(state) = parse(&bytes) else {
        let found = format!("{} is damaged, and without it {}", path.display(), StateFile::Identity.cost());
        report.fail(Check::StateDir, found, StateFile::Identity.remedy());
        return None;
    };
    if let Some(identity) = &state.identity {
        dates(report, identity, now);
    }
    Some(state)
}

/// The roots by which the agent verifies servers: those of the bundle that `roots` have led to, if one is stored, or else `roots`.
pub(super) fn trusted_roots(
    state_dir: &Path,
    trust_domain: &str,
    roots: Vec<CertificateDer<'static>>,
) -> Vec<CertificateDer<'static>> {
    stored_roots(state_dir, trust_domain, &roots).unwrap_or(roots)
}

fn stored_roots(
    state_dir: &Path,
    trust_domain: &str,
    roots: &[CertificateDer<'static>],
) -> Option<Vec<CertificateDer<'static>>> {
    let stored = files::read_bytes(&state_dir.join(StateFile::TrustBundle.name())).ok()?;
    let (mark, bundle) = stored.split_first_chunk::<MARK_BYTES>()?;
    let anchors = Anchors::new(trust_domain.parse().ok()?).and_roots(roots);
    let bundle = TrustBundle::decode_unverified(bundle).ok()?;
    (Pin::from(*mark) == anchors.mark()).then(|| bundle.roots(Role::Server).to_vec())
}

/// Reports the validity of a certificate that its agent renews by itself, after two thirds of a day.
fn dates(report: &mut Report, identity: &ClientIdentity, now: SystemTime) {
    let outside = identity.chain.first().and_then(|leaf| OutsideValidity::of_certificate(leaf, now));
    match outside {
        None => report.ok(Check::Certificate, "the agent is enrolled, and renews its certificate by itself"),
        Some(outside @ OutsideValidity::NotYet(_)) => {
            let found = format!("the agent's certificate {outside}");
            report.fail(Check::Certificate, found, "correct this machine's clock");
        }
        Some(outside @ OutsideValidity::Expired(_)) => {
            let found = format!("the agent's certificate {outside}");
            let advice = "start the agent: it renews an expired certificate as long as the server's renewalGraceDays allow";
            report.warn(Check::Certificate, found, advice);
        }
    }
}

fn parse(bytes: &[u8]) -> Option<EnrolledState> {
    let IdentityFile { version, key, chain, server_roots } = serde_json::from_slice(bytes).ok()?;
    let ders = |texts: Vec<String>| -> Option<Vec<CertificateDer<'static>>> {
        texts.iter().map(|text| BASE64.decode(text).ok().map(CertificateDer::from)).collect()
    };
    let key = PrivatePkcs8KeyDer::from(BASE64.decode(key).ok()?);
    let public_key = KeyPair::try_from(&key).ok()?.subject_public_key_info();
    let (chain, roots) = (ders(chain)?, ders(server_roots)?);
    let identity = (!chain.is_empty()).then(|| ClientIdentity { chain, key: PrivateKeyDer::from(key) });
    (version == VERSION).then_some(EnrolledState { identity, roots, public_key })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The agent writes the file so, and its own tests hold it to that.
    #[test]
    fn an_agent_is_enrolled_once_it_has_a_certificate() {
        let key = KeyPair::generate().unwrap();
        let file = |chain: &[&str], version: u32| {
            json!({
                "version": version, "key": BASE64.encode(key.serialize_der()), "chain": chain,
                "serverRoots": ["AQID"], "nextKey": null,
            })
            .to_string()
        };
        let before = parse(file(&[], 1).as_bytes()).unwrap();
        assert!(before.identity.is_none());
        assert_eq!(before.public_key, key.subject_public_key_info());
        let after = parse(file(&["AQID"], 1).as_bytes()).unwrap();
        assert_eq!(after.identity.unwrap().chain, [CertificateDer::from(vec![1, 2, 3])]);
        assert_eq!(after.roots.len(), 1);
        assert!(parse(file(&[], 2).as_bytes()).is_none());
        assert!(parse(b"{}").is_none());
    }

    #[test]
    fn a_state_that_is_absent_is_no_fault_and_a_damaged_one_is() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = Report::default();
        assert!(read(&mut report, folder.path(), SystemTime::now()).is_some());
        assert!(report.lines().is_empty());
        std::fs::write(folder.path().join("identity.json"), "{}").unwrap();
        assert!(read(&mut report, folder.path(), SystemTime::now()).is_none());
        assert!(report.lines()[0].contains("identity.json is damaged"), "{:?}", report.lines());
    }
}
