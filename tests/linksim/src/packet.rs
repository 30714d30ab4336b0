//! Parses and rewrites IP packets: protocol, addresses, ports and checksums.

use std::net::Ipv4Addr;

/// The protocol number of UDP.
pub const UDP: u8 = 17;
/// The protocol number of TCP.
pub const TCP: u8 = 6;

/// One end of a packet: its sender or its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The sender of the packet.
    Source,
    /// The receiver of the packet.
    Destination,
}

/// Returns true if a packet is link-local multicast (IPv6 neighbour and router discovery, for example). It is
/// never routed, and must not cross to another link.
pub fn is_link_local_multicast(packet: &[u8]) -> bool {
    match version(packet) {
        Some(4) => packet.get(16..19) == Some(&[224, 0, 0]),
        Some(6) => packet.get(24) == Some(&0xff),
        _ => true,
    }
}

/// The protocol above IP, where no fragment and no extension header hides it.
pub fn protocol(packet: &[u8]) -> Option<u8> {
    transport(packet).map(|(protocol, _)| protocol)
}

/// Flips one bit behind the IP header; `choice` chooses which. A packet without anything there stays as it
/// is.
pub fn flip(packet: &mut [u8], choice: u64) {
    let begin = match version(packet) {
        Some(4) => header_bytes(packet),
        _ => 40,
    };
    let Some(bits) = packet.len().checked_sub(begin).filter(|bytes| *bytes > 0).map(|bytes| bytes * 8) else {
        return;
    };
    let bit = (choice % bits as u64) as usize;
    packet[begin + bit / 8] ^= 1 << (bit % 8);
}

/// Flips one bit of the payload of UDP or TCP, and makes the checksum agree. A packet without payload stays
/// as it is.
///
/// Returns whether a bit was flipped.
pub fn flip_hidden(packet: &mut [u8], choice: u64) -> bool {
    let Some((protocol, begin)) = transport(packet) else { return false };
    let Some(payload) = payload(packet, protocol, begin) else { return false };
    let Some(bits) = packet.len().checked_sub(payload).filter(|bytes| *bytes > 0).map(|bytes| bytes * 8)
    else {
        return false;
    };
    let bit = (choice % bits as u64) as usize;
    let at = payload + bit / 8;
    // Checksums are sums of pairs of bytes, counted from where the transport's header begins.
    let pair = begin + (at - begin) / 2 * 2;
    let old = word(packet, pair);
    packet[at] ^= 1 << (bit % 8);
    let new = word(packet, pair);
    update_checksum(packet, checksum_at(protocol, begin), old, new, protocol);
    true
}

/// The address of one end of an IPv4 packet.
pub fn address(packet: &[u8], end: End) -> Option<Ipv4Addr> {
    if version(packet) != Some(4) {
        return None;
    }
    let at = address_at(end);
    let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
    Some(bytes.into())
}

/// The port of one end of an IPv4 packet of UDP or TCP.
pub fn port(packet: &[u8], end: End) -> Option<u16> {
    let (protocol, begin) = transport(packet)?;
    let is_known = version(packet) == Some(4) && matches!(protocol, UDP | TCP);
    (is_known && packet.len() >= begin + 4).then(|| word(packet, begin + port_offset(end)))
}

/// Gives one end of an IPv4 packet another address and port, and makes the checksums agree. The packet has
/// both.
pub fn readdress(packet: &mut [u8], end: End, address: Ipv4Addr, port: u16) {
    let Some((protocol, begin)) = transport(packet) else { return };
    let (at, sum) = (address_at(end), checksum_at(protocol, begin));
    for (offset, new) in [(0, 0), (2, 2)].map(|(offset, from)| {
        let octets = address.octets();
        (offset, u16::from_be_bytes([octets[from], octets[from + 1]]))
    }) {
        let old = word(packet, at + offset);
        put(packet, at + offset, new);
        update_checksum(packet, 10, old, new, 0);
        update_checksum(packet, sum, old, new, protocol);
    }
    let at = begin + port_offset(end);
    let old = word(packet, at);
    put(packet, at, port);
    update_checksum(packet, sum, old, port, protocol);
}

fn version(packet: &[u8]) -> Option<u8> {
    let version = packet.first()? >> 4;
    let shortest = if version == 4 { 20 } else { 40 };
    (matches!(version, 4 | 6) && packet.len() >= shortest).then_some(version)
}

fn header_bytes(packet: &[u8]) -> usize {
    usize::from(packet[0] & 0x0f) * 4
}

// The protocol and where its header begins.
fn transport(packet: &[u8]) -> Option<(u8, usize)> {
    match version(packet)? {
        4 => {
            let fragment = word(packet, 6) & 0x1fff;
            let begin = header_bytes(packet);
            (fragment == 0 && (20..=packet.len()).contains(&begin)).then(|| (packet[9], begin))
        }
        _ => Some((packet[6], 40)),
    }
}

