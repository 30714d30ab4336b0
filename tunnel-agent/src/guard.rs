//! On whose behalf this agent asks its API server, and what else it dials, whatever the server wants.

use proto::allow_list::{Assertable, NotAssertable};
use proto::wire::http_open::Identity;
use proto::{AbortCode, AllowList};

#[cfg(test)]
mod fuzz;
pub mod services;
pub mod targets;
#[cfg(test)]
mod tests;

/// What the agent's own file says; the server cannot widen it.
#[derive(Debug, Clone)]
pub struct Guard {
    allow_list: AllowList,
    passes_through: bool,
}

/// Proof that a request may be made, and with whose credential. Only [`Guard::check`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cleared {
    /// With the agent's, which asserts this identity.
    Assert(Assertable),
    /// With the caller's own alone.
    PassThrough(PassedThrough),
}

/// Proof that callers' own credentials may pass through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedThrough(());

/// Why a request may not be made. The text names people: for DEBUG only; [`NotCleared::reason`] does not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCleared {
    /// The identity.
    #[error(transparent)]
    Identity(#[from] NotAssertable),
    /// Credentials of callers.
    #[error("passThrough is not set in the agent's configuration")]
    PassThrough,
}

impl Guard {
    /// A guard that lets the identities of this list be asserted, and callers' own credentials pass if that is said.
    #[must_use]
    pub fn new(allow_list: AllowList, passes_through: bool) -> Self {
        Self { allow_list, passes_through }
    }

    /// Whether a request may be made on behalf of `identity`.
    ///
    /// # Errors
    ///
    /// As [`AllowList::check`], and where credentials of callers do not pass through.
    pub fn check(&self, identity: &Identity) -> Result<Cleared, NotCleared> {
        match identity {
            Identity::Assert(identity) => Ok(Cleared::Assert(self.allow_list.check(identity)?)),
            Identity::PassThrough(_) if self.passes_through => Ok(Cleared::PassThrough(PassedThrough(()))),
            Identity::PassThrough(_) => Err(NotCleared::PassThrough),
        }
    }
}

impl NotCleared {
    /// A label for logs and metrics that names nobody.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Identity(cause) => cause.reason(),
            Self::PassThrough => "pass_through",
        }
    }

    /// What the stream is aborted with.
    #[must_use]
    pub fn code(&self) -> AbortCode {
        match self {
            Self::Identity(_) => AbortCode::GuardRefused,
            Self::PassThrough => AbortCode::NoPassThrough,
        }
    }
}
