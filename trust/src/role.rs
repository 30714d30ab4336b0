//! What a certificate is for. Each role has a root of its own, so that none can stand in for another.

use std::fmt;
use std::str::FromStr;

use rcgen::ExtendedKeyUsagePurpose;

/// What a root vouches for, and everything below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A tunnel server, at its gateway and at its tunnels' door.
    Server,
    /// An agent of one cluster.
    Agent,
    /// A person or program that comes to the gateway.
    Caller,
    /// Who runs the server.
    Admin,
}

/// Not the name of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use server, agent, caller or admin")]
pub struct NotARole;

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Server, Self::Agent, Self::Caller, Self::Admin];

    /// Its name, in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
            Self::Caller => "caller",
            Self::Admin => "admin",
        }
    }

    /// What TLS has to be told that its keys are for.
    pub(crate) fn purpose(self) -> ExtendedKeyUsagePurpose {
        match self {
            Self::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Self::Agent | Self::Caller | Self::Admin => ExtendedKeyUsagePurpose::ClientAuth,
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
        assert_eq!(written, ["server", "agent", "caller", "admin"]);
        assert_eq!(written.map(|name| name.parse()), Role::ALL.map(Ok));
        for text in ["", "Server", "agents", "root"] {
            assert_eq!(text.parse::<Role>(), Err(NotARole), "{text}");
        }
    }
}
