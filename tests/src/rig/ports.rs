//! Ports that stay free until a daemon binds them.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::loopback;

/// Below the range from which the kernel takes ports for outgoing connections, so that none of those is in
/// the way.
const FIRST: u16 = 12_000;
/// Ports that a process takes hold of at a time.
const BLOCK: u16 = 50;
const BLOCKS: u16 = 360;

static TAKEN: Mutex<TakenPorts> = Mutex::new(TakenPorts::nothing());

/// The ports that this process has taken, one block after the other.
struct TakenPorts {
    /// Each holds the first port of a block until the process ends, so that no other process takes from that
    /// block: what is free now and bound by a daemon in a moment would be free to two.
    holds: Vec<TcpListener>,
    /// Blocks that were not looked at yet, counted from where this process begins.
    blocks: Range<u16>,
    /// Ports of the block in hand that were not used yet.
    ports: Range<u16>,
}

/// A port of 127.0.0.1 that is free for TCP and UDP. A process never gets one twice, and two processes never
/// get the same one while both run.
///
/// # Panics
/// If there is none.
pub fn free_port() -> SocketAddr {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).next()
}

impl TakenPorts {
    const fn nothing() -> Self {
        Self { holds: Vec::new(), blocks: 0..BLOCKS, ports: 0..0 }
    }

    fn next(&mut self) -> SocketAddr {
        loop {
            for port in self.ports.by_ref() {
                let address = loopback(port);
                if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
                    return address;
                }
            }
            self.take_block();
        }
    }

    /// Takes hold of a block. Processes begin at places of their own: what an earlier one left running is
    /// rarely met.
    fn take_block(&mut self) {
        let begin = std::process::id() % u32::from(BLOCKS);
        for number in self.blocks.by_ref() {
            let block = (begin + u32::from(number)) % u32::from(BLOCKS);
            let first = FIRST + block as u16 * BLOCK;
            if let Ok(hold) = TcpListener::bind(loopback(first)) {
                self.holds.push(hold);
                self.ports = first + 1..first + BLOCK;
                return;
            }
        }
        panic!("no free port between {FIRST} and {}", FIRST + BLOCKS * BLOCK);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::iter::repeat_with;

    use super::*;

    #[test]
    fn two_processes_with_the_same_first_port_never_take_the_same_one() {
        let (mut one, mut other) = (TakenPorts::nothing(), TakenPorts::nothing());
        let taken = repeat_with(|| [one.next(), other.next()]).take(2 * usize::from(BLOCK));
        let taken: Vec<SocketAddr> = taken.flatten().collect();
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len());
    }
}
