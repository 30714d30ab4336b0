//! The reasons why a caller is not connected to a target.

use audit::{AuditError, EndReason};
use http::StatusCode;
use policy::Target;
use proto::ClusterId;
use proto::wire::not_connected::Reason;

use super::REPLY_MAX;
use crate::authz::{Forbidden, NotDelegated};
use crate::exchanges::TerminationReason;
use crate::exchanges::audit::end_reason;
use crate::registry::RouteError;

/// Most clusters that the message about an ambiguous address lists.
pub(super) const LISTED_MAX: usize = 8;

/// The reason why a caller was not connected to a target. The message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The exchange was terminated, or may not begin.
    #[error("{0}")]
    Terminated(#[from] TerminationReason),
    /// The policy does not let this caller dial this target.
    #[error("{0}")]
    Forbidden(#[from] Forbidden),
    /// The delegated cluster denies it, or does not answer.
    #[error("{0}")]
    NotDelegated(#[from] NotDelegated),
    /// Several clusters have the target. The caller may reach all that are listed.
    #[error(
        "{0} is ambiguous among {among}: name its cluster in place of the network, or use a token for that one",
        among = cluster_list(.1)
    )]
    Ambiguous(Target, Vec<ClusterId>),
    /// No candidate cluster has the target, or this caller may not dial it there.
    #[error(
        "{0} is in none of this network's or this token's clusters where you may dial it: check address and network, or name its \
         cluster"
    )]
    NotFound(Target),
    /// The server's store does not let the cluster advertise the target.
    #[error(
        "{1} is not among what the cluster {0} may advertise: the operator of this server allows it by `tombolo cluster update \
         {0} --advertise {1}`"
    )]
    NotOfCluster(ClusterId, Target),
    /// The agent does not advertise the target.
    #[error("the agent of cluster {0} does not advertise {1}: name it in targets of its configuration")]
    NotAdvertised(ClusterId, Target),
    /// There is no route to the cluster.
    #[error("{0}")]
    NoTunnel(#[from] RouteError),
    /// The tunnel was live but accepted no stream.
    #[error("cluster {0} accepts nothing new at the moment: try again")]
    NoStream(ClusterId),
    /// The agent refused the dial, or could not connect.
    #[error("{}", agent_refusal(.0, .1, *.2))]
    ByAgent(ClusterId, Target, Reason),
    /// The agent is too old to know dials.
    #[error("the agent of cluster {0} cannot dial: upgrade it")]
    OldAgent(ClusterId),
    /// The agent did not reply in time.
    #[error(
        "the agent of cluster {0} did not answer the dial within {max} s: check its log, and the site's link",
        max = REPLY_MAX.as_secs()
    )]
    Silent(ClusterId),
    /// The tunnel or the stream was lost before the agent's reply.
    #[error("the connection to cluster {0} was lost: try again")]
    Lost(ClusterId),
    /// The audit log cannot be written, so the dial is not done.
    #[error("this server cannot write its audit log and serves nothing new until it can: try again later")]
    NotRecorded(#[from] AuditError),
}

/// Defines each error's HTTP status and cause in one table, which also yields the list of causes.
macro_rules! dial_error_facts {
    ($($error:pat => $status:ident, $cause:literal;)+) => {
        impl DialError {
            /// Every value of [`DialError::cause`], each once. Causes that requests have too are among them.
            pub const CAUSES: &'static [&'static str] = &[$($cause),+];

            /// The HTTP status of the error.
            #[must_use]
            pub fn status(&self) -> StatusCode {
                match self {
                    $($error => StatusCode::$status,)+
                }
            }

            /// The cause of the refusal, for programs.
            #[must_use]
            pub fn cause(&self) -> &'static str {
                match self {
                    $($error => $cause,)+
                }
            }
        }
    };
}

