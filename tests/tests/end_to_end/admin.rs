//! The admin API and `tombolo cluster list`: access, output, and the end of watches.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use proto::admin::admin_client::AdminClient;
use proto::admin::watch_clusters_response::Event;
use proto::admin::{
    Cluster, GetServerInfoRequest, Health, ListClustersRequest, NAMES_MAX, WatchClustersRequest,
    WatchClustersResponse,
};
use rustix::process::Signal;
use serde_json::Value;
use tests::admin::AdminWire;
use tests::binaries::binary;
use tests::carrier::Carrier;
use tests::fake_api::FakeApi;
use tests::process::{Invocation, Process, run};
use tests::rig::{ApiServer, Rig};
use tokio::time::{sleep, timeout};
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// The limit for any step of a test.
const DONE_MAX: Duration = Duration::from_secs(60);
/// The pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A user ID that belongs to nobody on this machine.
const OTHER_USER: u32 = 65_534;

#[tokio::test]
async fn a_connected_cluster_is_listed_with_its_tunnels_measurements() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let mut admin = client(&rig).await;

    let listed = admin.list_clusters(ListClustersRequest::default()).await.expect("it answers").into_inner();

    let [cluster] = listed.clusters.as_slice() else { panic!("{listed:?}") };
    let [tunnel] = cluster.tunnels.as_slice() else { panic!("{cluster:?}") };
    assert_eq!((cluster.name.as_str(), cluster.connected), ("edge-a", true));
    let carrier = Carrier::of_run();
    let is = (tunnel.carrier.as_str(), tunnel.health(), tunnel.draining);
    assert_eq!(is, (carrier.as_str(), Health::Live, false));
    assert!(tunnel.address.starts_with("127.0.0.1:"), "{tunnel:?}");
    let measured = tunnel.measurements.expect("measurements");
    let round_trip: Duration = measured.round_trip.expect("a round trip").try_into().expect("a duration");
    assert!(Duration::ZERO < round_trip && round_trip < Duration::from_secs(5), "{round_trip:?}");
    // What TCP sends is the kernel's affair.
    assert_eq!(measured.packets_sent > 0, carrier == Carrier::Quic, "{measured:?}");
    assert!(measured.packets_lost <= measured.packets_sent, "{measured:?}");

    let info = admin.get_server_info(GetServerInfoRequest {}).await.expect("it answers").into_inner();
    let (addresses, counts) = (info.addresses.expect("addresses"), info.counts.expect("counts"));
    assert!(info.software.starts_with("tunnel-server/") && !info.draining, "{}", info.software);
    assert_eq!((addresses.gateway, addresses.probes), (rig.gateway().to_string(), rig.probes().to_string()));
    assert_eq!((counts.clusters, counts.clusters_connected, counts.tunnels), (1, 1, 1));
}

#[tokio::test]
async fn a_tunnel_over_tcp_is_listed_and_counted_as_one() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), "carrier: http2").await;
    rig.connected("edge-a").await;
    let mut admin = client(&rig).await;

    let listed = admin.list_clusters(ListClustersRequest::default()).await.expect("it answers").into_inner();

    let [cluster] = listed.clusters.as_slice() else { panic!("{listed:?}") };
    let [tunnel] = cluster.tunnels.as_slice() else { panic!("{cluster:?}") };
    assert_eq!((tunnel.carrier.as_str(), tunnel.health()), ("http2", Health::Live));
    let measured = tunnel.measurements.expect("measurements");
    assert_eq!((measured.packets_sent, measured.packets_lost), (0, 0), "its packets are the kernel's");
    rig.measured("tombolo_server_tunnels{carrier=\"http2\"}", |tunnels| tunnels == 1.0).await;
    rig.measured("tombolo_server_tunnels{carrier=\"quic\"}", |tunnels| tunnels == 0.0).await;
    let of_cluster = "tombolo_server_cluster_tunnels{cluster=\"edge-a\",carrier=\"http2\"}";
    rig.measured(of_cluster, |tunnels| tunnels == 1.0).await;
}

#[tokio::test]
async fn a_watch_sees_an_agent_come_and_go() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let mut events = watch(&rig).await;
    assert!(matches!(next(&mut events).await, Event::InitialEnd(_)));

    let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    until(&mut events, |cluster| cluster.name == "edge-a" && cluster.connected).await;

    let ended = agent.process.stop(DONE_MAX).await.expect("the agent ends");
    assert_eq!(ended.code(), Some(0));
    let gone = until(&mut events, |cluster| !cluster.connected && cluster.tunnels.is_empty()).await;
    assert_eq!(gone.name, "edge-a");
    assert!(gone.last_seen.is_some());
}

