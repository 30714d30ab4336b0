//! Repeats the TokenReview or SubjectAccessReview of each running exchange, because their answers are valid
//! for a limited time.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, SystemTime};

use futures::{StreamExt as _, stream};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::info;

use super::table::{CHECK_EVERY, ExchangeEntry, ExchangeTable, SHARDS};
use super::termination::TerminationReason;
use crate::authz::{AccessReview, ReviewDecision};
use crate::identity::review_cache::CONCURRENT_REVIEWS_MAX;
use crate::identity::{Caller, NotAuthenticated, RetainedToken};

/// Longest time for which exchanges continue while the reviewer does not answer.
pub const UNREVIEWED_MAX: Duration = Duration::from_secs(5 * 60);

/// Interval between two reviews of the token of a running exchange. A cached answer may be one minute old, so
/// that no answer in use is older than five minutes.
pub const REVIEWED_EVERY: Duration = Duration::from_secs(4 * 60);

/// The time of the last approval of each subject of a running exchange. Every exchange begins with an
/// approval.
struct LastApproval<K>(HashMap<K, Instant>);

impl ExchangeTable {
    /// Ends exchanges that another cluster no longer allows. Runs as long as the server does.
    ///
    /// A SubjectAccessReview is repeated when its cached answer has expired, a TokenReview every
    /// [`REVIEWED_EVERY`]. Without an answer an exchange continues for [`UNREVIEWED_MAX`] more.
    pub async fn reauthorize(self) {
        let mut time = interval(CHECK_EVERY);
        time.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut permitted, mut reviewed) = (LastApproval(HashMap::new()), LastApproval(HashMap::new()));
        loop {
            let now = time.tick().await;
            let open = self.questions();
            permitted.retain(&open, now);
            let asked = open.into_iter().map(async |question| {
                let opinion = self.0.delegation.decision(&question).await;
                (question, opinion)
            });
            let mut asked = stream::iter(asked).buffer_unordered(CONCURRENT_REVIEWS_MAX);
            while let Some((question, opinion)) = asked.next().await {
                if permitted.is_over(&question, Duration::ZERO, opinion, Instant::now()) {
                    let why = if opinion == ReviewDecision::Denied {
                        TerminationReason::ForbiddenByHost
                    } else {
                        TerminationReason::HostAway
                    };
                    self.end_all(why, |entry| entry.question() == Some(&question));
                }
            }
            let reviewed_callers = self.reviewed_callers();
            reviewed.retain(&reviewed_callers.keys().cloned().collect(), now);
            let due =
                reviewed_callers.into_iter().filter(|(token, _)| reviewed.is_due(token, REVIEWED_EVERY, now));
            let asked = due.map(async |(token, caller)| {
                let review = self.0.authenticator.review_again(&caller, SystemTime::now()).await;
                (token, opinion(&review))
            });
            let asked: Vec<_> = stream::iter(asked.collect::<Vec<_>>())
                .buffer_unordered(CONCURRENT_REVIEWS_MAX)
                .collect()
                .await;
            for (token, opinion) in asked {
                if reviewed.is_over(&token, REVIEWED_EVERY, opinion, Instant::now()) {
                    let why = if opinion == ReviewDecision::Denied {
                        TerminationReason::Revoked
                    } else {
                        TerminationReason::HostAway
                    };
                    self.end_all(why, |entry| entry.caller().token() == Some(&token));
                }
            }
        }
    }

    /// The questions that the permits of running exchanges depend on, without duplicates.
    fn questions(&self) -> HashSet<AccessReview> {
        let mut questions = HashSet::new();
        for shard in 0..SHARDS {
            let entries = self.0.shard(shard as u64);
            questions.extend(entries.values().filter_map(|entry| entry.question().cloned()));
        }
        questions
    }

    /// The reviewed tokens of running exchanges, without duplicates, and one caller of each.
    fn reviewed_callers(&self) -> HashMap<RetainedToken, Caller> {
        let mut reviewed_callers = HashMap::new();
        for shard in 0..SHARDS {
            let entries = self.0.shard(shard as u64);
            for caller in entries.values().map(|entry| entry.caller()) {
                if let Some(token) = caller.token() {
                    reviewed_callers.entry(token.clone()).or_insert_with(|| caller.clone());
                }
            }
        }
        reviewed_callers
    }

    fn end_all(&self, why: TerminationReason, is_concerned: impl Fn(&ExchangeEntry) -> bool) {
        let mut count = 0;
        for shard in 0..SHARDS {
            let entries = self.0.shard(shard as u64);
            count += entries.values().filter(|entry| is_concerned(entry) && entry.end(why)).count();
        }
        if count > 0 {
            info!(count, reason = why.as_str(), "ended exchanges that are no longer permitted");
        }
    }
}

