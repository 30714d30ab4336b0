//! Targets that are dialed from within a cluster.

use std::net::IpAddr;

use crate::document;
use crate::fault::{At, PolicyFault};
use crate::rules::choice::Choice;
use crate::rules::valid::choice;
use crate::target::{Host, Target, port};

/// One entry: these hosts, each on these ports.
#[derive(Debug, Clone)]
pub(in crate::rules) struct Targets {
    hosts: Choice<HostPattern>,
    ports: Choice<u16>,
}

/// A name or an address, or all addresses of a network. A name is compared as it was asked for, and never resolved here.
#[derive(Debug, Clone)]
enum HostPattern {
    One(Host),
    Network(IpAddr, u8),
}

impl Targets {
    pub(super) fn cover(&self, target: &Target) -> bool {
        self.hosts.has(|host| host.has(&target.host)) && self.ports.has(|port| *port == target.port)
    }

    pub(super) fn are_all(&self) -> bool {
        self.hosts.is_any() && self.ports.is_any()
    }

    pub(super) fn of(at: &At, written: &document::Targets) -> Result<Self, PolicyFault> {
        let document::Targets { hosts, ports } = written;
        let hosts =
            hosts.as_ref().ok_or_else(|| at.missing("hosts", "at least one host, or ['*'] for all"))?;
        let ports =
            ports.as_ref().ok_or_else(|| at.missing("ports", "at least one port, or ['*'] for all"))?;
        Ok(Self {
            hosts: choice(&at.below("hosts", hosts), hosts, HostPattern::parse)?,
            ports: choice(&at.below("ports", ports), ports, |text| {
                port(text).ok_or("'*', or ports of 1 to 65535")
            })?,
        })
    }
}

impl HostPattern {
    fn has(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::One(one), host) => one == host,
            (Self::Network(network, bits), Host::Address(address)) => is_within(*network, *bits, *address),
            (Self::Network(..), Host::Name(_)) => false,
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let allowed = "'*', DNS names and IP addresses in full, or networks such as 10.0.0.0/8, with no bit set behind the mask";
        let Some((network, bits)) = text.split_once('/') else {
            return Host::parse(text).map(Self::One).ok_or(allowed);
        };
        let network: IpAddr = network.parse().map_err(|_| allowed)?;
        let digits = bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = bits.parse().ok().filter(|bits| digits && *bits <= width(network)).ok_or(allowed)?;
        // One of IPv4 mapped into IPv6 would never be met: addresses are unmapped.
        let is_one = bits_of(network) & !mask(network, bits) == 0 && network.to_canonical() == network;
        if is_one { Ok(Self::Network(network, bits)) } else { Err(allowed) }
    }
}

fn is_within(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    network.is_ipv4() == address.is_ipv4() && bits_of(address) & mask(network, bits) == bits_of(network)
}

/// An address as a number, at the low end where it is of IPv4.
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first `bits` of an address of that kind.
fn mask(network: IpAddr, bits: u8) -> u128 {
    let behind = u32::from(width(network) - bits);
    let all = u128::MAX >> (128 - u32::from(width(network)));
    // A shift by all bits there are would overflow.
    all & u128::MAX.checked_shl(behind).unwrap_or(0)
}
