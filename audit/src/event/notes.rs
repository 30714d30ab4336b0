//! What Kubernetes' Event has no field for: annotations under `tombolo.dev/`.

use std::collections::BTreeMap;

/// What was said; each thing once.
pub(super) type Notes = BTreeMap<Note, String>;

/// What can be said of an exchange beside Kubernetes' own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// The cluster it is for.
    Cluster,
    /// The instance of the agent that carried it.
    Agent,
    /// How the cluster is reached: `kube-api` or `dial`.
    Mode,
    /// The host and port that a caller wants to be connected to.
    Target,
    /// The network in which the caller says that its target is.
    Network,
    /// The clusters of which it was not told which one the caller means.
    Among,
    /// The address that the agent connected it to.
    Address,
    /// The generation of the policy that decided.
    PolicyGeneration,
    /// The rule that decided.
    Rule,
    /// `allow` or `forbid`.
    Decision,
    /// `quic` or `http2`.
    Carrier,
    /// What an administrator may do.
    Role,
    /// The door it came through.
    Listener,
    /// Address and port at the other end.
    Source,
    /// The serial of the certificate, or the id of the token.
    CredentialSerial,
    /// The serial number of the certificate that it led to.
    Issued,
    /// `false` where nobody has proved who they are, and all that is known is where they came from.
    Authenticated,
    /// Bytes of bodies towards the cluster.
    BytesUp,
    /// Bytes of bodies towards the caller.
    BytesDown,
    /// The protocol that the connection became.
    Upgrade,
    /// How many streams were opened for it: more than one where it was sent again or a watch went on.
    Streams,
    /// Why it ended, an [`EndReason`].
    EndReason,
    /// From the intent to the completion.
    DurationMs,
    /// The line of the intent that this completes.
    Intent,
    /// What an administrator did it with: the words of a verdict, never a secret.
    Detail,
    /// How many times, where one line stands for many.
    Count,
    /// How many sources, where one line stands for many.
    Sources,
    /// What the log says of itself.
    Log,
    /// Which log this is: a mark of its key.
    LogMark,
    /// Whose log this is.
    Server,
    /// The code of the line before, where a file begins.
    Previous,
    /// Bytes of an unfinished line that a loss of power left, and that were taken away.
    CutBytes,
    /// Groups that are not named because they are too many.
    GroupsLeftOut,
    /// The line's number.
    Sequence,
}

/// Why an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// Its last byte was taken.
    Clean,
    /// Its caller hung up.
    ClientCancel,
    /// The tunnel, or the agent behind it, was lost.
    AgentLost,
    /// The API server, or the agent on its behalf, broke it off.
    UpstreamReset,
    /// It came to a limit of ours.
    Limit,
    /// A credential was revoked.
    Revoked,
    /// A credential's time was over.
    Expired,
    /// Policy allows it no longer.
    PolicyChanged,
    /// This server stopped.
    Drain,
    /// It was not served, and the answer says why.
    Refused,
    /// The audit log could not be written for too long.
    AuditFailed,
    /// Nobody was there to see it: this server ended before it did.
    Unknown,
}

impl Note {
    /// How many there are.
    pub(super) const COUNT: usize = Self::Sequence as usize + 1;

    /// Its key among the annotations.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Cluster => "tombolo.dev/cluster",
            Self::Agent => "tombolo.dev/agent",
            Self::Mode => "tombolo.dev/mode",
            Self::Target => "tombolo.dev/target",
            Self::Network => "tombolo.dev/network",
            Self::Among => "tombolo.dev/among",
            Self::Address => "tombolo.dev/address",
            Self::PolicyGeneration => "tombolo.dev/policy-generation",
            Self::Rule => "tombolo.dev/rule",
            Self::Decision => "tombolo.dev/decision",
            Self::Carrier => "tombolo.dev/carrier",
            Self::Role => "tombolo.dev/role",
            Self::Listener => "tombolo.dev/listener",
            Self::Source => "tombolo.dev/source",
            Self::CredentialSerial => "tombolo.dev/credential-serial",
            Self::Issued => "tombolo.dev/issued",
            Self::Authenticated => "tombolo.dev/authenticated",
            Self::BytesUp => "tombolo.dev/bytes-up",
            Self::BytesDown => "tombolo.dev/bytes-down",
            Self::Upgrade => "tombolo.dev/upgrade",
            Self::Streams => "tombolo.dev/streams",
            Self::EndReason => "tombolo.dev/end-reason",
            Self::DurationMs => "tombolo.dev/duration-ms",
            Self::Intent => "tombolo.dev/intent",
            Self::Detail => "tombolo.dev/detail",
            Self::Count => "tombolo.dev/count",
            Self::Sources => "tombolo.dev/sources",
            Self::Log => "tombolo.dev/log",
            Self::LogMark => "tombolo.dev/log-mark",
            Self::Server => "tombolo.dev/server",
            Self::Previous => "tombolo.dev/previous",
            Self::CutBytes => "tombolo.dev/cut-bytes",
            Self::GroupsLeftOut => "tombolo.dev/groups-left-out",
            Self::Sequence => "tombolo.dev/sequence",
        }
    }
}

impl EndReason {
    /// Its word in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::ClientCancel => "client_cancel",
            Self::AgentLost => "agent_lost",
            Self::UpstreamReset => "upstream_reset",
            Self::Limit => "limit",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::PolicyChanged => "policy_changed",
            Self::Drain => "drain",
            Self::Refused => "refused",
            Self::AuditFailed => "audit_failed",
            Self::Unknown => "unknown",
        }
    }
}
