//! Certificates: the names in an API server's, which its agent reports, and those of servers and agents, whose files are
//! replaced while they run.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use tests::admin::remote_admin_listener;
use tests::caller::Http2Caller;
use tests::dial::{self, dial};
use tests::enroll::{self, at};
use tests::fake_api::FakeApi;
use tests::kube::{ClusterOptions, EdgeCluster};
use tests::rig::{ApiServer, Rig};

const CLUSTER: &str = "edge-a";

/// A name beside those that every API server of a trial has.
const NAME: &str = "api.edge-a.test";
const OTHER_NAME: &str = "api.edge-b.test";

/// The command warns of a kubeconfig that would not verify them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_names_in_an_api_servers_certificate_are_shown() {
    let place = ClusterOptions { server_names: &[NAME], ..ClusterOptions::default() };
    let cluster = EdgeCluster::start_at(place).await.unwrap();
    let account = cluster.create_agent_account().await.unwrap();
    let rig = Rig::start().await;
    let _agent = rig.agent(CLUSTER, &ApiServer::of(&cluster, &account)).await;
    let (advertise, asked) = (cluster.options().advertise, cluster.address());
    let control_plane = format!("{advertise}:{}", asked.port());
    at(&rig, &["cluster", "update", CLUSTER, "--advertise", &control_plane]).await;
    // An agent that has found it has seen its certificate.
    rig.listed(CLUSTER, |listed| listed.contains(&control_plane)).await;

    let shown: Value = serde_json::from_str(&at(&rig, &["clusters", "-o", "json"]).await).unwrap();

    let certificates = &shown["items"][0]["status"]["tunnels"][0]["certificates"];
    assert_eq!(certificates.as_array().map(Vec::len), Some(1), "{shown}");
    assert_eq!(certificates[0]["address"], asked.to_string(), "{shown}");
    assert_eq!(certificates[0]["cut"], false, "{shown}");
    let names: Vec<&str> =
        certificates[0]["names"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
    for name in [NAME, "kubernetes.default.svc", &advertise.to_string(), "127.0.0.1"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let wide = at(&rig, &["clusters", "-o", "wide"]).await;
    assert!(wide.contains("CERTIFICATE") && wide.contains(NAME), "{wide}");
    // By the address that its own kubeconfig would name, and by names that it has and has not.
    let own = fs::read_to_string(cluster.admin_kubeconfig()).unwrap();
    let own = own.replace(&format!("https://{asked}"), &format!("https://{control_plane}"));
    for (name, is_there) in [(None, true), (Some(NAME), true), (Some(OTHER_NAME), false)] {
        let file = rig.write("own.conf", &named(&own, name));
        let words = ["cluster", "check", CLUSTER, "--kubeconfig", file.to_str().unwrap()];
        let asked = name.map_or_else(|| advertise.to_string(), str::to_owned);
        let socket = ["--socket", "admin/admin.sock"];
        let output = rig.tombolo_writes(&[&words[..], &socket].concat()).await;
        let (good, bad) = (format!("is for {asked}"), format!("is not for {asked}, but for "));
        assert_eq!((output.contains(&good), output.contains(&bad)), (is_there, !is_there), "{output}");
        for word in
            ["apiServer.certSANs", &format!("--tls-san {asked}"), "--tls-cert-file", "--tls-sni-cert-key"]
        {
            assert_eq!(output.contains(word), !is_there, "{word}: {output}");
        }
        if is_there {
            at(&rig, &words).await;
        }
    }
}

/// The kubeconfig with another name to verify, if one is given.
fn named(kubeconfig: &str, name: Option<&str>) -> String {
    let Some(name) = name else { return kubeconfig.to_owned() };
    kubeconfig.replacen("    server: ", &format!("    tls-server-name: {name}\n    server: "), 1)
}

/// The metric that says whether the server's certificate is that of its files.
const IS_CURRENT: &str = "tombolo_server_file_reload_last_successful{file=\"server_certificate\"}";

/// The names of a rig's server.
const SERVER_NAMES: [&str; 6] =
    ["--name", "127.0.0.1", "--name", "gateway.test", "--suffix", "clusters.test"];

/// A mount of a Secret, in which Kubernetes swaps the link `..data`. Sessions go on, and files that cannot be used leave the
/// last good certificate in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_listener_shows_a_replaced_server_certificate_without_restart() {
    let (admins, config) = remote_admin_listener(&[("olga", "viewer")]);
    let (mut rig, enrollment) = enroll::start(&config).await;
    mount(&rig, 1);
    rig.kill_server();
    rig.write_config(|config| {
        config.replace("pki/server.crt", "mount/tls.crt").replace("pki/server.key", "mount/tls.key")
    });
    rig.start_server().await;
    let api = FakeApi::start().await.unwrap();
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let listeners = [
        ("gateway", rig.gateway(), "h2", None),
        ("enrollment", enrollment.address, "h2", None),
        ("admin", admins, "h2", Some(rig.admin("olga").await)),
        ("tunnel over TCP", rig.gateway(), "tombolo/1", Some(rig.issued("edge-a-agent"))),
    ];
    let all_show = async |expected: &[u8]| {
        for (name, address, protocol, identity) in &listeners {
            let tls = dial(*address, &rig.server_ca(), &[protocol], identity.as_ref()).await.expect(name);
            let shown = tls.get_ref().1.peer_certificates().expect("a chain")[0].to_vec();
            assert!(shown == expected, "{name} shows another certificate");
        }
        assert!(shown_by_quic(&rig).await == expected, "QUIC shows another certificate");
    };
    let first = leaf(&rig, "mount/tls.crt");
    all_show(&first).await;
    let mut session = Http2Caller::dial(&rig).await;
    let from = rig.server_log().len();

    rig.tombolo(&[&["ca", "issue", "server", "--dir", "pki", "--force"], &SERVER_NAMES[..]].concat()).await;
    mount(&rig, 2);

    rig.logged("server.log", from, "new connections see the new one").await;
    let second = leaf(&rig, "mount/tls.crt");
    assert!(first != second);
    all_show(&second).await;
    assert_eq!(session.ask("GET", "/clusters", &[]).await.unwrap().status(), 200, "it goes on");

    let from = rig.server_log().len();
    rig.write("pki/server.crt", "no certificate");
    mount(&rig, 3);

    rig.logged("server.log", from, "the last valid one stays in force").await;
    rig.measured(IS_CURRENT, |is_current| is_current == 0.0).await;
    all_show(&second).await;
    rig.tombolo(&[&["ca", "issue", "server", "--dir", "pki", "--force"], &SERVER_NAMES[..]].concat()).await;
    mount(&rig, 4);
    rig.measured(IS_CURRENT, |is_current| is_current == 1.0).await;
    all_show(&leaf(&rig, "mount/tls.crt")).await;
}

