//! The subject of a certificate, for each role.

use proto::spiffe::{self, AgentId};
use rcgen::{DistinguishedName, DnType, SanType};

use crate::names::{GROUPS_MAX, Group, Label, ServerName, TrustDomain, User};
use crate::role::Role;

/// Most names of a server's certificate; a larger one slows down every handshake.
pub const SERVER_NAMES_MAX: usize = 64;

/// The subject of a certificate. It comes from our own store, never from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A server with its names and addresses; at most [`SERVER_NAMES_MAX`].
    Server {
        /// The id of the server.
        id: Label,
        /// Its DNS names and addresses.
        names: Vec<ServerName>,
    },
    /// An agent of a cluster.
    Agent(AgentId),
    /// A person or program with its groups; at most [`GROUPS_MAX`].
    Caller {
        /// The user, as the common name.
        user: User,
        /// The groups, as organizations of the subject.
        groups: Vec<Group>,
    },
    /// An administrator of the server.
    Admin {
        /// The name of the administrator.
        name: Label,
    },
    /// A server that dials the other servers of its installation.
    Peer {
        /// The id of the server.
        id: Label,
    },
}

/// The reason why a subject does not fit into a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// The number of names is zero, or beyond [`SERVER_NAMES_MAX`].
    #[error("a server's certificate has 1 to {SERVER_NAMES_MAX} names; issue several")]
    Names,
    /// The number of groups is beyond [`GROUPS_MAX`].
    #[error("a certificate has at most {GROUPS_MAX} groups")]
    Groups,
    /// The name has characters that X.509 cannot encode.
    #[error("the name {0} cannot stand in a certificate")]
    Letters(String),
}

impl Subject {
    /// The role of the root that signs for this subject.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::Server { .. } => Role::Server,
            Self::Agent(_) => Role::Agent,
            Self::Caller { .. } => Role::Caller,
            Self::Admin { .. } => Role::Admin,
            Self::Peer { .. } => Role::Peer,
        }
    }

    /// The one SPIFFE URI of the certificate.
    #[must_use]
    pub fn uri(&self, domain: &TrustDomain) -> String {
        let domain = domain.as_str();
        match self {
            Self::Server { id, .. } => spiffe::server_uri(domain, id.as_str()),
            Self::Agent(agent) => agent.uri(domain),
            Self::Caller { .. } => spiffe::caller_uri(domain),
            Self::Admin { name } => spiffe::admin_uri(domain, name.as_str()),
            Self::Peer { id } => spiffe::peer_uri(domain, id.as_str()),
        }
    }

    /// The subject with its common name. A caller's groups are added later: rcgen keeps one attribute of a type.
    pub(crate) fn distinguished_name(&self) -> DistinguishedName {
        let common_name = match self {
            Self::Server { id, .. } | Self::Peer { id } => id.as_str(),
            // For display only: the server reads only the URI.
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
            Self::Caller { .. } | Self::Agent(_) | Self::Admin { .. } | Self::Peer { .. } => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{domain, subject};

    #[test]
    fn each_role_has_a_uri_and_a_common_name_of_its_own() {
        let uris = Role::ALL.map(|role| subject(role).uri(&domain()));
        assert_eq!(
            uris,
            [
                "spiffe://tombolo/server/gateway",
                "spiffe://tombolo/cluster/edge-a/agent/0f3c",
                "spiffe://tombolo/caller",
                "spiffe://tombolo/admin/olga",
                "spiffe://tombolo/peer/gateway",
            ]
        );
        for (role, expected) in Role::ALL.into_iter().zip(["gateway", "edge-a", "olga", "olga", "gateway"]) {
            let mut name = DistinguishedName::new();
            name.push(DnType::CommonName, expected);
            assert_eq!(subject(role).distinguished_name(), name);
            assert_eq!(subject(role).role(), role);
        }
    }

    #[test]
    fn a_server_has_each_of_its_names_once_and_then_its_uri() {
        let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
        let names = ["a.example", "192.0.2.1", "b.example", "a.example", "192.0.2.1"];
        let expected = vec![
            dns("a.example"),
            SanType::IpAddress([192, 0, 2, 1].into()),
            dns("b.example"),
            uri("spiffe://tombolo/server/gateway"),
        ];
        let names = names.into_iter().map(|name| name.parse().unwrap());
        assert_eq!(server(names).alternative_names(&domain()), Ok(expected));
    }

    #[test]
    fn all_roles_but_server_have_only_a_uri() {
        for role in Role::ALL.into_iter().filter(|role| *role != Role::Server) {
            let subject = subject(role);
            assert_eq!(subject.alternative_names(&domain()), Ok(vec![uri(&subject.uri(&domain()))]));
        }
    }

    #[test]
    fn names_and_groups_of_a_certificate_are_bounded() {
        let of_server = |count: usize| {
            let names = (0..count).map(|number| format!("h{number}.example").parse().unwrap());
            server(names).alternative_names(&domain()).map(|names| names.len())
        };
        for count in [1, 2, SERVER_NAMES_MAX] {
            assert_eq!(of_server(count), Ok(count + 1));
        }
        for count in [0, SERVER_NAMES_MAX + 1, SERVER_NAMES_MAX + 2] {
            assert_eq!(of_server(count), Err(SubjectError::Names), "{count}");
        }

        let of_caller = |count: usize| {
            let groups = (0..count).map(|number| format!("g{number}").parse().unwrap()).collect();
            let caller = Subject::Caller { user: "olga".parse().unwrap(), groups };
            caller.alternative_names(&domain()).map(|names| names.len())
        };
        for count in [0, 1, GROUPS_MAX] {
            assert_eq!(of_caller(count), Ok(1));
        }
        for count in [GROUPS_MAX + 1, GROUPS_MAX + 2] {
            assert_eq!(of_caller(count), Err(SubjectError::Groups), "{count}");
        }
    }

    fn server(names: impl Iterator<Item = ServerName>) -> Subject {
        Subject::Server { id: "gateway".parse().unwrap(), names: names.collect() }
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(text.try_into().unwrap())
    }
}
