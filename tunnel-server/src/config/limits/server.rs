//! The limits of one server for everything together. Each is memory that the machine must have.

use daemon::config::{KeyError, bounded};
use serde::Deserialize;

/// The fewest requests that can be configured, so that each of four callers can have one.
const REQUESTS_MIN: usize = 4;

/// The most requests that can be configured: a larger number is a mistake rather than a plan for one machine.
const REQUESTS_MAX: usize = 200_000;

/// The most known clusters that can be configured: as above.
const CLUSTERS_MAX: usize = 200_000;

/// The most tunnels that can be configured, here and so at any other server. A full copy of them, as another server is told
/// of it, stays below `transport::PEER_QUEUE_BYTES_MAX` with 200 bytes for each.
pub const SERVER_TUNNELS_MAX: usize = 50_000;

/// The limits of one server for all callers and clusters together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Requests that the gateway serves at once, each to the last byte of its answer; 4 to 200,000.
    pub requests: usize,
    /// Clusters that are known, including deleted ones whose names are still reserved; 1 to 200,000.
    pub clusters: usize,
    /// Tunnels of all clusters to this server; 1 to [`SERVER_TUNNELS_MAX`].
    pub tunnels: usize,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawServerLimits {
    /// Requests at once, of all callers. One caller has a quarter of them, at most.
    #[cfg_attr(test, schemars(range(min = REQUESTS_MIN, max = REQUESTS_MAX), extend("default" = ServerLimits::default().requests)))]
    requests: Option<usize>,
    /// Clusters that the server knows, with deleted ones whose names are reserved. Beyond it, this server adds none.
    #[cfg_attr(test, schemars(range(min = 1, max = CLUSTERS_MAX), extend("default" = ServerLimits::default().clusters)))]
    clusters: Option<usize>,
    /// Tunnels of all agents to this server.
    #[cfg_attr(test, schemars(range(min = 1, max = SERVER_TUNNELS_MAX), extend("default" = ServerLimits::default().tunnels)))]
    tunnels: Option<usize>,
}

impl ServerLimits {
    /// Exchanges of any kind that one caller may have at once, over all its connections and clusters. It is a quarter of all,
    /// so that no fewer than four callers can fill the gateway.
    #[must_use]
    pub const fn requests_per_caller(&self) -> usize {
        self.requests / 4
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self { requests: 10_000, clusters: 10_000, tunnels: 20_000 }
    }
}

pub(super) fn server(raw: RawServerLimits) -> Result<ServerLimits, KeyError> {
    let RawServerLimits { requests, clusters, tunnels } = raw;
    let default = ServerLimits::default();
    let requests = requests.unwrap_or(default.requests);
    let clusters = clusters.unwrap_or(default.clusters);
    let tunnels = tunnels.unwrap_or(default.tunnels);
    Ok(ServerLimits {
        requests: bounded("limits.server.requests", requests, REQUESTS_MIN..=REQUESTS_MAX)?,
        clusters: bounded("limits.server.clusters", clusters, 1..=CLUSTERS_MAX)?,
        tunnels: bounded("limits.server.tunnels", tunnels, 1..=SERVER_TUNNELS_MAX)?,
    })
}
