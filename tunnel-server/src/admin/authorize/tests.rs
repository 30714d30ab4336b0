//! Each method of the API, and the roles that can call it.

use prost_types::FileDescriptorSet;
use proto::admin::FILE_DESCRIPTOR_SET;

use super::*;

const OWNER: u32 = 1000;

const ROLES: [AdminRole; 3] = [AdminRole::Viewer, AdminRole::Enroller, AdminRole::Operator];

/// Every method that reflection shows, and the roles that may ask for it. A method without a row fails the test.
const TABLE: &[(&str, &[AdminRole])] = &[
    ("/tombolo.admin.v1.Admin/ListClusters", READ),
    ("/tombolo.admin.v1.Admin/WatchClusters", READ),
    ("/tombolo.admin.v1.Admin/GetServerInfo", READ),
    ("/tombolo.admin.v1.Admin/ListServers", READ),
    ("/tombolo.admin.v1.Admin/RemoveServer", CHANGE),
    ("/tombolo.admin.v1.Admin/ListAgents", READ),
    ("/tombolo.admin.v1.Admin/GetAttestation", READ),
    ("/tombolo.admin.v1.Admin/ChangeAttestation", CHANGE),
    ("/tombolo.admin.v1.Admin/ListTokens", READ),
    ("/tombolo.admin.v1.Admin/CreateToken", ENROLL),
    ("/tombolo.admin.v1.Admin/CreateCluster", CHANGE),
    ("/tombolo.admin.v1.Admin/UpdateCluster", CHANGE),
    ("/tombolo.admin.v1.Admin/DeleteCluster", CHANGE),
    ("/tombolo.admin.v1.Admin/UndeleteCluster", CHANGE),
    ("/tombolo.admin.v1.Admin/RevokeAgent", CHANGE),
    ("/tombolo.admin.v1.Admin/RestoreAgent", CHANGE),
    ("/tombolo.admin.v1.Admin/RevokeToken", CHANGE),
    ("/tombolo.admin.v1.Admin/RevokeUser", CHANGE),
    ("/tombolo.admin.v1.Admin/RestoreUser", CHANGE),
    ("/tombolo.admin.v1.Admin/ListRevokedUsers", READ),
    ("/tombolo.admin.v1.Admin/ListDialTokens", READ),
    ("/tombolo.admin.v1.Admin/CreateDialToken", CHANGE),
    ("/tombolo.admin.v1.Admin/RevokeDialToken", CHANGE),
    ("/tombolo.admin.v1.Admin/Export", CHANGE),
    ("/grpc.health.v1.Health/Check", READ),
    ("/grpc.health.v1.Health/Watch", READ),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", READ),
];

const READ: &[AdminRole] = &[AdminRole::Viewer, AdminRole::Operator];
const ENROLL: &[AdminRole] = &[AdminRole::Enroller, AdminRole::Operator];
const CHANGE: &[AdminRole] = &[AdminRole::Operator];

/// No other path is an action.
#[test]
fn the_table_has_every_method_of_reflection_and_no_other_path() {
    let sets = [
        FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
    ];
    let mut shown: Vec<String> = sets.into_iter().flat_map(methods).collect();
    let mut listed: Vec<&str> = TABLE.iter().map(|(path, _)| *path).collect();
    shown.sort();
    listed.sort_unstable();

    assert_eq!(shown, listed);

    for path in [
        "",
        "/",
        "/tombolo.admin.v1.Admin",
        "/tombolo.admin.v1.Admin/",
        "/tombolo.admin.v1.Admin/listclusters",
    ] {
        assert_eq!(AdminAction::from_path(path), Err(Code::Unimplemented), "{path}");
    }
}

#[test]
fn a_role_can_do_what_the_table_says_and_nothing_else() {
    for (action, roles) in actions() {
        for role in ROLES {
            let decided = authorize_admin(&remote(Some(role)), action, action.object());
            assert_eq!(decided.is_ok(), roles.contains(&role), "{role}: {action:?}");
        }
        assert!(authorize_admin(&remote(None), action, action.object()).is_err(), "{action:?}");
    }
}

