//! Who may do what at the admin API: one decision, before any service sees a request.

use std::fmt;
use std::net::SocketAddr;

use tonic::Code;
use trust::names::Label;

use crate::config::AdminRole;

/// The user who can do everything on this machine anyway.
const ROOT: u32 = 0;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A process on this machine, as the kernel says it.
    Local {
        /// The user of the process at the other end of the socket, when it connected.
        uid: u32,
        /// As whom this server runs.
        owner: u32,
    },
    /// Somebody elsewhere, by a certificate of the administrators' CA.
    Remote {
        /// Whom the certificate names.
        name: Label,
        /// What the configuration lets this name do.
        role: Option<AdminRole>,
        /// The certificate's serial number.
        serial: String,
        /// The connection's other end.
        from: SocketAddr,
    },
}

/// What is asked for: a method of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// `Admin.ListClusters`.
    ListClusters,
    /// `Admin.WatchClusters`.
    WatchClusters,
    /// `Admin.GetServerInfo`.
    GetServerInfo,
    /// `Admin.CreateCluster`.
    CreateCluster,
    /// `Admin.UpdateCluster`.
    UpdateCluster,
    /// `Admin.DeleteCluster`.
    DeleteCluster,
    /// `Admin.RevokeAgent`.
    RevokeAgent,
    /// `Admin.GetAttestation`.
    GetAttestation,
    /// `Admin.ChangeAttestation`.
    ChangeAttestation,
    /// `Admin.ListAgents`.
    ListAgents,
    /// `Admin.CreateToken`.
    CreateToken,
    /// `Admin.ListTokens`.
    ListTokens,
    /// `Admin.RevokeToken`.
    RevokeToken,
    /// `Admin.RevokeUser`.
    RevokeUser,
    /// `Admin.RestoreUser`.
    RestoreUser,
    /// `Admin.ListRevokedUsers`.
    ListRevokedUsers,
    /// `Admin.CreateDialToken`.
    CreateDialToken,
    /// `Admin.ListDialTokens`.
    ListDialTokens,
    /// `Admin.RevokeDialToken`.
    RevokeDialToken,
    /// `Health.Check`.
    CheckHealth,
    /// `Health.Watch`.
    WatchHealth,
    /// `ServerReflection.ServerReflectionInfo`.
    Reflect,
}

/// What it is asked of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// The clusters, all of them.
    Clusters,
    /// The agents of clusters.
    Agents,
    /// The tokens for agents.
    Tokens,
    /// Callers, as far as they are refused.
    Users,
    /// The tokens by which callers are connected to targets.
    DialTokens,
    /// The server itself.
    Server,
    /// The API's schema.
    Schema,
}

/// The actor may not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// Another user of this machine.
    #[error(
        "user id {uid} may not {action} {object}; ask as root or as user id {owner}, whose server this is"
    )]
    User {
        /// Who asked.
        uid: u32,
        /// As whom the server runs.
        owner: u32,
        /// For what.
        action: Action,
        /// Of what.
        object: Object,
    },
    /// An administrator whose role does not let them.
    #[error(
        "{name} is {role} here and may not {action} {object}; ask for another role in admin.tcp.roles of the server's configuration"
    )]
    Role {
        /// Who asked.
        name: Label,
        /// What they may do.
        role: AdminRole,
        /// For what they asked.
        action: Action,
        /// Of what.
        object: Object,
    },
    /// An administrator of whom the configuration does not speak.
    #[error(
        "{name} may not {action} {object}, nor anything here; ask for a role in admin.tcp.roles of the server's configuration"
    )]
    NoRole {
        /// Who asked.
        name: Label,
        /// For what.
        action: Action,
        /// Of what.
        object: Object,
    },
}

/// Whether the actor may do this with that. At the socket root and the server's own user may everything, others nothing;
/// from elsewhere a name may what its role may.
///
/// # Errors
/// [`Forbidden`], in words for the one who asked.
pub fn authorize_admin(actor: &Actor, action: Action, object: Object) -> Result<(), Forbidden> {
    match actor {
        Actor::Local { uid, owner } if uid == &ROOT || uid == owner => Ok(()),
        &Actor::Local { uid, owner } => Err(Forbidden::User { uid, owner, action, object }),
        Actor::Remote { role: Some(role), .. } if may(*role, action) => Ok(()),
        Actor::Remote { name, role: Some(role), .. } => {
            Err(Forbidden::Role { name: name.clone(), role: *role, action, object })
        }
        Actor::Remote { name, role: None, .. } => {
            Err(Forbidden::NoRole { name: name.clone(), action, object })
        }
    }
}

/// What roles may. A new action does not compile until somebody has said who may do it.
fn may(role: AdminRole, action: Action) -> bool {
    let fitting = match action {
        Action::ListClusters
        | Action::WatchClusters
        | Action::GetServerInfo
        | Action::GetAttestation
        | Action::ListAgents
        | Action::ListTokens
        | Action::ListRevokedUsers
        | Action::ListDialTokens
        | Action::CheckHealth
        | Action::WatchHealth
        | Action::Reflect => AdminRole::Viewer,
        // Beside an operator, who may everything, and nothing else than this.
        Action::CreateToken => AdminRole::Enroller,
        Action::CreateCluster
        | Action::UpdateCluster
        | Action::DeleteCluster
        | Action::RevokeAgent
        | Action::ChangeAttestation
        | Action::RevokeToken
        | Action::RevokeUser
        | Action::RestoreUser
        | Action::CreateDialToken
        | Action::RevokeDialToken => AdminRole::Operator,
    };
    role == AdminRole::Operator || role == fitting
}

