//! Addresses of ranges, as the store gives them, among those that are written out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use daemon::{Failure, chain};
use proto::ClusterId;
use tracing::info;

use crate::config::{self, ClusterTarget, VipRange};
use crate::directory::{AddressError, AddressRange, AssignedAddress, Directory, StoreError};

/// The address of a cluster that is in a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) cluster: ClusterId,
    pub(super) address: SocketAddr,
    is_new: bool,
}

/// Why addresses of ranges are not known.
#[derive(Debug, thiserror::Error)]
enum NotLooked {
    #[error("the store cannot be looked at")]
    Store(#[from] StoreError),
    #[error(transparent)]
    HandOut(#[from] AddressError),
}

/// Has the directory give every cluster of a range its address, and writes each down as if it stood in `config`.
///
/// # Errors
/// [`Failure`] with [`AddressError`].
pub(super) async fn give(
    config: &mut config::VipConfig,
    directory: &Directory,
) -> Result<Vec<Given>, Failure> {
    let ranges = ranges(config);
    if ranges.is_empty() {
        return Ok(Vec::new());
    }
    let handed_out =
        directory.assign_addresses(ranges, SystemTime::now()).await.map_err(Failure::could_not_go_on)?;
    let given = settle(config, &handed_out);
    for Given { cluster, address, .. } in given.iter().filter(|given| given.is_new) {
        info!(%cluster, %address, "the cluster was given an address, which it keeps");
    }
    Ok(given)
}

/// What of this host a server would change with `config`, whose store is in `state_dir`. Nothing is written. Blocks.
///
/// # Errors
/// [`Failure`]: it would not start, because a range has no address left.
pub fn dry_run(mut config: config::VipConfig, state_dir: &Path) -> Result<String, Failure> {
    let ranges = ranges(&config);
    if ranges.is_empty() {
        return Ok(config.to_string());
    }
    let looked = Directory::copy(state_dir).map_err(NotLooked::from);
    let looked = looked.and_then(|copy| Ok(copy.assign_addresses_blocking(&ranges, SystemTime::now())?));
    let given = match looked {
        Ok(handed_out) => settle(&mut config, &handed_out),
        // Whoever has it open may be writing.
        Err(error @ NotLooked::Store(_)) => {
            return Ok(format!("# addresses of ranges are not known: {}\n{config}", chain(&error)));
        }
        Err(error @ NotLooked::HandOut(_)) => return Err(Failure::could_not_go_on(error)),
    };
    let mut said = config.to_string();
    for Given { cluster, address, is_new } in given {
        let has = if is_new { "would be given" } else { "has" };
        // Writing to a text does not fail.
        let _ = writeln!(said, "# {cluster} {has} {}", address.ip());
    }
    Ok(said)
}

fn ranges(config: &config::VipConfig) -> Vec<AddressRange> {
    let ranges = config.entry_points.iter().filter_map(|way| way.range.as_ref());
    let range = |range: &VipRange| AddressRange {
        network: range.network,
        clusters: range.clusters.keys().cloned().collect(),
    };
    ranges.map(range).collect()
}

fn settle(config: &mut config::VipConfig, handed_out: &BTreeMap<ClusterId, AssignedAddress>) -> Vec<Given> {
    let mut all = Vec::new();
    for way in &mut config.entry_points {
        let Some(VipRange { port, clusters, .. }) = way.range.take() else { continue };
        for (cluster, target) in clusters {
            let Some(AssignedAddress { address, is_new }) = handed_out.get(&cluster).copied() else {
                continue;
            };
            let address = SocketAddr::new(address, port);
            way.addresses.insert(address, ClusterTarget { cluster: cluster.clone(), target });
            all.push(Given { cluster, address, is_new });
        }
    }
    all
}
