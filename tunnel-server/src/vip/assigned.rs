//! Adds the addresses that the store assigns to clusters of ranges to those in the configuration.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use daemon::{Failure, error_chain};
use proto::ClusterId;
use tracing::info;

use crate::config::{self, ClusterTarget, VipRange};
use crate::directory::{AddressError, AddressRange, AssignedAddress, Directory, StoreError};

/// The address that was assigned to a cluster of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterAddress {
    pub(super) cluster: ClusterId,
    pub(super) address: SocketAddr,
    is_new: bool,
}

/// The reason why assigned addresses are not known.
#[derive(Debug, thiserror::Error)]
enum AssignError {
    #[error("the store cannot be read")]
    Store(#[from] StoreError),
    #[error(transparent)]
    HandOut(#[from] AddressError),
}

/// Lets the directory assign an address to every cluster of a range, and adds each to `config`.
///
/// # Errors
/// [`Failure`] with [`AddressError`].
pub(super) async fn assign(
    config: &mut config::VipConfig,
    directory: &Directory,
) -> Result<Vec<ClusterAddress>, Failure> {
    let ranges = ranges(config);
    if ranges.is_empty() {
        return Ok(Vec::new());
    }
    let handed_out =
        directory.assign_addresses(ranges, SystemTime::now()).await.map_err(Failure::could_not_go_on)?;
    let given = insert_assigned(config, &handed_out);
    for ClusterAddress { cluster, address, .. } in given.iter().filter(|given| given.is_new) {
        info!(%cluster, %address, "a permanent address was assigned to the cluster");
    }
    Ok(given)
}

/// The changes that a server with `config` would make to this host, with its store in `state_dir`. Nothing is
/// written. Blocks.
///
/// # Errors
/// [`Failure`] if the server would not start, because a range has no address left.
pub fn dry_run(mut config: config::VipConfig, state_dir: &Path) -> Result<String, Failure> {
    let ranges = ranges(&config);
    if ranges.is_empty() {
        return Ok(config.to_string());
    }
    let result = Directory::copy(state_dir).map_err(AssignError::from);
    let result = result.and_then(|copy| Ok(copy.assign_addresses_blocking(&ranges, SystemTime::now())?));
    let given = match result {
        Ok(handed_out) => insert_assigned(&mut config, &handed_out),
        // A running server has the store open and may be writing.
        Err(error @ AssignError::Store(_)) => {
            return Ok(format!("# addresses of ranges are not known: {}\n{config}", error_chain(&error)));
        }
        Err(error @ AssignError::HandOut(_)) => return Err(Failure::could_not_go_on(error)),
    };
    let mut text = config.to_string();
    for ClusterAddress { cluster, address, is_new } in given {
        let has = if is_new { "would be given" } else { "has" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# {cluster} {has} {}", address.ip());
    }
    Ok(text)
}

fn ranges(config: &config::VipConfig) -> Vec<AddressRange> {
    let ranges = config.entry_points.iter().filter_map(|entry_point| entry_point.range.as_ref());
    let range = |range: &VipRange| AddressRange {
        network: range.network,
        clusters: range.clusters.keys().cloned().collect(),
    };
    ranges.map(range).collect()
}

fn insert_assigned(
    config: &mut config::VipConfig,
    handed_out: &BTreeMap<ClusterId, AssignedAddress>,
) -> Vec<ClusterAddress> {
    let mut all = Vec::new();
    for entry_point in &mut config.entry_points {
        let Some(VipRange { port, clusters, .. }) = entry_point.range.take() else { continue };
        for (cluster, target) in clusters {
            let Some(AssignedAddress { address, is_new }) = handed_out.get(&cluster).copied() else {
                continue;
            };
            let address = SocketAddr::new(address, port);
            entry_point.addresses.insert(address, ClusterTarget { cluster: cluster.clone(), target });
            all.push(ClusterAddress { cluster, address, is_new });
        }
    }
    all
}
