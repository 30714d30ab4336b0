//! Facts that Kubernetes' Event has no field for: annotations under `tombolo.dev/`.

use std::collections::BTreeMap;

use crate::text_enum::text_enum;

/// Annotations of one event; each key at most once.
pub(super) type Annotations = BTreeMap<Annotation, String>;

text_enum! {
    /// The annotations that an event may carry beside Kubernetes' own fields, with their keys.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Annotation {
        /// The cluster that the request is for.
        Cluster = "tombolo.dev/cluster",
        /// The instance of the agent that carried it.
        Agent = "tombolo.dev/agent",
        /// The mode of reaching the cluster: `kube-api` or `dial`.
        Mode = "tombolo.dev/mode",
        /// The host and port that a caller wants to be connected to.
        Target = "tombolo.dev/target",
        /// The network that the caller named for its target.
        Network = "tombolo.dev/network",
        /// The candidate clusters, where the caller did not name the one that has the target.
        Among = "tombolo.dev/among",
        /// The address that the agent connected it to.
        Address = "tombolo.dev/address",
        /// The generation of the policy that decided.
        PolicyGeneration = "tombolo.dev/policy-generation",
        /// The policy rule that decided.
        Rule = "tombolo.dev/rule",
        /// The decision: `allow` or `forbid`.
        Decision = "tombolo.dev/decision",
        /// The tunnel's carrier: `quic` or `http2`.
        Carrier = "tombolo.dev/carrier",
        /// The administrator's role, which limits their methods.
        Role = "tombolo.dev/role",
        /// The listener that accepted the connection.
        Listener = "tombolo.dev/listener",
        /// Address and port at the other end.
        Source = "tombolo.dev/source",
        /// The serial of the certificate, or the id of the token.
        CredentialSerial = "tombolo.dev/credential-serial",
        /// The serial number of the certificate that it led to.
        Issued = "tombolo.dev/issued",
        /// `false` for a request without an authenticated user, of which only the source is known.
        Authenticated = "tombolo.dev/authenticated",
        /// Bytes of bodies towards the cluster.
        BytesUp = "tombolo.dev/bytes-up",
        /// Bytes of bodies towards the caller.
        BytesDown = "tombolo.dev/bytes-down",
        /// The protocol that the connection was upgraded to.
        Upgrade = "tombolo.dev/upgrade",
        /// The number of streams opened for it: more than one after a retry, or for a resumed watch.
        Streams = "tombolo.dev/streams",
        /// The reason of its end, an [`EndReason`].
        EndReason = "tombolo.dev/end-reason",
        /// Milliseconds from the intent to the completion.
        DurationMs = "tombolo.dev/duration-ms",
        /// The line of the intent that this completes.
        Intent = "tombolo.dev/intent",
        /// The arguments of an administrator's request; never a secret.
        Detail = "tombolo.dev/detail",
        /// The number of requests that an aggregated line stands for.
        Count = "tombolo.dev/count",
        /// The number of sources that an aggregated line stands for.
        Sources = "tombolo.dev/sources",
        /// The log's own event: `opened`, `file-begins`, `failed`, `healed` or `closed`.
        Log = "tombolo.dev/log",
        /// The id of the log: a mark of its key.
        LogMark = "tombolo.dev/log-mark",
        /// The id of the server that writes the log.
        Server = "tombolo.dev/server",
        /// The MAC of the line before, at the beginning of a file.
        Previous = "tombolo.dev/previous",
        /// Bytes of an incomplete line that a power loss left, and that were removed.
        CutBytes = "tombolo.dev/cut-bytes",
        /// The number of groups beyond the limit, which are not named.
        GroupsLeftOut = "tombolo.dev/groups-left-out",
        /// The number of the line.
        Sequence = "tombolo.dev/sequence",
    }
}

text_enum! {
    /// The reason of an exchange's end, with its word in the log.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum EndReason {
        /// The receiver took its last byte.
        Clean = "clean",
        /// The caller closed its request.
        ClientCancel = "client_cancel",
        /// The tunnel, or the agent behind it, was lost.
        AgentLost = "agent_lost",
        /// The API server, or the agent on its behalf, aborted it.
        UpstreamReset = "upstream_reset",
        /// It reached a limit of this server.
        Limit = "limit",
        /// Its credential was revoked meanwhile.
        Revoked = "revoked",
        /// Its credential has expired meanwhile.
        Expired = "expired",
        /// The policy allows it no longer.
        PolicyChanged = "policy_changed",
        /// This server stopped, and cut it off.
        Drain = "drain",
        /// It was not served; the answer names the cause.
        Refused = "refused",
        /// The audit log could not be written for too long.
        AuditFailed = "audit_failed",
        /// Nothing observed its end: this server ended before it did.
        Unknown = "unknown",
    }
}

impl Annotation {
    /// The key of the annotation in an event.
    #[must_use]
    pub fn key(self) -> &'static str {
        self.as_str()
    }
}
