//! Whom a certificate names.

use proto::spiffe::{self, AgentId};
use rcgen::{DistinguishedName, DnType, SanType};

use crate::names::{GROUPS_MAX, Group, Label, ServerName, TrustDomain, User};
use crate::role::Role;

/// Names beyond this make a server's certificate that costs every handshake.
pub const SERVER_NAMES_MAX: usize = 64;

/// Whom a certificate names, from our own records: never from what somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A server, and everything that it is reached by; at most [`SERVER_NAMES_MAX`].
    Server {
        /// Its id.
        id: Label,
        /// Its DNS names and addresses.
        names: Vec<ServerName>,
    },
    /// An agent of a cluster.
    Agent(AgentId),
    /// A person or program, and what it belongs to; at most [`GROUPS_MAX`] groups.
    Caller {
        /// The common name.
        user: User,
        /// The organizations.
        groups: Vec<Group>,
    },
    /// Who runs the server.
    Admin {
        /// The administrator's name.
        name: Label,
    },
}

/// Why a subject does not fit into a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// Beyond [`SERVER_NAMES_MAX`], or none.
    #[error("a server's certificate has 1 to {SERVER_NAMES_MAX} names; issue several")]
    Names,
    /// Beyond [`GROUPS_MAX`].
    #[error("a certificate has at most {GROUPS_MAX} groups")]
    Groups,
    /// A name that X.509 has no letters for.
    #[error("the name {0} cannot stand in a certificate")]
    Letters(String),
}

impl Subject {
    /// Which root vouches for it.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::Server { .. } => Role::Server,
            Self::Agent(_) => Role::Agent,
            Self::Caller { .. } => Role::Caller,
            Self::Admin { .. } => Role::Admin,
        }
    }

    /// The one URI that says what the certificate is for.
    #[must_use]
    pub fn uri(&self, domain: &TrustDomain) -> String {
        let domain = domain.as_str();
        match self {
            Self::Server { id, .. } => spiffe::server_uri(domain, id.as_str()),
            Self::Agent(agent) => agent.uri(domain),
            Self::Caller { .. } => spiffe::caller_uri(domain),
            Self::Admin { name } => spiffe::admin_uri(domain, name.as_str()),
        }
    }

    /// The subject with its common name. A caller's groups are added later: rcgen keeps one attribute of a type.
    pub(crate) fn distinguished_name(&self) -> DistinguishedName {
        let common_name = match self {
            Self::Server { id, .. } => id.as_str(),
            // For people only: the server reads the URI and nothing else.
            Self::Agent(agent) => agent.cluster().as_str(),
            Self::Caller { user, .. } => user.as_str(),
            Self::Admin { name } => name.as_str(),
        };
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, common_name);
        name
    }

    /// A server's names in the order given, none twice; then the URI.
    pub(crate) fn alternative_names(&self, domain: &TrustDomain) -> Result<Vec<SanType>, SubjectError> {
        let mut names = Vec::new();
        match self {
            Self::Server { names: known, .. } => {
                if known.is_empty() || known.len() > SERVER_NAMES_MAX {
                    return Err(SubjectError::Names);
                }
                for name in known {
                    let name = san(name)?;
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
            Self::Caller { groups, .. } if groups.len() > GROUPS_MAX => return Err(SubjectError::Groups),
            Self::Caller { .. } | Self::Agent(_) | Self::Admin { .. } => {}
        }
        let uri = self.uri(domain);
        let written = uri.as_str().try_into().map_err(|_| SubjectError::Letters(uri.clone()))?;
        names.push(SanType::URI(written));
        Ok(names)
    }
}

fn san(name: &ServerName) -> Result<SanType, SubjectError> {
    match name {
        ServerName::Dns(name) => {
            let written = name.as_str().try_into().map_err(|_| SubjectError::Letters(name.clone()))?;
            Ok(SanType::DnsName(written))
        }
        ServerName::Ip(address) => Ok(SanType::IpAddress(*address)),
    }
}
