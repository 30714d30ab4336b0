//! Remembers for a moment whether the API server refuses the agent's own credential, so that a workload that
//! answers 401 to everybody does not double the requests at the API server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Time for which the API server's answer about a credential is valid. So the agent asks once a second at
/// most.
pub(super) const CHECKED_FOR: Duration = Duration::from_secs(1);

/// Longest wait for that answer. Without one, a 401 is passed on as it is.
pub(super) const CHECK_MAX: Duration = Duration::from_secs(5);

/// The API server's last answer about the agent's credential, of which `S` is a snapshot.
pub(super) struct CredentialCheck<S>(Mutex<Option<CheckedCredential<S>>>);

struct CheckedCredential<S> {
    snapshot: Arc<S>,
    at: Instant,
    /// True if the API server refused it. Silence does not count as a refusal.
    is_refused: bool,
}

impl<S> Default for CredentialCheck<S> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<S> CredentialCheck<S> {
    /// Returns true if the API server refuses this credential: as it has just said, or as `probe` finds.
    /// Requests that want to know it at the same time share one probe.
    pub(super) async fn is_refused<P>(&self, snapshot: &Arc<S>, probe: impl FnOnce() -> P) -> bool
    where
        P: Future<Output = Option<bool>>,
    {
        // Held while the API server is asked, so that others wait for the same answer. Its holder may be
        // dropped, and the next one asks then.
        let mut checked = self.0.lock().await;
        let known = checked
            .as_ref()
            .filter(|checked| Arc::ptr_eq(&checked.snapshot, snapshot) && checked.at.elapsed() < CHECKED_FOR);
        if let Some(known) = known {
            return known.is_refused;
        }
        let is_refused = timeout(CHECK_MAX, probe()).await.ok().flatten().unwrap_or(false);
        *checked = Some(CheckedCredential { snapshot: snapshot.clone(), at: Instant::now(), is_refused });
        is_refused
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_credential_is_probed_once_a_second_for_any_number_of_requests() {
        let (check, credential) = (CredentialCheck::default(), Arc::new(()));
        for is_refused in [false, true] {
            let asked = std::cell::Cell::new(0);
            let probe = || {
                asked.set(asked.get() + 1);
                async move {
                    tokio::task::yield_now().await;
                    Some(is_refused)
                }
            };

            let answers = join_all((0..50).map(|_| check.is_refused(&credential, probe))).await;

            assert_eq!((answers, asked.get()), (vec![is_refused; 50], 1));
            tokio::time::advance(CHECKED_FOR).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_credential_is_probed_at_once() {
        let (check, old, new) = (CredentialCheck::default(), Arc::new(()), Arc::new(()));

        assert!(check.is_refused(&old, || ready(Some(true))).await);

        assert!(!check.is_refused(&new, || ready(Some(false))).await);
        assert!(check.is_refused(&old, || ready(Some(true))).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_has_not_refused_the_credential() {
        let credential = Arc::new(());

        assert!(!CredentialCheck::default().is_refused(&credential, || ready(None)).await);
        assert!(!CredentialCheck::default().is_refused(&credential, pending).await);
    }
}
