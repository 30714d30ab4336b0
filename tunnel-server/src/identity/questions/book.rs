//! What was found out a moment ago, so that whoever knows is asked seldom. Bounded, and pure but for what it holds.

use std::collections::{HashMap, VecDeque};

use futures::future::{BoxFuture, Shared};
use tokio::time::Instant;

use super::{Answer, Key};

/// Answers that are remembered, as many that let somebody in as others; beyond, the oldest is forgotten.
pub(super) const REMEMBERED_MAX: usize = 10_000;

/// Questions that are under way or wait for their turn; beyond, who is asked counts as away.
pub(super) const WAITING_MAX: usize = 1_000;

/// A question that is under way; whoever waits for its answer has one.
pub(super) type Asked<A> = Shared<BoxFuture<'static, A>>;

/// Two tables, so that guesses push nobody out who came in; and what is under way.
pub(super) struct Book<A> {
    accepted: Table<A>,
    refused: Table<A>,
    pending: HashMap<Key, Asked<A>>,
}

/// What is known.
pub(super) enum Found<A> {
    /// This.
    Known(A),
    /// It is being found out.
    Pending(Asked<A>),
    /// It is being found out from now on; who began it sees to it that it is settled, whoever still waits.
    Begun(Asked<A>),
    /// Nothing, and as much as may be is being found out.
    Crowded,
}

struct Table<A> {
    answers: HashMap<Key, A>,
    /// In the order in which they were found.
    order: VecDeque<(Instant, Key)>,
}

impl<A: Answer> Book<A> {
    /// What is known at `now`; where that is nothing, it is asked.
    pub(super) fn find(&mut self, key: &Key, now: Instant, ask: impl FnOnce() -> Asked<A>) -> Found<A> {
        for table in [&self.accepted, &self.refused] {
            if let Some(answer) = table.answers.get(key).filter(|answer| now < answer.until()) {
                return Found::Known(answer.clone());
            }
        }
        if let Some(asked) = self.pending.get(key) {
            return Found::Pending(asked.clone());
        }
        if self.pending.len() >= WAITING_MAX {
            return Found::Crowded;
        }
        let asked = ask();
        self.pending.insert(*key, asked.clone());
        Found::Begun(asked)
    }

    /// Remembers an answer, and that nothing is under way any more.
    pub(super) fn settle(&mut self, key: &Key, answer: &A) {
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

impl<A: Answer> Table<A> {
    fn insert(&mut self, key: Key, answer: A) {
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

impl<A> Default for Book<A> {
    fn default() -> Self {
        Self { accepted: Table::default(), refused: Table::default(), pending: HashMap::new() }
    }
}

impl<A> Default for Table<A> {
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
        let (mut book, now, key) = (Book::<Said>::default(), Instant::now(), [1; 32]);
        settled(&mut book, &key, refused(now));
        assert!(matches!(book.find(&key, now + COUNTS_FOR - TICK, never), Found::Known(_)));
        let Found::Begun(first) = book.find(&key, now + COUNTS_FOR, || done(refused(now + COUNTS_FOR)))
        else {
            panic!("it is asked again")
        };
        let Found::Pending(second) = book.find(&key, now + COUNTS_FOR, never) else {
            panic!("it is under way")
        };
        assert!(first.ptr_eq(&second));
    }

    #[test]
    fn the_last_answer_is_the_one_that_counts() {
        let (mut book, now, key) = (Book::<Said>::default(), Instant::now(), [1; 32]);
        for (after, is_yes) in [(0, true), (1, false), (2, true)] {
            settled(&mut book, &key, Said(now + COUNTS_FOR * after, is_yes));
            let Found::Known(said) = book.find(&key, now + COUNTS_FOR * after, never) else {
                panic!("it was found out")
            };
            assert_eq!(said.is_yes(), is_yes);
        }
    }

    #[test]
    fn as_many_are_remembered_and_wait_as_may_and_not_one_more() {
        let (mut book, now) = (Book::<Said>::default(), Instant::now());
        for number in 0..=REMEMBERED_MAX {
            settled(&mut book, &key(number), refused(now));
        }
        assert_eq!(book.refused.answers.len(), REMEMBERED_MAX);
        assert!(matches!(book.find(&key(1), now, never), Found::Known(_)), "the second oldest is kept");
        for number in 0..WAITING_MAX {
            let found = book.find(&key(100_000 + number), now, || done(refused(now)));
            assert!(matches!(found, Found::Begun(_)), "there is room for {number}");
        }
        assert!(matches!(book.find(&key(200_000), now, never), Found::Crowded));
        book.settle(&key(100_000), &refused(now));
        assert!(matches!(book.find(&key(200_000), now, || done(refused(now))), Found::Begun(_)));
    }

    const TICK: Duration = Duration::from_millis(1);

    fn settled(book: &mut Book<Said>, key: &Key, said: Said) {
        let Found::Begun(asked) = book.find(key, said.at(), || done(said.clone())) else {
            panic!("nothing is known")
        };
        book.settle(key, &asked.now_or_never().expect("it is done"));
    }

    fn done(said: Said) -> Asked<Said> {
        async move { said }.boxed().shared()
    }

    fn never() -> Asked<Said> {
        panic!("nothing is asked")
    }

    fn refused(at: Instant) -> Said {
        Said(at, false)
    }

    const COUNTS_FOR: Duration = Duration::from_secs(10);

    /// An answer of some moment.
    #[derive(Clone)]
    struct Said(Instant, bool);

    impl Answer for Said {
        fn away() -> Self {
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

    fn key(number: usize) -> Key {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        key
    }
}
