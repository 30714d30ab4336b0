//! The messages of a SOCKS5 client (RFC 1928, RFC 1929), byte by byte, so that a trial may send wrong ones.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The greeting that offers only username and password.
pub const GREETING: [u8; 3] = [5, 1, 2];
/// The reply that chooses username and password.
pub const CHOSEN: [u8; 2] = [5, 2];

/// The commands of a request.
pub const CONNECT: u8 = 1;
/// The command BIND: the target connects back.
pub const BIND: u8 = 2;
/// The command UDP ASSOCIATE: datagrams are relayed.
pub const UDP_ASSOCIATE: u8 = 3;

/// The bytes of an answer to a login and to a request behind it.
pub const ANSWER_BYTES: usize = 12;

/// The username and password request of RFC 1929.
///
/// # Panics
/// If a text is longer than its length byte can say.
pub fn login(user: &str, password: &str) -> Vec<u8> {
    let mut bytes = vec![1];
    for text in [user, password] {
        bytes.push(text.len().try_into().expect("a short text"));
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// A request: a command, a kind of address, and the address with its port.
pub fn asked(command: u8, kind: u8, address: &[u8]) -> Vec<u8> {
    [&[5, command, 0, kind], address].concat()
}

/// A request for a connection to a target in its own spelling, `HOST:PORT`: an address as an address, and
/// everything else as a name.
///
/// # Panics
/// If it has no port.
pub fn asked_for(target: &str) -> Vec<u8> {
    let (host, port) = target.rsplit_once(':').expect("a port");
    let port: u16 = port.parse().expect("a port");
    let bytes = port.to_be_bytes();
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let by_ipv6 = bracketed.and_then(|bare| bare.parse::<Ipv6Addr>().ok());
    // Any text that is no address can be sent as a name.
    match (by_ipv6, host.parse::<Ipv4Addr>()) {
        (Some(address), _) => asked(CONNECT, 4, &[&address.octets()[..], &bytes].concat()),
        (None, Ok(address)) => asked(CONNECT, 1, &[&address.octets()[..], &bytes].concat()),
        (None, Err(_)) => asked(CONNECT, 3, &name(host.as_bytes(), port)),
    }
}

/// A name and a port in the form of a request.
///
/// # Panics
/// If the name is longer than its length byte can say.
pub fn name(name: &[u8], port: u16) -> Vec<u8> {
    [&[u8::try_from(name.len()).expect("a short name")][..], name, &port.to_be_bytes()].concat()
}

/// An address of IPv4 and a port, as a request has them.
///
/// # Panics
/// If it is of IPv6.
pub fn ipv4(address: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(address) = address else { panic!("{address} is of IPv6") };
    [&address.ip().octets()[..], &address.port().to_be_bytes()].concat()
}

/// The replies to a greeting, a login and a request that is refused with this code.
pub fn refused(code: u8) -> Vec<u8> {
    vec![5, 2, 1, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}
