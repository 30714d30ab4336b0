//! The reasons for which this server ends an exchange before its time.

use proto::text_enum;

text_enum! {
    /// The reason why an exchange was ended, or may not begin. As an error it is a sentence for the caller
    /// that says what to do.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum TerminationReason {
        /// The caller's credential was revoked.
        #[error("this credential was revoked: ask the operator of this server for another")]
        Revoked = "revoked",
        /// The caller's credential has expired.
        #[error("the credential of this request has expired: log in again")]
        Expired = "expired",
        /// The policy no longer permits the action.
        #[error("the policy of this server was changed and allows this no longer: ask its operator for a rule")]
        PolicyChanged = "policy_changed",
        /// The cluster that `policy.delegation` names does not allow the action.
        #[error(
            "the cluster that this server asks about its callers allows this no longer: ask who runs that cluster for a rule"
        )]
        ForbiddenByHost = "forbidden_by_host",
        /// That cluster could not be asked for [`UNREVIEWED_MAX`](super::UNREVIEWED_MAX).
        #[error("the cluster that this server asks about its callers does not answer: try again")]
        HostAway = "host_away",
        /// This server has had no news of its records for so long that it cannot know what is permitted.
        #[error(
            "this server has had no news from etcd for too long to know who may do what: try again, another server may answer"
        )]
        Stale = "stale",
        /// The exchange has run for as long as the configuration allows.
        #[error("this request has run for as long as one may here: begin it again")]
        TooOld = "session_too_old",
    }
}