impl Actor {
    /// Whether there is nothing that this actor may do.
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        match self {
            Self::Local { uid, owner } => uid != &ROOT && uid != owner,
            Self::Remote { role, .. } => role.is_none(),
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { uid, .. } => write!(f, "uid:{uid}"),
            Self::Remote { name, .. } => write!(f, "admin:{name}"),
        }
    }
}

impl Action {
    /// The action behind the path of a gRPC request.
    ///
    /// # Errors
    /// The code for a method that is not here.
    pub fn of_path(path: &str) -> Result<Self, Code> {
        match path {
            "/tombolo.admin.v1.Admin/ListClusters" => Ok(Self::ListClusters),
            "/tombolo.admin.v1.Admin/WatchClusters" => Ok(Self::WatchClusters),
            "/tombolo.admin.v1.Admin/GetServerInfo" => Ok(Self::GetServerInfo),
            "/tombolo.admin.v1.Admin/CreateCluster" => Ok(Self::CreateCluster),
            "/tombolo.admin.v1.Admin/UpdateCluster" => Ok(Self::UpdateCluster),
            "/tombolo.admin.v1.Admin/DeleteCluster" => Ok(Self::DeleteCluster),
            "/tombolo.admin.v1.Admin/RevokeAgent" => Ok(Self::RevokeAgent),
            "/tombolo.admin.v1.Admin/GetAttestation" => Ok(Self::GetAttestation),
            "/tombolo.admin.v1.Admin/ChangeAttestation" => Ok(Self::ChangeAttestation),
            "/tombolo.admin.v1.Admin/ListAgents" => Ok(Self::ListAgents),
            "/tombolo.admin.v1.Admin/CreateToken" => Ok(Self::CreateToken),
            "/tombolo.admin.v1.Admin/ListTokens" => Ok(Self::ListTokens),
            "/tombolo.admin.v1.Admin/RevokeToken" => Ok(Self::RevokeToken),
            "/tombolo.admin.v1.Admin/RevokeUser" => Ok(Self::RevokeUser),
            "/tombolo.admin.v1.Admin/RestoreUser" => Ok(Self::RestoreUser),
            "/tombolo.admin.v1.Admin/ListRevokedUsers" => Ok(Self::ListRevokedUsers),
            "/tombolo.admin.v1.Admin/CreateDialToken" => Ok(Self::CreateDialToken),
            "/tombolo.admin.v1.Admin/ListDialTokens" => Ok(Self::ListDialTokens),
            "/tombolo.admin.v1.Admin/RevokeDialToken" => Ok(Self::RevokeDialToken),
            "/grpc.health.v1.Health/Check" => Ok(Self::CheckHealth),
            "/grpc.health.v1.Health/Watch" => Ok(Self::WatchHealth),
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" => Ok(Self::Reflect),
            _ => Err(Code::Unimplemented),
        }
    }

    /// What it is about.
    #[must_use]
    pub fn object(self) -> Object {
        match self {
            Self::ListClusters
            | Self::WatchClusters
            | Self::CreateCluster
            | Self::UpdateCluster
            | Self::DeleteCluster => Object::Clusters,
            Self::RevokeAgent | Self::ListAgents | Self::GetAttestation | Self::ChangeAttestation => {
                Object::Agents
            }
            Self::CreateToken | Self::ListTokens | Self::RevokeToken => Object::Tokens,
            Self::RevokeUser | Self::RestoreUser | Self::ListRevokedUsers => Object::Users,
            Self::CreateDialToken | Self::ListDialTokens | Self::RevokeDialToken => Object::DialTokens,
            Self::GetServerInfo | Self::CheckHealth | Self::WatchHealth => Object::Server,
            Self::Reflect => Object::Schema,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ListClusters
            | Self::ListAgents
            | Self::ListTokens
            | Self::ListRevokedUsers
            | Self::ListDialTokens => "list",
            Self::WatchClusters | Self::WatchHealth => "watch",
            Self::GetServerInfo | Self::GetAttestation => "describe",
            Self::CreateCluster | Self::CreateToken | Self::CreateDialToken => "create",
            Self::UpdateCluster | Self::ChangeAttestation => "update",
            Self::DeleteCluster => "delete",
            Self::RevokeAgent | Self::RevokeToken | Self::RevokeUser | Self::RevokeDialToken => "revoke",
            Self::RestoreUser => "restore",
            Self::CheckHealth => "check",
            Self::Reflect => "read",
        })
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clusters => "the clusters",
            Self::Agents => "the agents",
            Self::Tokens => "the tokens",
            Self::Users => "the users",
            Self::DialTokens => "the dial tokens",
            Self::Server => "the server",
            Self::Schema => "the schema",
        })
    }
}

#[cfg(test)]
mod tests;
