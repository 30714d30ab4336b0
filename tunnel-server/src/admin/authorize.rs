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
pub enum AdminAction {
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
pub enum AdminObject {
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
pub enum AdminForbidden {
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
        action: AdminAction,
        /// Of what.
        object: AdminObject,
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
        action: AdminAction,
        /// Of what.
        object: AdminObject,
    },
    /// An administrator of whom the configuration does not speak.
    #[error(
        "{name} may not {action} {object}, nor anything here; ask for a role in admin.tcp.roles of the server's configuration"
    )]
    NoRole {
        /// Who asked.
        name: Label,
        /// For what.
        action: AdminAction,
        /// Of what.
        object: AdminObject,
    },
}

/// Whether the actor may do this with that. At the socket root and the server's own user may everything, others nothing;
/// from elsewhere a name may what its role may.
///
/// # Errors
/// [`AdminForbidden`], in words for the one who asked.
pub fn authorize_admin(
    actor: &Actor,
    action: AdminAction,
    object: AdminObject,
) -> Result<(), AdminForbidden> {
    match actor {
        Actor::Local { uid, owner } if uid == &ROOT || uid == owner => Ok(()),
        &Actor::Local { uid, owner } => Err(AdminForbidden::User { uid, owner, action, object }),
        Actor::Remote { role: Some(role), .. } if may(*role, action) => Ok(()),
        Actor::Remote { name, role: Some(role), .. } => {
            Err(AdminForbidden::Role { name: name.clone(), role: *role, action, object })
        }
        Actor::Remote { name, role: None, .. } => {
            Err(AdminForbidden::NoRole { name: name.clone(), action, object })
        }
    }
}

/// What roles may. A new action does not compile until somebody has said who may do it.
fn may(role: AdminRole, action: AdminAction) -> bool {
    let fitting = match action {
        AdminAction::ListClusters
        | AdminAction::WatchClusters
        | AdminAction::GetServerInfo
        | AdminAction::GetAttestation
        | AdminAction::ListAgents
        | AdminAction::ListTokens
        | AdminAction::ListRevokedUsers
        | AdminAction::ListDialTokens
        | AdminAction::CheckHealth
        | AdminAction::WatchHealth
        | AdminAction::Reflect => AdminRole::Viewer,
        // Beside an operator, who may everything, and nothing else than this.
        AdminAction::CreateToken => AdminRole::Enroller,
        AdminAction::CreateCluster
        | AdminAction::UpdateCluster
        | AdminAction::DeleteCluster
        | AdminAction::RevokeAgent
        | AdminAction::ChangeAttestation
        | AdminAction::RevokeToken
        | AdminAction::RevokeUser
        | AdminAction::RestoreUser
        | AdminAction::CreateDialToken
        | AdminAction::RevokeDialToken => AdminRole::Operator,
    };
    role == AdminRole::Operator || role == fitting
}

impl Actor {
    /// Whether there is nothing that this actor may do.
    #[must_use]
    pub fn has_no_rights(&self) -> bool {
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

impl AdminAction {
    /// The action behind the path of a gRPC request.
    ///
    /// # Errors
    /// The code for a method that is not here.
    pub fn from_path(path: &str) -> Result<Self, Code> {
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
    pub fn object(self) -> AdminObject {
        match self {
            Self::ListClusters
            | Self::WatchClusters
            | Self::CreateCluster
            | Self::UpdateCluster
            | Self::DeleteCluster => AdminObject::Clusters,
            Self::RevokeAgent | Self::ListAgents | Self::GetAttestation | Self::ChangeAttestation => {
                AdminObject::Agents
            }
            Self::CreateToken | Self::ListTokens | Self::RevokeToken => AdminObject::Tokens,
            Self::RevokeUser | Self::RestoreUser | Self::ListRevokedUsers => AdminObject::Users,
            Self::CreateDialToken | Self::ListDialTokens | Self::RevokeDialToken => AdminObject::DialTokens,
            Self::GetServerInfo | Self::CheckHealth | Self::WatchHealth => AdminObject::Server,
            Self::Reflect => AdminObject::Schema,
        }
    }
}

impl fmt::Display for AdminAction {
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

impl fmt::Display for AdminObject {
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
