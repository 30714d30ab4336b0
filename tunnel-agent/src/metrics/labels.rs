//! The values of the metrics' labels, each set as an enum.
//!
//! The list of a label's values and the enum come from one declaration. The conversions from errors are
//! total. So an error variant without a value does not compile, and every value starts at 0.

use proto::AbortCode;
use proto::allow_list::NotAssertable;
use proto::text_enum;
use proto::wire::not_connected::Reason;
use proto::wire::refused;
use transport::{DialError, TunnelEnded};

text_enum! {
    /// The kind of a request: whether it changes anything, and how long it may last.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RequestKind {
        /// `GET`, `HEAD` and `OPTIONS` that end by themselves.
        Read = "read",
        /// A request with any other method.
        Write = "write",
        /// A watch or a log that is followed: it lasts as long as its caller likes. The server decides that.
        LongRunning = "long_running",
        /// A request for an upgrade to another protocol.
        Upgrade = "upgrade",
        /// A connection to a target, which is no HTTP request.
        Dial = "dial",
    }
}

text_enum! {
    /// The cause of a tunnel's end.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TunnelEnd {
        /// Both sides had no open stream any more.
        Drained = "drained",
        /// The server closed the tunnel.
        ClosedByServer = "closed_by_server",
        /// Nothing was received for too long.
        Lost = "lost",
        /// Another process of the server answers.
        ServerRestarted = "server_restarted",
        /// The server broke the protocol.
        Violation = "violation",
        /// The connection of QUIC or HTTP/2 failed.
        Carrier = "carrier",
    }
}

text_enum! {
    /// The reason for which a stream was aborted before an answer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AbortReason {
        /// The caller hung up before that.
        Abandoned = "abandoned",
        /// The caller did not read its answer.
        SlowReader = "slow_reader",
        /// The stream's first frame was missing or invalid.
        BadOpen = "bad_open",
        /// The agent's own allow-list refused the identity.
        Guard = "guard",
        /// The agent is about to stop.
        Draining = "draining",
        /// The agent's limit of requests was reached.
        Busy = "busy",
        /// The stream was reported as not begun before it arrived, and its request was sent another way.
        Fenced = "fenced",
        /// The request's head was refused.
        BadRequest = "bad_request",
        /// The API server cannot be reached.
        ApiServerUnreachable = "apiserver_unreachable",
        /// The API server did not answer in time.
        ApiServerSilent = "apiserver_silent",
        /// The API server's certificate was not accepted.
        ApiServerUntrusted = "apiserver_untrusted",
        /// The connection to the API server broke.
        ApiServerLost = "apiserver_lost",
        /// The API server refused the request without processing it, more often than the agent repeats it.
        ApiServerNotProcessed = "apiserver_not_processed",
        /// The API server's answer breaks HTTP.
        ApiServerProtocolError = "apiserver_protocol_error",
        /// The agent's credential was refused.
        NoCredential = "no_credential",
        /// The connection to a target broke.
        TargetLost = "target_lost",
        /// The caller's own bearer token is missing.
        NoBearer = "no_bearer",
        /// A code that this version does not know.
        Unknown = "unknown",
    }
}

text_enum! {
    /// The reason for which a request was sent to the API server again.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ResendReason {
        /// No byte of it was written, because its connection had ended.
        NotWritten = "not_written",
        /// The API server said that it had not processed it, by GOAWAY or REFUSED_STREAM.
        NotProcessed = "not_processed",
        /// It is a read, and its connection was lost before its answer.
        Lost = "lost",
    }
}

text_enum! {
    /// The reason for which a dial led to no tunnel.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DialFailureReason {
        /// The server's name cannot be resolved.
        Resolve = "resolve",
        /// The server's name has no address.
        NoAddress = "no_address",
        /// No UDP socket could be opened.
        Socket = "socket",
        /// The certificate name is not valid.
        Name = "name",
        /// Nobody answered at the address.
        NoAnswer = "no_answer",
        /// The proxy failed or refused.
        Proxy = "proxy",
        /// The server rejected the agent's certificate.
        Rejected = "rejected",
        /// The agent does not trust the server's certificate.
        Untrusted = "untrusted",
        /// The handshake failed for another reason.
        Handshake = "handshake",
        /// The server takes no connections now.
        NotNow = "not_now",
        /// The handshake took too long.
        TooSlow = "too_slow",
        /// The server refused the agent, for another reason than a limit.
        Refused = "refused",
        /// The server, the cluster or the agent has as many agents or tunnels as it may.
        Full = "full",
        /// The greeting broke, or was not valid.
        Greeting = "greeting",
        /// This host could not dial.
        Local = "local",
    }
}

text_enum! {
    /// The reason for which the agent's own allow-list refused an identity.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GuardReason {
        /// The name to assert is empty.
        Empty = "empty",
        /// A name is too long.
        TooLong = "too_long",
        /// The user has too many groups.
        TooManyGroups = "too_many_groups",
        /// A name cannot stand in a header.
        Unfit = "unfit",
        /// A name that is never asserted.
        Never = "never",
        /// A name of Kubernetes itself that is not listed.
        System = "system",
        /// No pattern of the list matches.
        Unlisted = "unlisted",
        /// Callers' own credentials do not pass through.
        PassThrough = "pass_through",
    }
}

