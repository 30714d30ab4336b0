//! Which callers are refused, at each request and while what they asked for goes on.

use std::collections::HashMap;
use std::time::SystemTime;

use super::Directory;
use super::records::{CallerRevocation, Callers, UnixSeconds};
use super::store::StoreError;

/// Most revocations of callers that are kept.
pub const CALLER_REVOCATIONS_MAX: usize = 10_000;

/// What the user names of entry points begin with, and what they began with formerly. A revocation that was stored by the former
/// name still counts.
const ENTRY_POINT: &str = "entry-point:";
const ENTRY_POINT_FORMER: &str = "way-in:";

/// What a caller has shown, as far as revocation is concerned.
#[derive(Debug, Clone, Copy)]
pub struct CallerCredential<'a> {
    /// Its name, with the prefix of the method that proved it.
    pub user: &'a str,
    /// The serial number of the certificate that it came with, if it was one, in lower-case hexadecimal.
    pub serial: Option<&'a str>,
    /// When its credential was issued, if that says so.
    pub issued: Option<SystemTime>,
}

/// The caller's credential is not taken any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this credential was revoked: ask whoever runs this server for another")]
pub struct CallerRevoked;

/// Why no callers were revoked.
#[derive(Debug, thiserror::Error)]
pub enum CallersError {
    /// It would lock everybody out for ever.
    #[error("for all callers say before which time their credentials were issued")]
    Everybody,
    /// There is but one of it.
    #[error("one certificate is revoked whenever it was issued: leave the time out")]
    OneCertificate,
    /// Too many.
    #[error("{max} revocations of callers are kept, which is the most: restore some", max = CALLER_REVOCATIONS_MAX)]
    Full,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All revocations of callers, as every request asks for them.
#[derive(Debug, Default)]
pub(super) struct RevokedCallers {
    named: HashMap<String, CallerRevocation>,
    certificates: HashMap<String, CallerRevocation>,
    all: Option<CallerRevocation>,
}

impl Directory {
    /// Whether a caller may go on.
    ///
    /// # Errors
    /// [`CallerRevoked`].
    pub fn admits_caller(&self, shown: CallerCredential<'_>) -> Result<(), CallerRevoked> {
        if self.cache().callers.refuses(shown) { Err(CallerRevoked) } else { Ok(()) }
    }

    /// Refuses these callers from now on; only those whose credentials were issued before `issued_before`, if that is said.
    /// What was refused before stays so. Requests that are under way are not ended by this.
    ///
    /// # Errors
    /// [`CallersError`].
    pub async fn revoke_callers(
        &self,
        callers: Callers,
        issued_before: Option<UnixSeconds>,
        now: SystemTime,
    ) -> Result<(), CallersError> {
        match (&callers, issued_before) {
            (Callers::All, None) => return Err(CallersError::Everybody),
            (Callers::Certificate(_), Some(_)) => return Err(CallersError::OneCertificate),
            (Callers::All, Some(_)) | (Callers::Named(_), _) | (Callers::Certificate(_), None) => {}
        }
        let is_full = self.cache().callers.count() >= CALLER_REVOCATIONS_MAX;
        self.change(move |transaction| {
            let key = callers.key();
            let before = transaction.get::<CallerRevocation>(&key)?;
            if is_full && before.is_none() {
                return Err(CallersError::Full);
            }
            // Of two times the later one refuses more, and none at all the most.
            let issued_before = match before {
                Some(before) => before.issued_before.zip(issued_before).map(|(one, other)| one.max(other)),
                None => issued_before,
            };
            Ok(transaction.put(&key, &CallerRevocation { at: now.into(), issued_before })?)
        })
        .await
    }

    /// Takes a revocation back; whether there was one.
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

    /// Every revocation of callers: those of all first, then by name, then by serial number, each in order.
    #[must_use]
    pub fn revoked_callers(&self) -> Vec<(Callers, CallerRevocation)> {
        self.cache().callers.list()
    }
}

impl RevokedCallers {
    /// Takes over what the store has.
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

    fn refuses(&self, shown: CallerCredential<'_>) -> bool {
        let issued = shown.issued.map(UnixSeconds::from);
        // Who does not say when it was issued counts as issued before.
        let concerns = |revocation: &CallerRevocation| {
            revocation.issued_before.is_none_or(|before| issued.is_none_or(|issued| issued < before))
        };
        let is_named = |user: &str| self.named.get(user).is_some_and(concerns);
        let former = shown.user.strip_prefix(ENTRY_POINT).map(|name| format!("{ENTRY_POINT_FORMER}{name}"));
        is_named(shown.user)
            || former.as_deref().is_some_and(is_named)
            || shown
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
