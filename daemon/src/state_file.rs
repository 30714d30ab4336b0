//! Every file that a daemon keeps in its state directory, and the cost of its loss.

/// Makes the enum of state files and, from the same list, their names, costs and remedies.
macro_rules! state_files {
    ($($(#[$doc:meta])* $file:ident = $name:literal, without_it: $cost:literal, remedy: $remedy:literal;)*) => {
        /// A file of a state directory. [`StateDir`](crate::StateDir) reads and writes no other.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum StateFile {
            $($(#[$doc])* $file,)*
        }

        impl StateFile {
            /// Every state file of all daemons, in the order of `docs/security.md`.
            pub const ALL: &'static [Self] = &[$(Self::$file,)*];

            /// The name of the file in the state directory.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$file => $name,)*
                }
            }

            /// The cost of losing the file: the clause after "without it".
            #[must_use]
            pub const fn cost(self) -> &'static str {
                match self {
                    $(Self::$file => $cost,)*
                }
            }

            /// The advice to an operator whose file cannot be read.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$file => $remedy,)*
                }
            }
        }
    };
}

state_files! {
    /// The keys of UDP endpoints, of the server and of an agent.
    EndpointKeys = "endpoint.keys",
        without_it: "peers notice one restart of this process by its silence and not by a stateless reset",
        remedy: "nothing is to be done, new keys are made";
    /// The key of the audit log's MACs, of the server.
    AuditChainKey = "audit-chain.key",
        without_it: "no line of the audit log can be verified, and the log cannot be continued",
        remedy: "restore it from a copy, or move it and the audit log away to begin a new log";
    /// The key that signs the audit log's checkpoints, of the server.
    AuditSigningKey = "audit-signing.key",
        without_it: "the checkpoints of the audit log cannot be continued, and new ones need another audit.pub",
        remedy: "restore it from a copy, or move it and the audit log away to begin a new log";
    /// The records of clusters, tokens and revocations, of the server.
    Directory = "directory.redb",
        without_it: "no cluster, token, address or revocation is known, and revoked certificates are accepted",
        remedy: "restore it from a copy, or move it away to begin without records";
    /// The key and the certificate of an agent that was enrolled.
    Identity = "identity.json",
        without_it: "this agent has no certificate",
        remedy: "restore it from a copy, or move it away and enroll the agent with a new token";
    /// The roots that a server has sent to an agent since its configuration was written.
    TrustBundle = "trust.bundle",
        without_it: "only the roots of the configuration are trusted, until a server sends a bundle that they have signed",
        remedy: "nothing is to be done while a server's certificate chains to those roots";
    /// The list of servers that a server has sent to an agent.
    Servers = "servers.list",
        without_it: "the next start dials the configured servers only, until one of them sends the list again",
        remedy: "nothing is to be done while one of the configured servers answers";
    /// The API servers that a load balancer of a worker knows.
    ApiServers = "api-servers.json",
        without_it: "only the API servers of the configuration are tried, until one of them has sent the list again",
        remedy: "nothing is to be done while one of the configured API servers answers";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_state_file_has_a_plain_name_of_its_own() {
        let names: BTreeSet<&str> = StateFile::ALL.iter().map(|file| file.name()).collect();

        assert_eq!(names.len(), StateFile::ALL.len(), "{names:?}");
        for name in names {
            assert!(!name.starts_with('.') && !name.contains(['/', '\0']) && !name.is_empty(), "{name:?}");
        }
    }
}
