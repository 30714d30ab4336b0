//! Authorization of the admin API: one decision for each request, before any service sees it.

use std::fmt;
use std::net::SocketAddr;

use tonic::Code;
use trust::names::Label;

use crate::config::AdminRole;

/// The user who can do everything on this machine anyway.
const ROOT: u32 = 0;

/// The one who sends a request.
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
        /// The name in the certificate.
        name: Label,
        /// The role of this name in the configuration; `None` if it has none.
        role: Option<AdminRole>,
        /// The certificate's serial number in hexadecimal.
        serial: String,
        /// The address of the other end of the connection.
        from: SocketAddr,
    },
}

/// Makes the enum of actions and, from the same list, the facts of each.
macro_rules! admin_actions {
    ($(
        $(#[$doc:meta])*
        $action:ident =
            $path:literal, $service:ident, $verb:literal, $object:ident, $role:ident, $audit:ident;
    )*) => {
        /// A method of one of the API's services.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum AdminAction {
            $($(#[$doc])* $action,)*
        }

        impl AdminAction {
            /// The action with this path of a gRPC request.
            ///
            /// # Errors
            /// The gRPC code for a method that does not exist.
            pub fn from_path(path: &str) -> Result<Self, Code> {
                match path {
                    $($path => Ok(Self::$action),)*
                    _ => Err(Code::Unimplemented),
                }
            }

            /// The service that has the method.
            pub(super) fn service(self) -> AdminServiceKind {
                match self {
                    $(Self::$action => AdminServiceKind::$service,)*
                }
            }

            /// The kind of object that the action is about.
            #[must_use]
            pub fn object(self) -> AdminObject {
                match self {
                    $(Self::$action => AdminObject::$object,)*
                }
            }

            /// The role that can do it, beside an operator, who can do everything.
            fn role(self) -> AdminRole {
                match self {
                    $(Self::$action => AdminRole::$role,)*
                }
            }

            /// The audit rule of the action where it is allowed.
            pub(super) fn audit_rule(self) -> AuditRule {
                match self {
                    $(Self::$action => AuditRule::$audit,)*
                }
            }
        }

        impl fmt::Display for AdminAction {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$action => $verb,)*
                })
            }
        }
    };
}

// Path, service, verb, object, least role, audit rule.
admin_actions! {
    /// The action of the gRPC method `Admin.ListClusters`.
    ListClusters = "/tombolo.admin.v1.Admin/ListClusters", Admin, "list", Clusters, Viewer, Intent;
    /// The action of the gRPC method `Admin.WatchClusters`.
    WatchClusters = "/tombolo.admin.v1.Admin/WatchClusters", Admin, "watch", Clusters, Viewer, Intent;
    /// The action of the gRPC method `Admin.GetServerInfo`.
    GetServerInfo = "/tombolo.admin.v1.Admin/GetServerInfo", Admin, "describe", Server, Viewer, Intent;
    /// The action of the gRPC method `Admin.ListServers`.
    ListServers = "/tombolo.admin.v1.Admin/ListServers", Admin, "list", Servers, Viewer, Intent;
    /// The action of the gRPC method `Admin.RemoveServer`.
    RemoveServer = "/tombolo.admin.v1.Admin/RemoveServer", Admin, "remove", Servers, Operator, Intent;
    /// The action of the gRPC method `Admin.CreateCluster`.
    CreateCluster = "/tombolo.admin.v1.Admin/CreateCluster", Admin, "create", Clusters, Operator, Intent;
    /// The action of the gRPC method `Admin.UpdateCluster`.
    UpdateCluster = "/tombolo.admin.v1.Admin/UpdateCluster", Admin, "update", Clusters, Operator, Intent;
    /// The action of the gRPC method `Admin.DeleteCluster`.
    DeleteCluster = "/tombolo.admin.v1.Admin/DeleteCluster", Admin, "delete", Clusters, Operator, BestEffort;
    /// The action of the gRPC method `Admin.UndeleteCluster`.
    UndeleteCluster = "/tombolo.admin.v1.Admin/UndeleteCluster", Admin, "undelete", Clusters, Operator, Intent;
    /// The action of the gRPC method `Admin.RevokeAgent`.
    RevokeAgent = "/tombolo.admin.v1.Admin/RevokeAgent", Admin, "revoke", Agents, Operator, BestEffort;
    /// The action of the gRPC method `Admin.RestoreAgent`.
    RestoreAgent = "/tombolo.admin.v1.Admin/RestoreAgent", Admin, "restore", Agents, Operator, Intent;
    /// The action of the gRPC method `Admin.GetAttestation`.
    GetAttestation = "/tombolo.admin.v1.Admin/GetAttestation", Admin, "describe", Agents, Viewer, Intent;
    /// The action of the gRPC method `Admin.ChangeAttestation`.
    ChangeAttestation = "/tombolo.admin.v1.Admin/ChangeAttestation", Admin, "update", Agents, Operator, Intent;
    /// The action of the gRPC method `Admin.ListAgents`.
    ListAgents = "/tombolo.admin.v1.Admin/ListAgents", Admin, "list", Agents, Viewer, Intent;
    /// The action of the gRPC method `Admin.CreateToken`.
    CreateToken = "/tombolo.admin.v1.Admin/CreateToken", Admin, "create", Tokens, Enroller, Intent;
    /// The action of the gRPC method `Admin.ListTokens`.
    ListTokens = "/tombolo.admin.v1.Admin/ListTokens", Admin, "list", Tokens, Viewer, Intent;
    /// The action of the gRPC method `Admin.RevokeToken`.
    RevokeToken = "/tombolo.admin.v1.Admin/RevokeToken", Admin, "revoke", Tokens, Operator, BestEffort;
    /// The action of the gRPC method `Admin.RevokeUser`.
    RevokeUser = "/tombolo.admin.v1.Admin/RevokeUser", Admin, "revoke", Users, Operator, BestEffort;
    /// The action of the gRPC method `Admin.RestoreUser`.
    RestoreUser = "/tombolo.admin.v1.Admin/RestoreUser", Admin, "restore", Users, Operator, Intent;
    /// The action of the gRPC method `Admin.ListRevokedUsers`.
    ListRevokedUsers = "/tombolo.admin.v1.Admin/ListRevokedUsers", Admin, "list", Users, Viewer, Intent;
    /// The action of the gRPC method `Admin.CreateDialToken`.
    CreateDialToken = "/tombolo.admin.v1.Admin/CreateDialToken", Admin, "create", DialTokens, Operator, Intent;
    /// The action of the gRPC method `Admin.ListDialTokens`.
    ListDialTokens = "/tombolo.admin.v1.Admin/ListDialTokens", Admin, "list", DialTokens, Viewer, Intent;
    /// The action of the gRPC method `Admin.RevokeDialToken`.
    RevokeDialToken = "/tombolo.admin.v1.Admin/RevokeDialToken", Admin, "revoke", DialTokens, Operator, BestEffort;
    /// The action of the gRPC method `Admin.Export`.
    Export = "/tombolo.admin.v1.Admin/Export", Admin, "export", Store, Operator, Intent;
    /// The action of the gRPC method `Health.Check`.
    CheckHealth = "/grpc.health.v1.Health/Check", Health, "check", Server, Viewer, Unaudited;
    /// The action of the gRPC method `Health.Watch`.
    WatchHealth = "/grpc.health.v1.Health/Watch", Health, "watch", Server, Viewer, Unaudited;
    /// The action of the gRPC method `ServerReflection.ServerReflectionInfo`.
    Reflect = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Reflection, "read", Schema, Viewer, Intent;
}