text_enum! {
    /// The outcome of a dial to a target.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TargetDialOutcome {
        /// The target accepted the connection.
        Connected = "connected",
        /// The agent's own list of targets does not have it.
        Guard = "guard",
        /// Nobody answers there, or it has no address.
        Unreachable = "unreachable",
        /// The limit of connections was reached.
        Limit = "limit",
    }
}

text_enum! {
    /// The outcome of a request to the cluster for its control plane.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DiscoveryOutcome {
        /// The cluster gave a usable answer.
        Answered = "ok",
        /// There was no usable answer.
        Failed = "failed",
    }
}

impl From<&TunnelEnded> for TunnelEnd {
    fn from(ended: &TunnelEnded) -> Self {
        match ended {
            TunnelEnded::Drained => Self::Drained,
            TunnelEnded::ClosedByPeer(_) => Self::ClosedByServer,
            TunnelEnded::Lost => Self::Lost,
            TunnelEnded::Restarted => Self::ServerRestarted,
            TunnelEnded::Violation(_) | TunnelEnded::Frame(_) => Self::Violation,
            TunnelEnded::Carrier(_) => Self::Carrier,
        }
    }
}

impl From<AbortCode> for AbortReason {
    fn from(code: AbortCode) -> Self {
        match code {
            // A server that has lost this tunnel sends nothing over it.
            AbortCode::Abandoned | AbortCode::TunnelLost => Self::Abandoned,
            AbortCode::SlowReader => Self::SlowReader,
            AbortCode::BadOpen => Self::BadOpen,
            AbortCode::GuardRefused | AbortCode::NoPassThrough => Self::Guard,
            AbortCode::NoBearer => Self::NoBearer,
            AbortCode::Draining => Self::Draining,
            AbortCode::Busy => Self::Busy,
            AbortCode::Fenced => Self::Fenced,
            AbortCode::BadRequest => Self::BadRequest,
            AbortCode::ApiServerUnreachable => Self::ApiServerUnreachable,
            AbortCode::ApiServerSilent => Self::ApiServerSilent,
            AbortCode::ApiServerUntrusted
            | AbortCode::ApiServerUnknownIssuer
            | AbortCode::ApiServerWrongName
            | AbortCode::ApiServerCertificateExpired
            | AbortCode::ApiServerWeakCertificate => Self::ApiServerUntrusted,
            AbortCode::ApiServerNotProcessed => Self::ApiServerNotProcessed,
            AbortCode::ApiServerLost => Self::ApiServerLost,
            AbortCode::ApiServerProtocolError => Self::ApiServerProtocolError,
            AbortCode::NoCredential => Self::NoCredential,
            AbortCode::TargetLost => Self::TargetLost,
            AbortCode::Unknown(_) => Self::Unknown,
        }
    }
}

impl From<&DialError> for DialFailureReason {
    fn from(error: &DialError) -> Self {
        match error {
            DialError::Name(_) => Self::Name,
            DialError::NoAnswer | DialError::Tcp(_) => Self::NoAnswer,
            DialError::Proxy(_) => Self::Proxy,
            DialError::Rejected(_) => Self::Rejected,
            DialError::Untrusted(_) | DialError::Clock(_) => Self::Untrusted,
            DialError::Handshake(_) => Self::Handshake,
            DialError::ServerUnavailable => Self::NotNow,
            DialError::TooSlow => Self::TooSlow,
            DialError::Refused(why) if why.reason() == refused::Reason::Limit => Self::Full,
            DialError::Refused(_) | DialError::TurnedAway(_) => Self::Refused,
            DialError::NotAWelcome | DialError::Broke(_) => Self::Greeting,
            DialError::Local(_) => Self::Local,
        }
    }
}

impl From<&NotAssertable> for GuardReason {
    fn from(refused: &NotAssertable) -> Self {
        match refused {
            NotAssertable::Empty(_) => Self::Empty,
            NotAssertable::TooLong(_) => Self::TooLong,
            NotAssertable::TooManyGroups => Self::TooManyGroups,
            NotAssertable::Unfit(..) => Self::Unfit,
            NotAssertable::Never(..) => Self::Never,
            NotAssertable::System(..) => Self::System,
            NotAssertable::Unlisted(..) => Self::Unlisted,
        }
    }
}

impl From<Reason> for TargetDialOutcome {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Unspecified | Reason::Target | Reason::Unlisted | Reason::Special => Self::Guard,
            Reason::Unresolved
            | Reason::Unreachable
            | Reason::Timeout
            | Reason::NoService
            | Reason::NotReady
            | Reason::Unread => Self::Unreachable,
            Reason::Limit => Self::Limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_for_an_abort_belongs_to_a_code() {
        let reasons: BTreeSet<&str> =
            (0..64).map(|number| AbortReason::from(AbortCode::from_number(number)).as_str()).collect();

        assert_eq!(reasons, AbortReason::VALUES.iter().copied().collect());
    }

    #[test]
    fn no_label_has_a_value_twice() {
        for values in [
            RequestKind::VALUES,
            TunnelEnd::VALUES,
            AbortReason::VALUES,
            DialFailureReason::VALUES,
            GuardReason::VALUES,
            TargetDialOutcome::VALUES,
            DiscoveryOutcome::VALUES,
        ] {
            let distinct: BTreeSet<_> = values.iter().collect();
            assert_eq!(distinct.len(), values.len(), "{values:?}");
        }
    }
}
