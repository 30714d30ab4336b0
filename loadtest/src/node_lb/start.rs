//! Starts balancers before plain TLS servers of this host.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use ::tests::balancers::{Balancer, BalancerKind, BalancerOptions};
use ::tests::lb_cluster::until;

use crate::caller::Caller;
use crate::route::{Destination, Http};

/// Longest wait for a balancer to serve.
const SERVES_MAX: Duration = Duration::from_secs(60);

/// Starts a balancer on free ports of this host, before API servers on this host.
///
/// # Errors
/// It does not start, or it does not serve.
pub async fn start_here(
    kind: BalancerKind,
    api_servers: &[SocketAddr],
    ca_pem: &str,
) -> Result<Balancer, Box<dyn Error>> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (callers, probes) = (free()?, free()?);
    let (port, probes_port) = (callers.local_addr()?.port(), probes.local_addr()?.port());
    drop((callers, probes));
    let options =
        BalancerOptions { api_servers, ca_pem, kubelet: None, network_namespace: None, port, probes_port };
    let balancer = Balancer::start(kind, &options).await?;
    let destination = destination(&balancer, ca_pem);
    let uri = destination.uri(crate::target::SMALL);
    until(&format!("{} serves: {}", kind.name(), balancer.log()), SERVES_MAX, async || {
        Caller::connect(&destination).await.ok()?.get(&uri).await.ok()
    })
    .await;
    Ok(balancer)
}

/// The destination of callers at a balancer.
pub fn destination(balancer: &Balancer, ca_pem: &str) -> Destination {
    let (address, ca_pem) = (balancer.address, ca_pem.to_owned());
    Destination { address, ca_pem, identity: None, http: Http::Two, via: None }
}
