//! Who may do what at the admin API: one decision, before any service sees a request.

use std::fmt;

use tonic::Code;

/// The user who can do everything on this machine anyway.
const ROOT: u32 = 0;

/// Who asks, as the kernel says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actor {
    /// The user of the process at the other end of the socket, when it connected.
    pub uid: u32,
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
    /// `Admin.ListAgents`.
    ListAgents,
    /// `Admin.CreateToken`.
    CreateToken,
    /// `Admin.ListTokens`.
    ListTokens,
    /// `Admin.RevokeToken`.
    RevokeToken,
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
    /// The server itself.
    Server,
    /// The API's schema.
    Schema,
}

/// The actor may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("user id {} may not {action} {object}; ask as root or as user id {owner}, whose server this is", actor.uid)]
pub struct Forbidden {
    /// Who asked.
    pub actor: Actor,
    /// For what.
    pub action: Action,
    /// Of what.
    pub object: Object,
    /// As whom the server runs.
    pub owner: u32,
}

/// Whether the actor may do this with that: root and the server's own user may everything, others nothing.
///
/// # Errors
/// [`Forbidden`], in words for the one who asked.
pub fn authorize_admin(owner: u32, actor: Actor, action: Action, object: Object) -> Result<(), Forbidden> {
    if actor.uid == ROOT || actor.uid == owner {
        return Ok(());
    }
    Err(Forbidden { actor, action, object, owner })
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
            "/tombolo.admin.v1.Admin/ListAgents" => Ok(Self::ListAgents),
            "/tombolo.admin.v1.Admin/CreateToken" => Ok(Self::CreateToken),
            "/tombolo.admin.v1.Admin/ListTokens" => Ok(Self::ListTokens),
            "/tombolo.admin.v1.Admin/RevokeToken" => Ok(Self::RevokeToken),
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
            Self::RevokeAgent | Self::ListAgents => Object::Agents,
            Self::CreateToken | Self::ListTokens | Self::RevokeToken => Object::Tokens,
            Self::GetServerInfo | Self::CheckHealth | Self::WatchHealth => Object::Server,
            Self::Reflect => Object::Schema,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ListClusters | Self::ListAgents | Self::ListTokens => "list",
            Self::WatchClusters | Self::WatchHealth => "watch",
            Self::GetServerInfo => "describe",
            Self::CreateCluster | Self::CreateToken => "create",
            Self::UpdateCluster => "update",
            Self::DeleteCluster => "delete",
            Self::RevokeAgent | Self::RevokeToken => "revoke",
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
            Self::Server => "the server",
            Self::Schema => "the schema",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1000;
    const ACTIONS: [Action; 14] = [
        Action::ListClusters,
        Action::WatchClusters,
        Action::GetServerInfo,
        Action::CreateCluster,
        Action::UpdateCluster,
        Action::DeleteCluster,
        Action::RevokeAgent,
        Action::ListAgents,
        Action::CreateToken,
        Action::ListTokens,
        Action::RevokeToken,
        Action::CheckHealth,
        Action::WatchHealth,
        Action::Reflect,
    ];

    #[test]
    fn root_and_the_servers_own_user_may_everything_and_nobody_else_anything() {
        for action in ACTIONS {
            for (uid, may) in
                [(ROOT, true), (OWNER, true), (OWNER + 1, false), (65_534, false), (u32::MAX, false)]
            {
                let decided = authorize_admin(OWNER, Actor { uid }, action, action.object());
                assert_eq!(decided.is_ok(), may, "{uid}: {action:?}");
            }
        }
    }

    #[test]
    fn a_server_of_root_is_for_root_alone() {
        assert!(authorize_admin(ROOT, Actor { uid: OWNER }, Action::ListClusters, Object::Clusters).is_err());
    }

    #[test]
    fn a_refusal_says_who_may() {
        let forbidden =
            authorize_admin(OWNER, Actor { uid: 7 }, Action::ListClusters, Object::Clusters).unwrap_err();
        assert_eq!(
            forbidden.to_string(),
            "user id 7 may not list the clusters; ask as root or as user id 1000, whose server this is"
        );
    }

    #[test]
    fn every_method_that_reflection_shows_is_an_action_and_no_other_path_is() {
        use prost_types::FileDescriptorSet;

        let sets = [
            proto::admin::FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        ];
        let mut methods = 0;
        for set in sets {
            let set: FileDescriptorSet = prost::Message::decode(set).unwrap();
            for file in set.file {
                for service in &file.service {
                    for method in &service.method {
                        let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                        assert!(Action::of_path(&path).is_ok(), "{path}");
                        methods += 1;
                    }
                }
            }
        }
        assert_eq!(methods, ACTIONS.len());
        for path in [
            "",
            "/",
            "/tombolo.admin.v1.Admin",
            "/tombolo.admin.v1.Admin/",
            "/tombolo.admin.v1.Admin/listclusters",
        ] {
            assert_eq!(Action::of_path(path), Err(Code::Unimplemented), "{path}");
        }
    }
}
