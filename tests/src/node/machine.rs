//! The network of a node's machine: routes from pods to the cluster's API server and to the outside.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::NodeError;
use super::settings::PODS;
use crate::network::NetworkNamespace;
use crate::process::{Invocation, run};

/// The Service `kubernetes`, as pods know the API server. It is the only part of kube-proxy that is imitated.
const SERVICE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 96, 0, 1), 443);
/// The limit for one program.
const SET_UP_MAX: Duration = Duration::from_secs(10);

/// Lets the Service lead to the API server, and pods appear under the machine's addresses.
pub(super) async fn prepare(machine: &NetworkNamespace, api_server: SocketAddr) -> Result<(), NodeError> {
    let (address, port) = SERVICE;
    let service = format!("ip daddr {address} tcp dport {port} dnat to {api_server}");
    let rules = format!(
        "add table ip node\n\
         add chain ip node in {{ type nat hook prerouting priority -100; }}\n\
         add chain ip node local {{ type nat hook output priority -100; }}\n\
         add chain ip node out {{ type nat hook postrouting priority 100; }}\n\
         add rule ip node in {service}\n\
         add rule ip node local {service}\n\
         add rule ip node out ip saddr {PODS} ip daddr != {PODS} masquerade\n"
    );
    let nft = Invocation::of("nft").arguments([rules]).in_network_namespace(Some(machine.path().to_owned()));
    let output = run(&nft, SET_UP_MAX).await?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(NodeError::Refused { program: "nft", message });
    }
    Ok(())
}
