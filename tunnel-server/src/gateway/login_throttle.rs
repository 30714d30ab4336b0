//! Throttles logins from source addresses with too many recent failures. Client certificates and previously
//! valid tokens are exempt.
//!
//! A token may cost the check of a signature or a review by another API server, so that a flood of wrong
//! tokens must not take all of their time. Honest callers may share the address, which is why the exempt
//! credentials never wait.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};

use crate::listener::failed_attempts::FailedAttempts;

/// Most valid tokens that are remembered. Beyond it the older half is forgotten.
const ACCEPTED_TOKENS_MAX: usize = 10_000;

/// The recent login failures of each source address, and the tokens that were valid.
pub(super) struct LoginThrottle {
    failures: FailedAttempts,
    /// Has a new key in each process, so that nobody can make a token with the hash of another one.
    hasher: RandomState,
    accepted: Mutex<AcceptedTokens>,
}

/// Hashes of valid tokens: the newer and the older half.
#[derive(Debug, Default)]
struct AcceptedTokens {
    newer: HashSet<u64>,
    older: HashSet<u64>,
}

impl LoginThrottle {
    /// Allows `failures_max` failed logins of each source in a minute.
    pub(super) fn new(failures_max: u32) -> Self {
        let (failures, hasher) = (FailedAttempts::new(failures_max), RandomState::new());
        Self { failures, hasher, accepted: Mutex::default() }
    }

    /// Returns true if the credential of a request from `source` is checked at all.
    pub(super) fn is_allowed(
        &self,
        source: IpAddr,
        has_certificate: bool,
        headers: &HeaderMap,
        now: Instant,
    ) -> bool {
        has_certificate || self.failures.may_try(source, now) || self.was_accepted(headers)
    }

    /// Notes that a login from `source` has failed.
    pub(super) fn failed(&self, source: IpAddr, now: Instant) {
        self.failures.failed(source, now);
    }

    /// Remembers the token in `headers` as valid.
    pub(super) fn succeeded(&self, headers: &HeaderMap) {
        let Some(token) = self.token(headers) else { return };
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if accepted.newer.insert(token) && accepted.newer.len() >= ACCEPTED_TOKENS_MAX / 2 {
            accepted.older = std::mem::take(&mut accepted.newer);
        }
    }

    /// The number of failures of the source with the most.
    pub(super) fn most(&self, now: Instant) -> usize {
        self.failures.most(now)
    }

    fn was_accepted(&self, headers: &HeaderMap) -> bool {
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        self.token(headers)
            .is_some_and(|token| accepted.newer.contains(&token) || accepted.older.contains(&token))
    }

    /// The hash of the credential in the headers, if there is one.
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

    /// The limit is that of failures of one source in a minute.
    #[test]
    fn beyond_the_limit_only_certificates_and_known_tokens_are_checked() {
        let (throttle, now) = (LoginThrottle::new(3), Instant::now());
        let [nat, elsewhere] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        throttle.succeeded(&bearer("good"));
        for _ in 0..3 {
            assert!(throttle.is_allowed(nat, false, &bearer("wrong"), now));
            throttle.failed(nat, now);
        }

        assert!(!throttle.is_allowed(nat, false, &bearer("wrong"), now), "one more");
        assert!(!throttle.is_allowed(nat, false, &HeaderMap::new(), now));
        assert!(throttle.is_allowed(nat, true, &HeaderMap::new(), now), "a certificate");
        assert!(throttle.is_allowed(nat, false, &bearer("good"), now), "known");
        assert!(throttle.is_allowed(elsewhere, false, &bearer("wrong"), now));
        assert_eq!(throttle.most(now), 3);
        assert!(throttle.is_allowed(
            nat,
            false,
            &bearer("wrong"),
            now + crate::listener::failed_attempts::WINDOW
        ));
    }

    #[test]
    fn no_more_tokens_than_the_limit_are_remembered_and_the_newest_stay() {
        let throttle = LoginThrottle::new(1);
        for n in 0..3 * ACCEPTED_TOKENS_MAX {
            throttle.succeeded(&bearer(&n.to_string()));
            let accepted = throttle.accepted.lock().unwrap();
            assert!(accepted.newer.len() + accepted.older.len() <= ACCEPTED_TOKENS_MAX);
        }
        assert!(throttle.was_accepted(&bearer(&(3 * ACCEPTED_TOKENS_MAX - 1).to_string())));
        assert!(!throttle.was_accepted(&bearer("0")));
    }

    fn bearer(token: &str) -> HeaderMap {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }
}
