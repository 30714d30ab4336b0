//! Asks again about what goes on, where the answer is somebody else's and counts for a while.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::info;

use super::{Ended, LOOK_EVERY, SHARDS, Table};
use crate::identity::questions::ASKED_MAX;
use crate::permit::{Opinion, Question};

/// How long exchanges go on while nobody can say whether they still may.
pub const UNASKED_MAX: Duration = Duration::from_secs(5 * 60);

impl Table {
    /// Ends what another cluster comes to forbid, as long as the server runs: it is asked again about each exchange whenever its
    /// last answer counts no more. What cannot be told goes on for [`UNASKED_MAX`].
    pub async fn keep_asking(self) {
        let mut time = interval(LOOK_EVERY);
        time.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // When each was last answered by a yes: by one all of them have begun.
        let mut heard: HashMap<Question, Instant> = HashMap::new();
        loop {
            let now = time.tick().await;
            let open = self.questions();
            heard.retain(|question, _| open.contains(question));
            let asked = open.into_iter().map(async |question| {
                let opinion = self.0.delegation.opinion(&question).await;
                (question, opinion)
            });
            let mut asked = stream::iter(asked).buffer_unordered(ASKED_MAX);
            while let Some((question, opinion)) = asked.next().await {
                let last_yes = *heard.entry(question.clone()).or_insert(now);
                match judged(opinion, last_yes, Instant::now()) {
                    Some(why) => self.end_all(&question, why),
                    None if opinion == Opinion::Yes => drop(heard.insert(question, Instant::now())),
                    None => {}
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

    fn end_all(&self, question: &Question, why: Ended) {
        let mut count = 0;
        for shard in 0..SHARDS {
            let entries = self.0.shard(shard as u64);
            let concerned = entries.values().filter(|entry| entry.permit.question() == Some(question));
            count += concerned.filter(|entry| entry.end(why)).count();
        }
        if count > 0 {
            info!(count, reason = why.as_str(), "exchanges were ended that may not go on");
        }
    }
}

/// Why exchanges may not go on, if they may not, of which the last yes was heard then.
fn judged(opinion: Opinion, last_yes: Instant, now: Instant) -> Option<Ended> {
    match opinion {
        Opinion::Yes => None,
        Opinion::No => Some(Ended::ForbiddenByHost),
        Opinion::Away => (now.duration_since(last_yes) >= UNASKED_MAX).then_some(Ended::HostAway),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_ends_at_once_and_silence_when_it_has_lasted_too_long() {
        let yes = Instant::now();
        let late = yes + UNASKED_MAX;
        assert_eq!(judged(Opinion::Yes, yes, late), None);
        assert_eq!(judged(Opinion::No, yes, yes), Some(Ended::ForbiddenByHost));
        assert_eq!(judged(Opinion::Away, yes, late - Duration::from_millis(1)), None);
        assert_eq!(judged(Opinion::Away, yes, late), Some(Ended::HostAway));
    }
}
