//! The reasons why etcd did not answer, and whether a write can have been made.

use std::io;

use tonic::{Code, Status};

use crate::endpoint::Endpoint;

/// The start of the message by which a member refuses what it cannot decide, before it does anything.
const NO_LEADER: &str = "etcdserver: no leader";

/// The reason why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No member answered in time. The last reason is given.
    #[error("no member of etcd answered within {limit_ms} ms; the last one, {endpoint}")]
    NoAnswer {
        /// The member that was asked last.
        endpoint: Endpoint,
        /// The time that was spent, in milliseconds.
        limit_ms: u128,
        /// The reason of that member.
        source: TryError,
    },
    /// A member refused the request: a wrong password, a missing right, a full database.
    #[error("etcd refuses: {}", .0.message())]
    Refused(Status),
    /// The revision that was asked for was compacted meanwhile.
    #[error("etcd has compacted the revision that was asked for")]
    Compacted,
    /// The answer is not one of etcd's.
    #[error("etcd's answer makes no sense: {0}")]
    Nonsense(&'static str),
}

/// The reason why a transaction was not made, or perhaps made.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// It was not made.
    #[error(transparent)]
    NotMade(#[from] Error),
    /// It was sent, and no answer came: it may be made or not.
    #[error("etcd has not answered, so the outcome of the change is unknown")]
    Unknown(#[source] TryError),
}

/// The reason why one try at one member failed.
#[derive(Debug, thiserror::Error)]
pub enum TryError {
    /// The member cannot be reached.
    #[error("it cannot be reached")]
    Connect(#[source] io::Error),
    /// The handshake of TLS failed.
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    /// The connection does not speak HTTP/2.
    #[error("it does not speak HTTP/2")]
    Http(#[source] hyper::Error),
    /// No answer came in time.
    #[error("it did not answer in time")]
    Timeout,
    /// The member cannot answer now.
    #[error("it answered: {}", .0.message())]
    Status(Status),
}

/// The meaning of a failed answer.
pub(crate) enum Verdict {
    /// Another member may answer, and this one has done nothing.
    NotProcessed,
    /// Another member may answer, and this one may have done what was asked.
    Unknown,
    /// Every member would answer so.
    Final,
}

impl Verdict {
    pub(crate) fn of(status: &Status) -> Self {
        if status.message().starts_with(NO_LEADER) {
            return Self::NotProcessed;
        }
        match status.code() {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::Aborted => Self::Unknown,
            Code::Ok
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::DataLoss
            | Code::Unauthenticated => Self::Final,
        }
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        // The gRPC code of ErrCompacted, which etcd gives to nothing else in a read.
        if status.code() == Code::OutOfRange && status.message().contains("compacted") {
            Self::Compacted
        } else {
            Self::Refused(status)
        }
    }
}
