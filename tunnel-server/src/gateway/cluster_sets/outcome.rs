//! The outcome of asking one cluster of a set.

use std::time::SystemTime;

use proto::ClusterId;

use crate::gateway::refusal::Refusal;

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
    /// It has answered.
    Fresh(T),
    /// It has answered that it has no such resource or object.
    Absent,
    /// There is no answer of it.
    Failed(Failure),
}

/// The reason why there is no answer of a cluster, as a request to this cluster alone would say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The word for programs.
    pub(super) reason: String,
    /// The sentence for people.
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
}

impl From<&Refusal> for Failure {
    fn from(refusal: &Refusal) -> Self {
        Self { reason: refusal.cause().to_owned(), message: refusal.to_string() }
    }
}
