//! The cached results of reviews, and the running reviews. Bounded, and pure except for the futures in it.

use std::collections::{HashMap, VecDeque};

use futures::future::{BoxFuture, Shared};
use tokio::time::Instant;

use super::{CachedReview, ReviewKey};

/// Most cached results that allow something, and as many others. Beyond it the oldest is forgotten.
pub(super) const REMEMBERED_MAX: usize = 10_000;

/// Most reviews that run or wait for a slot. Beyond it the API server counts as unreachable.
pub(super) const WAITING_MAX: usize = 1_000;

/// A running review, shared by all that wait for it.
pub(super) type PendingReview<A> = Shared<BoxFuture<'static, A>>;

/// The results that allow something and the others, apart from each other so that guesses displace no client
/// that was allowed; and the running reviews.
pub(super) struct ReviewTable<A> {
    accepted: ReviewLog<A>,
    refused: ReviewLog<A>,
    pending: HashMap<ReviewKey, PendingReview<A>>,
}

/// The result of a look-up.
pub(super) enum Lookup<A> {
    /// The review has this cached result.
    Known(A),
    /// The review is running already.
    Pending(PendingReview<A>),
    /// The review begins now. The one who looked it up must settle it, even if nobody waits any more.
    Begun(PendingReview<A>),
    /// There is no result, and too many reviews are running.
    Crowded,
}

struct ReviewLog<A> {
    answers: HashMap<ReviewKey, A>,
    /// The order in which they were found.
    order: VecDeque<(Instant, ReviewKey)>,
}

impl<A: CachedReview> ReviewTable<A> {
    /// Looks up a result that counts at `now`, and begins the review if there is none.
    pub(super) fn find(
        &mut self,
        key: &ReviewKey,
        now: Instant,
        ask: impl FnOnce() -> PendingReview<A>,
    ) -> Lookup<A> {
        for table in [&self.accepted, &self.refused] {
            if let Some(answer) = table.answers.get(key).filter(|answer| now < answer.until()) {
                return Lookup::Known(answer.clone());
            }
        }
        if let Some(asked) = self.pending.get(key) {
            return Lookup::Pending(asked.clone());
        }
        if self.pending.len() >= WAITING_MAX {
            return Lookup::Crowded;
        }
        let asked = ask();
        self.pending.insert(*key, asked.clone());
        Lookup::Begun(asked)
    }

    /// Caches a result, and removes the running review.
    pub(super) fn settle(&mut self, key: &ReviewKey, answer: &A) {
        self.pending.remove(key);
        let (table, other) = match answer.is_yes() {
            true => (&mut self.accepted, &mut self.refused),
            false => (&mut self.refused, &mut self.accepted),
        };
        // An earlier result no longer counts, even if its time is not over.
        other.answers.remove(key);
        table.insert(*key, answer.clone());
    }
}

impl<A: CachedReview> ReviewLog<A> {
    fn insert(&mut self, key: ReviewKey, answer: A) {
        if self.order.len() >= REMEMBERED_MAX
            && let Some((at, oldest)) = self.order.pop_front()
            && self.answers.get(&oldest).is_some_and(|answer| answer.at() == at)
        {
            self.answers.remove(&oldest);
        }
        self.order.push_back((answer.at(), key));
        self.answers.insert(key, answer);
    }
}

impl<A> Default for ReviewTable<A> {
    fn default() -> Self {
        Self { accepted: ReviewLog::default(), refused: ReviewLog::default(), pending: HashMap::new() }
    }
}

impl<A> Default for ReviewLog<A> {
    fn default() -> Self {
        Self { answers: HashMap::new(), order: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn a_result_counts_for_its_time_and_is_requested_once() {
        let (mut table, now, key) = (ReviewTable::<TestReview>::default(), Instant::now(), [1; 32]);
        settled(&mut table, &key, refused(now));
        assert!(matches!(table.find(&key, now + COUNTS_FOR - TICK, never), Lookup::Known(_)));
        let Lookup::Begun(first) = table.find(&key, now + COUNTS_FOR, || done(refused(now + COUNTS_FOR)))
        else {
            panic!("it is asked again")
        };
        let Lookup::Pending(second) = table.find(&key, now + COUNTS_FOR, never) else {
            panic!("it is under way")
        };
        assert!(first.ptr_eq(&second));
    }

    #[test]
    fn the_last_result_is_the_one_that_counts() {
        let (mut table, now, key) = (ReviewTable::<TestReview>::default(), Instant::now(), [1; 32]);
        for (after, is_yes) in [(0, true), (1, false), (2, true)] {
            settled(&mut table, &key, TestReview(now + COUNTS_FOR * after, is_yes));
            let Lookup::Known(review) = table.find(&key, now + COUNTS_FOR * after, never) else {
                panic!("it was found out")
            };
            assert_eq!(review.is_yes(), is_yes);
        }
    }

    #[test]
    fn the_numbers_of_cached_and_of_waiting_reviews_are_limited() {
        let (mut table, now) = (ReviewTable::<TestReview>::default(), Instant::now());
        for number in 0..=REMEMBERED_MAX {
            settled(&mut table, &key(number), refused(now));
        }
        assert_eq!(table.refused.answers.len(), REMEMBERED_MAX);
        assert!(matches!(table.find(&key(1), now, never), Lookup::Known(_)), "the second oldest is kept");
        for number in 0..WAITING_MAX {
            let found = table.find(&key(100_000 + number), now, || done(refused(now)));
            assert!(matches!(found, Lookup::Begun(_)), "there is room for {number}");
        }
        assert!(matches!(table.find(&key(200_000), now, never), Lookup::Crowded));
        table.settle(&key(100_000), &refused(now));
        assert!(matches!(table.find(&key(200_000), now, || done(refused(now))), Lookup::Begun(_)));
    }

    const TICK: Duration = Duration::from_millis(1);

    fn settled(table: &mut ReviewTable<TestReview>, key: &ReviewKey, review: TestReview) {
        let Lookup::Begun(asked) = table.find(key, review.at(), || done(review.clone())) else {
            panic!("nothing is known")
        };
        table.settle(key, &asked.now_or_never().expect("it is done"));
    }

    fn done(review: TestReview) -> PendingReview<TestReview> {
        async move { review }.boxed().shared()
    }

    fn never() -> PendingReview<TestReview> {
        panic!("nothing is asked")
    }

    fn refused(at: Instant) -> TestReview {
        TestReview(at, false)
    }

    const COUNTS_FOR: Duration = Duration::from_secs(10);

    /// A result of some moment.
    #[derive(Clone)]
    struct TestReview(Instant, bool);

    impl CachedReview for TestReview {
        fn unreachable() -> Self {
            Self(Instant::now(), false)
        }

        fn at(&self) -> Instant {
            self.0
        }

        fn until(&self) -> Instant {
            self.0 + COUNTS_FOR
        }

        fn is_yes(&self) -> bool {
            self.1
        }
    }

    fn key(number: usize) -> ReviewKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        key
    }
}
