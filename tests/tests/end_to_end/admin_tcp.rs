//! The admin API from other machines: authentication, the rights of each role, and the audit of all requests.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use prost_types::FileDescriptorSet;
use proto::admin::admin_client::AdminClient;
use proto::admin::watch_clusters_response::Event;
use proto::admin::{WatchClustersRequest, WatchClustersResponse};
use tests::admin::{AdminWire, remote_admin_listener};
use tests::audit_log::{AuditLog, note, verify};
use tests::dial::dial;
use tests::enroll;
use tests::pki::{Authority, Issued};
use tests::rig::{Rig, TOKEN};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tonic::Code;

use crate::revoked_users::serial_with_colons;

/// The limit for any step of a test.
const DONE_MAX: Duration = Duration::from_secs(60);

const LIST: &str = "/tombolo.admin.v1.Admin/ListClusters";
const ROLES: [(&str, &str); 3] = [("vera", "viewer"), ("enno", "enroller"), ("olga", "operator")];
const OLGA: &str = "spiffe://tombolo/admin/olga";

#[tokio::test]
async fn without_a_certificate_of_the_admin_root_a_client_learns_nothing() {
    let (address, config) = remote_admin_listener(&ROLES);
    let rig = Rig::start_with(&config).await;
    let other = Authority::new("administrators of somebody else").issue_named("olga", &[], OLGA);
    let ended = rig.root_of("admin").issue_named_until("olga", &[], OLGA, SystemTime::now() - DONE_MAX);
    let foreign = rig.root_of("admin").issue_named("olga", &[], "spiffe://elsewhere/admin/olga");
    let nameless = rig.root_of("admin").issue_user("olga", &[]);
    let olga = rig.admin("olga").await;

    for shown in [None, Some(&other), Some(&ended), Some(&foreign), Some(&nameless)] {
        assert!(asked(&rig, address, shown, LIST).await.is_err(), "{shown:?}");
    }
    // A bearer token is not accepted, and neither is another protocol.
    for protocols in [&["http/1.1"][..], &["tombolo/1"], &[]] {
        for shown in [None, Some(&olga)] {
            let answer = by_http1(&rig, address, protocols, shown).await;
            assert!(answer.is_empty(), "{protocols:?}: {answer}");
        }
    }
    assert_eq!(asked(&rig, address, Some(&olga), LIST).await, Ok(Code::Ok));
    assert!(!rig.server_log().contains("panic"));
}

#[tokio::test]
async fn every_admin_method_answers_the_permitted_roles_and_refuses_the_others() {
    let (address, config) = remote_admin_listener(&ROLES);
    let (rig, _) = enroll::start(&config).await;
    let methods = methods();
    assert!(methods.len() >= 14, "{methods:?}");

    for (name, role) in ROLES.into_iter().chain([("nemo", "none")]) {
        let shown = rig.admin(name).await;
        for path in &methods {
            let code = asked(&rig, address, Some(&shown), path).await.expect("an answer");
            assert_eq!(code != Code::PermissionDenied, may(role, path), "{role}: {path} is answered {code}");
        }
        let code = asked(&rig, address, Some(&shown), "/tombolo.admin.v1.Admin/Unheard").await;
        assert_eq!(code, Ok(Code::Unimplemented), "{role}");
    }
}

/// A viewer changes nothing, an enroller makes only tokens, and an operator may do both.
#[tokio::test]
async fn each_admin_role_can_do_what_it_is_for_and_no_more() {
    let (address, config) = remote_admin_listener(&ROLES);
    let (rig, _) = enroll::start(&config).await;
    for (name, _) in ROLES {
        rig.admin(name).await;
    }
    let create = ["cluster", "create", "edge-b"];
    let token = ["token", "create", "--cluster", "edge-a", "-o", "token"];

    let listed = as_admin(&rig, address, "vera", &["clusters", "-o", "name"]).await;
    assert_eq!(listed, "edge-a\n");
    for (name, words) in
        [("vera", &create[..]), ("vera", &token[..]), ("enno", &create), ("enno", &["clusters"])]
    {
        let refused = refused_as(&rig, address, name, words).await;
        assert!(refused.contains("and may not") && refused.contains("admin.tcp.roles"), "{refused}");
    }
    assert_eq!(as_admin(&rig, address, "vera", &["clusters", "-o", "name"]).await, "edge-a\n");

    let made = as_admin(&rig, address, "enno", &token).await;
    assert!(made.trim().contains('.'), "{made}");
    as_admin(&rig, address, "olga", &create).await;
    as_admin(&rig, address, "olga", &token).await;
    assert_eq!(as_admin(&rig, address, "olga", &["clusters", "-o", "name"]).await, "edge-a\nedge-b\n");
}

