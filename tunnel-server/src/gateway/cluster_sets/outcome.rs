//! The outcome of asking one cluster of a set.

use std::time::SystemTime;

use proto::ClusterId;

/// One cluster that was asked, and its outcome.
#[derive(Debug)]
pub(super) struct Member<T> {
    pub(super) cluster: ClusterId,
    /// The time of the outcome, by this server's clock.
    pub(super) as_of: SystemTime,
    pub(super) outcome: Outcome<T>,
}

/// The outcome of asking one cluster.
#[derive(Debug)]
pub(super) enum Outcome<T> {
    /// The cluster has answered with this.
    Fresh(T),
    /// The cluster has answered that it has no such resource or object.
    Absent,
    /// There is no answer of it.
    Failed(Failure),
}

/// The reason why there is no answer of a cluster, as a request to this cluster alone would say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The word of the failure for programs.
    pub(super) reason: String,
    /// The sentence of the failure for people.
    pub(super) message: String,
}

impl<T> Outcome<T> {
    pub(super) fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self::Failed(Failure { reason: reason.to_owned(), message: message.into() })
    }

    pub(super) fn and_then<U>(self, then: impl FnOnce(T) -> Outcome<U>) -> Outcome<U> {
        match self {
            Self::Fresh(answer) => then(answer),
            Self::Absent => Outcome::Absent,
            Self::Failed(failure) => Outcome::Failed(failure),
        }
    }
}

impl<T> Member<T> {
    pub(super) fn new(cluster: ClusterId, outcome: Outcome<T>) -> Self {
        Self { cluster, as_of: SystemTime::now(), outcome }
    }

    pub(super) fn and_then<U>(self, then: impl FnOnce(T) -> Outcome<U>) -> Member<U> {
        let Self { cluster, as_of, outcome } = self;
        Member { cluster, as_of, outcome: outcome.and_then(then) }
    }

    /// The same without the answer itself.
    pub(super) fn without_answer(&self) -> Member<()> {
        let outcome = match &self.outcome {
            Outcome::Fresh(_) => Outcome::Fresh(()),
            Outcome::Absent => Outcome::Absent,
            Outcome::Failed(failure) => Outcome::Failed(failure.clone()),
        };
        Member { cluster: self.cluster.clone(), as_of: self.as_of, outcome }
    }
}
