//! Spellings of targets that all entry points have to judge alike.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// Addresses of the machine itself, of networks, of nobody, and of a cloud's metadata services.
const SPECIAL: [&str; 37] = [
    "0.0.0.0",
    "0.0.0.1",
    "127.0.0.2",
    "127.1.2.3",
    "127.255.255.254",
    "10.0.0.1",
    "10.96.0.1",
    "10.96.0.10",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.123",
    "169.254.169.253",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.254",
    "192.88.99.1",
    "192.168.0.1",
    "192.168.255.255",
    "198.18.0.1",
    "203.0.113.7",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[2001::1]",
];

/// Names with a special meaning, and texts that are no names.
const NAMES: [&str; 46] = [
    "localhost",
    "LOCALHOST",
    "Localhost.",
    "localhost.localdomain",
    "ip6-localhost",
    "a.localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "kubernetes.default.svc.cluster.local.",
    "metadata",
    "metadata.google.internal",
    "Metadata.Google.Internal.",
    "instance-data.ec2.internal",
    "gateway.test",
    "edge-a",
    "edge-a.clusters.test",
    "example.com",
    "xn--bcher-kva.example",
    "under_score.example",
    "3com.example",
    "a.b.c.d.e.f.g",
    "localtest.me",
    "127.0.0.1.nip.io",
    "a..b",
    ".a",
    "..",
    ".",
    "-a",
    "a-",
    "*",
    "*.example",
    "a b",
    "a\u{e9}.example",
    "user@127.0.0.1",
    "127.0.0.1@user",
    "127.0.0.1%00",
    "127.0.0.1%2e",
    "%6c%6f%63alhost",
    "127.0.0.1#a",
    "127.0.0.1/8",
    "127.0.0.1?",
    "[127.0.0.1]",
    "[localhost]",
    "",
];

/// Names and addresses that are `listed`, or resemble it, or are forbidden: `HOST:PORT` each, with any host,
/// at its port and at others.
///
/// # Panics
/// If it is not IPv4.
pub fn around(listed: SocketAddr) -> Vec<String> {
    let SocketAddr::V4(listed) = listed else { panic!("{listed} is not of IPv4") };
    let hosts = meaning(listed).into_iter().chain(SPECIAL.iter().chain(&NAMES).map(ToString::to_string));
    let ports = [listed.port(), listed.port() ^ 1, 0, 443, 10_250];
    hosts.flat_map(|host| ports.map(|port| format!("{host}:{port}"))).collect()
}

/// All that some program takes for the address.
fn meaning(listed: SocketAddrV4) -> Vec<String> {
    let address = *listed.ip();
    let [a, b, c, d] = address.octets();
    let (number, low) = (address.to_bits(), address.to_bits() & 0xff_ffff);
    let by_ipv6 = |prefix: &str| format!("[{prefix}{a:02x}{b:02x}:{c:02x}{d:02x}]");
    let mapped = address.to_ipv6_mapped();
    vec![
        address.to_string(),
        format!("{address}."),
        format!("{address}.."),
        format!(".{address}"),
        format!(" {address}"),
        format!("{address}.example"),
        // In octal, in hexadecimal, with zeros in front, and with fewer parts.
        format!("0{a:o}.{b}.{c}.{d}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("0o{a:o}.{b}.{c}.{d}"),
        format!("0x{a:x}.{b}.{c}.{d}"),
        format!("0X{a:X}.0X{b:X}.0X{c:X}.0X{d:X}"),
        format!("{a}.{b}.{c}.0{d}"),
        format!("{a}.{b}.{c}.00{d}"),
        format!("{a:03}.{b:03}.{c:03}.{d:03}"),
        format!("{a}.{low}"),
        format!("{a}.{b}.{}", address.to_bits() & 0xffff),
        format!("{number}"),
        format!("0x{number:x}"),
        format!("0{number:o}"),
        format!("{}", u64::from(number) + (1 << 32)),
        format!("{a}.{b}.{c}.{}", u16::from(d) + 256),
        format!("+{a}.{b}.{c}.{d}"),
        format!("-{a}.{b}.{c}.{d}"),
        format!("{a},{b},{c},{d}"),
        format!("{a}\u{3002}{b}\u{3002}{c}\u{3002}{d}"),
        // The adjacent addresses.
        Ipv4Addr::from_bits(number ^ 1).to_string(),
        Ipv4Addr::from_bits(number.swap_bytes()).to_string(),
        // As one of IPv6: mapped, compatible, translated, by 6to4, ISATAP and Teredo, and in brackets that
        // say nothing.
        format!("[{mapped}]"),
        format!("[::FFFF:{address}]"),
        format!("[0:0:0:0:0:ffff:{address}]"),
        format!("[{}]", Ipv6Addr::from(u128::from(number))),
        format!("[::{address}]"),
        format!("[::ffff:0:{address}]"),
        by_ipv6("64:ff9b::"),
        by_ipv6("64:ff9b:1::"),
        by_ipv6("2002:").replace(']', "::]"),
        by_ipv6("fe80::5efe:"),
        by_ipv6("2001:0:0:0:0:0:"),
        format!("[{mapped}%lo]"),
        format!("[{mapped}%25lo]"),
        format!("[{mapped}"),
        format!("{mapped}]"),
        format!("[[{mapped}]]"),
        mapped.to_string(),
        format!("[{address}]"),
    ]
}
