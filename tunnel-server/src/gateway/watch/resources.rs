//! The settings and limits that all watches of one gateway share.

use super::buffer_budget::BufferBudget;
use crate::config;
use crate::registry::WaitQueue;

/// Most bytes of incomplete events that all watches hold together.
const PARTIAL_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The shared settings and limits of all watches of one gateway.
pub(in crate::gateway) struct WatchResources {
    pub(super) settings: config::WatchesConfig,
    /// The queue in which watches wait for disconnected clusters.
    pub(super) places: WaitQueue,
    pub(super) budget: BufferBudget,
}

impl WatchResources {
    pub(in crate::gateway) fn new(settings: config::WatchesConfig) -> Self {
        let places = WaitQueue::new(settings.per_cluster, config::WATCHES_PARKED_MAX);
        Self { settings, places, budget: BufferBudget::new(PARTIAL_BYTES_MAX) }
    }
}