fn payload(packet: &[u8], protocol: u8, begin: usize) -> Option<usize> {
    let header = match protocol {
        UDP => 8,
        TCP => usize::from(packet.get(begin + 12)? >> 4) * 4,
        _ => return None,
    };
    (packet.len() >= begin + header).then_some(begin + header)
}

fn address_at(end: End) -> usize {
    match end {
        End::Source => 12,
        End::Destination => 16,
    }
}

fn port_offset(end: End) -> usize {
    match end {
        End::Source => 0,
        End::Destination => 2,
    }
}

fn checksum_at(protocol: u8, begin: usize) -> usize {
    begin + if protocol == UDP { 6 } else { 16 }
}

// RFC 1624, equation 3. A UDP checksum of zero says that there is none (RFC 768).
fn update_checksum(packet: &mut [u8], at: usize, old: u16, new: u16, protocol: u8) {
    if packet.len() < at + 2 {
        return; // The first part of a fragmented packet may end before.
    }
    let sum = word(packet, at);
    if protocol == UDP && sum == 0 {
        return;
    }
    let mut total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    let updated = !(total as u16);
    put(packet, at, if protocol == UDP && updated == 0 { 0xffff } else { updated });
}

// A last odd byte counts as if a zero followed.
fn word(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet.get(at + 1).copied().unwrap_or(0)])
}

fn put(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A UDP packet with right checksums.
    pub(crate) fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
        let length = 28 + payload.len();
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0];
        packet.extend(from.0.octets());
        packet.extend(to.0.octets());
        packet.extend(from.1.to_be_bytes());
        packet.extend(to.1.to_be_bytes());
        packet.extend(((length - 20) as u16).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(payload);
        put(&mut packet, 2, length as u16);
        let sum = !sum(&packet[..20]);
        put(&mut packet, 10, sum);
        let sum = !transport_sum(&packet);
        put(&mut packet, 26, if sum == 0 { 0xffff } else { sum });
        packet
    }

    /// Returns true if both checksums of a UDP packet are right.
    pub(crate) fn is_right(packet: &[u8]) -> bool {
        sum(&packet[..20]) == 0xffff && transport_sum(packet) == 0xffff
    }

    fn transport_sum(packet: &[u8]) -> u16 {
        let mut bytes = packet[12..].to_vec();
        if bytes.len() % 2 == 1 {
            bytes.push(0);
        }
        bytes.extend([0, UDP]);
        bytes.extend(((packet.len() - 20) as u16).to_be_bytes());
        sum(&bytes)
    }

    fn sum(bytes: &[u8]) -> u16 {
        let mut total: u32 =
            bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    const HERE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 1, 2, 3), 40_000);
    const THERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 8443);

    proptest! {
        #[test]
        fn a_readdressed_packet_has_right_checksums(
            payload in prop::collection::vec(any::<u8>(), 0..64), address: [u8; 4], new_port: u16,
        ) {
            let mut packet = udp(HERE, THERE, &payload);
            prop_assert!(is_right(&packet));
            readdress(&mut packet, End::Source, address.into(), new_port);
            prop_assert!(is_right(&packet));
            prop_assert_eq!((super::address(&packet, End::Source), port(&packet, End::Source)),
                (Some(address.into()), Some(new_port)));
            prop_assert_eq!((super::address(&packet, End::Destination), port(&packet, End::Destination)),
                (Some(THERE.0), Some(THERE.1)));
        }

        #[test]
        fn a_hidden_flip_changes_one_payload_bit_and_keeps_the_checksum(
            payload in prop::collection::vec(any::<u8>(), 1..64), choice: u64,
        ) {
            let before = udp(HERE, THERE, &payload);
            let mut packet = before.clone();
            prop_assert!(flip_hidden(&mut packet, choice));
            prop_assert!(is_right(&packet));
            let differ: u32 = before[28..].iter().zip(&packet[28..]).map(|(a, b)| (a ^ b).count_ones()).sum();
            prop_assert_eq!(differ, 1);
        }

        #[test]
        fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), choice: u64) {
            let mut packet = bytes;
            flip(&mut packet, choice);
            flip_hidden(&mut packet, choice);
            is_link_local_multicast(&packet);
            if port(&packet, End::Source).is_some() {
                readdress(&mut packet, End::Source, THERE.0, THERE.1);
            }
        }
    }

    #[test]
    fn an_open_flip_is_found_by_the_checksum() {
        let mut packet = udp(HERE, THERE, b"payload!");
        flip(&mut packet, 77);
        assert!(!is_right(&packet));
    }
}
