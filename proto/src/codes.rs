//! The numbers with which a stream is aborted and a tunnel is closed, and their meanings.

use std::fmt;

/// Makes an enum of codes: its variants, their wire numbers, and a sentence for each.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal, $sentence:literal;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// A number that this version does not know; its sender is newer.
            Unknown(u32),
        }

        impl $name {
            /// The number on the wire.
            #[must_use]
            pub fn number(self) -> u32 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Unknown(number) => number,
                }
            }

            /// The meaning of a number from the wire.
            #[must_use]
            pub fn from_number(number: u32) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($sentence),)*
                    Self::Unknown(number) => write!(f, "code {number:#x}, which this version does not know"),
                }
            }
        }
    };
}

codes! {
    /// The reason why either side aborted a whole stream.
    AbortCode {
        /// Dropped before it was shut down: the caller hung up, or the task that owned it ended.
        Abandoned = 0x01, "abandoned";
        /// The caller read nothing of the response for so long that others needed the buffer space.
        SlowReader = 0x02, "the caller did not read the answer";
        /// The first frame is missing, late, too large, not understood, or has no identity.
        BadOpen = 0x10, "the stream's first frame was not understood";
        /// The agent's own guard does not allow this identity.
        GuardRefused = 0x11, "the agent's own guard refused the identity";
        /// The agent is stopping and takes no new streams.
        Draining = 0x12, "the agent is stopping";
        /// The request itself cannot be passed on: its head breaks a rule that gateway and agent both check.
        BadRequest = 0x13, "the agent refused the request's head";
        /// The agent's own configuration lets no caller's credential pass through.
        NoPassThrough = 0x14, "the agent's own configuration lets no credential pass through";
        /// The caller's own credential should pass through, and the request does not have exactly one bearer
        /// token.
        NoBearer = 0x15, "the request does not bear exactly one bearer token for the cluster";
        /// The agent has as many requests at its API server as it may, and too many wait. Not one byte was
        /// sent on.
        Busy = 0x16, "the agent asks its API server as much as it may";
        /// The agent has reported that it had not begun this stream, and that it refuses it. Not one byte was
        /// sent on.
        Fenced = 0x19, "the agent had reported this stream as not begun, and refused it when it came";
        /// Another server carried the stream, and its tunnel to the agent was lost.
        TunnelLost = 0x1a, "the tunnel to the agent was lost";
        /// No connection to the cluster's API server could be made.
        ApiServerUnreachable = 0x20, "the cluster's API server cannot be reached";
        /// The API server accepted the connection and did not answer in time.
        ApiServerSilent = 0x21, "the cluster's API server did not answer in time";
        /// The API server's certificate is not the one that the agent expects.
        ApiServerUntrusted = 0x22, "the cluster's API server could not be verified";
        /// The API server's connection broke before the answer's end.
        ApiServerLost = 0x23, "the cluster's API server broke off";
        /// The API server's response breaks HTTP, for example by an upgrade to another protocol.
        ApiServerProtocolError = 0x24, "the cluster's API server broke the HTTP protocol";
        /// The agent has no credential that its API server could accept.
        NoCredential = 0x25, "the agent has no credential for its API server";
        /// The connection to the target of a dial broke before its end.
        TargetLost = 0x26, "the connection to the target broke";
        /// The API server says that it has processed nothing of the request, whenever it was sent.
        ApiServerNotProcessed = 0x27, "the cluster's API server did not process the request";
        /// The API server's certificate is not signed by the CA that the agent was given.
        ApiServerUnknownIssuer = 0x28, "the API server's certificate is not signed by the agent's CA";
        /// The API server's certificate is for other names than the one that the agent asks for.
        ApiServerWrongName = 0x29, "the API server's certificate is for another name";
        /// The API server's certificate, or its CA, has expired or is not valid yet, by the agent's clock.
        ApiServerCertificateExpired = 0x2a, "the API server's certificate, or its CA, is not valid at this time";
        /// A key in the API server's chain is too short, or its signature algorithm too weak.
        ApiServerWeakCertificate = 0x2b, "the API server's certificate has a weak key or signature";
    }
}

codes! {
    /// The reason why either side closed a tunnel.
    CloseCode {
        /// Both sides had no open stream any more.
        Drained = 0x00, "drained";
        /// This process is stopping and its grace period has passed.
        Stopping = 0x01, "stopping";
        /// The greeting did not arrive in time, or was refused.
        NotGreeted = 0x02, "not greeted";
        /// A frame broke the protocol.
        Violation = 0x03, "protocol violation";
        /// Nothing was heard for too long.
        Lost = 0x04, "nothing was heard for too long";
        /// Two processes of different agents have presented the same certificate, one after the other.
        KeyCopied = 0x05, "another process answers that uses the same certificate, give each agent one of its own";
        /// The agent's certificate was revoked, or its cluster deleted.
        Revoked = 0x06, "the agent's certificate was revoked or its cluster deleted";
        /// The certificate with which the tunnel was opened, or last extended, has ended.
        Expired = 0x07, "the agent's certificate has expired and no newer one was shown";
        /// The same as `KeyCopied`, sent to the earlier process, where the server prefers the later one. A
        /// process that reconnects at once is then the later one.
        Replaced = 0x08, "a later process that uses the same certificate was preferred, give each agent one of its own";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_code_means_the_same_after_a_way_over_the_wire(number: u32) {
            prop_assert_eq!(AbortCode::from_number(number).number(), number);
            prop_assert_eq!(CloseCode::from_number(number).number(), number);
        }
    }

    #[test]
    fn an_unknown_code_is_kept_and_shown() {
        assert_eq!(
            AbortCode::from_number(0xbeef).to_string(),
            "code 0xbeef, which this version does not know"
        );
    }
}
