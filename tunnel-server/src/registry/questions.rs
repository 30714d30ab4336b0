//! The questions to one other server that wait for their answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::peering::{ProbeAnswer, ProbeOutcome};
use tokio::sync::oneshot;

/// Most questions of one session that wait for an answer. A session carries 1,000 messages a second, and an answer takes two.
pub const QUESTIONS_MAX: usize = 2_000;

/// The questions of one session, by their numbers.
#[derive(Default)]
pub(super) struct Questions {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Option<ProbeOutcome>>>>,
}

impl Questions {
    /// The number of one more question, and its answer to come; `None` if too many wait.
    pub(super) fn begin(&self) -> Option<(u64, oneshot::Receiver<Option<ProbeOutcome>>)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.waiting();
        if waiting.len() >= QUESTIONS_MAX {
            return None;
        }
        waiting.insert(number, answer);
        Some((number, answered))
    }

    /// Nobody waits for this answer any more.
    pub(super) fn give_up(&self, number: u64) {
        self.waiting().remove(&number);
    }

    /// Takes an answer. One that comes too late changes nothing.
    pub(super) fn answered(&self, ProbeAnswer { number, outcome }: ProbeAnswer) {
        if let Some(waiting) = self.waiting().remove(&number) {
            // It may be given up at this moment.
            let _ = waiting.send(outcome);
        }
    }

    /// No answer comes any more.
    pub(super) fn end(&self) {
        self.waiting().clear();
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Option<ProbeOutcome>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIVE: Option<ProbeOutcome> = Some(ProbeOutcome::NewRefused);

    #[test]
    fn an_answer_reaches_its_own_question_and_no_late_one_counts() {
        let questions = Questions::default();
        let (first, mut first_answered) = questions.begin().unwrap();
        let (second, mut second_answered) = questions.begin().unwrap();

        questions.answered(ProbeAnswer { number: second, outcome: ALIVE });
        questions.give_up(first);
        questions.answered(ProbeAnswer { number: first, outcome: ALIVE });

        assert_eq!(second_answered.try_recv(), Ok(ALIVE));
        assert!(first_answered.try_recv().is_err());
    }

    #[test]
    fn as_many_questions_wait_as_may() {
        let questions = Questions::default();
        let asked: Vec<_> = (0..QUESTIONS_MAX).map(|_| questions.begin().unwrap()).collect();
        assert!(questions.begin().is_none());

        questions.end();

        assert!(questions.begin().is_some());
        assert!(
            asked.into_iter().all(|(_, mut answered)| answered.try_recv().is_err()),
            "the session has ended"
        );
    }
}