/// The services behind the API's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdminServiceKind {
    /// The service `tombolo.admin.v1.Admin` of this API.
    Admin,
    /// The service `grpc.health.v1.Health` of every daemon.
    Health,
    /// The service `grpc.reflection.v1.ServerReflection` for the schema.
    Reflection,
}

/// The audit rule of an allowed action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuditRule {
    /// Its intent must be written before it is done.
    Intent,
    /// It takes something away, so it is done even if its intent cannot be written.
    BestEffort,
    /// It is a health check, which probes repeat every few seconds, and is not audited.
    Unaudited,
}

/// The kind of object that an action is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminObject {
    /// The clusters, all of them.
    Clusters,
    /// The enrolled agents of clusters.
    Agents,
    /// The tokens by which agents enroll.
    Tokens,
    /// Callers, as far as they are refused.
    Users,
    /// The tokens by which callers are connected to targets.
    DialTokens,
    /// The records of everything above, in one file.
    Store,
    /// The server itself, and its health.
    Server,
    /// All servers that share their records.
    Servers,
    /// The schema of the API.
    Schema,
}

/// The actor has no right to the action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminForbidden {
    /// Another user of this machine.
    #[error(
        "user id {uid} may not {action} {object}; ask as root or as user id {owner}, whose server this is"
    )]
    User {
        /// The user ID of the client process.
        uid: u32,
        /// As whom the server runs.
        owner: u32,
        /// The action that was asked for.
        action: AdminAction,
        /// The object of the action.
        object: AdminObject,
    },
    /// An administrator whose role does not let them.
    #[error(
        "{name} is {role} here and may not {action} {object}; ask for another role in admin.tcp.roles of the server's configuration"
    )]
    Role {
        /// The name in the certificate.
        name: Label,
        /// The role of this name in the configuration.
        role: AdminRole,
        /// The action that was asked for.
        action: AdminAction,
        /// The object of the action.
        object: AdminObject,
    },
    /// An administrator of whom the configuration does not speak.
    #[error(
        "{name} may not {action} {object}, nor anything here; ask for a role in admin.tcp.roles of the server's configuration"
    )]
    NoRole {
        /// The name in the certificate.
        name: Label,
        /// The action that was asked for.
        action: AdminAction,
        /// The object of the action.
        object: AdminObject,
    },
}

/// Checks whether the actor may do this with that. At the socket root and the server's own user may
/// everything, others nothing; from elsewhere a name may what its role may.
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

/// Returns true if a role can do an action. Only [`admin_actions!`] says so, and a new action needs a row
/// there.
fn may(role: AdminRole, action: AdminAction) -> bool {
    role == AdminRole::Operator || role == action.role()
}

impl Actor {
    /// Returns true if there is nothing that this actor may do.
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

impl fmt::Display for AdminObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clusters => "the clusters",
            Self::Agents => "the agents",
            Self::Tokens => "the tokens",
            Self::Users => "the users",
            Self::DialTokens => "the dial tokens",
            Self::Store => "the store",
            Self::Server => "the server",
            Self::Servers => "the servers",
            Self::Schema => "the schema",
        })
    }
}

#[cfg(test)]
mod tests;
