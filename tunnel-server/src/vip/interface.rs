//! A network interface that holds the clusters' addresses and disappears with the process, however that ends.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::path::Path;

use futures::TryStreamExt as _;
use policy::Network;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags};
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::{Handle, new_connection};
use tun_rs::{DeviceBuilder, SyncDevice};

/// The device from which TUN interfaces are made.
const TUN: &str = "/dev/net/tun";

/// No packet ever leaves by this interface, because all its addresses are this host's own.
const QUEUE_PACKETS: u32 = 1;

/// The interface. It disappears when its file descriptor is closed, which the end of a process guarantees.
pub(super) struct Interface {
    _device: SyncDevice,
}

/// The reason why the interface was not made.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// The kernel does not list its interfaces.
    #[error("vip: the kernel does not say what interfaces there are")]
    Unseen(#[source] rtnetlink::Error),
    /// No netlink socket can be opened.
    #[error("vip: the kernel cannot be asked for its interfaces")]
    NoNetlink(#[source] io::Error),
    /// An interface of that name exists already, perhaps of another server.
    #[error(
        "vip.interface: {0} is there already, and is not touched: end the process that has it, or name another"
    )]
    Taken(String),
    /// Another host may have the address, and this host would answer for it.
    #[error(
        "vip: {address} is in {network}, the network of {interface}: this host would answer there in place of the host that has it. Run \
         the server elsewhere, or give the cluster a virtual address and name this one as its target"
    )]
    AddressInUse {
        /// The virtual address of a cluster.
        address: IpAddr,
        /// The interface of this host that is in the same network.
        interface: String,
        /// The network of that interface.
        network: Network,
    },
    /// The device does not exist, as in a container without it.
    #[error("vip: there is no {TUN}: `modprobe tun`, or give the container that device")]
    NoTun(#[source] io::Error),
    /// The process may not make interfaces.
    #[error("vip: the interface {0} may not be made: the server needs CAP_NET_ADMIN for it")]
    Denied(String, #[source] io::Error),
    /// The system refused for another reason.
    #[error("vip: the interface {0} cannot be made")]
    Refused(String, #[source] io::Error),
    /// The interface cannot have this address.
    #[error("vip: the interface cannot be given {0}")]
    AddressRefused(IpAddr, #[source] rtnetlink::Error),
}

/// A network that an interface of this host belongs to.
#[derive(Debug, PartialEq, Eq)]
struct LocalNetwork {
    interface: String,
    network: Network,
}

impl Interface {
    /// Makes the interface, up and with all `addresses`.
    ///
    /// # Errors
    /// [`InterfaceError`]. Then nothing is changed, or the interface is gone again.
    pub(super) async fn make(name: &str, addresses: &BTreeSet<IpAddr>) -> Result<Self, InterfaceError> {
        let (connection, netlink, _unasked) = new_connection().map_err(InterfaceError::NoNetlink)?;
        let made = async {
            let links = links(&netlink).await.map_err(InterfaceError::Unseen)?;
            if links.values().any(|link| link == name) {
                return Err(InterfaceError::Taken(name.to_owned()));
            }
            let present = local_networks(&netlink, &links).await.map_err(InterfaceError::Unseen)?;
            if let Some(conflict) = addresses.iter().find_map(|address| conflict(*address, &present)) {
                return Err(conflict);
            }
            let refused = |error| interface_error(name, error);
            let device = DeviceBuilder::new().name(name).tx_queue_len(QUEUE_PACKETS).build_sync();
            let device = device.map_err(refused)?;
            let index = device.if_index().map_err(refused)?;
            for address in addresses {
                let bits = Network::only(*address).bits();
                let mut given = netlink.address().add(index, *address, bits);
                // No other host is on this interface. Without this flag an IPv6 address is tentative at first,
                // and its port cannot be bound.
                given.message_mut().header.flags |= AddressHeaderFlags::Nodad;
                given.execute().await.map_err(|error| InterfaceError::AddressRefused(*address, error))?;
            }
            Ok(Self { _device: device })
        };
        // The requests end before the connection that carries them.
        tokio::select! {
            made = made => made,
            () = connection => Err(InterfaceError::NoNetlink(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// The names of all interfaces, by their index.
async fn links(netlink: &Handle) -> Result<HashMap<u32, String>, rtnetlink::Error> {
    let messages: Vec<_> = netlink.link().get().execute().try_collect().await?;
    let name = |attribute| if let LinkAttribute::IfName(name) = attribute { Some(name) } else { None };
    let named = |index, attributes: Vec<_>| Some((index, attributes.into_iter().find_map(name)?));
    Ok(messages.into_iter().filter_map(|link| named(link.header.index, link.attributes)).collect())
}

/// The networks of all interfaces.
async fn local_networks(
    netlink: &Handle,
    links: &HashMap<u32, String>,
) -> Result<Vec<LocalNetwork>, rtnetlink::Error> {
    let messages: Vec<_> = netlink.address().get().execute().try_collect().await?;
    let mut present = Vec::new();
    for message in messages {
        let interface = links.get(&message.header.index).cloned().unwrap_or_default();
        for attribute in message.attributes {
            // On a point-to-point link these are the local and the remote address; else they are equal.
            let (AddressAttribute::Address(address) | AddressAttribute::Local(address)) = attribute else {
                continue;
            };
            let network = Network::around(address, message.header.prefix_len);
            present.extend(network.map(|network| LocalNetwork { interface: interface.clone(), network }));
        }
    }
    Ok(present)
}

/// The conflict if this host had `address` too. A host answers ARP and NDP requests for its addresses
/// on all its interfaces.
fn conflict(address: IpAddr, present: &[LocalNetwork]) -> Option<InterfaceError> {
    let LocalNetwork { interface, network } = present.iter().find(|present| present.network.has(address))?;
    Some(InterfaceError::AddressInUse { address, interface: interface.clone(), network: *network })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is foreign and non-exhaustive")]
fn interface_error(name: &str, error: io::Error) -> InterfaceError {
    match error.kind() {
        io::ErrorKind::NotFound if !Path::new(TUN).exists() => InterfaceError::NoTun(error),
        io::ErrorKind::PermissionDenied => InterfaceError::Denied(name.to_owned(), error),
        _ => InterfaceError::Refused(name.to_owned(), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_a_network_of_this_host_is_refused() {
        let present = [("eth0", "192.168.1.0/24"), ("lo", "127.0.0.0/8"), ("eth0", "2001:db8::/64")];
        let present = present.map(|(interface, network)| LocalNetwork {
            interface: interface.to_owned(),
            network: network.parse().unwrap(),
        });
        for (address, interface) in [
            ("192.168.1.10", Some("eth0")),
            ("192.168.1.255", Some("eth0")),
            ("192.168.2.10", None),
            ("2001:db8::7", Some("eth0")),
            ("2001:db8:0:1::7", None),
        ] {
            let found = conflict(address.parse().unwrap(), &present);
            let message = found.map(|conflict| conflict.to_string());
            assert_eq!(
                message.as_ref().is_some_and(|message| message.contains("eth0")),
                interface.is_some(),
                "{address}: {message:?}"
            );
        }
    }
}
