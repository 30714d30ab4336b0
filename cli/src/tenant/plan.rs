//! Decides whether a tenant can be created, and with which ports and networks. Everything that is refused is refused here, before anything
//! is written.

use std::net::IpAddr;

use policy::Network;

use super::facts::{HostFacts, HostNetwork, OwnNamespace, Storage};
use super::objects::NODE_LABEL;
use super::record::TenantRecord;
use crate::names::PortBlock;

/// The sizes of networks that Kubernetes takes, as lengths of prefixes, for IPv4 and IPv6. Each node gets a /24 or a /64 of the pods'.
const SERVICE_BITS: [(u8, u8); 2] = [(12, 28), (108, 124)];
const POD_BITS: [(u8, u8); 2] = [(8, 24), (48, 64)];

/// Two members may differ about what was stored, so the next number after one is three.
const MEMBERS_DEFAULT: u16 = 3;

/// The wishes of the person for a tenant.
#[derive(Debug)]
pub(super) struct Wishes<'a> {
    pub(super) name: &'a str,
    pub(super) members: Option<u16>,
    pub(super) ports: Option<PortBlock>,
    pub(super) service_network: Option<Network>,
    pub(super) pod_network: Option<Network>,
    /// The StorageClass of each etcd; the host cluster's default if it is empty.
    pub(super) storage_classes: [String; 2],
}

/// The reason why a tenant is not created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the namespace {0} is there, and is no tenant's; choose another name")]
    Foreign(String),
    #[error("the namespace {0} is being deleted; try again once it is gone")]
    Terminating(String),
    #[error(
        "the tenant {name} has {key} {present}, which cannot be changed to {wished}; leave the flag out, or delete the tenant"
    )]
    Fixed {
        /// The name of the tenant.
        name: String,
        /// The property that cannot be changed.
        key: &'static str,
        /// Its value since the tenant was created.
        present: String,
        /// The value of the flag.
        wished: String,
    },
    #[error(
        "the ports {first} to {last} are those of the tenant {other}; choose another --port-base, or leave it out"
    )]
    Ports {
        /// The first port of the block.
        first: u16,
        /// The last port of the block.
        last: u16,
        /// The tenant that has them.
        other: String,
    },
    #[error(
        "the network {network} of the tenant's {what} overlaps {other_network} of {other}; choose another one"
    )]
    Overlap {
        /// The part that uses it: Services or pods.
        what: &'static str,
        /// The network of the tenant.
        network: Network,
        /// The network that is taken.
        other_network: Network,
        /// The owner of that network.
        other: String,
    },
    #[error("the network {network} of the tenant's {what} has a prefix of {bits} bits; use {least} to {most}", bits = .network.bits())]
    Size {
        /// The part that uses it: Services or pods.
        what: &'static str,
        /// The network of the tenant.
        network: Network,
        /// The length of the shortest prefix.
        least: u8,
        /// The length of the longest prefix.
        most: u8,
    },
    #[error("no network for the tenant's {0} is free; choose one with --service-network and --pod-network")]
    NoNetwork(&'static str),
    #[error("no block of ports is free")]
    NoPorts,
    #[error(
        "{members} members of each etcd need as many nodes, and {found} take pods and have the label: kubectl label node NAME {label}={value}",
        label = NODE_LABEL.0, value = NODE_LABEL.1
    )]
    Nodes {
        /// The members of each etcd.
        members: u16,
        /// The labelled nodes that take pods.
        found: usize,
    },
    #[error("there is no StorageClass {name}; there are: {known}", known = if .known.is_empty() { "none".to_owned() } else { .known.join(", ") })]
    NoClass {
        /// The name that was given.
        name: String,
        /// The names of all classes.
        known: Vec<String>,
    },
    #[error("the host cluster has no default StorageClass; name one with --storage-class: {known}", known = if .0.is_empty() { "there is none, install one first".to_owned() } else { .0.join(", ") })]
    NoDefaultClass(Vec<String>),
    #[error(
        "the StorageClass {class} makes no volumes by itself, and {available} volumes of it are available where {needed} are needed; make \
         them, or choose another class"
    )]
    NoVolumes {
        /// The name of the class.
        class: String,
        /// The volumes that wait for a claim.
        available: usize,
        /// The members of both etcds.
        needed: usize,
    },
}

/// The tenant as it will be, or as it was created by an earlier run.
///
/// # Errors
/// [`Refused`]
pub(super) fn plan(wishes: &Wishes<'_>, facts: &HostFacts) -> Result<TenantRecord, Refused> {
    let record = match &facts.own {
        OwnNamespace::Foreign => return Err(Refused::Foreign(wishes.name.to_owned())),
        OwnNamespace::Terminating => return Err(Refused::Terminating(wishes.name.to_owned())),
        OwnNamespace::Tenant(record) => {
            unchanged(wishes, record)?;
            record.clone()
        }
        OwnNamespace::Absent => TenantRecord {
            name: wishes.name.to_owned(),
            ports: ports(wishes, facts)?,
            service_network: network("Services", wishes.service_network, &service_networks(), facts)?,
            pod_network: network("pods", wishes.pod_network, &pod_networks(), facts)?,
            members: wishes.members.unwrap_or(MEMBERS_DEFAULT),
        },
    };
    check_ports(record.ports, facts)?;
    for (what, network, bits) in
        [("Services", record.service_network, SERVICE_BITS), ("pods", record.pod_network, POD_BITS)]
    {
        check_size(what, network, bits)?;
        check_free(what, network, facts)?;
    }
    if overlap(record.service_network, record.pod_network) {
        let other = "its pods".to_owned();
        let (network, other_network) = (record.service_network, record.pod_network);
        return Err(Refused::Overlap { what: "Services", network, other_network, other });
    }
    let found = facts.nodes.len();
    if found < usize::from(record.members) {
        return Err(Refused::Nodes { members: record.members, found });
    }
    check_storage(&wishes.storage_classes, record.members, &facts.storage)?;
    Ok(record)
}

