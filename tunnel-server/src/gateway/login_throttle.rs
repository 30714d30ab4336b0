//! Sources from which too many logins have failed of late: nobody there is listened to for a while but whoever is known already.
//!
//! To look at a token may cost a signature's check, or a question to another API server: a flood of wrong ones must not be all that
//! these do. Behind the same address others may sit who are honest: whoever shows a certificate is never asked to wait, and
//! neither is a token that was good before.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};

use crate::listener::failures::Failures;

/// Tokens that were good and are remembered; beyond, the older half is forgotten.
const ACCEPTED_TOKENS_MAX: usize = 10_000;

pub(super) struct LoginThrottle {
    failures: Failures,
    /// Keyed anew in each process, so that nobody can make a token that looks like another's.
    hasher: RandomState,
    accepted: Mutex<AcceptedTokens>,
}

/// What was good, the newer and the older half.
#[derive(Debug, Default)]
struct AcceptedTokens {
    newer: HashSet<u64>,
    older: HashSet<u64>,
}

impl LoginThrottle {
    /// Of whom so many may fail in a minute.
    pub(super) fn new(failures_max: u32) -> Self {
        let (failures, hasher) = (Failures::new(failures_max), RandomState::new());
        Self { failures, hasher, accepted: Mutex::default() }
    }

    /// Whether what was sent from `source` is looked at.
    pub(super) fn is_allowed(
        &self,
        source: IpAddr,
        has_certificate: bool,
        headers: &HeaderMap,
        now: Instant,
    ) -> bool {
        has_certificate || self.failures.may_try(source, now) || self.was_accepted(headers)
    }

    /// It was not accepted.
    pub(super) fn failed(&self, source: IpAddr, now: Instant) {
        self.failures.failed(source, now);
    }

    /// It was accepted.
    pub(super) fn succeeded(&self, headers: &HeaderMap) {
        let Some(token) = self.token(headers) else { return };
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if accepted.newer.insert(token) && accepted.newer.len() >= ACCEPTED_TOKENS_MAX / 2 {
            accepted.older = std::mem::take(&mut accepted.newer);
        }
    }

    /// What the source has that has failed most.
    pub(super) fn most(&self, now: Instant) -> usize {
        self.failures.most(now)
    }

    fn was_accepted(&self, headers: &HeaderMap) -> bool {
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        self.token(headers)
            .is_some_and(|token| accepted.newer.contains(&token) || accepted.older.contains(&token))
    }

    /// What stands for the credential in the headers, if there is any.
    fn token(&self, headers: &HeaderMap) -> Option<u64> {
        let sent: Vec<_> =
            [AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL].iter().filter_map(|name| headers.get(name)).collect();
        (!sent.is_empty()).then(|| self.hasher.hash_one(sent))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn where_too_many_have_failed_only_certificates_and_tokens_that_were_good_are_looked_at() {
        let (login_throttle, now) = (LoginThrottle::new(3), Instant::now());
        let [nat, elsewhere] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        login_throttle.succeeded(&bearer("good"));
        for _ in 0..3 {
            assert!(login_throttle.is_allowed(nat, false, &bearer("wrong"), now));
            login_throttle.failed(nat, now);
        }

        assert!(!login_throttle.is_allowed(nat, false, &bearer("wrong"), now), "one more");
        assert!(!login_throttle.is_allowed(nat, false, &HeaderMap::new(), now));
        assert!(login_throttle.is_allowed(nat, true, &HeaderMap::new(), now), "a certificate");
        assert!(login_throttle.is_allowed(nat, false, &bearer("good"), now), "known");
        assert!(login_throttle.is_allowed(elsewhere, false, &bearer("wrong"), now));
        assert_eq!(login_throttle.most(now), 3);
        assert!(login_throttle.is_allowed(
            nat,
            false,
            &bearer("wrong"),
            now + crate::listener::failures::WINDOW
        ));
    }

    #[test]
    fn no_more_tokens_than_the_limit_are_remembered_and_the_newest_are() {
        let login_throttle = LoginThrottle::new(1);
        for n in 0..3 * ACCEPTED_TOKENS_MAX {
            login_throttle.succeeded(&bearer(&n.to_string()));
            let accepted = login_throttle.accepted.lock().unwrap();
            assert!(accepted.newer.len() + accepted.older.len() <= ACCEPTED_TOKENS_MAX);
        }
        assert!(login_throttle.was_accepted(&bearer(&(3 * ACCEPTED_TOKENS_MAX - 1).to_string())));
        assert!(!login_throttle.was_accepted(&bearer("0")));
    }

    fn bearer(token: &str) -> HeaderMap {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }
}
