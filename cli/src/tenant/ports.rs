//! Blocks of ten ports, one for each tenant, so that tenants share nodes.

use std::fmt;
use std::str::FromStr;

/// The number of ports of a tenant.
pub(super) const BLOCK: u16 = 10;

/// The lowest first port: below it are ports of other programs, NodePorts and kubelet's.
const FIRST_MIN: u16 = 11_000;

/// The port of a worker's node-lb is 7443, and NodePorts are 30,000 to 32,767.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// The block of a tenant's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortBlock(u16);

#[derive(Debug, thiserror::Error)]
#[error("not the first port of a block: use a multiple of 10 from 11000 to 65520, outside of the NodePorts 30000 to 32767")]
pub(crate) struct NotAPortBlock;

impl PortBlock {
    /// The first free block, beside these.
    pub(super) fn free(taken: &[Self]) -> Option<Self> {
        (FIRST_MIN..=u16::MAX - BLOCK).step_by(usize::from(BLOCK)).filter_map(|first| Self::new(first).ok()).find(|block| !taken.contains(block))
    }

    fn new(first: u16) -> Result<Self, NotAPortBlock> {
        let is_block = first.is_multiple_of(BLOCK) && (FIRST_MIN..=u16::MAX - BLOCK).contains(&first);
        if is_block && !NODE_PORTS.contains(&first) { Ok(Self(first)) } else { Err(NotAPortBlock) }
    }

    /// The first port: that of the API servers.
    pub(super) fn first(self) -> u16 {
        self.0
    }
}

impl FromStr for PortBlock {
    type Err = NotAPortBlock;

    fn from_str(text: &str) -> Result<Self, NotAPortBlock> {
        Self::new(text.parse().map_err(|_| NotAPortBlock)?)
    }
}

impl fmt::Display for PortBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
