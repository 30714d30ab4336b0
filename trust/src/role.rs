//! Roles of certificates. Each role has a root of its own, so that no certificate is valid for another role.

use std::fmt;
use std::str::FromStr;

use proto::text_enum;
use rcgen::ExtendedKeyUsagePurpose;

text_enum! {
    /// The role that a root and all certificates below it have, with its name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Role {
        /// A tunnel server, at its gateway and at its tunnel listener.
        Server = "server",
        /// An agent of one cluster.
        Agent = "agent",
        /// A person or program that calls the gateway.
        Caller = "caller",
        /// An administrator of the server.
        Admin = "admin",
        /// A tunnel server that dials another server of its installation.
        Peer = "peer",
    }
}

/// The text is not the name of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use server, agent, caller, admin or peer")]
pub struct NotARole;

impl Role {
    /// The extended key usage of the role's certificates.
    pub(crate) fn purpose(self) -> ExtendedKeyUsagePurpose {
        match self {
            Self::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Self::Agent | Self::Caller | Self::Admin | Self::Peer => ExtendedKeyUsagePurpose::ClientAuth,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = NotARole;

    fn from_str(text: &str) -> Result<Self, NotARole> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or(NotARole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_as_it_is_written_and_by_no_other_name() {
        let written = Role::ALL.map(|role| role.to_string());
        assert_eq!(written, ["server", "agent", "caller", "admin", "peer"]);
        assert_eq!(written.map(|name| name.parse()), Role::ALL.map(Ok));
        for text in ["", "Server", "agents", "root"] {
            assert_eq!(text.parse::<Role>(), Err(NotARole), "{text}");
        }
        let allowed = NotARole.to_string();
        assert!(Role::ALL.iter().all(|role| allowed.contains(role.as_str())), "{allowed}");
    }
}