dial_error_facts! {
    Self::Terminated(TerminationReason::Revoked) => UNAUTHORIZED, "CredentialRevoked";
    Self::Terminated(TerminationReason::Expired) => UNAUTHORIZED, "CredentialExpired";
    Self::Terminated(TerminationReason::TooOld) => UNAUTHORIZED, "SessionTooOld";
    Self::Terminated(TerminationReason::Stale) => SERVICE_UNAVAILABLE, "ServerStale";
    Self::Terminated(TerminationReason::PolicyChanged) => FORBIDDEN, "PolicyChanged";
    Self::Terminated(TerminationReason::ForbiddenByHost) | Self::NotDelegated(NotDelegated::Forbidden { .. }) =>
        FORBIDDEN, "ForbiddenByHost";
    Self::Terminated(TerminationReason::HostAway) | Self::NotDelegated(NotDelegated::Away) => SERVICE_UNAVAILABLE, "HostAway";
    Self::Forbidden(_) => FORBIDDEN, "ForbiddenByPolicy";
    Self::Ambiguous(..) => FORBIDDEN, "TargetAmbiguous";
    Self::NotFound(_) | Self::NotOfCluster(..) | Self::NotAdvertised(..) => FORBIDDEN, "TargetRefused";
    Self::NoTunnel(RouteError::NeverSeen(_)) => SERVICE_UNAVAILABLE, "ClusterNeverSeen";
    Self::NoTunnel(RouteError::Deleted { .. }) => SERVICE_UNAVAILABLE, "ClusterDeleted";
    Self::NoTunnel(RouteError::Away { .. }) => SERVICE_UNAVAILABLE, "ClusterNotConnected";
    Self::NoTunnel(RouteError::QueueFull(_)) => SERVICE_UNAVAILABLE, "ClusterCrowded";
    Self::NoStream(_) => SERVICE_UNAVAILABLE, "ClusterBusy";
    Self::ByAgent(.., Reason::Unspecified | Reason::Target | Reason::Unlisted | Reason::Special) =>
        FORBIDDEN, "ForbiddenByAgent";
    Self::ByAgent(
        ..,
        Reason::Unresolved | Reason::Unreachable | Reason::NoService | Reason::NotReady | Reason::Unread,
    ) => BAD_GATEWAY, "TargetUnreachable";
    Self::ByAgent(.., Reason::Timeout) => GATEWAY_TIMEOUT, "TargetSilent";
    Self::ByAgent(.., Reason::Limit) => SERVICE_UNAVAILABLE, "AgentFull";
    Self::OldAgent(_) => BAD_GATEWAY, "AgentCannotDial";
    Self::Silent(_) => GATEWAY_TIMEOUT, "AgentSilent";
    Self::Lost(_) => GATEWAY_TIMEOUT, "ClusterLost";
    Self::NotRecorded(_) => SERVICE_UNAVAILABLE, "NotRecorded";
}

impl DialError {
    /// The denial by the policy, if that is the error.
    #[must_use]
    pub fn forbidden(&self) -> Option<&Forbidden> {
        if let Self::Forbidden(forbidden) = self { Some(forbidden) } else { None }
    }

    /// The clusters that all have the target, for the audit log. `None` for other errors.
    #[must_use]
    pub(crate) fn among(&self) -> Option<String> {
        if let Self::Ambiguous(_, among) = self { Some(cluster_list(among)) } else { None }
    }

    /// The end of the exchange in the audit log.
    #[must_use]
    pub fn end(&self) -> EndReason {
        match self {
            Self::Terminated(why) => end_reason(*why),
            Self::Forbidden(_)
            | Self::NotDelegated(_)
            | Self::Ambiguous(..)
            | Self::NotFound(_)
            | Self::NotOfCluster(..)
            | Self::NotAdvertised(..)
            | Self::NoTunnel(_)
            | Self::NoStream(_)
            | Self::OldAgent(_)
            | Self::ByAgent(
                ..,
                Reason::Unspecified | Reason::Target | Reason::Unlisted | Reason::Special | Reason::Limit,
            ) => EndReason::Refused,
            Self::ByAgent(
                ..,
                Reason::Unresolved
                | Reason::Unreachable
                | Reason::Timeout
                | Reason::NoService
                | Reason::NotReady
                | Reason::Unread,
            ) => EndReason::UpstreamReset,
            Self::Silent(_) | Self::Lost(_) => EndReason::AgentLost,
            Self::NotRecorded(_) => EndReason::AuditFailed,
        }
    }
}

/// The names of the first clusters, and the number of further ones.
pub(super) fn cluster_list(clusters: &[ClusterId]) -> String {
    let named: Vec<&str> = clusters.iter().take(LISTED_MAX).map(ClusterId::as_str).collect();
    match clusters.len().saturating_sub(LISTED_MAX) {
        // There were more candidates than the limit, and all that were asked about were denied.
        0 if named.is_empty() => "many clusters".to_owned(),
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn agent_refusal(cluster: &ClusterId, target: &Target, reason: Reason) -> String {
    match reason {
        Reason::Unspecified | Reason::Target => {
            format!("the agent of cluster {cluster} does not accept {target} as a target")
        }
        Reason::Unlisted => format!(
            "the agent of cluster {cluster} does not dial {target}: name it in targets of its configuration"
        ),
        Reason::Special => format!(
            "the agent of cluster {cluster} does not dial {target}, which is a special address: only an entry of targets in \
             its configuration that names the address in full allows it"
        ),
        Reason::Unresolved => {
            format!("{target} has no address in cluster {cluster}: check the name, and the cluster's DNS")
        }
        Reason::Unreachable => format!("nobody answers at {target} in cluster {cluster}: check that it runs"),
        Reason::Timeout => {
            format!(
                "{target} in cluster {cluster} did not answer in time: check that it runs and can be reached there"
            )
        }
        Reason::NoService => format!(
            "cluster {cluster} has no Service with the TCP port {target}, or it is an ExternalName: check the Service"
        ),
        Reason::NotReady => {
            format!(
                "the Service of {target} in cluster {cluster} has no endpoint that is ready: check its pods"
            )
        }
        Reason::Unread => format!(
            "the agent of cluster {cluster} cannot read where {target} leads: apply what `tombolo rbac` makes of its \
             configuration, and check its log"
        ),
        Reason::Limit => format!(
            "the agent of cluster {cluster} has as many connections to targets as its limit allows: end some, or try again"
        ),
    }
}