impl<K: Clone + Eq + Hash> LastApproval<K> {
    /// Removes what is not in `open`, and adds what is new as approved at `now`.
    fn retain(&mut self, open: &HashSet<K>, now: Instant) {
        self.0.retain(|one, _| open.contains(one));
        for one in open {
            self.0.entry(one.clone()).or_insert(now);
        }
    }

    /// Returns true if the last approval is older than `every`.
    fn is_due(&self, one: &K, every: Duration, now: Instant) -> bool {
        self.0.get(one).is_none_or(|approved| now.duration_since(*approved) >= every)
    }

    /// Notes an answer and returns whether the exchange must end: at once after a no, and without an answer
    /// once the last approval is older than `every` and [`UNREVIEWED_MAX`].
    fn is_over(&mut self, one: &K, every: Duration, opinion: ReviewDecision, now: Instant) -> bool {
        match opinion {
            ReviewDecision::Allowed => {
                self.0.insert(one.clone(), now);
                false
            }
            ReviewDecision::Denied => true,
            ReviewDecision::Unavailable => self.is_due(one, every + UNREVIEWED_MAX, now),
        }
    }
}

fn opinion(review: &Result<(), NotAuthenticated>) -> ReviewDecision {
    match review {
        Ok(()) => ReviewDecision::Allowed,
        Err(NotAuthenticated::Unreachable(_)) => ReviewDecision::Unavailable,
        Err(_) => ReviewDecision::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn a_no_ends_at_once_and_silence_after_its_limit() {
        let began = Instant::now();
        let mut approvals = LastApproval(HashMap::new());
        approvals.retain(&["one"].into(), began);
        let late = began + REVIEWED_EVERY + UNREVIEWED_MAX;
        assert!(!approvals.is_over(&"one", REVIEWED_EVERY, ReviewDecision::Unavailable, late - TICK));
        assert!(approvals.is_over(&"one", REVIEWED_EVERY, ReviewDecision::Unavailable, late));
        assert!(approvals.is_over(&"one", REVIEWED_EVERY, ReviewDecision::Denied, began));
        // An approval is valid from the time of its answer.
        assert!(!approvals.is_over(&"one", REVIEWED_EVERY, ReviewDecision::Allowed, late));
        assert!(!approvals.is_over(
            &"one",
            REVIEWED_EVERY,
            ReviewDecision::Unavailable,
            late + UNREVIEWED_MAX
        ));
    }

    #[test]
    fn running_exchanges_are_reviewed_at_intervals_and_ended_ones_never() {
        let began = Instant::now();
        let mut approvals = LastApproval(HashMap::new());
        approvals.retain(&["one", "other"].into(), began);
        assert!(!approvals.is_due(&"one", REVIEWED_EVERY, began + REVIEWED_EVERY - TICK));
        assert!(approvals.is_due(&"one", REVIEWED_EVERY, began + REVIEWED_EVERY));
        let later = began + REVIEWED_EVERY;
        approvals.retain(&["one"].into(), later);
        assert_eq!(approvals.0.len(), 1);
        assert!(approvals.is_due(&"one", REVIEWED_EVERY, later), "it has had no answer since");
    }
}
