//! Serves pods: a link-local address of the worker, and packets to the Service `kubernetes` that go there.
//!
//! A pod cannot use 127.0.0.1 of its node. So the worker gets an address that is valid on no network, and node-lb
//! listens there. A rule of nftables leads packets for the Service's address to it. kube-proxy's own rules stay
//! as they are, and serve again as soon as node-lb ends.

use std::io;
use std::net::{IpAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};

use policy::Network;
use tracing::info;

use crate::handover::SteeringFacts;

mod address;
mod steering;

use address::LinkLocalAddress;
use steering::Steering;

/// Access of pods, as configured.
#[derive(Debug, Clone)]
pub struct PodAccess {
    /// The link-local address at which pods are accepted.
    pub address: SocketAddrV4,
    /// The networks of pods. Nobody else but this host is served.
    pub networks: Vec<Network>,
    /// The address of the Service `kubernetes`, whose packets are led to `address`.
    pub service: Option<SocketAddrV4>,
}

/// The address for pods, which this host has until this is dropped. Connections to it hold it.
#[derive(Debug)]
pub struct PodAddress {
    access: PodAccess,
    address: LinkLocalAddress,
}

/// Packets for the Service are led to the address for pods until this is dropped or the process ends.
#[derive(Debug)]
#[must_use = "the packets are no longer led when this is dropped"]
pub struct PodSteering {
    facts: SteeringFacts,
    steering: Steering,
}

/// The reason why pods cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// The worker did not get the address.
    #[error(
        "the address {address} for pods cannot be added to this host, which takes the capability CAP_NET_ADMIN"
    )]
    Address {
        /// The address that was refused.
        address: SocketAddrV4,
        /// The error that the kernel returned.
        source: io::Error,
    },
    /// Another process leads packets of the Service.
    #[error("another node-lb of this host leads the Service's packets to itself; stop it first")]
    Steered,
    /// The kernel's nftables refused the rules.
    #[error(
        "packets for {service} cannot be led to node-lb; it takes the capability CAP_NET_ADMIN and Linux 5.12 or later. \
         Without pods.kubernetesService pods can use the address {address}"
    )]
    Steering {
        /// The address of the Service `kubernetes`.
        service: SocketAddrV4,
        /// The address at which pods are accepted.
        address: SocketAddrV4,
        /// The error that the kernel returned.
        source: io::Error,
    },
}

impl PodAddress {
    /// Adds the address to the worker, so that it can be bound.
    ///
    /// # Errors
    /// [`PodError::Address`]
    pub fn add(access: PodAccess) -> Result<Self, PodError> {
        let added = LinkLocalAddress::add(*access.address.ip());
        let address = added.map_err(|source| PodError::Address { address: access.address, source })?;
        Ok(Self { access, address })
    }

    /// The callers that are served at the address.
    #[must_use]
    pub fn access(&self) -> &PodAccess {
        &self.access
    }

    /// Leads the packets of the Service to the address, at which a listener accepts by now. `None` if no Service is
    /// configured.
    ///
    /// # Errors
    /// [`PodError::Steered`] and [`PodError::Steering`]
    pub fn steer(&self) -> Result<Option<PodSteering>, PodError> {
        let address = self.access.address;
        let Some(service) = self.access.service else { return Ok(None) };
        let steering = Steering::begin(service, address).map_err(|source| {
            if source.kind() == io::ErrorKind::AlreadyExists {
                PodError::Steered
            } else {
                PodError::Steering { service, address, source }
            }
        })?;
        info!(%service, %address, "packets for the Service are led here");
        Ok(Some(PodSteering { facts: SteeringFacts { service, to: address }, steering }))
    }

    /// Leaves the address on this host, because another process serves there.
    pub fn leave(&self) {
        self.address.leave();
    }
}

impl PodSteering {
    /// Goes on with a table that another process has made, if it is the one that `access` configures. Otherwise
    /// that table ends.
    #[must_use]
    pub fn take_over(facts: SteeringFacts, socket: OwnedFd, access: &PodAccess) -> Option<Self> {
        let is_configured = access.service == Some(facts.service) && access.address == facts.to;
        is_configured.then(|| Self { facts, steering: Steering::take_over(socket) })
    }

    /// The addresses of the table, and the socket that owns it.
    #[must_use]
    pub fn shared(&self) -> (SteeringFacts, BorrowedFd<'_>) {
        (self.facts, self.steering.socket())
    }
}

impl PodAccess {
    /// Returns true if a caller of this address is a pod or this host. Others reach an API server on their own.
    #[must_use]
    pub fn admits(&self, caller: IpAddr) -> bool {
        let caller = caller.to_canonical();
        self.networks.iter().any(|network| network.has(caller)) || is_of_this_host(caller)
    }
}

/// Returns true if the address is one of this host: nobody else can bind it.
fn is_of_this_host(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_and_this_host_are_admitted_and_nobody_else() {
        let access = PodAccess {
            address: "169.254.10.21:7443".parse().unwrap(),
            networks: vec!["10.244.0.0/16".parse().unwrap(), "fd00::/64".parse().unwrap()],
            service: None,
        };

        for (caller, expected) in [
            ("10.244.3.9", true),
            ("::ffff:10.244.3.9", true),
            ("fd00::7", true),
            ("127.0.0.1", true),
            ("10.245.0.1", false),
            ("192.0.2.9", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(access.admits(caller.parse().unwrap()), expected, "{caller}");
        }
    }
}
