//! What was found out about tokens a moment ago, so that a reviewer is asked seldom. Bounded, and pure but for what it holds.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use futures::future::{BoxFuture, Shared};
use tokio::time::Instant;

use super::verdict::{Said, Verdict};

/// How long a token that was accepted is not reviewed again: whoever takes it back waits for so long.
pub const ACCEPTED_FOR: Duration = Duration::from_secs(60);

/// How long a token that was refused is not reviewed again.
pub const REFUSED_FOR: Duration = Duration::from_secs(10);

/// How long it counts that the reviewer could not be asked, so that a crowd does not ask it on its return.
const AWAY_FOR: Duration = Duration::from_secs(1);

/// Tokens that are remembered, as many accepted as refused; beyond, the oldest is forgotten.
pub const REMEMBERED_MAX: usize = 10_000;

/// Tokens whose review is under way or waits for its turn; beyond, the reviewer counts as away.
pub const WAITING_MAX: usize = 1_000;

/// A token, by its MAC.
pub(super) type Mac = [u8; 32];

/// A review that whoever waits for it drives.
pub(super) type Review = Shared<BoxFuture<'static, Verdict>>;

/// Two tables, so that guesses push nobody out who came in; and what is under way.
#[derive(Default)]
pub(super) struct Book {
    accepted: Table,
    refused: Table,
    pending: HashMap<Mac, Review>,
}

/// What is known of a token.
pub(super) enum Found {
    /// This.
    Known(Verdict),
    /// It is being found out.
    Pending(Review),
    /// Nothing, and as much as may be is being found out.
    Crowded,
}

#[derive(Default)]
struct Table {
    verdicts: HashMap<Mac, Verdict>,
    /// In the order in which they were found.
    order: VecDeque<(Instant, Mac)>,
}

impl Book {
    /// What is known of a token at `now`; where that is nothing, a review is begun.
    pub(super) fn find(&mut self, mac: &Mac, now: Instant, review: impl FnOnce() -> Review) -> Found {
        for table in [&self.accepted, &self.refused] {
            if let Some(verdict) = table.verdicts.get(mac).filter(|verdict| now < verdict.until()) {
                return Found::Known(verdict.clone());
            }
        }
        // One that was found out while nobody waited may be of long ago.
        let stale = |review: &Review| review.peek().is_some_and(|verdict| verdict.until() <= now);
        if let Some(review) = self.pending.get(mac).filter(|review| !stale(review)) {
            return Found::Pending(review.clone());
        }
        if self.pending.len() >= WAITING_MAX {
            // Those whose callers have all gone.
            self.pending.retain(|_, review| review.strong_count() != Some(1));
        }
        if self.pending.len() >= WAITING_MAX {
            return Found::Crowded;
        }
        let review = review();
        self.pending.insert(*mac, review.clone());
        Found::Pending(review)
    }

    /// Remembers a verdict, and that nothing is under way any more.
    pub(super) fn settle(&mut self, mac: &Mac, verdict: &Verdict) {
        if self.pending.get(mac).is_none_or(|review| review.peek().is_none()) {
            // Somebody else who waited for it was here, and perhaps another review has begun since.
            return;
        }
        self.pending.remove(mac);
        let table = match verdict.said {
            Said::Yes(_) => &mut self.accepted,
            Said::No(_) | Said::Away => &mut self.refused,
        };
        table.insert(*mac, verdict.clone());
    }
}

impl Table {
    fn insert(&mut self, mac: Mac, verdict: Verdict) {
        if self.order.len() >= REMEMBERED_MAX
            && let Some((at, oldest)) = self.order.pop_front()
            && self.verdicts.get(&oldest).is_some_and(|verdict| verdict.at == at)
        {
            self.verdicts.remove(&oldest);
        }
        self.order.push_back((verdict.at, mac));
        self.verdicts.insert(mac, verdict);
    }
}

impl Verdict {
    /// The first moment at which it counts no more.
    fn until(&self) -> Instant {
        self.at
            + match self.said {
                Said::Yes(_) => ACCEPTED_FOR,
                Said::No(_) => REFUSED_FOR,
                Said::Away => AWAY_FOR,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::review::ReviewFault;
    use crate::identity::review::verdict::Verdict;
    use futures::FutureExt as _;

    #[test]
    fn a_verdict_counts_for_its_time_and_a_token_is_reviewed_once_meanwhile() {
        let (mut book, now, mac) = (Book::default(), Instant::now(), [1; 32]);
        settled(&mut book, &mac, refused(now));
        assert!(matches!(book.find(&mac, now + REFUSED_FOR - TICK, never), Found::Known(_)));
        let Found::Pending(first) = book.find(&mac, now + REFUSED_FOR, || done(refused(now + REFUSED_FOR)))
        else {
            panic!("it is reviewed again")
        };
        let Found::Pending(second) = book.find(&mac, now + REFUSED_FOR, never) else {
            panic!("it is under way")
        };
        assert!(first.ptr_eq(&second));
    }

    #[test]
    fn a_verdict_that_nobody_waited_for_is_not_taken_for_a_fresh_one() {
        let (mut book, now, mac) = (Book::default(), Instant::now(), [1; 32]);
        let Found::Pending(left) = book.find(&mac, now, || done(refused(now))) else {
            panic!("nothing is known")
        };
        let _ = left.clone().now_or_never();
        let Found::Pending(again) = book.find(&mac, now + REFUSED_FOR, || done(refused(now))) else {
            panic!("nothing is known")
        };
        assert!(!left.ptr_eq(&again));
    }

    #[test]
    fn as_many_are_remembered_and_wait_as_may_and_not_one_more() {
        let (mut book, now) = (Book::default(), Instant::now());
        for number in 0..=REMEMBERED_MAX {
            settled(&mut book, &mac(number), refused(now));
        }
        assert_eq!(book.refused.verdicts.len(), REMEMBERED_MAX);
        assert!(matches!(book.find(&mac(1), now, never), Found::Known(_)), "the second oldest is kept");
        let mut held = Vec::new();
        for number in 0..WAITING_MAX {
            let Found::Pending(review) = book.find(&mac(100_000 + number), now, || done(refused(now))) else {
                panic!("there is room for {number}")
            };
            held.push(review);
        }
        assert!(matches!(book.find(&mac(200_000), now, never), Found::Crowded));
        held.pop();
        assert!(matches!(book.find(&mac(200_000), now, || done(refused(now))), Found::Pending(_)));
    }

    const TICK: Duration = Duration::from_millis(1);

    fn settled(book: &mut Book, mac: &Mac, verdict: Verdict) {
        let Found::Pending(review) = book.find(mac, verdict.at, || done(verdict.clone())) else {
            panic!("nothing is known")
        };
        let verdict = review.now_or_never().expect("it is done");
        book.settle(mac, &verdict);
    }

    fn done(verdict: Verdict) -> Review {
        async move { verdict }.boxed().shared()
    }

    fn never() -> Review {
        panic!("nothing is reviewed")
    }

    fn refused(at: Instant) -> Verdict {
        Verdict { at, said: Said::No(ReviewFault::Unknown) }
    }

    fn mac(number: usize) -> Mac {
        let mut mac = [0; 32];
        mac[..8].copy_from_slice(&number.to_le_bytes());
        mac
    }
}
