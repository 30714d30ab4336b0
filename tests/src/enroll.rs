//! A rig's enrollment door: how it is set up, how an agent comes to it, and how a stranger asks it byte by byte.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proto::enrollment::enrollment_client::EnrollmentClient;

use crate::admin::AdminWire;
use crate::dial::dial;
use crate::rig::{Agent, ApiServer, Rig, free_port};

/// Where the rig's agents enroll.
#[derive(Debug, Clone)]
pub struct Door {
    /// Its address.
    pub address: SocketAddr,
    /// What `tombolo token create` says to trust.
    pub pin: String,
}

/// A server at which agents enroll; its configuration ends with `more`.
pub async fn start(more: &str) -> (Rig, Door) {
    let mut rig = Rig::start_with(more).await;
    rig.kill_server();
    rig.take_clocks();
    let address = free_port();
    let config = read(&rig, "server.yaml");
    let door = format!(
        "enrollment: {{ listen: \"{address}\", address: \"{address}\", signerFile: pki/agent-intermediate.sealed, \
         sealingKeyFile: pki/sealing.key }}\n"
    );
    let bundle = "trust: { bundleFile: pki/trust.bundle }\n";
    let bundle = if config.contains("bundleFile") { "" } else { bundle };
    rig.write("server.yaml", &format!("{config}{bundle}{door}"));
    rig.start_server().await;
    at(&rig, &["cluster", "create", "edge-a"]).await;
    let told = at(&rig, &["token", "create", "--cluster", "edge-a"]).await;
    let pin = told.split_whitespace().find(|word| word.starts_with("sha256:")).expect("a pin").to_owned();
    (rig, Door { address, pin })
}

/// A token for one agent of a cluster, in a file.
pub async fn token(rig: &Rig, cluster: &str) -> (String, PathBuf) {
    let token = at(rig, &["token", "create", "--cluster", cluster, "-o", "token"]).await;
    let path = private(rig, "token", &token);
    (token.trim().to_owned(), path)
}

/// Starts an agent that enrolls; its files and log bear `name`.
pub async fn agent(rig: &Rig, door: &Door, name: &str, cluster: &str, api_server: &ApiServer) -> Agent {
    let more =
        format!("enrollment: {{ server: \"{}\", pin: \"{}\", tokenFile: token }}", door.address, door.pin);
    rig.agent_without_certificate(name, cluster, api_server, &more).await
}

/// Asks the door as anybody may, who knows the servers' root.
pub async fn stranger(rig: &Rig, door: &Door) -> EnrollmentClient<AdminWire> {
    let tls = dial(door.address, &rig.server_ca(), &["h2"], None).await.expect("TLS");
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await.expect("HTTP/2");
    EnrollmentClient::with_origin(AdminWire::over(shaken), AdminWire::origin())
}

/// `tombolo` at the rig's admin socket.
pub async fn at(rig: &Rig, words: &[&str]) -> String {
    rig.tombolo(&[words, &["--socket", "admin/admin.sock"]].concat()).await
}

/// A file of the rig that others may not read.
pub fn private(rig: &Rig, name: &str, text: &str) -> PathBuf {
    let path = rig.write(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    path
}

fn read(rig: &Rig, name: &str) -> String {
    fs::read_to_string(rig.path().join(name)).expect("it is there")
}
