//! Revocations of callers, which are checked at each request and while it runs.

use std::collections::HashMap;
use std::time::SystemTime;

use super::records::{CallerRevocation, Callers, UnixSeconds};
use super::store::StoreError;
use super::{Change, Directory};

/// Most revocations of callers that are kept.
pub const CALLER_REVOCATIONS_MAX: usize = 10_000;

/// The beginnings of entry points' user names, at present and formerly. A revocation that was stored by the
/// former name still counts.
const ENTRY_POINT: &str = "entry-point:";
const ENTRY_POINT_FORMER: &str = "way-in:";

/// The credential of a caller, as far as revocations need it.
#[derive(Debug, Clone, Copy)]
pub struct CallerCredential<'a> {
    /// The user name, with the prefix of its method.
    pub user: &'a str,
    /// The serial number of its certificate in lower-case hexadecimal, if it has one.
    pub serial: Option<&'a str>,
    /// The time at which its credential was issued, if known.
    pub issued: Option<SystemTime>,
}

/// The caller's credential is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this credential was revoked: ask the operator of this server for another")]
pub struct CallerRevoked;

/// The reason why no callers were revoked.
#[derive(Debug, thiserror::Error)]
pub enum CallersError {
    /// A revocation of all callers without a time would lock everybody out for ever.
    #[error("for all callers say before which time their credentials were issued")]
    Everybody,
    /// A revocation of one certificate needs no time.
    #[error("one certificate is revoked whenever it was issued: leave the time out")]
    OneCertificate,
    /// The limit of revocations is reached.
    #[error("{max} revocations of callers are kept, which is the most: restore some", max = CALLER_REVOCATIONS_MAX)]
    Full,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All revocations of callers, indexed for each request.
#[derive(Debug, Default)]
pub(super) struct RevokedCallers {
    named: HashMap<String, CallerRevocation>,
    certificates: HashMap<String, CallerRevocation>,
    all: Option<CallerRevocation>,
}

impl Directory {
    /// Checks that a caller is not revoked.
    ///
    /// # Errors
    /// [`CallerRevoked`].
    pub fn admits_caller(&self, credential: CallerCredential<'_>) -> Result<(), CallerRevoked> {
        if self.cache().callers.refuses(credential) { Err(CallerRevoked) } else { Ok(()) }
    }

    /// Revokes these callers, or only their credentials that were issued before `issued_before`. Earlier
    /// revocations stay in force. Running requests are not ended by this function. [`Directory::in_force`] says which
    /// servers know of the change.
    ///
    /// # Errors
    /// [`CallersError`].
    pub async fn revoke_callers(
        &self,
        callers: Callers,
        issued_before: Option<UnixSeconds>,
        now: SystemTime,
    ) -> Result<Change, CallersError> {
        match (&callers, issued_before) {
            (Callers::All, None) => return Err(CallersError::Everybody),
            (Callers::Certificate(_), Some(_)) => return Err(CallersError::OneCertificate),
            (Callers::All, Some(_)) | (Callers::Named(_), _) | (Callers::Certificate(_), None) => {}
        }
        let is_full = self.cache().callers.count() >= CALLER_REVOCATIONS_MAX;
        let revoked = self.change_at(move |transaction| {
            let key = callers.key();
            let before = transaction.get::<CallerRevocation>(&key)?;
            if is_full && before.is_none() {
                return Err(CallersError::Full);
            }
            // The later of two times refuses more, and no time refuses all.
            let issued_before = match before {
                Some(before) => before.issued_before.zip(issued_before).map(|(one, other)| one.max(other)),
                None => issued_before,
            };
            Ok(transaction.put(&key, &CallerRevocation { at: now.into(), issued_before })?)
        });
        revoked.await.map(|((), change)| change)
    }

    /// Removes a revocation. Returns whether there was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn restore_callers(&self, callers: Callers) -> Result<bool, StoreError> {
        self.change(move |transaction| {
            let key = callers.key();
            let is_there = transaction.get::<CallerRevocation>(&key)?.is_some();
            transaction.remove::<CallerRevocation>(&key)?;
            Ok(is_there)
        })
        .await
    }

    /// All revocations of callers: first of all callers, then by name, then by serial number, each in order.
    #[must_use]
    pub fn revoked_callers(&self) -> Vec<(Callers, CallerRevocation)> {
        self.cache().callers.list()
    }
}

impl RevokedCallers {
    /// Applies a change of the store.
    pub(super) fn apply(&mut self, callers: Callers, revocation: Option<CallerRevocation>) {
        match (callers, revocation) {
            (Callers::All, revocation) => self.all = revocation,
            (Callers::Named(name), Some(revocation)) => {
                self.named.insert(name, revocation);
            }
            (Callers::Named(name), None) => {
                self.named.remove(&name);
            }
            (Callers::Certificate(serial), Some(revocation)) => {
                self.certificates.insert(serial, revocation);
            }
            (Callers::Certificate(serial), None) => {
                self.certificates.remove(&serial);
            }
        }
    }

    fn refuses(&self, credential: CallerCredential<'_>) -> bool {
        let issued = credential.issued.map(UnixSeconds::from);
        // A credential without a time of issue counts as issued before.
        let concerns = |revocation: &CallerRevocation| {
            revocation.issued_before.is_none_or(|before| issued.is_none_or(|issued| issued < before))
        };
        let is_named = |user: &str| self.named.get(user).is_some_and(concerns);
        let former =
            credential.user.strip_prefix(ENTRY_POINT).map(|name| format!("{ENTRY_POINT_FORMER}{name}"));
        is_named(credential.user)
            || former.as_deref().is_some_and(is_named)
            || credential
                .serial
                .is_some_and(|serial| self.certificates.contains_key(serial.trim_start_matches('0')))
            || self.all.as_ref().is_some_and(concerns)
    }

    fn count(&self) -> usize {
        self.named.len() + self.certificates.len() + usize::from(self.all.is_some())
    }

    fn list(&self) -> Vec<(Callers, CallerRevocation)> {
        let all = self.all.map(|revocation| (Callers::All, revocation));
        let named = self.named.iter().map(|(name, revocation)| (Callers::Named(name.clone()), *revocation));
        let certificates = self.certificates.iter();
        let certificates =
            certificates.map(|(serial, revocation)| (Callers::Certificate(serial.clone()), *revocation));
        let mut list: Vec<_> = all.into_iter().chain(named).chain(certificates).collect();
        list.sort_by(|(one, _), (other, _)| one.cmp(other));
        list
    }
}
