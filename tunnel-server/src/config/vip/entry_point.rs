//! One entry of `vip.entryPoints`: a network of clients, and what each address means to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use daemon::config::{KeyError, bounded};
use policy::Network;
use serde::Deserialize;

use super::address;
use super::range::{self, RawRange, VipRange};
use crate::config::by_source::{self, ClusterTarget, RawSourceEntryPoint, SourceEntryPoint};
use crate::config::value::{NAMES_MAX, NOTHING};

/// A network of people or programs, and what the addresses mean to it.
#[derive(Debug)]
pub struct VipEntryPoint {
    /// Its name, sources and connection limits.
    pub entry_point: SourceEntryPoint,
    /// The target of each address and port that is written out. With the addresses of the ranges there are 1 to
    /// [`NAMES_MAX`], over all entry points.
    pub addresses: BTreeMap<SocketAddr, ClusterTarget>,
    /// The range that gives further clusters an address, if any.
    pub range: Option<VipRange>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawVipEntryPoint {
    /// Name of the entry point, a DNS label. The policy calls its callers `entry-point:NAME`.
    #[cfg_attr(test, schemars(required))]
    name: Option<String>,
    /// Networks from which callers may connect, such as 10.0.0.0/8; or `[any]` for all.
    #[cfg_attr(test, schemars(required, length(min = 1, max = crate::config::value::NAMES_MAX)))]
    sources: Option<Vec<String>>,
    /// Connections at once, of all callers together.
    #[cfg_attr(test, schemars(range(min = 1, max = crate::config::by_source::ENTRY_POINT_CONNECTIONS_MAX), extend("default" = crate::config::by_source::CONNECTIONS_DEFAULT)))]
    connections: Option<usize>,
    /// Connections at once of one address, or of one IPv6 /64. The default is never above `connections`.
    #[cfg_attr(test, schemars(range(min = 1, max = crate::config::by_source::ENTRY_POINT_CONNECTIONS_MAX), extend("default" = crate::config::by_source::PER_SOURCE_DEFAULT)))]
    connections_per_source: Option<usize>,
    /// Addresses that are written out. The entry has these, a range, or both.
    #[cfg_attr(test, schemars(extend("default" = [])))]
    addresses: Option<Vec<RawVipAddress>>,
    /// A range from which the server gives each listed cluster an address that it keeps.
    range: Option<RawRange>,
}

impl RawVipEntryPoint {
    /// The number of addresses that the entry needs, including those of its range.
    pub(super) fn address_count(&self) -> usize {
        self.addresses.as_ref().map_or(0, Vec::len) + self.range.as_ref().map_or(0, RawRange::cluster_count)
    }
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawVipAddress {
    /// `ADDRESS:PORT` that this host takes, in most cases the one in the admin.conf of the cluster.
    #[cfg_attr(test, schemars(required))]
    listen: Option<String>,
    /// The cluster to which it leads.
    #[cfg_attr(test, schemars(required))]
    cluster: Option<String>,
    /// `HOST:PORT` of the API server in its site. The default is `listen`.
    target: Option<String>,
}

/// The entry point with this index, whose name must differ from those that are `taken`.
pub(super) fn vip_entry_point<'a>(
    index: usize,
    raw: RawVipEntryPoint,
    taken: impl Iterator<Item = &'a str>,
) -> Result<VipEntryPoint, KeyError> {
    let count = raw.address_count();
    let RawVipEntryPoint { name, sources, connections, connections_per_source, addresses: raw, range } = raw;
    let common = RawSourceEntryPoint { name, sources, connections, connections_per_source };
    let entry_point = by_source::source_entry_point(&format!("vip.entryPoints[{index}]"), common, taken)?;
    let mut addresses = BTreeMap::new();
    for (number, raw) in raw.unwrap_or_default().into_iter().enumerate() {
        let at = |key: &str| at(index, &format!("addresses[{number}].{key}"));
        let RawVipAddress { listen, cluster, target } = raw;
        let listen = listen
            .ok_or_else(|| KeyError::new(at("listen"), NOTHING, "the ADDRESS:PORT at which it is reached"))?;
        let listen = address::listen(&at("listen"), &listen)?;
        // By default it is the address in the cluster's own kubeconfig.
        let target = target.or_else(|| Some(listen.to_string()));
        let target = ClusterTarget {
            cluster: by_source::cluster(at("cluster"), cluster)?,
            target: by_source::target(at("target"), target)?,
        };
        if addresses.insert(listen, target).is_some() {
            let allowed = "each address and port once: nothing else selects the cluster";
            return Err(KeyError::new(at("listen"), listen, allowed));
        }
    }
    bounded(&at(index, "addresses"), count, 1..=NAMES_MAX)?;
    let range = range.map(|raw| range::range(&at(index, "range"), raw)).transpose()?;
    Ok(VipEntryPoint { entry_point, addresses, range })
}

/// Refuses an entry point that has an address or a cluster in common with one of the `others`, so that it could be either's.
pub(super) fn check_distinct(
    index: usize,
    others: &[VipEntryPoint],
    added: &VipEntryPoint,
) -> Result<(), KeyError> {
    if let Some((address, sources)) = ambiguous(others, added) {
        let allowed = format!(
            "networks that no other entry point has to {address}: a client of both could mean either cluster"
        );
        return Err(KeyError::new(at(index, "sources"), sources, allowed));
    }
    match overlap(others, added) {
        Some((key, found, allowed)) => Err(KeyError::new(at(index, key), found, allowed)),
        None => Ok(()),
    }
}

/// An address of `added` that another entry point has for clients of the same network.
fn ambiguous(others: &[VipEntryPoint], added: &VipEntryPoint) -> Option<(SocketAddr, Network)> {
    others.iter().find_map(|other| {
        let common = added.addresses.keys().find(|address| other.addresses.contains_key(address))?;
        Some((*common, added.entry_point.sources.overlap(&other.entry_point.sources)?))
    })
}

/// An overlap of ranges with addresses, with other ranges or in their clusters: the key, what was found, and what is allowed.
fn overlap(others: &[VipEntryPoint], added: &VipEntryPoint) -> Option<(&'static str, String, &'static str)> {
    let ranges = || others.iter().filter_map(|other| other.range.as_ref());
    let has = |range: &VipRange, addresses: &VipEntryPoint| {
        addresses.addresses.keys().find(|address| range.network.has(address.ip())).copied()
    };
    if let Some(address) = ranges().find_map(|range| has(range, added)) {
        let allowed = "addresses that are in no range: it might be given to another cluster";
        return Some(("addresses", address.to_string(), allowed));
    }
    let own = added.range.as_ref()?;
    if let Some(address) = others.iter().chain([added]).find_map(|entry_point| has(own, entry_point)) {
        let allowed = "a network that has none of the addresses that are written out: it might be given to another cluster";
        return Some(("range.network", format!("{}, which has {address},", own.network), allowed));
    }
    for other in ranges() {
        if other.network.includes(&own.network) || own.network.includes(&other.network) {
            let allowed = "a network that has no address in common with another entry point's range";
            return Some(("range.network", own.network.to_string(), allowed));
        }
        if let Some(cluster) = own.clusters.keys().find(|cluster| other.clusters.contains_key(*cluster)) {
            let allowed = "clusters that no other entry point's range has: each is given one address. One entry point may have \
                           several `sources`";
            return Some(("range.clusters", cluster.to_string(), allowed));
        }
    }
    None
}

fn at(index: usize, key: &str) -> String {
    format!("vip.entryPoints[{index}].{key}")
}