/// The server's authority is exchanged by the files alone, for the server and for the agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_takes_up_replaced_roots_and_certificates_without_restart() {
    let mut rig = Rig::start().await;
    let api = FakeApi::start().await.unwrap();
    let agent = rig.agent_of_id("edge-a", "one", &ApiServer::of_fake(&rig, &api), "").await;
    rig.connected("edge-a").await;
    let log = "edge-a.one";
    rig.tombolo(&["ca", "init", "--dir", "other"]).await;
    let issue = ["ca", "issue", "server", "--dir", "other", "--out", "pki", "--force"];
    let from = rig.agent_log(log).len();
    let is_current = "tombolo_agent_file_reload_last_successful{file=\"identity\"}";

    rig.tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", "edge-a", "--id", "one", "--force"])
        .await;
    rig.logged("edge-a.one.log", from, "the next dials use them").await;
    let from = rig.agent_log(log).len();
    rig.write("pki/server-ca.crt", "no certificate");
    rig.logged("edge-a.one.log", from, "the last valid ones stay in force").await;
    assert_eq!(rig.metric(agent.probes, is_current).await, 0.0);
    let from = rig.agent_log(log).len();
    let other = fs::read_to_string(rig.path().join("other/server-ca.crt")).unwrap();
    rig.write("pki/server-ca.crt", &other);
    rig.logged("edge-a.one.log", from, "the next dials use them").await;
    assert_eq!(rig.metric(agent.probes, is_current).await, 1.0);
    rig.kill_server();
    rig.tombolo(&[&issue, &SERVER_NAMES[..]].concat()).await;
    rig.start_server().await;

    rig.connected("edge-a").await;
}

/// Puts the files of `pki` into another version of the mount, and swaps the link to it.
fn mount(rig: &Rig, version: u32) {
    let (mount, name) = (rig.path().join("mount"), format!("..{version}"));
    let folder = mount.join(&name);
    fs::create_dir_all(&folder).unwrap();
    for (from, to) in [("server.crt", "tls.crt"), ("server.key", "tls.key")] {
        fs::copy(rig.path().join("pki").join(from), folder.join(to)).unwrap();
        let link = mount.join(to);
        if !link.exists() {
            symlink(format!("..data/{to}"), link).unwrap();
        }
    }
    symlink(&name, mount.join("..data_tmp")).unwrap();
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
}

/// The first certificate in a file.
fn leaf(rig: &Rig, name: &str) -> Vec<u8> {
    CertificateDer::from_pem_file(rig.path().join(name)).expect("a certificate").to_vec()
}

/// The certificate that the server shows to an agent over QUIC.
async fn shown_by_quic(rig: &Rig) -> Vec<u8> {
    let mut tls = dial::config(&rig.server_ca(), Some(&rig.issued("edge-a-agent"))).unwrap();
    tls.alpn_protocols = vec![b"tombolo/1".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connection = endpoint.connect_with(config, rig.dialed(), "127.0.0.1").unwrap().await.expect("QUIC");
    let identity = connection.peer_identity().expect("a chain");
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().expect("certificates");
    chain[0].to_vec()
}
