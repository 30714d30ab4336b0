//! The agent's own limits, which the server cannot widen: asserted identities, credentials, targets of requests, and
//! targets of connections.

use proto::allow_list::{Assertable, NotAssertable};
use proto::wire::http_open::Identity;
use proto::{AbortCode, AllowList};

use crate::metrics::GuardReason;

#[cfg(test)]
mod fuzz;
pub mod request_target;
pub mod services;
pub mod targets;
#[cfg(test)]
mod tests;

/// The allow-list of the agent's own configuration. The server cannot widen it.
#[derive(Debug, Clone)]
pub struct Guard {
    allow_list: AllowList,
    passes_through: bool,
}

/// Proof that a request may be made, and with which credential. Only [`Guard::check`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cleared {
    /// With the agent's credential, which asserts this identity.
    Assert(Assertable),
    /// With the caller's own credential and nothing of the agent's.
    PassThrough(PassedThrough),
}

/// Proof that callers' own credentials may pass through this agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedThrough(());

/// A request may not be made. The text names people and is for DEBUG only. [`NotCleared::reason`] names
/// nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCleared {
    /// The allow-list does not let the identity be asserted.
    #[error(transparent)]
    Identity(#[from] NotAssertable),
    /// Callers' own credentials do not pass through.
    #[error("passThrough is not set in the agent's configuration")]
    PassThrough,
}

impl Guard {
    /// A guard that lets the identities of this list be asserted, and callers' own credentials pass if
    /// `passes_through`.
    #[must_use]
    pub fn new(allow_list: AllowList, passes_through: bool) -> Self {
        Self { allow_list, passes_through }
    }

    /// Proves that a request may be made on behalf of `identity`.
    ///
    /// # Errors
    ///
    /// As [`AllowList::check`], and [`NotCleared::PassThrough`] where callers' credentials do not pass
    /// through.
    pub fn check(&self, identity: &Identity) -> Result<Cleared, NotCleared> {
        match identity {
            Identity::Assert(identity) => Ok(Cleared::Assert(self.allow_list.check(identity)?)),
            Identity::PassThrough(_) if self.passes_through => Ok(Cleared::PassThrough(PassedThrough(()))),
            Identity::PassThrough(_) => Err(NotCleared::PassThrough),
        }
    }
}

impl NotCleared {
    /// The label value for logs and metrics, which names nobody.
    #[must_use]
    pub fn reason(&self) -> GuardReason {
        match self {
            Self::Identity(refused) => refused.into(),
            Self::PassThrough => GuardReason::PassThrough,
        }
    }

    /// The code with which the stream is aborted.
    #[must_use]
    pub fn code(&self) -> AbortCode {
        match self {
            Self::Identity(_) => AbortCode::GuardRefused,
            Self::PassThrough => AbortCode::NoPassThrough,
        }
    }
}
