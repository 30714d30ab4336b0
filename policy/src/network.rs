//! IP networks in CIDR notation.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network: `10.0.0.0/8`, `2001:db8::/32`. Never one of IPv4-mapped IPv6 addresses: they are unmapped before a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// The text is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a network, use ADDRESS/BITS such as 10.0.0.0/8, with no bit set behind the mask")]
pub struct NotANetwork;

impl Network {
    /// The network of one address.
    #[must_use]
    pub fn only(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { address, bits: width(address) }
    }

    /// The network with a prefix of `bits` that contains `address`; `None` if the address has fewer bits.
    #[must_use]
    pub fn around(address: IpAddr, bits: u8) -> Option<Self> {
        if bits > width(address) {
            return None;
        }
        let address = address_like(address, bits_of(address) & mask(address, bits))?;
        Some(Self { address, bits })
    }

    /// Returns true if this is an IPv4 network.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// The first address of the network.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The length of the prefix, in bits.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns true if the network contains `address`; never for an address of the other family.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && bits_of(address) & mask(self.address, self.bits) == bits_of(self.address)
    }

    /// Its host addresses, in order. The first address is the network's own (IPv4) or any router's (IPv6), and the last of
    /// IPv4 is the broadcast address; they are left out.
    pub fn hosts(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let network = *self;
        let at = move |place: u128| address_like(network.address, bits_of(network.address) | place);
        (1..=network.host_count()).filter_map(at)
    }

    /// Returns true if `address` is one of the network's host addresses.
    #[must_use]
    pub fn has_host(&self, address: IpAddr) -> bool {
        let place = bits_of(address) & !mask(self.address, self.bits);
        self.has(address) && (1..=self.host_count()).contains(&place)
    }

    /// The number of host addresses.
    #[must_use]
    pub fn host_count(&self) -> u128 {
        let last = mask(self.address, width(self.address)) & !mask(self.address, self.bits);
        if self.is_ipv4() { last.saturating_sub(1) } else { last }
    }

    /// Returns true if the network contains every address of `other`.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.has(other.address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, bits) = text.split_once('/').ok_or(NotANetwork)?;
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let digits = bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = bits.parse().ok().filter(|bits| digits && *bits <= width(address)).ok_or(NotANetwork)?;
        let is_one = bits_of(address) & !mask(address, bits) == 0 && address.to_canonical() == address;
        if is_one { Ok(Self { address, bits }) } else { Err(NotANetwork) }
    }
}

/// An address as a number; an IPv4 address fills the low 32 bits.
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The address of the family of `like` with this number; `None` if the number is too large.
fn address_like(like: IpAddr, number: u128) -> Option<IpAddr> {
    Some(match like {
        IpAddr::V4(_) => IpAddr::V4(u32::try_from(number).ok()?.into()),
        IpAddr::V6(_) => IpAddr::V6(number.into()),
    })
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first `bits` of an address of that kind.
fn mask(address: IpAddr, bits: u8) -> u128 {
    let behind = u32::from(width(address) - bits);
    let all = u128::MAX >> (128 - u32::from(width(address)));
    // A shift by all 128 bits would overflow.
    all & u128::MAX.checked_shl(behind).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_in_front_of_the_mask_counts_and_none_behind_it() {
        for (network, bits) in
            [("10.0.0.0", 32_u8), ("0.0.0.0", 32), ("2001:db8::", 128), ("8000::", 128), ("::", 128)]
        {
            let address: IpAddr = network.parse().unwrap();
            for length in 0..=bits {
                let Ok(network) = format!("{network}/{length}").parse::<Network>() else { continue };
                for bit in 0..bits {
                    let flipped = bits_of(address) ^ 1 << (bits - 1 - bit);
                    let other = match address {
                        IpAddr::V4(_) => IpAddr::V4(u32::try_from(flipped).unwrap().into()),
                        IpAddr::V6(_) => IpAddr::V6(flipped.into()),
                    };
                    assert_eq!(network.has(other), bit >= length, "{network:?} {other}");
                }
                assert!(network.has(address), "{network:?}");
            }
        }
    }

    #[test]
    fn hosts_are_all_addresses_but_network_and_broadcast() {
        for (network, first, last, count) in [
            ("100.100.0.0/24", "100.100.0.1", "100.100.0.254", 254),
            ("10.0.0.8/30", "10.0.0.9", "10.0.0.10", 2),
            ("fd00::/120", "fd00::1", "fd00::ff", 255),
            ("fd00::4/126", "fd00::5", "fd00::7", 3),
        ] {
            let network: Network = network.parse().unwrap();
            let hosts: Vec<String> = network.hosts().map(|host| host.to_string()).collect();
            assert_eq!((hosts[0].as_str(), hosts.last().unwrap().as_str()), (first, last));
            assert_eq!((hosts.len() as u128, network.host_count()), (count, count), "{network}");
            assert!(network.hosts().all(|host| network.has_host(host)) && hosts.is_sorted_by(|a, b| a != b));
        }
        for none in ["10.0.0.8/31", "10.0.0.8/32", "fd00::/128"] {
            let network: Network = none.parse().unwrap();
            assert_eq!((network.hosts().count(), network.host_count()), (0, 0), "{none}");
        }
        for no_host in ["100.100.0.0", "100.100.0.255", "100.100.1.1", "::1"] {
            let network: Network = "100.100.0.0/24".parse().unwrap();
            assert!(!network.has_host(no_host.parse().unwrap()), "{no_host}");
        }
        let all: Network = "::/0".parse().unwrap();
        assert_eq!((all.host_count(), all.hosts().nth(1)), (u128::MAX, Some("::2".parse().unwrap())));
    }

    #[test]
    fn the_network_around_an_address_is_masked_and_bounded_by_family() {
        let around = |address: &str, bits| Network::around(address.parse().unwrap(), bits);
        let text = |network: Option<Network>| network.map(|network| (network.to_string(), network.bits()));

        assert_eq!(text(around("10.1.2.3", 24)), Some(("10.1.2.0/24".to_owned(), 24)));
        assert_eq!(text(around("10.1.2.3", 32)), Some(("10.1.2.3/32".to_owned(), 32)));
        assert_eq!(text(around("2001:db8::5:1", 64)), Some(("2001:db8::/64".to_owned(), 64)));
        assert_eq!(text(around("10.1.2.3", 33)), None);
        assert_eq!(text(around("2001:db8::1", 129)), None);
    }
}
