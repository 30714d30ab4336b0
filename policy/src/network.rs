//! All addresses of a network.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network: `10.0.0.0/8`, `2001:db8::/32`. Never one of IPv4 mapped into IPv6: addresses are unmapped before they are held
/// against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// A text that is no network.
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

    /// The one of this many bits that has `address`, if that has so many.
    #[must_use]
    pub fn around(address: IpAddr, bits: u8) -> Option<Self> {
        if bits > width(address) {
            return None;
        }
        let first = bits_of(address) & mask(address, bits);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(first).ok()?.into()),
            IpAddr::V6(_) => IpAddr::V6(first.into()),
        };
        Some(Self { address, bits })
    }

    /// Whether its addresses are of IPv4.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// How many bits all its addresses have in common.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether `address` is one of it; one of the other family never is.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && bits_of(address) & mask(self.address, self.bits) == bits_of(self.address)
    }

    /// Whether it has every address of `other`.
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
fn mask(address: IpAddr, bits: u8) -> u128 {
    let behind = u32::from(width(address) - bits);
    let all = u128::MAX >> (128 - u32::from(width(address)));
    // A shift by all bits there are would overflow.
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
}
