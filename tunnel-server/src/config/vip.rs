//! The clusters' addresses that this host takes for its own, as they were written and as they are valid.

mod publish;
mod range;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use daemon::config::{KeyError, bounded, socket_address};
use policy::Network;
use serde::Deserialize;

use super::by_place::{self, ByPlace, Site};
use super::value::NOTHING;
use super::{Egress, NAMES_MAX, Passthrough, VIP_WAYS_MAX};

pub use publish::VipPublish;
pub use range::VipRange;

/// What the interface is called unless something else is said.
const INTERFACE_DEFAULT: &str = "tombolo0";

/// Longest name of an interface in Linux, without the zero at its end.
const INTERFACE_BYTES_MAX: usize = 15;

/// Addresses of clusters on an interface of this host.
#[derive(Debug)]
pub struct Vip {
    /// The interface that is made, and goes with the process.
    pub interface: String,
    /// Who may come, and to which clusters; 1 to [`VIP_WAYS_MAX`].
    pub ways: Vec<VipWay>,
    /// Where those of ranges become Services, if they do.
    pub publish: Option<VipPublish>,
}

/// A network of people or programs, and what the addresses mean to it.
#[derive(Debug)]
pub struct VipWay {
    /// Who may come.
    pub way: ByPlace,
    /// Where each address and port leads that is written out; with those of the ranges 1 to [`NAMES_MAX`], of all ways together.
    pub addresses: BTreeMap<SocketAddr, Site>,
    /// From where further clusters are given an address, if any are.
    pub range: Option<VipRange>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    interface: Option<String>,
    ways: Option<Vec<WrittenWay>>,
    publish: Option<publish::Written>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenWay {
    name: Option<String>,
    sources: Option<Vec<String>>,
    connections: Option<usize>,
    connections_per_source: Option<usize>,
    addresses: Option<Vec<WrittenAddress>>,
    range: Option<range::Written>,
}

impl WrittenWay {
    fn address_count(&self) -> usize {
        let of_range = self.range.as_ref().and_then(|range| range.clusters.as_ref());
        self.addresses.as_ref().map_or(0, Vec::len) + of_range.map_or(0, Vec::len)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenAddress {
    listen: Option<String>,
    cluster: Option<String>,
    target: Option<String>,
}

pub(super) fn valid(
    written: Option<Written>,
    egress: &[Egress],
    passthrough: Option<&Passthrough>,
    directory: &Path,
) -> Result<Option<Vip>, KeyError> {
    let Some(Written { interface, ways: written, publish }) = written else { return Ok(None) };
    let interface = interface.unwrap_or_else(|| INTERFACE_DEFAULT.to_owned());
    if !is_interface(&interface) {
        let allowed = "1 to 15 letters, digits, '-', '_' and '.', of which the first is a letter";
        return Err(KeyError::new("vip.interface", format_args!("{interface:?}"), allowed));
    }
    let written = written.unwrap_or_default();
    bounded("vip.ways", written.len(), 1..=VIP_WAYS_MAX)?;
    let count = written.iter().map(WrittenWay::address_count).sum();
    bounded("vip.ways[].addresses", count, 1..=NAMES_MAX)?;
    let mut ways: Vec<VipWay> = Vec::new();
    for (index, way) in written.into_iter().enumerate() {
        let taken = egress.iter().map(|egress| egress.name.as_str());
        let taken = taken.chain(passthrough.map(|door| door.way.name.as_str()));
        let taken = taken.chain(ways.iter().map(|other| other.way.name.as_str()));
        let way = self::way(index, way, taken)?;
        if let Some((address, sources)) = ambiguous(&ways, &way) {
            let allowed = format!(
                "networks that no other way has to {address}: whoever comes from both could mean either cluster"
            );
            return Err(KeyError::new(at(index, "sources"), sources, allowed));
        }
        if let Some((key, found, allowed)) = range::crossing(&ways, &way) {
            return Err(KeyError::new(at(index, key), found, allowed));
        }
        ways.push(way);
    }
    let publish = publish.map(|written| publish::valid(written, &ways, directory)).transpose()?;
    Ok(Some(Vip { interface, ways, publish }))
}

fn way<'a>(
    index: usize,
    written: WrittenWay,
    taken: impl Iterator<Item = &'a str>,
) -> Result<VipWay, KeyError> {
    let count = written.address_count();
    let WrittenWay { name, sources, connections, connections_per_source, addresses: written, range } =
        written;
    let way = by_place::Written { name, sources, connections, connections_per_source };
    let way = by_place::valid(&format!("vip.ways[{index}]"), way, taken)?;
    let mut addresses = BTreeMap::new();
    for (number, address) in written.unwrap_or_default().into_iter().enumerate() {
        let at = |key: &str| at(index, &format!("addresses[{number}].{key}"));
        let WrittenAddress { listen, cluster, target } = address;
        let listen = listen
            .ok_or_else(|| KeyError::new(at("listen"), NOTHING, "the ADDRESS:PORT at which it is reached"))?;
        let listen = self::listen(&at("listen"), &listen)?;
        // As it stands in the cluster's own kubeconfig, unless it is an address of this host's making.
        let target = target.or_else(|| Some(listen.to_string()));
        let site = Site {
            cluster: by_place::cluster(at("cluster"), cluster)?,
            target: by_place::target(at("target"), target)?,
        };
        if addresses.insert(listen, site).is_some() {
            let allowed = "each address and port once: nothing else says which cluster is meant";
            return Err(KeyError::new(at("listen"), listen, allowed));
        }
    }
    bounded(&at(index, "addresses"), count, 1..=NAMES_MAX)?;
    let range = range.map(|written| range::valid(&at(index, "range"), written)).transpose()?;
    Ok(VipWay { way, addresses, range })
}

/// An address that this host may take for its own, and a port.
fn listen(key: &str, written: &str) -> Result<SocketAddr, KeyError> {
    let listen = socket_address(key, written)?;
    let address = listen.ip();
    if is_of_hosts(address) || address.to_canonical() != address {
        let allowed = "an address of a cluster, or a private one that nothing else has: none of loopback, link-local (as that of a \
                       cloud's metadata is), multicast, or IPv4 in IPv6";
        return Err(KeyError::new(key, written, allowed));
    }
    if listen.port() == 0 {
        return Err(KeyError::new(key, written, "a port of 1 to 65535"));
    }
    Ok(listen)
}

/// Whether an address means something to every host, or nothing.
fn is_of_hosts(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_link_local
}

/// An address of `way` that another way has, too, for somebody of one of these networks.
fn ambiguous(ways: &[VipWay], way: &VipWay) -> Option<(SocketAddr, Network)> {
    ways.iter().find_map(|other| {
        let common = way.addresses.keys().find(|address| other.addresses.contains_key(address))?;
        Some((*common, way.way.sources.common(&other.way.sources)?))
    })
}

fn is_interface(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=INTERFACE_BYTES_MAX).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(is_plain)
}

fn at(index: usize, key: &str) -> String {
    format!("vip.ways[{index}].{key}")
}
