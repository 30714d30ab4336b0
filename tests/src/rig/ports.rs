//! Ports that stay free until a daemon binds them.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use super::loopback;

/// Below the range from which the kernel takes ports for outgoing connections, so that none of those is in the way.
const FIRST: u16 = 12_000;
const COUNT: u16 = 18_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port of 127.0.0.1 that is free for TCP and UDP. Processes begin at places of their own, and none takes one twice.
///
/// # Panics
/// If there is none.
pub fn free_port() -> SocketAddr {
    let begin = (std::process::id() % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(7, Ordering::Relaxed);
        let port = FIRST + (u32::from(begin) + u32::from(step)).rem_euclid(u32::from(COUNT)) as u16;
        let address = loopback(port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}
