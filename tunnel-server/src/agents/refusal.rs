//! The reasons why an agent's connection becomes no tunnel: what is logged, counted and sent for each.

use std::net::SocketAddr;

use daemon::error_chain;
use proto::CloseCode;
use proto::wire::refused::Reason;
use tracing::{debug, info, warn};
use transport::GreetError;

use crate::metrics::{self, HandshakeFailure};
use crate::registry::{LimitReached, RegisterError};

/// The reason why an agent's connection did not become a greeted tunnel.
pub(super) enum NotGreeted {
    /// The handshake or the greeting failed, or the agent was refused for another reason than a limit.
    Failed(GreetError),
    /// The agent was refused because of this limit.
    Full(LimitReached),
}

impl NotGreeted {
    /// Counts it in the metrics and logs it.
    pub(super) fn report(&self, from: SocketAddr) {
        match self {
            Self::Failed(error) => {
                metrics::handshake_failed(error);
                log_failed(error, from);
            }
            Self::Full(limit) => {
                metrics::tunnel_refused(failure(*limit));
                warn!(%from, reason = %limit, "an agent was refused");
            }
        }
    }
}

impl From<GreetError> for NotGreeted {
    fn from(error: GreetError) -> Self {
        Self::Failed(error)
    }
}

/// The limit that was reached, if that is why a tunnel may not be registered.
pub(super) fn limit(not: &RegisterError) -> Option<LimitReached> {
    match not {
        RegisterError::LimitReached(limit) => Some(*limit),
        RegisterError::NotAdmitted(_) | RegisterError::NotFresh { .. } => None,
    }
}

/// The reason that the agent reads in its refused greeting.
pub(super) fn reason(not: &RegisterError) -> Reason {
    match not {
        RegisterError::LimitReached(_) => Reason::Limit,
        RegisterError::NotAdmitted(_) => Reason::Revoked,
        // As where a server stops: the agent dials again, and may reach another one.
        RegisterError::NotFresh { .. } => Reason::Draining,
    }
}

/// Counts a greeted tunnel that the registry did not accept. Returns the code with which to close it.
pub(super) fn count_refused(not: &RegisterError) -> CloseCode {
    match not {
        RegisterError::LimitReached(limit) => {
            metrics::tunnel_refused(failure(*limit));
            CloseCode::NotGreeted
        }
        RegisterError::NotAdmitted(_) => {
            metrics::tunnel_refused(HandshakeFailure::Refused);
            CloseCode::Revoked
        }
        RegisterError::NotFresh { .. } => {
            metrics::tunnel_refused(HandshakeFailure::Refused);
            CloseCode::NotGreeted
        }
    }
}

/// The label of a limit. Only `full` means that an agent has no place in its cluster.
fn failure(limit: LimitReached) -> HandshakeFailure {
    match limit {
        LimitReached::ClusterAgents | LimitReached::LeavingAgents => HandshakeFailure::Full,
        LimitReached::AgentTunnels | LimitReached::ClusterTunnels => HandshakeFailure::TooManyTunnels,
        LimitReached::ServerTunnels(_) => HandshakeFailure::ServerFull,
    }
}

fn log_failed(error: &GreetError, from: SocketAddr) {
    match error {
        // Its operator expects this agent to connect, so the refusal deserves a warning.
        GreetError::Refused(reason) => warn!(%from, reason, "an agent was refused"),
        GreetError::Checked { agent, software } => {
            info!(%from, %agent, software, "a connection was checked, and no tunnel was opened");
        }
        error @ (GreetError::TooSlow
        | GreetError::Handshake(_)
        | GreetError::NotAHello
        | GreetError::Broke(_)) => {
            debug!(%from, error = %error_chain(error), "a connection of an agent did not become a tunnel");
        }
    }
}
