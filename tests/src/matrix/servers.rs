//! Three servers that share their records in etcd, for the rows about several servers, and the faults among them.
//!
//! Callers are at the first server, and the cluster's agent has its tunnels to the two others, so that each request takes a
//! hop. The second server dials the first by QUIC and the third does so by TCP, so that one of them can be cut off alone.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;

use super::fault::ServersFault;
use super::namespace::{FaultUnavailable, in_namespace};
use crate::etcd::{EtcdCluster, MEMBERS};
use crate::faulty_relay::TcpRelay;
use crate::lab::{Lab, SERVER};
use crate::members::{join_everywhere, join_first_through};
use crate::process::Process;
use crate::rig::{Peer, Rig, free_port};

/// The carriers by which the second and the third server dial the first one, and the protocols below.
const CARRIERS: [(&str, &str); 2] = [("quic", "udp"), ("http2", "tcp")];

/// Each sync to a disk of etcd takes this much longer while its disks are slow.
const SYNC_DELAY: Duration = Duration::from_millis(200);

/// The servers beside the rig's own, and what they share.
#[derive(Debug)]
pub struct SharedServers {
    etcd: EtcdCluster,
    /// Between the first server and each member of etcd.
    relays: Vec<TcpRelay>,
    /// The servers with tunnels, in the order of [`CARRIERS`].
    others: [Peer; 2],
    /// The one of these that has a fault.
    victim: usize,
    /// The port of the first server for the others.
    peering: SocketAddr,
    /// The processes that delay syncs.
    slow: Vec<Process>,
}

impl SharedServers {
    /// Lets the rig's own server share its records with two others, all of them in the cloud.
    pub async fn start(lab: &Lab, rig: &mut Rig, fault: ServersFault) -> Self {
        let etcd = if fault == ServersFault::SlowDisks {
            EtcdCluster::start_syncing_in(lab.cloud()).await
        } else {
            EtcdCluster::start_in(lab.cloud()).await
        };
        let peering = free_port();
        join_first_through(rig, &etcd, (peering, peering)).await;
        let relays = through_relays(rig, &etcd).await;
        let others = [
            join_everywhere(rig, &etcd, "second", CARRIERS[0].0).await,
            join_everywhere(rig, &etcd, "third", CARRIERS[1].0).await,
        ];
        Self { etcd, relays, others, victim: 0, peering, slow: Vec::new() }
    }

    /// The second server's address for callers, who go there when the first one accepts no connection.
    pub fn next_gateway(&self) -> SocketAddr {
        self.others[0].gateway
    }

    /// The agent's `servers`: all but the one of its callers.
    pub fn names(&self) -> String {
        let [second, third] = self.others.each_ref().map(|peer| peer.gateway.port());
        format!("servers: [\"{SERVER}:{second}\", \"{SERVER}:{third}\"]\n")
    }

    /// Makes a fault of servers or of etcd.
    ///
    /// # Errors
    /// [`FaultUnavailable`], which says what is missing.
    pub async fn begin(&mut self, rig: &mut Rig, fault: ServersFault) -> Result<(), FaultUnavailable> {
        self.victim = self.busiest(rig).await;
        match fault {
            ServersFault::HolderKilled => self.others[self.victim].kill(),
            ServersFault::HolderFrozen => self.signal(Signal::STOP)?,
            ServersFault::CallersServerKilled => rig.server().kill(),
            // The other one with a tunnel dials by the other protocol.
            ServersFault::HolderCutOff => self.drop_packets(rig, CARRIERS[self.victim].1).await?,
            ServersFault::CallersServerCutOff => self.drop_packets(rig, "{ udp, tcp }").await?,
            ServersFault::LeaderKilled => {
                let leader = self.etcd.leader().await;
                self.etcd.kill_member(leader);
            }
            ServersFault::NoQuorum => (1..MEMBERS).for_each(|member| self.etcd.kill_member(member)),
            ServersFault::CutOffFromEtcd => self.relays.iter().for_each(|relay| relay.lose_answers(true)),
            ServersFault::SlowDisks => {
                let slow = self.etcd.slow_disks(SYNC_DELAY).await;
                self.slow = slow.map_err(|error| FaultUnavailable(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Ends a fault, and starts again what it has ended. The first server is the setup's own.
    pub async fn end(&mut self, rig: &Rig, fault: ServersFault) {
        match fault {
            ServersFault::HolderKilled => self.others[self.victim].start(rig).await,
            ServersFault::HolderFrozen => drop(self.signal(Signal::CONT)),
            ServersFault::HolderCutOff | ServersFault::CallersServerCutOff => {
                if let Some(cloud) = rig.network_namespace() {
                    let _ = in_namespace(cloud, "nft 'delete table inet servers'").await;
                }
            }
            ServersFault::LeaderKilled | ServersFault::NoQuorum => self.etcd.start_members().await,
            ServersFault::CutOffFromEtcd => self.relays.iter().for_each(|relay| relay.lose_answers(false)),
            ServersFault::SlowDisks => self.slow.clear(),
            ServersFault::CallersServerKilled => {}
        }
    }

    /// Drops what arrives at the first server's port for others by these protocols.
    async fn drop_packets(&self, rig: &Rig, protocols: &str) -> Result<(), FaultUnavailable> {
        let cloud = rig.network_namespace();
        let cloud = cloud.ok_or_else(|| FaultUnavailable("the servers are in no namespace".to_owned()))?;
        let script = format!(
            "nft 'add table inet servers; add chain inet servers way {{ type filter hook input priority 0; }}; \
             add rule inet servers way meta l4proto {protocols} th dport {} drop; \
             add rule inet servers way meta l4proto {protocols} th sport {} drop'",
            self.peering.port(),
            self.peering.port()
        );
        in_namespace(cloud, &script).await
    }

    /// The server with tunnels that has relayed the most requests, so that the fault is in their way.
    async fn busiest(&self, rig: &Rig) -> usize {
        let [second, third] = self.others.each_ref().map(|peer| peer.probes);
        let relayed = "tombolo_server_relayed_requests_total";
        usize::from(rig.metric(third, relayed).await > rig.metric(second, relayed).await)
    }

    fn signal(&self, signal: Signal) -> Result<(), FaultUnavailable> {
        let process = self.others[self.victim].process.as_ref();
        let process = process.ok_or_else(|| FaultUnavailable("the server has ended".to_owned()))?;
        process.signal(signal).map_err(|error| FaultUnavailable(error.to_string()))
    }
}

/// Lets the first server reach etcd through relays, which it may lose alone.
async fn through_relays(rig: &mut Rig, etcd: &EtcdCluster) -> Vec<TcpRelay> {
    let relays = etcd.relays().await;
    rig.kill_server();
    rig.write_config(|text| {
        relays.iter().enumerate().fold(text.to_owned(), |text, (member, relay)| {
            text.replace(&etcd.address(member).to_string(), &relay.address().to_string())
        })
    });
    rig.start_server().await;
    relays
}
