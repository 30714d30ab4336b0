//! The sections `range`: networks from which clusters are given addresses.

use std::collections::BTreeMap;

use daemon::config::{KeyError, bounded};
use policy::{Network, Target};
use proto::ClusterId;
use serde::Deserialize;

use super::address::is_special;
use crate::config::by_source;
use crate::config::value::{NAMES_MAX, NOTHING};

/// Default port: that of an https URL without one.
const PORT_DEFAULT: u16 = 443;

/// Default target: the name that every cluster has for its own API server.
const TARGET_DEFAULT: &str = "kubernetes.default.svc:443";

/// Least prefix length of an IPv4 range: it already has more addresses than there can be clusters.
const BITS_MIN_V4: u8 = 16;
/// Least prefix length of an IPv6 range.
const BITS_MIN_V6: u8 = 64;

/// A range from which clusters are given addresses that they keep.
#[derive(Debug)]
pub struct VipRange {
    /// It has an address for each cluster, and overlaps no other range and no address that is written out.
    pub network: Network,
    /// The port at which each address listens.
    pub port: u16,
    /// The target of each cluster's address; no cluster is in two ranges. With all addresses there are 1 to [`NAMES_MAX`].
    pub clusters: BTreeMap<ClusterId, Target>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawRange {
    /// The network of the addresses. No host may be in it.
    #[cfg_attr(test, schemars(required))]
    network: Option<String>,
    /// The port at which each address listens.
    #[cfg_attr(test, schemars(range(min = 1, max = u16::MAX), extend("default" = PORT_DEFAULT)))]
    port: Option<u16>,
    /// The API server of each cluster, by a name or address that means it inside its site.
    #[cfg_attr(test, schemars(extend("default" = TARGET_DEFAULT)))]
    target: Option<String>,
    /// Other targets for some of the clusters, by the name of the cluster.
    #[cfg_attr(test, schemars(extend("default" = {})))]
    targets: Option<BTreeMap<String, String>>,
    /// The clusters that get an address.
    #[cfg_attr(test, schemars(required, length(min = 1, max = NAMES_MAX)))]
    clusters: Option<Vec<String>>,
}

impl RawRange {
    /// The number of clusters that need an address.
    pub(super) fn cluster_count(&self) -> usize {
        self.clusters.as_ref().map_or(0, Vec::len)
    }
}

/// The range whose keys stand below `section`.
pub(super) fn range(section: &str, raw: RawRange) -> Result<VipRange, KeyError> {
    let RawRange { network, port, target, targets, clusters: names } = raw;
    let at = |key: &str| format!("{section}.{key}");
    let network = self::network(&at("network"), network)?;
    let port = bounded(&at("port"), port.unwrap_or(PORT_DEFAULT), 1..=u16::MAX)?;
    let target = by_source::target(at("target"), target.or_else(|| Some(TARGET_DEFAULT.to_owned())))?;
    let names = names.unwrap_or_default();
    bounded(&at("clusters"), names.len(), 1..=NAMES_MAX)?;
    let mut clusters = BTreeMap::new();
    for (index, name) in names.into_iter().enumerate() {
        let key = at(&format!("clusters[{index}]"));
        let cluster = by_source::cluster(key.clone(), Some(name))?;
        if clusters.insert(cluster.clone(), target.clone()).is_some() {
            return Err(KeyError::new(key, cluster, "each cluster once: it is given one address"));
        }
    }
    for (name, target) in targets.unwrap_or_default() {
        let key = at(&format!("targets.{name}"));
        let cluster = by_source::cluster(key.clone(), Some(name))?;
        let Some(entry) = clusters.get_mut(&cluster) else {
            return Err(KeyError::new(key, cluster, "one of the range's clusters"));
        };
        *entry = by_source::target(key, Some(target))?;
    }
    if clusters.len() as u128 > network.host_count() {
        let allowed = format!(
            "a network of as many addresses as there are clusters, {}, beside the network and broadcast addresses",
            clusters.len()
        );
        return Err(KeyError::new(at("network"), network, allowed));
    }
    Ok(VipRange { network, port, clusters })
}

fn network(key: &str, raw: Option<String>) -> Result<Network, KeyError> {
    let raw = raw
        .ok_or_else(|| KeyError::new(key, NOTHING, "the network of which addresses are given to clusters"))?;
    let refused = |allowed: String| KeyError::new(key, &raw, allowed);
    let network: Network = raw.parse().map_err(|error| refused(format!("one network ({error})")))?;
    let least = if network.is_ipv4() { BITS_MIN_V4 } else { BITS_MIN_V6 };
    if network.bits() < least {
        return Err(refused(format!(
            "a network of {BITS_MIN_V4} bits and more, or of IPv6 {BITS_MIN_V6} and more"
        )));
    }
    // A special network is larger than the range, or begins where the range does.
    let no_host = ["0.0.0.0/8", "240.0.0.0/4"].into_iter().filter_map(|all| all.parse::<Network>().ok());
    let mut first = network.hosts().take(1).chain([network.address()]);
    if no_host.into_iter().any(|all| all.includes(&network)) || first.any(is_special) {
        return Err(refused(
            "a private network that nobody else has: none of loopback, link-local or multicast, nor 0.0.0.0/8 or 240.0.0.0/4".to_owned(),
        ));
    }
    Ok(network)
}