/// Refuses wishes that differ from a tenant that exists.
fn unchanged(wishes: &Wishes<'_>, record: &TenantRecord) -> Result<(), Refused> {
    let members = wishes.members.map(|members| members.to_string());
    let text = |network: Option<Network>| network.map(|network| network.to_string());
    for (key, present, wished) in [
        ("the port base", record.ports.to_string(), wishes.ports.map(|ports| ports.to_string())),
        ("the service network", record.service_network.to_string(), text(wishes.service_network)),
        ("the pod network", record.pod_network.to_string(), text(wishes.pod_network)),
        ("the number of members", record.members.to_string(), members),
    ] {
        if let Some(wished) = wished.filter(|wished| *wished != present) {
            return Err(Refused::Fixed { name: record.name.clone(), key, present, wished });
        }
    }
    Ok(())
}

fn ports(wishes: &Wishes<'_>, facts: &HostFacts) -> Result<PortBlock, Refused> {
    let taken: Vec<PortBlock> = facts.others.iter().map(|other| other.ports).collect();
    wishes.ports.or_else(|| PortBlock::free(&taken)).ok_or(Refused::NoPorts)
}

fn check_ports(ports: PortBlock, facts: &HostFacts) -> Result<(), Refused> {
    match facts.others.iter().find(|other| other.ports == ports) {
        None => Ok(()),
        Some(other) => {
            Err(Refused::Ports { first: ports.first(), last: ports.last(), other: other.name.clone() })
        }
    }
}

/// The wished network, or else the first candidate that nobody has.
fn network(
    what: &'static str,
    wished: Option<Network>,
    candidates: &[Network],
    facts: &HostFacts,
) -> Result<Network, Refused> {
    let free = || candidates.iter().copied().find(|network| check_free(what, *network, facts).is_ok());
    wished.or_else(free).ok_or(Refused::NoNetwork(what))
}

fn service_networks() -> Vec<Network> {
    (97..=126).filter_map(|second| Network::around(IpAddr::from([10, second, 0, 0]), 16)).collect()
}

fn pod_networks() -> Vec<Network> {
    (130..=245).rev().filter_map(|second| Network::around(IpAddr::from([10, second, 0, 0]), 16)).collect()
}

fn check_size(what: &'static str, network: Network, bits: [(u8, u8); 2]) -> Result<(), Refused> {
    let (least, most) = if network.is_ipv4() { bits[0] } else { bits[1] };
    if (least..=most).contains(&network.bits()) {
        Ok(())
    } else {
        Err(Refused::Size { what, network, least, most })
    }
}

/// Refuses a network that the host or another tenant has: API servers are in both, and could not tell the addresses apart.
fn check_free(what: &'static str, network: Network, facts: &HostFacts) -> Result<(), Refused> {
    let of_host = facts.networks.iter().map(|HostNetwork { what, network }| (what.clone(), *network));
    let of_others = facts.others.iter().flat_map(|other| {
        let name = format!("the tenant {}", other.name);
        [(name.clone(), other.service_network), (name, other.pod_network)]
    });
    match of_host.chain(of_others).find(|(_, taken)| overlap(network, *taken)) {
        None => Ok(()),
        Some((other, other_network)) => Err(Refused::Overlap { what, network, other_network, other }),
    }
}

fn overlap(a: Network, b: Network) -> bool {
    a.includes(&b) || b.includes(&a)
}

fn check_storage(names: &[String; 2], members: u16, storage: &Storage) -> Result<(), Refused> {
    let known = || storage.classes.iter().map(|class| class.name.clone()).collect::<Vec<_>>();
    let mut by_hand: Vec<&str> = Vec::new();
    for name in names {
        let class = match name.as_str() {
            "" => storage
                .classes
                .iter()
                .find(|class| class.is_default)
                .ok_or_else(|| Refused::NoDefaultClass(known())),
            name => storage
                .classes
                .iter()
                .find(|class| class.name == name)
                .ok_or_else(|| Refused::NoClass { name: name.to_owned(), known: known() }),
        }?;
        if !class.makes_volumes {
            by_hand.push(&class.name);
        }
    }
    for class in &by_hand {
        // An earlier run has made its claims.
        let needed = by_hand.iter().filter(|other| *other == class).count() * usize::from(members);
        let needed = needed.saturating_sub(storage.claims);
        let available = storage.available.iter().filter(|name| name.as_str() == *class).count();
        if available < needed {
            return Err(Refused::NoVolumes { class: (*class).to_owned(), available, needed });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
