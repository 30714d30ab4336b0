//! The state that all reads of cluster sets share.

use std::sync::Arc;

use tokio::sync::watch;

use super::continue_token::TokenKey;
use super::room::Room;
use crate::config::ClusterSet;

/// The state of all reads of cluster sets.
pub(in crate::gateway) struct ClusterSets {
    pub(super) sets: watch::Receiver<Arc<[ClusterSet]>>,
    pub(super) tokens: TokenKey,
    pub(super) room: Room,
}

impl ClusterSets {
    pub(in crate::gateway) fn new(sets: watch::Receiver<Arc<[ClusterSet]>>) -> Self {
        Self { sets, tokens: TokenKey::generate(), room: Room::default() }
    }
}
