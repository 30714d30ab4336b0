//! Certificates: three roots, what they issue, and what a certificate says.

mod authority;
mod init;
mod issue;
mod leaf;
mod place;
mod record;
mod show;
mod subject;

pub(crate) use init::init;
pub(crate) use issue::{issue_agent, issue_caller, issue_server};
pub(crate) use show::show;

use std::path::{Path, PathBuf};

use time::Duration;

use crate::names::Validity;

/// Certificates are valid a little before they are made, for peers whose clocks are behind.
const BACKDATED: Duration = Duration::minutes(5);

/// What a root vouches for. Each role has a root of its own, so that none can stand in for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Server,
    Agent,
    Caller,
}

impl Role {
    const ALL: [Self; 3] = [Self::Server, Self::Agent, Self::Caller];

    fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
            Self::Caller => "caller",
        }
    }

    /// How long a certificate of this role is valid where nothing is said.
    ///
    /// Of a server and an agent, long enough not to be renewed in a hurry by hand; of a person, short.
    fn validity_default(self) -> Validity {
        match self {
            Self::Server | Self::Agent => Validity::days(90),
            Self::Caller => Validity::days(30),
        }
    }

    /// The longest validity that is issued.
    fn validity_max(self) -> Validity {
        match self {
            // Apple's TLS refuses servers' certificates of more than 825 days, counted from the backdated beginning,
            // also from private roots: <https://support.apple.com/103769>.
            Self::Server => Validity::days(824),
            Self::Agent | Self::Caller => Validity::days(365),
        }
    }

    fn root_certificate(self, directory: &Path) -> PathBuf {
        directory.join(format!("{}-ca.crt", self.name()))
    }

    fn root_key(self, directory: &Path) -> PathBuf {
        directory.join(format!("{}-ca.key", self.name()))
    }
}