#[tokio::test]
async fn a_drain_ends_a_watch_and_changes_the_health_status() {
    let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let wire = AdminWire::connect(&rig.admin_socket()).await.expect("it answers");
    let mut health = HealthClient::with_origin(wire, AdminWire::origin());
    let asked = HealthCheckRequest { service: "tombolo.admin.v1.Admin".to_owned() };
    let mut healths = health.watch(asked).await.expect("it answers").into_inner();
    until_health(&mut healths, ServingStatus::Serving).await;
    let mut events = watch(&rig).await;

    // A stopped agent does not take part in the drain, so that the server stays long enough to be looked at.
    agent.process.signal(Signal::STOP).expect("the agent runs");
    rig.server().signal(Signal::TERM).expect("the server runs");

    until_health(&mut healths, ServingStatus::NotServing).await;
    let ended = loop {
        match timeout(DONE_MAX, events.message()).await.expect("the watch ends") {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ended without a word"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
    assert!(ended.message().contains("stopping"), "{ended:?}");
    agent.process.signal(Signal::CONT).expect("the agent runs");
    assert_eq!(rig.server().wait(DONE_MAX).await.expect("the server ends").code(), Some(0));
    assert!(!rig.admin_socket().exists(), "the socket goes with its server");
}

#[tokio::test]
async fn health_and_reflection_answer_as_tools_ask_them() {
    let rig = Rig::start().await;
    let wire = AdminWire::connect(&rig.admin_socket()).await.expect("it answers");
    let mut health = HealthClient::with_origin(wire.clone(), AdminWire::origin());
    for service in ["", "tombolo.admin.v1.Admin"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let mut healths = health.watch(request).await.expect("it answers").into_inner();
        until_health(&mut healths, ServingStatus::Serving).await;
    }
    let request = HealthCheckRequest { service: "nobody".to_owned() };
    assert_eq!(health.check(request).await.expect_err("no such service").code(), Code::NotFound);

    let mut reflection = ServerReflectionClient::with_origin(wire, AdminWire::origin());
    let services = reflect(&mut reflection, MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(services) = services else { panic!("{services:?}") };
    let mut names: Vec<_> = services.service.into_iter().map(|service| service.name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "tombolo.admin.v1.Admin"]
    );
    let symbol = MessageRequest::FileContainingSymbol("tombolo.admin.v1.Admin.ListClusters".to_owned());
    let file = reflect(&mut reflection, symbol).await;
    assert!(matches!(file, MessageResponse::FileDescriptorResponse(_)), "{file:?}");
    for import in ["google/protobuf/timestamp.proto", "google/protobuf/duration.proto"] {
        let file = reflect(&mut reflection, MessageRequest::FileByFilename(import.to_owned())).await;
        assert!(matches!(file, MessageResponse::FileDescriptorResponse(_)), "{import}: {file:?}");
    }
}

/// Another user is refused even where the permissions of both were opened.
#[tokio::test]
async fn the_socket_and_its_folder_are_closed_to_other_users() {
    let rig = Rig::start().await;
    let (socket, mode) = (rig.admin_socket(), |path: &Path| {
        fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o777
    });
    let folder = socket.parent().expect("a folder");
    assert_eq!((mode(folder), mode(&socket)), (0o700, 0o600));
    if !rustix::process::geteuid().is_root() {
        tests::skip::skip("another_user_is_refused", "only root can act as another user");
        return;
    }
    // As the other user would have it: the program where everybody may read it, the way to the socket open
    // but for its own folder.
    let tombolo = rig.path().join("tombolo");
    fs::copy(binary("tombolo"), &tombolo).expect("a copy");
    for (path, bits) in [(rig.path(), 0o755), (&tombolo, 0o755)] {
        fs::set_permissions(path, Permissions::from_mode(bits)).expect("a mode can be set");
    }
    let denied = as_other_user(&tombolo, &socket).await;
    assert!(denied.contains("may not be opened by you") && denied.contains("run this as root"), "{denied}");

    for (path, bits) in [(folder, 0o755), (socket.as_path(), 0o666)] {
        fs::set_permissions(path, Permissions::from_mode(bits)).expect("a mode can be set");
    }
    let refused = as_other_user(&tombolo, &socket).await;
    assert!(refused.contains(&format!("user id {OTHER_USER} may not list the clusters")), "{refused}");
    assert!(rig.server_log().contains("a request to the admin API was refused"), "{}", rig.server_log());
}

#[tokio::test]
async fn a_killed_servers_socket_is_replaced_and_a_live_ones_is_a_clear_error() {
    let mut rig = Rig::start().await;
    let before = fs::symlink_metadata(rig.admin_socket()).expect("it is there").modified().expect("a time");
    rig.kill_server();
    assert!(rig.admin_socket().exists(), "a killed server leaves its socket");
    let failed = rig.tombolo_fails(&["clusters", "--socket", "admin/admin.sock"]).await;
    assert!(failed.contains("nobody answers") && failed.contains("start it again"), "{failed}");

    rig.start_server().await;
    let after = fs::symlink_metadata(rig.admin_socket()).expect("it is there").modified().expect("a time");
    assert_ne!(before, after);
    assert!(client(&rig).await.list_clusters(ListClustersRequest::default()).await.is_ok());

    let other = Rig::start_with("admin: { enabled: false }").await;
    assert!(!other.admin_socket().exists(), "an API that is switched off has no socket");
    let config = other.path().join("server.yaml");
    let text = fs::read_to_string(&config).expect("a configuration");
    let socket = format!("admin: {{ socket: {:?} }}", rig.admin_socket());
    let ports = |text: &str| {
        text.replace(&other.gateway().to_string(), "127.0.0.1:0")
            .replace(&other.probes().to_string(), "127.0.0.1:0")
    };
    fs::write(
        &config,
        ports(&text.replace("admin: { enabled: false }", &socket)).replace("server.state", "second.state"),
    )
    .expect("it can be changed");
    let server = Invocation::of(binary("tunnel-server"))
        .arguments(["--config".to_owned(), config.display().to_string()]);
    let output = run(&server, DONE_MAX).await.expect("it ends by itself");
    let stderr =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("another server answers at"), "{stderr}");
    assert!(
        client(&rig).await.list_clusters(ListClustersRequest::default()).await.is_ok(),
        "it still answers"
    );
}

#[tokio::test]
async fn the_command_shows_a_table_names_json_and_yaml_and_follows_changes() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let socket = ["--socket", "admin/admin.sock"];
    let clusters = |more: &[&'static str]| [["clusters"].as_slice(), &socket, more].concat();
    assert_eq!(rig.tombolo(&clusters(&[])).await, "", "what there is not is no table");
    let tombolo =
        Invocation::of(binary("tombolo")).arguments(clusters(&["--watch"])).in_directory(rig.path());
    let log = rig.path().join("watch.txt");
    let watching = Process::start(&tombolo, &log).await.expect("it starts");

    let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let table = rig.tombolo(&clusters(&[])).await;
    let [header, row] = table.lines().collect::<Vec<_>>()[..] else { panic!("{table}") };
    assert!(header.starts_with("NAME     HEALTH") && header.ends_with("LAST SEEN"), "{table}");
    assert!(row.starts_with("edge-a   Live     1 ") && row.ends_with("now"), "{table}");
    let wide = rig.tombolo(&clusters(&["edge-a", "-o", "wide"])).await;
    assert!(wide.contains(Carrier::of_run().as_str()) && wide.contains("127.0.0.1:"), "{wide}");
    assert_eq!(rig.tombolo(&clusters(&["-o", "name"])).await, "edge-a\n");
    let json: Value = serde_json::from_str(&rig.tombolo(&clusters(&["-o", "json"])).await).expect("JSON");
    assert_eq!(json["items"][0]["status"]["tunnels"][0]["health"], "Live", "{json}");
    let yaml = rig.tombolo(&clusters(&["-o", "yaml"])).await;
    let (first, last) = (yaml.lines().next(), yaml.lines().last());
    assert_eq!(
        (first, last),
        (Some("apiVersion: tombolo.dev/v1alpha1"), Some("kind: ClusterList")),
        "{yaml}"
    );
    assert!(yaml.contains("health: Live\n"), "{yaml}");
    let unknown = rig.tombolo_fails(&clusters(&["edge-b"])).await;
    assert!(unknown.contains("this server knows no cluster edge-b"), "{unknown}");

    until_written(&log, "Live").await;
    agent.process.stop(DONE_MAX).await.expect("the agent ends");
    until_written(&log, "Away").await;
    let log = fs::read_to_string(&log).expect("its output");
    assert!(log.contains("edge-a") && log.contains("Live"), "{log}");
    assert_eq!(log.matches("NAME").count(), 1, "{log}");
    drop(watching);

    let missing = rig.tombolo_fails(&["clusters", "--socket", "none.sock"]).await;
    assert!(missing.contains("there is no socket none.sock") && missing.contains("--socket"), "{missing}");
}

#[tokio::test]
async fn watches_and_watched_names_have_a_limit() {
    let rig = Rig::start().await;
    let mut admin = client(&rig).await;
    let limits = admin.get_server_info(GetServerInfoRequest {}).await.expect("it answers").into_inner();
    let watches_max = limits.limits.expect("limits").watches;
    let mut watches = Vec::new();
    for _ in 0..watches_max {
        watches.push(admin.watch_clusters(WatchClustersRequest::default()).await.expect("a place"));
    }

    let one_more = admin.watch_clusters(WatchClustersRequest::default()).await.expect_err("no place");
    assert_eq!(one_more.code(), Code::ResourceExhausted, "{one_more:?}");
    drop(watches.pop());
    let deadline = Instant::now() + DONE_MAX;
    while let Err(status) = admin.watch_clusters(WatchClustersRequest::default()).await {
        assert!(Instant::now() < deadline, "a place never came back: {status:?}");
        sleep(LOOK_EVERY).await;
    }

    let mut names: Vec<String> = (0..NAMES_MAX).map(|number| format!("{number:0>63}")).collect();
    assert!(admin.list_clusters(ListClustersRequest { names: names.clone() }).await.is_ok());
    names.push("one-more".to_owned());
    let too_many = admin.list_clusters(ListClustersRequest { names }).await.expect_err("too many");
    assert_eq!(too_many.code(), Code::InvalidArgument, "{too_many:?}");
    let wrong = ListClustersRequest { names: vec!["Not_A_Name".to_owned()] };
    assert_eq!(admin.list_clusters(wrong).await.expect_err("no name").code(), Code::InvalidArgument);
}

#[test]
fn the_agents_program_carries_no_code_of_grpc() {
    // As symbols of crates are spelled, at the beginning of a path and inside of one.
    let carries = |program: &str| {
        let bytes = fs::read(binary(program)).expect("it can be read");
        [&b"N5tonic"[..], b"$LT$tonic.."]
            .iter()
            .any(|name| bytes.windows(name.len()).any(|found| found == *name))
    };
    assert!(carries("tunnel-server"), "the names are those that are looked for");
    assert!(!carries("tunnel-agent"));
}

async fn client(rig: &Rig) -> AdminClient<AdminWire> {
    let wire = AdminWire::connect(&rig.admin_socket()).await.expect("the admin API answers");
    AdminClient::with_origin(wire, AdminWire::origin())
}

async fn watch(rig: &Rig) -> Streaming<WatchClustersResponse> {
    let request = WatchClustersRequest { names: Vec::new(), measurements: false };
    client(rig).await.watch_clusters(request).await.expect("it answers").into_inner()
}

async fn next(events: &mut Streaming<WatchClustersResponse>) -> Event {
    let event = timeout(DONE_MAX, events.message()).await.expect("in time").expect("no error");
    event.expect("the watch goes on").event.expect("an event")
}

async fn until(events: &mut Streaming<WatchClustersResponse>, wanted: impl Fn(&Cluster) -> bool) -> Cluster {
    loop {
        if let Event::Cluster(cluster) = next(events).await
            && wanted(&cluster)
        {
            return *cluster;
        }
    }
}

async fn until_health(healths: &mut Streaming<HealthCheckResponse>, wanted: ServingStatus) {
    loop {
        let health = timeout(DONE_MAX, healths.message()).await.expect("in time").expect("no error");
        if health.expect("the watch goes on").status() == wanted {
            return;
        }
    }
}

async fn reflect(
    reflection: &mut ServerReflectionClient<AdminWire>,
    request: MessageRequest,
) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let requests = tonic::codegen::tokio_stream::once(request);
    let mut answers = reflection.server_reflection_info(requests).await.expect("it answers").into_inner();
    let answer = answers.message().await.expect("no error").expect("an answer");
    answer.message_response.expect("a message")
}

async fn as_other_user(tombolo: &Path, socket: &Path) -> String {
    let words =
        ["--reuid", &OTHER_USER.to_string(), "--regid", &OTHER_USER.to_string(), "--clear-groups", "--"];
    let invocation = Invocation::of("setpriv").arguments(words).arguments([
        tombolo.display().to_string(),
        "clusters".to_owned(),
        "--socket".to_owned(),
        socket.display().to_string(),
    ]);
    let output = run(&invocation, DONE_MAX).await.expect("setpriv runs");
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn until_written(file: &Path, text: &str) {
    let deadline = Instant::now() + DONE_MAX;
    while !fs::read_to_string(file).is_ok_and(|found| found.contains(text)) {
        assert!(Instant::now() < deadline, "{} never said {text:?}", file.display());
        sleep(LOOK_EVERY).await;
    }
}
