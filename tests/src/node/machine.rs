//! The network of a node's machine: routes from pods to the cluster's API server and to the outside.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::NodeError;
use crate::network::NetworkNamespace;
use crate::process::{Invocation, run};

/// The Service `kubernetes`, as pods know the API server. It is the only part of kube-proxy that is imitated, where there is none.
const SERVICE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 96, 0, 1), 443);
/// The limit for one program.
const SET_UP_MAX: Duration = Duration::from_secs(10);

/// Lets these pods appear under the machine's addresses outside of their own network. With an API server, the Service
/// leads to it.
pub(super) async fn prepare(
    machine: &NetworkNamespace,
    pods: &str,
    api_server: Option<SocketAddr>,
) -> Result<(), NodeError> {
    let mut rules = format!(
        "add table ip node\n\
         add chain ip node in {{ type nat hook prerouting priority -100; }}\n\
         add chain ip node local {{ type nat hook output priority -100; }}\n\
         add chain ip node out {{ type nat hook postrouting priority 100; }}\n\
         add rule ip node out ip saddr {pods} ip daddr != {pods} masquerade\n"
    );
    if let Some(api_server) = api_server {
        let (address, port) = SERVICE;
        for chain in ["in", "local"] {
            let service = format!("ip daddr {address} tcp dport {port} dnat to {api_server}");
            rules += &format!("add rule ip node {chain} {service}\n");
        }
    }
    let nft = Invocation::of("nft").arguments([rules]).in_network_namespace(Some(machine.path().to_owned()));
    let output = run(&nft, SET_UP_MAX).await?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(NodeError::Refused { program: "nft", message });
    }
    Ok(())
}
