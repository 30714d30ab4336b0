//! A certificate's serial number.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand;
use x509_parser::prelude::X509Certificate;

/// 128 random bits: nobody can guess the next one, and no two certificates share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(u128);

/// Not a serial number of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use the 32 hexadecimal digits of a serial number, as `tombolo ca show` prints them")]
pub struct NotASerial;

/// Hexadecimal digits of a serial number as text.
const DIGITS: usize = 32;

impl Serial {
    /// The serial number of a certificate; `None` where it has more than 128 bits, so that it is none of ours.
    #[must_use]
    pub fn of(certificate: &X509Certificate<'_>) -> Option<Self> {
        let significant = certificate.raw_serial().iter().skip_while(|byte| **byte == 0);
        let mut number = 0_u128;
        for (place, byte) in significant.enumerate() {
            if place == size_of::<u128>() {
                return None;
            }
            number = number << 8 | u128::from(*byte);
        }
        Some(Self(number))
    }

    /// Draws one; `None` where the system has no randomness.
    pub(crate) fn random() -> Option<Self> {
        let mut bytes = [0; 16];
        rand::fill(&mut bytes).ok()?;
        // Zero is no serial number (RFC 5280, section 4.1.2.2).
        Some(Self(u128::from_be_bytes(bytes).max(1)))
    }

    /// Its bytes, big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl From<[u8; 16]> for Serial {
    fn from(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0width$x}", self.0, width = DIGITS)
    }
}

impl FromStr for Serial {
    type Err = NotASerial;

    fn from_str(text: &str) -> Result<Self, NotASerial> {
        // `from_str_radix` would take a sign.
        if text.len() != DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotASerial);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| NotASerial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_is_read_as_it_is_written() {
        let serial = Serial(0x0a);
        assert_eq!(serial.to_string(), format!("{:032x}", 10));
        assert_eq!(serial.to_string().parse(), Ok(serial));
        for text in ["", "0a", "+000000000000000000000000000000a", &"g".repeat(32)] {
            assert_eq!(text.parse::<Serial>(), Err(NotASerial), "{text}");
        }
    }
}
