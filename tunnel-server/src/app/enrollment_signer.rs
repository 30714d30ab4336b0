//! The signer of agents' certificates, taken up again whenever its files change.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use daemon::{FollowedFiles, Scope, error_chain, follow_files};
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tracing::{info, warn};
use transport::tls::SharedRoots;
use trust::{Intermediate, Signer};

use crate::config::SignerFiles;
use crate::metrics::{ReloadStatus, ReloadedFile};

/// The signer that issues certificates. Within `scope` it is replaced when its files change. Files that cannot be used
/// change nothing, and neither does a signer whose certificates `agents` would not accept.
pub(super) fn follow(
    signer: Intermediate,
    files: SignerFiles,
    agents: Arc<SharedRoots>,
    scope: &Scope,
) -> watch::Receiver<Arc<dyn Signer>> {
    let (newest, taken) = NewestSigner::new(signer);
    scope.spawn_background(follow_pair(files, newest, agents));
    taken
}

/// The signer in force, by its certificates. Two signers with the same certificates have the same key.
#[derive(Clone)]
struct NewestSigner {
    certificates: Arc<Mutex<Vec<CertificateDer<'static>>>>,
    given: watch::Sender<Arc<dyn Signer>>,
}

impl NewestSigner {
    fn new(signer: Intermediate) -> (Self, watch::Receiver<Arc<dyn Signer>>) {
        let certificates = Arc::new(Mutex::new(signer.certificates().to_vec()));
        let first: Arc<dyn Signer> = Arc::new(signer);
        let (given, taken) = watch::channel(first);
        (Self { certificates, given }, taken)
    }

    /// Lets `signer` issue from now on, if `agents` accept what it issues: else each renewal would take a good
    /// certificate away. Returns false if it is the one in force.
    fn take(&self, signer: Intermediate, agents: &SharedRoots) -> Result<bool, String> {
        let mut certificates = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        if *certificates == signer.certificates() {
            return Ok(false);
        }
        agents.try_signer(&signer).map_err(|error| {
            let error = error_chain(&error);
            format!("tunnel.agentCAFile does not accept what it issues ({error}): put its root there first")
        })?;
        *certificates = signer.certificates().to_vec();
        self.given.send_replace(Arc::new(signer));
        Ok(true)
    }
}

/// Follows the two files of the signer as long as it is polled.
async fn follow_pair(files: SignerFiles, newest: NewestSigner, agents: Arc<SharedRoots>) {
    let mut status = ReloadStatus::new(ReloadedFile::EnrollmentSigner);
    let [sealed, sealing_key] = files.paths().map(Path::to_owned);
    let read = move || files.read().map_err(|error| error.to_string());
    let take = move |signer| newest.take(signer, &agents);
    let report = |outcome: FollowedFiles<'_>| match outcome {
        FollowedFiles::Taken => {
            status.read(true);
            info!(file = %sealed.display(), "the signer of agents has changed, and the next certificates are issued by it");
        }
        FollowedFiles::Restored => status.read(true),
        FollowedFiles::Refused(error) => {
            status.read(false);
            warn!(
                file = %sealed.display(), error,
                "the signer of agents has changed and was not taken, the last valid one stays in force: correct its files, and \
                 they are read again"
            );
        }
    };
    follow_files(&[&sealed, &sealing_key], read, take, report).await;
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proto::spiffe::AgentId;
    use rcgen::KeyPair;
    use trust::sealed::{self, SealingKey};
    use trust::{Order, ProvenKey, Role, Root, Subject};

    use super::*;

    #[test]
    fn a_signer_is_taken_once_the_agents_roots_accept_what_it_issues() {
        let (old, new) = (root(), root());
        let agents = SharedRoots::new(vec![old.certificate().clone()]).unwrap();
        let (newest, _taken) = NewestSigner::new(signer(&old));

        let refused = newest.take(signer(&new), &agents).unwrap_err();
        assert!(refused.contains("tunnel.agentCAFile"), "{refused}");

        agents.replace(vec![old.certificate().clone(), new.certificate().clone()]).unwrap();
        assert_eq!(newest.take(signer(&new), &agents), Ok(true));
    }

    #[tokio::test]
    async fn a_replaced_signer_issues_the_next_certificate() {
        let (now, new_root, key) = (SystemTime::now(), root(), SealingKey::generate().unwrap());
        let (old, new) = (signer(&root()), signer(&new_root));
        let agents = SharedRoots::new(vec![new_root.certificate().clone()]).unwrap();
        let (issuer, text) = (new.certificates()[0].clone(), sealed::seal(&new, &key).unwrap());
        let (newest, taken) = NewestSigner::new(old);

        assert_eq!(newest.take(new, &agents), Ok(true));
        let again = sealed::open(&text, &key).unwrap();
        assert_eq!(newest.take(again, &agents), Ok(false), "it is in force already");

        let signer = Arc::clone(&taken.borrow());
        let issued = signer.issue(order(now)).await.unwrap();
        assert_eq!(issued.chain.get(1), Some(&issuer));
    }

    fn root() -> Root {
        Root::generate(Role::Agent, "tombolo".parse().unwrap(), SystemTime::now()).unwrap()
    }

    fn signer(root: &Root) -> Intermediate {
        root.intermediate(SystemTime::now()).unwrap()
    }

    fn order(now: SystemTime) -> Order {
        let agent = AgentId::new("edge-a".parse().unwrap(), "0f3c").unwrap();
        let key = ProvenKey::of_pair(&KeyPair::generate().unwrap()).unwrap();
        Order { subject: Subject::Agent(agent), key, now, lasting: Duration::from_secs(3600) }
    }
}
