//! A further server beside a rig's own, with the same certificates and callers.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::{Reply, Rig, TOKEN, ask, free_port};
use crate::process::Process;

/// A further server that runs.
#[derive(Debug)]
#[must_use = "the server is killed when this is dropped"]
pub struct Peer {
    /// Its process, once it was started.
    pub process: Option<Process>,
    /// The address that callers and agents connect to.
    pub gateway: SocketAddr,
    /// The address of its probes.
    pub probes: SocketAddr,
    id: String,
    config: PathBuf,
}

impl Rig {
    /// Starts a further server of this id at a port of its own, and waits until it is ready. Its log is
    /// `ID.log`, its state in `ID.state`.
    pub async fn peer(&self, id: &str, more: &str) -> Peer {
        self.peer_at(free_port(), id, more).await
    }

    /// The same at an address of the test's.
    pub async fn peer_at(&self, gateway: SocketAddr, id: &str, more: &str) -> Peer {
        let mut peer = self.prepared_peer(gateway, id, more);
        peer.start(self).await;
        peer
    }

    /// The same at all addresses of the host, so that agents elsewhere reach it. Its gateway is named by loopback.
    pub async fn peer_everywhere(&self, id: &str, more: &str) -> Peer {
        let port = free_port().port();
        let mut peer = self.peer_at(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), id, more).await;
        peer.gateway.set_ip(Ipv4Addr::LOCALHOST.into());
        peer
    }

    /// The same without starting it. Its configuration is `ID.yaml`.
    pub fn prepared_peer(&self, gateway: SocketAddr, id: &str, more: &str) -> Peer {
        let probes = free_port();
        let own_id = if more.contains("serverId:") { String::new() } else { format!("serverId: {id}\n") };
        let admin = if more.contains("admin:") { "" } else { "admin: { enabled: false }\n" };
        let text = self.server_yaml(id, gateway, probes, &format!("{more}\n{admin}{own_id}"));
        let config = self.write(&format!("{id}.yaml"), &text);
        Peer { process: None, gateway, probes, id: id.to_owned(), config }
    }

    /// One GET over a connection of its own, as the holder of [`TOKEN`], at the gateway of a peer.
    pub async fn ask_at(&self, gateway: SocketAddr, path: &str) -> Reply {
        self.try_ask_at(gateway, path).await.expect("the gateway answers")
    }

    /// The same for a gateway that may be gone.
    ///
    /// # Errors
    /// If the connection or its handshake fails, or the answer has no head.
    pub async fn try_ask_at(&self, gateway: SocketAddr, path: &str) -> io::Result<Reply> {
        let authorization = format!("Bearer {TOKEN}");
        let headers = [("Authorization", authorization.as_str())];
        ask(gateway, &self.server_ca(), None, "GET", path, &headers).await
    }
}

impl Peer {
    /// Starts it again, and waits until it is ready.
    pub async fn start(&mut self, rig: &Rig) {
        let log = format!("{}.log", self.id);
        let process = rig.launch(&rig.surroundings(), "tunnel-server", &self.config, &log).await;
        self.process = Some(process);
        rig.ready(self.probes).await;
    }

    /// Ends it as SIGKILL does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }
}
