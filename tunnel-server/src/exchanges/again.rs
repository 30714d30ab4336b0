//! Asks again about what goes on, where the answer is somebody else's and counts for a while.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, SystemTime};

use futures::{StreamExt as _, stream};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::info;

use super::{Ended, Entry, LOOK_EVERY, SHARDS, Table};
use crate::identity::review_cache::CONCURRENT_REVIEWS_MAX;
use crate::identity::{Caller, NotAuthenticated, RetainedToken};
use crate::permit::{Opinion, Question};

/// How long exchanges go on while nobody can say whether they still may.
pub const UNASKED_MAX: Duration = Duration::from_secs(5 * 60);

/// How often a token by which something runs is reviewed again. The answer may be of a minute ago, so that none is older than
/// five.
pub const REVIEWED_EVERY: Duration = Duration::from_secs(4 * 60);

/// When each that goes on was last answered by a yes: by one all of them have begun.
struct Heard<K>(HashMap<K, Instant>);

impl Table {
    /// Ends what another cluster comes to forbid, as long as the server runs: it is asked again about each exchange whenever its
    /// last answer counts no more, and about each token that it has reviewed every [`REVIEWED_EVERY`]. What cannot be told goes
    /// on for [`UNASKED_MAX`] behind that.
    pub async fn keep_asking(self) {
        let mut time = interval(LOOK_EVERY);
        time.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut permitted, mut reviewed) = (Heard(HashMap::new()), Heard(HashMap::new()));
        loop {
            let now = time.tick().await;
            let open = self.questions();
            permitted.keep(&open, now);
            let asked = open.into_iter().map(async |question| {
                let opinion = self.0.delegation.opinion(&question).await;
                (question, opinion)
            });
            let mut asked = stream::iter(asked).buffer_unordered(CONCURRENT_REVIEWS_MAX);
            while let Some((question, opinion)) = asked.next().await {
                if permitted.is_over(&question, Duration::ZERO, opinion, Instant::now()) {
                    let why = if opinion == Opinion::No { Ended::ForbiddenByHost } else { Ended::HostAway };
                    self.end_all(why, |entry| entry.permit.question() == Some(&question));
                }
            }
            let bearers = self.bearers();
            reviewed.keep(&bearers.keys().cloned().collect(), now);
            let due = bearers.into_iter().filter(|(token, _)| reviewed.is_due(token, REVIEWED_EVERY, now));
            let asked = due.map(async |(token, caller)| {
                let again = self.0.authenticator.review_again(&caller, SystemTime::now()).await;
                (token, opinion(&again))
            });
            let asked: Vec<_> = stream::iter(asked.collect::<Vec<_>>())
                .buffer_unordered(CONCURRENT_REVIEWS_MAX)
                .collect()
                .await;
            for (token, opinion) in asked {
                if reviewed.is_over(&token, REVIEWED_EVERY, opinion, Instant::now()) {
                    let why = if opinion == Opinion::No { Ended::Revoked } else { Ended::HostAway };
                    self.end_all(why, |entry| entry.permit.caller().token() == Some(&token));
                }
            }
        }
    }

    /// What was asked about all that goes on, each once.
    fn questions(&self) -> HashSet<Question> {
        let mut questions = HashSet::new();
        for shard in 0..SHARDS {
            let entries = self.0.shard(shard as u64);
            questions.extend(entries.values().filter_map(|entry| entry.permit.question().cloned()));
        }
        questions
    }

    /// Those whose tokens were reviewed, each token once.
    fn bearers(&self) -> HashMap<RetainedToken, Caller> {
        let mut bearers = HashMap::new();
        for shard in 0..SHARDS {
            let entries = self.0.shard(shard as u64);
            for caller in entries.values().map(|entry| entry.permit.caller()) {
                if let Some(token) = caller.token() {
                    bearers.entry(token.clone()).or_insert_with(|| caller.clone());
                }
            }
        }
        bearers
    }

    fn end_all(&self, why: Ended, is_concerned: impl Fn(&Entry) -> bool) {
        let mut count = 0;
        for shard in 0..SHARDS {
            let entries = self.0.shard(shard as u64);
            count += entries.values().filter(|entry| is_concerned(entry) && entry.end(why)).count();
        }
        if count > 0 {
            info!(count, reason = why.as_str(), "exchanges were ended that may not go on");
        }
    }
}

impl<K: Clone + Eq + Hash> Heard<K> {
    /// Forgets what is over, and takes what is new as answered by a yes at `now`.
    fn keep(&mut self, open: &HashSet<K>, now: Instant) {
        self.0.retain(|one, _| open.contains(one));
        for one in open {
            self.0.entry(one.clone()).or_insert(now);
        }
    }

    /// Whether this is to be asked about, which is asked about every so often.
    fn is_due(&self, one: &K, every: Duration, now: Instant) -> bool {
        self.0.get(one).is_none_or(|heard| now.duration_since(*heard) >= every)
    }

    /// Whether this may not go on: at once after a no, and where nobody answers when that has lasted too long.
    fn is_over(&mut self, one: &K, every: Duration, opinion: Opinion, now: Instant) -> bool {
        match opinion {
            Opinion::Yes => {
                self.0.insert(one.clone(), now);
                false
            }
            Opinion::No => true,
            Opinion::Away => self.is_due(one, every + UNASKED_MAX, now),
        }
    }
}

fn opinion(again: &Result<(), NotAuthenticated>) -> Opinion {
    match again {
        Ok(()) => Opinion::Yes,
        Err(NotAuthenticated::Unreachable(_)) => Opinion::Away,
        Err(_) => Opinion::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn a_no_ends_at_once_and_silence_when_it_has_lasted_too_long() {
        let began = Instant::now();
        let mut heard = Heard(HashMap::new());
        heard.keep(&["one"].into(), began);
        let late = began + REVIEWED_EVERY + UNASKED_MAX;
        assert!(!heard.is_over(&"one", REVIEWED_EVERY, Opinion::Away, late - TICK));
        assert!(heard.is_over(&"one", REVIEWED_EVERY, Opinion::Away, late));
        assert!(heard.is_over(&"one", REVIEWED_EVERY, Opinion::No, began));
        // A yes counts from when it was heard.
        assert!(!heard.is_over(&"one", REVIEWED_EVERY, Opinion::Yes, late));
        assert!(!heard.is_over(&"one", REVIEWED_EVERY, Opinion::Away, late + UNASKED_MAX));
    }

    #[test]
    fn what_goes_on_is_asked_about_every_so_often_and_what_is_over_no_more() {
        let began = Instant::now();
        let mut heard = Heard(HashMap::new());
        heard.keep(&["one", "other"].into(), began);
        assert!(!heard.is_due(&"one", REVIEWED_EVERY, began + REVIEWED_EVERY - TICK));
        assert!(heard.is_due(&"one", REVIEWED_EVERY, began + REVIEWED_EVERY));
        let later = began + REVIEWED_EVERY;
        heard.keep(&["one"].into(), later);
        assert_eq!(heard.0.len(), 1);
        assert!(heard.is_due(&"one", REVIEWED_EVERY, later), "it was not answered meanwhile");
    }
}
