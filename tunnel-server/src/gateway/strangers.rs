//! Sources from which too many logins have failed of late: nobody there is listened to for a while but whoever is known already.
//!
//! To look at a token may cost a signature's check, or a question to another API server: a flood of wrong ones must not be all that
//! these do. PrefixedStream the same address others may sit who are honest: whoever shows a certificate is never asked to wait, and
//! neither is a token that was good before.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};

use crate::listener::failed_attempts::FailedAttempts;

/// Tokens that were good and are remembered; beyond, the older half is forgotten.
const GOOD_MAX: usize = 10_000;

pub(super) struct Strangers {
    failures: FailedAttempts,
    /// Keyed anew in each process, so that nobody can make a token that looks like another's.
    hasher: RandomState,
    good: Mutex<Good>,
}

/// What was good, the newer and the older half.
#[derive(Debug, Default)]
struct Good {
    newer: HashSet<u64>,
    older: HashSet<u64>,
}

impl Strangers {
    /// Of whom so many may fail in a minute.
    pub(super) fn new(failures_max: u32) -> Self {
        let (failures, hasher) = (FailedAttempts::new(failures_max), RandomState::new());
        Self { failures, hasher, good: Mutex::default() }
    }

    /// Whether what was sent from `source` is looked at.
    pub(super) fn may_try(
        &self,
        source: IpAddr,
        has_certificate: bool,
        headers: &HeaderMap,
        now: Instant,
    ) -> bool {
        has_certificate || self.failures.may_try(source, now) || self.is_good(headers)
    }

    /// It was not good.
    pub(super) fn failed(&self, source: IpAddr, now: Instant) {
        self.failures.failed(source, now);
    }

    /// It was good.
    pub(super) fn succeeded(&self, headers: &HeaderMap) {
        let Some(token) = self.token(headers) else { return };
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if good.newer.insert(token) && good.newer.len() >= GOOD_MAX / 2 {
            good.older = std::mem::take(&mut good.newer);
        }
    }

    /// What the source has that has failed most.
    pub(super) fn most(&self, now: Instant) -> usize {
        self.failures.most(now)
    }

    fn is_good(&self, headers: &HeaderMap) -> bool {
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        self.token(headers).is_some_and(|token| good.newer.contains(&token) || good.older.contains(&token))
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
        let (strangers, now) = (Strangers::new(3), Instant::now());
        let [nat, elsewhere] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        strangers.succeeded(&bearer("good"));
        for _ in 0..3 {
            assert!(strangers.may_try(nat, false, &bearer("wrong"), now));
            strangers.failed(nat, now);
        }

        assert!(!strangers.may_try(nat, false, &bearer("wrong"), now), "one more");
        assert!(!strangers.may_try(nat, false, &HeaderMap::new(), now));
        assert!(strangers.may_try(nat, true, &HeaderMap::new(), now), "a certificate");
        assert!(strangers.may_try(nat, false, &bearer("good"), now), "known");
        assert!(strangers.may_try(elsewhere, false, &bearer("wrong"), now));
        assert_eq!(strangers.most(now), 3);
        assert!(strangers.may_try(
            nat,
            false,
            &bearer("wrong"),
            now + crate::listener::failed_attempts::WINDOW
        ));
    }

    #[test]
    fn no_more_tokens_than_the_limit_are_remembered_and_the_newest_are() {
        let strangers = Strangers::new(1);
        for n in 0..3 * GOOD_MAX {
            strangers.succeeded(&bearer(&n.to_string()));
            let good = strangers.good.lock().unwrap();
            assert!(good.newer.len() + good.older.len() <= GOOD_MAX);
        }
        assert!(strangers.is_good(&bearer(&(3 * GOOD_MAX - 1).to_string())));
        assert!(!strangers.is_good(&bearer("0")));
    }

    fn bearer(token: &str) -> HeaderMap {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }
}
