//! The packet size that the route to a peer may allow.

use std::io;
use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

#[cfg(target_os = "linux")]
use rustix::net::sockopt;

use crate::cid::CID_BYTES;

/// Most bytes of QUIC in a packet, whatever the route takes: ten of them, which quinn hands to the kernel at
/// a time (`MAX_TRANSMIT_SEGMENTS`), fit one datagram of UDP over IPv4 (65,507 bytes). Beyond that the kernel
/// refuses the batch.
pub(crate) const PACKET_BYTES_MAX: u16 = 6_550;

/// Packet size to probe for where the route is not known: Ethernet's 1,500 less [`HEADER_BYTES`].
pub(crate) const PACKET_BYTES_DEFAULT: u16 = 1_452;

/// The smallest packet that every path of QUIC carries (RFC 9000, section 14), and so the one that a full-size
/// probe fills.
pub(crate) const FULL_SIZE_BYTES: usize = 1200;

/// Bytes of a datagram (RFC 9221) that fills such a packet, as far as quinn allows: it reserves a flags byte, a
/// packet number of four bytes, the tag of the AEAD, and nine bytes for the frame's own head.
pub(crate) const FULL_SIZE_DATAGRAM_BYTES: usize = FULL_SIZE_BYTES - (1 + CID_BYTES + 4 + 16) - 9;

/// A second datagram, which fits into what quinn had reserved for the first and does not need: a frame without
/// content, and zeros behind it.
pub(crate) const FILLER: [u8; 4] = [0; 4];

/// A packet of at least so many bytes is a full-size one: a probe without its filler is no smaller.
pub(crate) const FULL_SIZE_BYTES_MIN: u64 = FULL_SIZE_BYTES as u64 - 10;

/// Length of the headers of IPv6 and UDP, in bytes.
const HEADER_BYTES: u32 = 40 + 8;

/// Bytes of QUIC in a packet for which the path to `peer` is probed: as many as this machine's route takes,
/// where that is more than Ethernet's. Probing every path that far would cost those of the Internet round
/// trips, and probes that are lost.
pub(crate) fn packet_bytes(peer: SocketAddr) -> u16 {
    let packet = |route: u32| u16::try_from(route.saturating_sub(HEADER_BYTES)).unwrap_or(u16::MAX);
    route_bytes(peer).map_or(PACKET_BYTES_DEFAULT, packet).clamp(PACKET_BYTES_DEFAULT, PACKET_BYTES_MAX)
}

/// The MTU of the route to `peer` (`IP_MTU`, ip(7)). Nothing is sent.
#[cfg(target_os = "linux")]
fn route_bytes(peer: SocketAddr) -> io::Result<u32> {
    let asked = |local: IpAddr| {
        let socket = UdpSocket::bind((local, 0))?;
        socket.connect(peer)?;
        io::Result::Ok(socket)
    };
    match peer.ip() {
        IpAddr::V4(_) => Ok(sockopt::ip_mtu(asked(Ipv4Addr::UNSPECIFIED.into())?)?),
        // Includes IPv4 addresses mapped to `::ffff:0:0/96`.
        IpAddr::V6(_) => Ok(sockopt::ipv6_mtu(asked(Ipv6Addr::UNSPECIFIED.into())?)?),
    }
}

#[cfg(not(target_os = "linux"))]
fn route_bytes(_: SocketAddr) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A route that does not exist is probed as Ethernet.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_route_with_jumbo_frames_is_probed_up_to_a_tenth_of_a_datagram() {
        for loopback in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(packet_bytes(loopback.parse().unwrap()), PACKET_BYTES_MAX, "{loopback}");
        }
        // Broadcasts need a socket option, so no machine routes there without it.
        assert_eq!(packet_bytes("255.255.255.255:1".parse().unwrap()), PACKET_BYTES_DEFAULT);
    }
}