#[test]
fn root_and_the_servers_user_can_do_everything_and_others_nothing() {
    for (action, _) in actions() {
        for (uid, may) in
            [(ROOT, true), (OWNER, true), (OWNER + 1, false), (65_534, false), (u32::MAX, false)]
        {
            let decided = authorize_admin(&Actor::Local { uid, owner: OWNER }, action, action.object());
            assert_eq!(decided.is_ok(), may, "{uid}: {action:?}");
        }
    }
}

#[test]
fn a_server_of_root_is_for_root_alone() {
    let other = Actor::Local { uid: OWNER, owner: ROOT };
    assert!(authorize_admin(&other, AdminAction::ListClusters, AdminObject::Clusters).is_err());
}

#[test]
fn an_actor_has_no_rights_exactly_if_every_action_is_forbidden() {
    let actors = [
        Actor::Local { uid: OWNER, owner: OWNER },
        Actor::Local { uid: 7, owner: OWNER },
        remote(None),
        remote(Some(AdminRole::Viewer)),
        remote(Some(AdminRole::Enroller)),
        remote(Some(AdminRole::Operator)),
    ];
    for actor in actors {
        let may = actions().any(|(action, _)| authorize_admin(&actor, action, action.object()).is_ok());
        assert_eq!(actor.has_no_rights(), !may, "{actor:?}");
    }
}

#[test]
fn a_refusal_says_who_may() {
    let refused = |actor: &Actor| {
        authorize_admin(actor, AdminAction::RevokeAgent, AdminObject::Agents).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&Actor::Local { uid: 7, owner: OWNER }),
        "user id 7 may not revoke the agents; ask as root or as user id 1000, whose server this is"
    );
    let advice = "in admin.tcp.roles of the server's configuration";
    assert_eq!(
        refused(&remote(Some(AdminRole::Viewer))),
        format!("olga is viewer here and may not revoke the agents; ask for another role {advice}")
    );
    assert_eq!(
        refused(&remote(None)),
        format!("olga may not revoke the agents, nor anything here; ask for a role {advice}")
    );
}

fn remote(role: Option<AdminRole>) -> Actor {
    let from = "192.0.2.7:40000".parse().unwrap();
    Actor::Remote { name: "olga".parse().unwrap(), role, serial: "0f".to_owned(), from }
}

fn actions() -> impl Iterator<Item = (AdminAction, &'static [AdminRole])> {
    TABLE.iter().map(|(path, roles)| (AdminAction::from_path(path).unwrap(), *roles))
}

fn methods(set: &[u8]) -> Vec<String> {
    let set: FileDescriptorSet = prost::Message::decode(set).unwrap();
    let mut methods = Vec::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                methods.push(format!("/{}.{}/{}", file.package(), service.name(), method.name()));
            }
        }
    }
    methods
}

/// The page lists the methods of the schema, each with the role that this crate asks for.
#[test]
fn the_page_of_the_admin_api_has_every_method_with_its_role() {
    let schema = include_str!("../../../../proto/proto/tombolo/admin/v1/admin.proto");
    let methods = schema.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split_once('('));
    let rows: Vec<String> = methods
        .map(|(method, _)| {
            let action = AdminAction::from_path(&format!("/tombolo.admin.v1.Admin/{method}")).unwrap();
            format!("| `{method}` | {} |", action.role().as_str())
        })
        .collect();
    let page = include_str!("../../../../docs/reference/admin-api.md");
    let listed: Vec<&str> =
        page.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 4).collect();

    let of_methods: Vec<&&str> =
        listed.iter().filter(|line| rows.iter().any(|row| line.starts_with(row))).collect();
    assert_eq!(of_methods.len(), rows.len(), "{rows:#?}\n{listed:#?}");
}