#[tokio::test]
async fn the_audit_log_has_administrator_role_method_and_verdict() {
    let (address, config) = remote_admin_listener(&ROLES);
    let (mut rig, _) = enroll::start(&config).await;
    for (name, _) in ROLES {
        rig.admin(name).await;
    }
    let token =
        as_admin(&rig, address, "enno", &["token", "create", "--cluster", "edge-a", "-o", "token"]).await;
    refused_as(&rig, address, "vera", &["cluster", "delete", "edge-a", "--yes"]).await;
    as_admin(&rig, address, "olga", &["cluster", "delete", "edge-a", "--yes"]).await;
    refused_as(&rig, address, "vera", &["cluster", "undelete", "edge-a"]).await;
    as_admin(&rig, address, "olga", &["cluster", "undelete", "edge-a"]).await;
    as_admin(&rig, address, "olga", &["agent", "revoke", "edge-a/one", "--unseen"]).await;
    refused_as(&rig, address, "vera", &["agent", "restore", "edge-a/one"]).await;
    as_admin(&rig, address, "olga", &["agent", "restore", "edge-a/one"]).await;
    let foreign = rig.root_of("admin").issue_named("olga", &[], "spiffe://elsewhere/admin/olga");
    assert!(asked(&rig, address, Some(&foreign), LIST).await.is_err());
    Rig::ends_with(rig.server(), rustix::process::Signal::TERM).await;

    let log = AuditLog::of(&rig);
    let lines: Vec<_> = log
        .lines()
        .iter()
        .filter(|line| note(line, "listener") == "admin-tcp" && line["stage"] == "ResponseComplete")
        .map(|line| {
            let user = line["user"]["username"].as_str().expect("a name");
            let code = line["responseStatus"]["code"].as_u64().expect("a code");
            (
                user,
                note(line, "role"),
                line["verb"].as_str().expect("a verb"),
                note(line, "detail"),
                note(line, "decision"),
                code,
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            ("admin:enno", "enroller", "create", "token for cluster edge-a", "allow", 200),
            ("admin:vera", "viewer", "delete", "the clusters", "forbid", 403),
            ("admin:olga", "operator", "delete", "cluster edge-a", "allow", 200),
            ("admin:vera", "viewer", "undelete", "the clusters", "forbid", 403),
            ("admin:olga", "operator", "undelete", "cluster edge-a", "allow", 200),
            ("admin:olga", "operator", "revoke", "agent edge-a/one", "allow", 200),
            ("admin:vera", "viewer", "restore", "the agents", "forbid", 403),
            ("admin:olga", "operator", "restore", "agent edge-a/one", "allow", 200),
        ]
    );
    for line in log.lines().iter().filter(|line| note(line, "listener") == "admin-tcp") {
        assert_eq!(line["sourceIPs"], serde_json::json!(["127.0.0.1"]));
        assert_eq!(note(line, "credential-serial").len(), 32, "{line}");
    }
    let unauthenticated = log.lines().iter().filter(|line| line["verb"] == "authenticate").count();
    assert_eq!(unauthenticated, 1, "{log:?}");
    let secret = token.trim().split_once('.').expect("ID.SECRET").1;
    assert!(!log.lines().iter().any(|line| line.to_string().contains(secret)), "a token is in the log");
    verify(&rig).await;
}

#[tokio::test]
async fn a_watch_lasts_no_longer_than_its_watchers_certificate() {
    let (address, config) = remote_admin_listener(&ROLES);
    let rig = Rig::start_with(&config).await;
    let end = SystemTime::now() + Duration::from_secs(8);
    let vera = rig.root_of("admin").issue_named_until("vera", &[], "spiffe://tombolo/admin/vera", end);
    let wire = AdminWire::dial(address, &rig.server_ca(), Some(&vera)).await.expect("TLS");
    let mut client = AdminClient::with_origin(wire, AdminWire::origin());
    let mut events =
        client.watch_clusters(WatchClustersRequest::default()).await.expect("it begins").into_inner();
    let first = events.message().await.expect("an event");
    assert!(matches!(first, Some(WatchClustersResponse { event: Some(Event::InitialEnd(_)) })), "{first:?}");

    let ended = timeout(DONE_MAX, events.message()).await.expect("it ends by itself");

    assert!(ended.is_err(), "{ended:?}");
    // A certificate holds to the end of its last second, and the watch to its beginning.
    assert!(SystemTime::now() + Duration::from_secs(1) >= end);
    assert!(asked(&rig, address, Some(&vera), LIST).await.is_err());
}

/// A broken file of roles or of revocations changes nothing.
#[tokio::test]
async fn a_changed_role_or_revoked_certificate_affects_open_calls_at_once() {
    let (address, config) = remote_admin_listener(&ROLES);
    let rig = Rig::start_with(&config).await;
    let (vera, olga, enno) = (rig.admin("vera").await, rig.admin("olga").await, rig.admin("enno").await);
    let is_current = "tombolo_server_file_reload_last_successful{file=\"admins\"}";
    let open = "tombolo_server_admin_connections_active";
    let mut watches = Vec::new();
    for shown in [&vera, &olga] {
        let wire = AdminWire::dial(address, &rig.server_ca(), Some(shown)).await.expect("TLS");
        let mut client = AdminClient::with_origin(wire, AdminWire::origin());
        let begun = client.watch_clusters(WatchClustersRequest::default()).await.expect("it begins");
        let mut events = begun.into_inner();
        let first = events.message().await.expect("an event");
        assert!(
            matches!(first, Some(WatchClustersResponse { event: Some(Event::InitialEnd(_)) })),
            "{first:?}"
        );
        watches.push((client, events));
    }
    rig.measured(open, |open| open == 2.0).await;

    let complete = std::fs::read_to_string(rig.path().join("server.yaml")).expect("a configuration");
    rig.write("server.yaml", "no configuration");
    rig.measured(is_current, |current| current == 0.0).await;
    assert_eq!(asked(&rig, address, Some(&olga), LIST).await, Ok(Code::Ok), "the last good roles hold");

    // vera may nothing any more, enno may look, and olga stays who she is.
    let changed = complete.replace(
        "{ name: vera, role: viewer }, { name: enno, role: enroller }",
        "{ name: enno, role: viewer }",
    );
    assert_ne!(changed, complete);
    rig.write("server.yaml", &changed);
    rig.measured(is_current, |current| current == 1.0).await;
    let ended = timeout(DONE_MAX, watches[0].1.message()).await.expect("her watch ends by itself");
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(asked(&rig, address, Some(&vera), LIST).await, Ok(Code::PermissionDenied));
    assert_eq!(asked(&rig, address, Some(&enno), LIST).await, Ok(Code::Ok));
    rig.measured(open, |open| open == 1.0).await;

    // One certificate of hers, not her next one.
    let serial = serial_with_colons(&olga);
    rig.write(
        "server.yaml",
        &changed.replace("roles: [", &format!("revoked: [{{ serial: '{serial}' }}], roles: [")),
    );
    let ended = timeout(DONE_MAX, watches[1].1.message()).await.expect("her watch ends by itself");
    assert!(ended.is_err(), "{ended:?}");
    assert!(asked(&rig, address, Some(&olga), LIST).await.is_err(), "she is told nothing");
    let next = rig.root_of("admin").issue_named("olga", &[], OLGA);
    assert_eq!(asked(&rig, address, Some(&next), LIST).await, Ok(Code::Ok));
}

/// Runs the command as an administrator and returns its output.
async fn as_admin(rig: &Rig, address: SocketAddr, name: &str, words: &[&str]) -> String {
    let flags = at(address, name);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    rig.tombolo(&[words, &flags].concat()).await
}

/// The same of what fails.
async fn refused_as(rig: &Rig, address: SocketAddr, name: &str, words: &[&str]) -> String {
    let flags = at(address, name);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    rig.tombolo_fails(&[words, &flags].concat()).await
}

/// The flags with which an administrator asks from elsewhere.
fn at(address: SocketAddr, name: &str) -> [String; 8] {
    [
        "--server".to_owned(),
        format!("https://{address}"),
        "--ca".to_owned(),
        "pki/server-ca.crt".to_owned(),
        "--cert".to_owned(),
        format!("pki/{name}-admin.crt"),
        "--key".to_owned(),
        format!("pki/{name}-admin.key"),
    ]
}

/// The status code of one request with an empty message, or the error that came in its place.
async fn asked(rig: &Rig, address: SocketAddr, shown: Option<&Issued>, path: &str) -> Result<Code, String> {
    let asked = async {
        let wire = AdminWire::dial(address, &rig.server_ca(), shown).await;
        wire.map_err(|error| error.to_string())?.ask(path).await.map_err(|error| error.to_string())
    };
    timeout(DONE_MAX, asked).await.expect("an answer, or none")
}

/// All that is answered to a request over HTTP/1.1 with a token.
async fn by_http1(rig: &Rig, address: SocketAddr, protocols: &[&str], shown: Option<&Issued>) -> String {
    let exchange = async {
        let mut stream = dial(address, &rig.server_ca(), protocols, shown).await?;
        let head = format!("GET {LIST} HTTP/1.1\r\nHost: admin\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        // However the connection ends, what came before counts.
        let _ = stream.read_to_end(&mut answer).await;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(DONE_MAX, exchange).await.expect("the connection ends").unwrap_or_default()
}

/// Every method that the server has by reflection.
fn methods() -> Vec<String> {
    let sets = [
        proto::admin::FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
    ];
    let mut methods = Vec::new();
    for set in sets {
        let set: FileDescriptorSet = prost::Message::decode(set).expect("a schema");
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    methods.push(format!("/{}.{}/{}", file.package(), service.name(), method.name()));
                }
            }
        }
    }
    methods
}

/// Returns true if a role may call a method, by the method's name. A viewer may only read, and every method
/// that is named otherwise changes something.
fn may(role: &str, path: &str) -> bool {
    let (_, name) = path.rsplit_once('/').expect("a path");
    let looks = ["List", "Watch", "Get", "Check", "ServerReflectionInfo"];
    match role {
        "operator" => true,
        "viewer" => looks.iter().any(|word| name.starts_with(word)),
        "enroller" => name == "CreateToken",
        _ => false,
    }
}
