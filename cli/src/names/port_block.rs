//! Blocks of ten ports, one for each tenant, so that tenants share nodes.

use std::fmt;
use std::str::FromStr;

/// The number of ports of a tenant.
const PORTS: u16 = 10;

/// The first ports of the lowest and the highest block. NodePorts and ports of outgoing connections are above.
const FIRST_MIN: u16 = 11_000;
const FIRST_MAX: u16 = 29_990;

/// The block of the first tenant, unless somebody chooses another one.
const FIRST_DEFAULT: u16 = 16_440;

/// The ports of a tenant at each node that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortBlock(u16);

#[derive(Debug, thiserror::Error)]
#[error("not the first port of a block: use a multiple of {PORTS} from {FIRST_MIN} to {FIRST_MAX}")]
pub(crate) struct NotAPortBlock;

impl PortBlock {
    /// The first block that nobody has. `None` if all are taken.
    pub(crate) fn free(taken: &[Self]) -> Option<Self> {
        let blocks = |from, to| (from..=to).step_by(usize::from(PORTS)).map(Self);
        let mut all = blocks(FIRST_DEFAULT, FIRST_MAX).chain(blocks(FIRST_MIN, FIRST_DEFAULT - PORTS));
        all.find(|block| !taken.contains(block))
    }

    /// The port of the API servers, which is the first one.
    pub(crate) fn first(self) -> u16 {
        self.0
    }

    /// The last port of the block.
    pub(crate) fn last(self) -> u16 {
        self.0 + PORTS - 1
    }
}

impl FromStr for PortBlock {
    type Err = NotAPortBlock;

    fn from_str(text: &str) -> Result<Self, NotAPortBlock> {
        let first: u16 = text.parse().map_err(|_| NotAPortBlock)?;
        let is_block = first.is_multiple_of(PORTS) && (FIRST_MIN..=FIRST_MAX).contains(&first);
        if is_block { Ok(Self(first)) } else { Err(NotAPortBlock) }
    }
}

impl fmt::Display for PortBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_begins_at_a_multiple_of_ten_below_the_node_ports() {
        for good in ["11000", "16440", "29990"] {
            assert_eq!(good.parse::<PortBlock>().unwrap().to_string(), good);
        }
        for bad in ["", "10990", "16441", "30000", "65540", "-1", "16440 "] {
            assert!(bad.parse::<PortBlock>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_free_block_is_the_first_that_nobody_has() {
        let block = |text: &str| text.parse::<PortBlock>().unwrap();
        assert_eq!(PortBlock::free(&[]), Some(block("16440")));
        assert_eq!(PortBlock::free(&[block("16450"), block("16440")]), Some(block("16460")));
        let upper: Vec<PortBlock> = (1644..=2999).map(|ten| block(&format!("{ten}0"))).collect();
        assert_eq!(PortBlock::free(&upper), Some(block("11000")));
        let all: Vec<PortBlock> = (1100..=2999).map(|ten| block(&format!("{ten}0"))).collect();
        assert_eq!(PortBlock::free(&all), None);
    }
}
