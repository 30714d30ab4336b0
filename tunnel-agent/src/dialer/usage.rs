//! The use that the agent makes of a server, or of a configured name, at this time.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The use of all addresses of one name. When its sender is dropped, they are used no more: their tunnels are drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Usage {
    /// The addresses are dialed. If not, tunnels that are there may stay.
    pub(super) dials: bool,
    /// IDs of the servers whose tunnels stay. `None` means all.
    pub(super) kept: Option<Arc<BTreeSet<String>>>,
    /// Number of different servers to look for behind all names together. Zero if one tunnel to each address is enough.
    pub(super) sought: usize,
    /// Least number of tunnels by this name, if there are several servers behind it.
    pub(super) tunnels_min: usize,
}

impl Usage {
    /// Each address is dialed, and has one tunnel.
    pub(super) fn one_each() -> Self {
        Self { dials: true, kept: None, sought: 0, tunnels_min: 1 }
    }

    /// Returns true if a tunnel to this server may stay.
    pub(super) fn keeps(&self, server_id: &str) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.contains(server_id))
    }
}
