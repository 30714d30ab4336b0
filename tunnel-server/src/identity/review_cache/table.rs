//! What was found out a moment ago, so that whoever knows is asked seldom. Bounded, and pure but for name it holds.

use std::collections::{HashMap, VecDeque};

use futures::future::{BoxFuture, Shared};
use tokio::time::Instant;

use super::{CachedReview, ReviewKey};

/// Answers that are remembered, as many that let somebody in as others; beyond, the oldest is forgotten.
pub(super) const REMEMBERED_MAX: usize = 10_000;

/// ReviewCache that are under way or wait for their turn; beyond, who is asked counts as unreachable.
pub(super) const WAITING_MAX: usize = 1_000;

/// A question that is under way; whoever waits for its answer has one.
pub(super) type PendingReview<A> = Shared<BoxFuture<'static, A>>;

/// Two tables, so that guesses push nobody out who came in; and name is under way.
pub(super) struct ReviewTable<A> {
    accepted: ReviewLog<A>,
    refused: ReviewLog<A>,
    pending: HashMap<ReviewKey, PendingReview<A>>,
}

/// What is known.
pub(super) enum Lookup<A> {
    /// This.
    Known(A),
    /// It is being found out.
    Pending(PendingReview<A>),
    /// It is being found out from now on; who began it sees to it that it is settled, whoever still waits.
    Begun(PendingReview<A>),
    /// Nothing, and as much as may be is being found out.
    Crowded,
}

struct ReviewLog<A> {
    answers: HashMap<ReviewKey, A>,
    /// In the order in which they were found.
    order: VecDeque<(Instant, ReviewKey)>,
}

impl<A: CachedReview> ReviewTable<A> {
    /// What is known at `now`; where that is nothing, it is asked.
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

    /// Remembers an answer, and that nothing is under way any more.
    pub(super) fn settle(&mut self, key: &ReviewKey, answer: &A) {
        self.pending.remove(key);
        let (table, other) = match answer.is_yes() {
            true => (&mut self.accepted, &mut self.refused),
            false => (&mut self.refused, &mut self.accepted),
        };
        // What counted before does no more, however long it would have.
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
    fn an_answer_counts_for_its_time_and_is_asked_for_once_meanwhile() {
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
    fn the_last_answer_is_the_one_that_counts() {
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
    fn as_many_are_remembered_and_wait_as_may_and_not_one_more() {
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

    /// An answer of some moment.
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
