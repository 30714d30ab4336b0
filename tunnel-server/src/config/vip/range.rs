//! Ranges from which clusters are given addresses, as they were written and as they are valid.

use std::collections::BTreeMap;

use daemon::config::{KeyError, bounded};
use policy::{Network, Target};
use proto::ClusterId;
use serde::Deserialize;

use super::{VipWay, is_of_hosts};
use crate::config::value::NOTHING;
use crate::config::{NAMES_MAX, by_place};

/// The port unless something else is said: what a URL without one means.
const PORT_DEFAULT: u16 = 443;

/// Where clusters' API servers are unless something else is said: what each cluster calls its own.
const TARGET_DEFAULT: &str = "kubernetes.default.svc:443";

/// Largest ranges, in bits that all addresses have in common: more addresses than there are clusters.
const BITS_MIN_V4: u8 = 16;
/// The same of IPv6.
const BITS_MIN_V6: u8 = 64;

/// A range from which clusters are given addresses that they keep.
#[derive(Debug)]
pub struct VipRange {
    /// It has an address for each cluster, and none in common with another range or with an address that is written out.
    pub network: Network,
    /// Where each address is listened on.
    pub port: u16,
    /// Who is given one, and where it leads; no cluster is in two ranges. 1 to [`NAMES_MAX`], with all addresses of all ways.
    pub clusters: BTreeMap<ClusterId, Target>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    network: Option<String>,
    port: Option<u16>,
    target: Option<String>,
    targets: Option<BTreeMap<String, String>>,
    pub(super) clusters: Option<Vec<String>>,
}

/// The range whose keys stand below `way`.
pub(super) fn valid(way: &str, written: Written) -> Result<VipRange, KeyError> {
    let Written { network, port, target, targets, clusters: names } = written;
    let at = |key: &str| format!("{way}.{key}");
    let network = self::network(&at("network"), network)?;
    let port = bounded(&at("port"), port.unwrap_or(PORT_DEFAULT), 1..=u16::MAX)?;
    let target = by_place::target(at("target"), target.or_else(|| Some(TARGET_DEFAULT.to_owned())))?;
    let names = names.unwrap_or_default();
    bounded(&at("clusters"), names.len(), 1..=NAMES_MAX)?;
    let mut clusters = BTreeMap::new();
    for (index, name) in names.into_iter().enumerate() {
        let key = at(&format!("clusters[{index}]"));
        let cluster = by_place::cluster(key.clone(), Some(name))?;
        if clusters.insert(cluster.clone(), target.clone()).is_some() {
            return Err(KeyError::new(key, cluster, "each cluster once: it is given one address"));
        }
    }
    for (name, target) in targets.unwrap_or_default() {
        let key = at(&format!("targets.{name}"));
        let cluster = by_place::cluster(key.clone(), Some(name))?;
        let Some(entry) = clusters.get_mut(&cluster) else {
            return Err(KeyError::new(key, cluster, "one of the range's clusters"));
        };
        *entry = by_place::target(key, Some(target))?;
    }
    if clusters.len() as u128 > network.host_count() {
        let allowed = format!(
            "a network of as many addresses as there are clusters, {}, beside those that mean the network itself and everybody in it",
            clusters.len()
        );
        return Err(KeyError::new(at("network"), network, allowed));
    }
    Ok(VipRange { network, port, clusters })
}

fn network(key: &str, written: Option<String>) -> Result<Network, KeyError> {
    let written = written
        .ok_or_else(|| KeyError::new(key, NOTHING, "the network of which addresses are given to clusters"))?;
    let refused = |allowed: String| KeyError::new(key, &written, allowed);
    let network: Network = written.parse().map_err(|error| refused(format!("one network ({error})")))?;
    let least = if network.is_ipv4() { BITS_MIN_V4 } else { BITS_MIN_V6 };
    if network.bits() < least {
        return Err(refused(format!(
            "a network of {BITS_MIN_V4} bits and more, or of IPv6 {BITS_MIN_V6} and more"
        )));
    }
    // What is special is larger than these, or begins where it does.
    let no_host = ["0.0.0.0/8", "240.0.0.0/4"].into_iter().filter_map(|all| all.parse::<Network>().ok());
    let mut first = network.hosts().take(1).chain([network.address()]);
    if no_host.into_iter().any(|all| all.includes(&network)) || first.any(is_of_hosts) {
        return Err(refused(
            "a private network that nobody else has: none of loopback, link-local or multicast, nor 0.0.0.0/8 or 240.0.0.0/4".to_owned(),
        ));
    }
    Ok(network)
}

/// What `way` has in common with the `others`, so that an address or a cluster could be either's: the key below its own, what was
/// found, and what is allowed.
pub(super) fn crossing(others: &[VipWay], way: &VipWay) -> Option<(&'static str, String, &'static str)> {
    let ranges = || others.iter().filter_map(|other| other.range.as_ref());
    let has = |range: &VipRange, addresses: &VipWay| {
        addresses.addresses.keys().find(|address| range.network.has(address.ip())).copied()
    };
    if let Some(address) = ranges().find_map(|range| has(range, way)) {
        let allowed = "addresses that are in no range: it might be given to another cluster";
        return Some(("addresses", address.to_string(), allowed));
    }
    let own = way.range.as_ref()?;
    if let Some(address) = others.iter().chain([way]).find_map(|written| has(own, written)) {
        let allowed = "a network that has none of the addresses that are written out: it might be given to another cluster";
        return Some(("range.network", format!("{}, which has {address},", own.network), allowed));
    }
    for other in ranges() {
        if other.network.includes(&own.network) || own.network.includes(&other.network) {
            let allowed = "a network that has no address in common with another way's range";
            return Some(("range.network", own.network.to_string(), allowed));
        }
        if let Some(cluster) = own.clusters.keys().find(|cluster| other.clusters.contains_key(*cluster)) {
            let allowed = "clusters that no other way's range has: each is given one address. One way may have several `sources`";
            return Some(("range.clusters", cluster.to_string(), allowed));
        }
    }
    None
}
