//! Servers of one installation: they share their records in etcd, and carry each other's requests.

use std::net::SocketAddr;

use crate::etcd::EtcdCluster;
use crate::rig::{Peer, Rig, free_port};

/// Starts the rig's own server anew, as the member `first`.
pub async fn join_first(rig: &mut Rig, etcd: &EtcdCluster) {
    let address = free_port();
    join_first_through(rig, etcd, (address, address)).await;
}

/// The same with the port that it binds for other servers, and the address at which these dial it.
pub async fn join_first_through(rig: &mut Rig, etcd: &EtcdCluster, ports: (SocketAddr, SocketAddr)) {
    rig.kill_server();
    let section = section(rig, etcd, "first", ports, "quic").await;
    rig.write_config(|text| {
        let text =
            text.replace("/server.crt", "/first-server.crt").replace("/server.key", "/first-server.key");
        format!("{text}\n{section}")
    });
    rig.start_server().await;
}

/// Starts a further server of this ID, which is a member, too.
pub async fn join(rig: &Rig, etcd: &EtcdCluster, id: &str) -> Peer {
    join_with(rig, etcd, id, "").await
}

/// The same for a server that dials the others by this carrier.
pub async fn join_over(rig: &Rig, etcd: &EtcdCluster, id: &str, carrier: &str) -> Peer {
    let mut peer = prepare_over(rig, etcd, id, (carrier, "")).await;
    peer.start(rig).await;
    peer
}

/// The same for a server that other hosts reach, too, as [`Rig::peer_everywhere`].
pub async fn join_everywhere(rig: &Rig, etcd: &EtcdCluster, id: &str, carrier: &str) -> Peer {
    let config = further(rig, etcd, id, carrier).await;
    rig.peer_everywhere(id, &config).await
}

/// The same for a server whose configuration ends with `more`.
pub async fn join_with(rig: &Rig, etcd: &EtcdCluster, id: &str, more: &str) -> Peer {
    let mut peer = prepare(rig, etcd, id, more).await;
    peer.start(rig).await;
    peer
}

/// The same without starting it. Its configuration is `ID.yaml`.
pub async fn prepare(rig: &Rig, etcd: &EtcdCluster, id: &str, more: &str) -> Peer {
    prepare_over(rig, etcd, id, ("quic", more)).await
}

async fn prepare_over(rig: &Rig, etcd: &EtcdCluster, id: &str, (carrier, more): (&str, &str)) -> Peer {
    let config = further(rig, etcd, id, carrier).await;
    rig.prepared_peer(free_port(), id, &format!("{config}{more}"))
}

/// The same as [`join_first`], and agents are told of the server's own address.
pub async fn join_first_listed(rig: &mut Rig, etcd: &EtcdCluster) {
    let address = rig.gateway();
    let plain = format!("tunnel: {{ listen: \"{address}\", agentCAFile: pki/agent-ca.crt }}");
    rig.write_config(|text| {
        assert!(text.contains(&plain), "{text}");
        text.replace(&plain, listed(address).trim_end())
    });
    join_first(rig, etcd).await;
}

/// The same as [`join`], and agents are told of the server's own address.
pub async fn join_listed(rig: &Rig, etcd: &EtcdCluster, id: &str) -> Peer {
    let gateway = free_port();
    let config = further(rig, etcd, id, "quic").await;
    rig.peer_at(gateway, id, &format!("{config}{}", listed(gateway))).await
}

/// The listener for agents, with the address that they are told.
fn listed(address: SocketAddr) -> String {
    format!(
        "tunnel: {{ listen: \"{address}\", agentCAFile: pki/agent-ca.crt, addresses: [\"{address}\"] }}\n"
    )
}

/// The configuration of a further server, which has a certificate of its own.
async fn further(rig: &Rig, etcd: &EtcdCluster, id: &str, carrier: &str) -> String {
    let address = free_port();
    let section = section(rig, etcd, id, (address, address), carrier).await;
    format!("tls: {{ certificateFile: pki/{id}-server.crt, keyFile: pki/{id}-server.key }}\n{section}")
}

/// The configuration by which a server shares records and tunnels. Its certificates are made.
async fn section(
    rig: &Rig,
    etcd: &EtcdCluster,
    id: &str,
    (listen, address): (SocketAddr, SocketAddr),
    carrier: &str,
) -> String {
    // Agents elsewhere verify the address that they dial.
    let dialed = rig.dialed().ip().to_string();
    let names = ["--name", "127.0.0.1", "--name", "gateway.test", "--name", &dialed];
    rig.tombolo(&[["ca", "issue", "server", "--dir", "pki", "--id", id].as_slice(), &names].concat()).await;
    rig.tombolo(&["ca", "issue", "peer", "--dir", "pki", "--id", id]).await;
    format!(
        "{}peering: {{ carrier: {carrier}, listen: \"{listen}\", address: \"{address}\", certificateFile: pki/{id}-peer.crt, \
         keyFile: pki/{id}-peer.key, peerCAFile: pki/peer-ca.crt, serverCAFile: pki/server-ca.crt }}\n",
        etcd.section("")
    )
}
