//! Gets the sockets of this process: from a predecessor that runs, or by binding them.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use daemon::{BindError, BoundProbes, Failure, Metrics, Probes, Readiness, error_chain};
use tracing::warn;

use crate::handover::{
    self, HandedConnection, Inventory, ListenerFacts, ListenerKind, Predecessor, SteeringFacts,
};
use crate::relay::{self, BoundRelay};

/// The addresses that the configuration wants.
pub(super) struct WantedAddresses<'a> {
    pub(super) listen: &'a [SocketAddr],
    pub(super) listens_as_configured: bool,
    pub(super) probes: SocketAddr,
    pub(super) readiness: &'a Readiness,
    pub(super) metrics: &'a Metrics,
}

/// All sockets, and what else a predecessor has handed over.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) relays: Vec<BoundRelay>,
    pub(super) probes: BoundProbes,
    /// The listener for pods, and its address.
    pub(super) pods: Option<(SocketAddr, OwnedFd)>,
    pub(super) steering: Option<(SteeringFacts, OwnedFd)>,
    pub(super) connections: Vec<HandedConnection>,
}

impl WantedAddresses<'_> {
    /// Asks the process at the socket `path`. If none hands over, all addresses are bound.
    ///
    /// # Errors
    /// [`Failure`] names the address that cannot be bound. A predecessor goes on then.
    pub(super) async fn get(&self, path: &Path) -> Result<(Sockets, Option<Predecessor>), Failure> {
        if let Some((inventory, offer)) = handover::ask(path).await {
            let sockets = self.sockets(inventory)?;
            match offer.accept().await {
                Ok(predecessor) => return Ok((sockets, Some(predecessor))),
                Err(error) => {
                    warn!(error = %error_chain(&error), "the process that runs does not let go; starting without it");
                }
            }
        }
        Ok((self.sockets(Inventory::default())?, None))
    }

    /// All that is wanted, out of the inventory or bound. What else the inventory has is closed.
    fn sockets(&self, inventory: Inventory) -> Result<Sockets, Failure> {
        let Inventory { mut listeners, connections, steering } = inventory;
        let relays = self.relays(&mut listeners)?;
        let (readiness, metrics) = (self.readiness.clone(), self.metrics.clone());
        let probes = match take(&mut listeners, ListenerKind::Probes, self.probes) {
            Some(socket) => {
                Probes::take_over(socket, readiness, metrics).map_err(Failure::could_not_go_on)?
            }
            None => Probes::bind(self.probes, readiness, metrics)?,
        };
        let pods = listeners.into_iter().find(|(facts, _)| facts.kind == ListenerKind::Pods);
        let pods = pods.map(|(facts, socket)| (facts.address, socket));
        Ok(Sockets { relays, probes, pods, steering, connections })
    }

    /// The listeners for callers. Of the default addresses, those that this host does not have are left out, but not
    /// all.
    fn relays(&self, listeners: &mut Vec<(ListenerFacts, OwnedFd)>) -> Result<Vec<BoundRelay>, Failure> {
        let mut relays = Vec::new();
        for address in self.listen {
            if let Some(socket) = take(listeners, ListenerKind::Worker, *address) {
                relays.push(BoundRelay::take_over(socket, None).map_err(Failure::could_not_go_on)?);
                continue;
            }
            match BoundRelay::bind(*address) {
                Ok(relay) => relays.push(relay),
                Err(error) if !self.listens_as_configured && address.is_ipv6() && is_absent(&error) => {
                    relay::warn_not_bound(*address, &error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(relays)
    }
}

/// Takes the listener of this kind and address out of those that were handed over.
fn take(
    listeners: &mut Vec<(ListenerFacts, OwnedFd)>,
    kind: ListenerKind,
    address: SocketAddr,
) -> Option<OwnedFd> {
    let index = listeners.iter().position(|(facts, _)| *facts == ListenerFacts { kind, address })?;
    Some(listeners.swap_remove(index).1)
}

/// Returns true if the host does not have the address, as one without IPv6.
fn is_absent(error: &BindError) -> bool {
    match error {
        BindError::NotHere { .. } => true,
        BindError::Refused { source, .. } => {
            source.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
        }
        BindError::InUse { .. } | BindError::Forbidden { .. } => false,
    }
}
