//! Serial numbers of certificates, and their text forms.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand;
use x509_parser::prelude::X509Certificate;

/// A serial number of 128 random bits: unpredictable and unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(u128);

/// The text is no serial number of our form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use the 32 hexadecimal digits of a serial number, as `tombolo ca show` prints them")]
pub struct NotASerial;

/// The text is no serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a serial number is 1 to 40 hexadecimal digits, with colons or without, and not 0")]
pub struct NotSerialText;

/// The number of hexadecimal digits of our serial numbers.
const DIGITS: usize = 32;

/// Most digits of any CA's serial number (RFC 5280, section 4.1.2.2: 20 bytes).
const DIGITS_MAX: usize = 40;

/// The normal form of any certificate's serial number: lower-case hexadecimal, padded to as many digits as ours have.
#[must_use]
pub fn serial_text(certificate: &X509Certificate<'_>) -> String {
    let digits: String = certificate.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect();
    padded(&digits)
}

/// Parses a serial number into the normal form of [`serial_text`]. Accepts either case, colons between the bytes, and any
/// number of leading zeros; tools print one before a number whose highest bit is set.
///
/// # Errors
/// [`NotSerialText`].
pub fn parse_serial_text(written: &str) -> Result<String, NotSerialText> {
    let digits = written.to_ascii_lowercase().replace(':', "");
    let significant = digits.trim_start_matches('0');
    let are_digits = significant.bytes().all(|byte| byte.is_ascii_hexdigit());
    if are_digits && (1..=DIGITS_MAX).contains(&significant.len()) {
        return Ok(padded(significant));
    }
    Err(NotSerialText)
}

fn padded(digits: &str) -> String {
    format!("{:0>DIGITS$}", digits.trim_start_matches('0'))
}

impl Serial {
    /// The serial number of a certificate; `None` if it has more than 128 bits, so it is not one of ours.
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

    /// Draws a random number; `None` if the system gives no random bytes.
    pub(crate) fn random() -> Option<Self> {
        let mut bytes = [0; 16];
        rand::fill(&mut bytes).ok()?;
        // Zero is no serial number (RFC 5280, section 4.1.2.2).
        Some(Self(u128::from_be_bytes(bytes).max(1)))
    }

    /// The number as 16 bytes, big-endian.
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
        // `from_str_radix` would accept a sign.
        if text.len() != DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotASerial);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| NotASerial)
    }
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::FromDer as _;

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

    #[test]
    fn one_number_has_one_text_however_it_is_written() {
        let ours = format!("{:032x}", 0xf1_0a);
        for written in ["f10a", "F1:0A", "00:f1:0a", "0000f10a", &ours] {
            assert_eq!(parse_serial_text(written).as_ref(), Ok(&ours), "{written}");
        }
        let longest = "8".repeat(40);
        assert_eq!(parse_serial_text(&format!("00{longest}")), Ok(longest.clone()));
        for written in ["", "0", "00:00", "f10g", "-1", &format!("8{longest}")] {
            assert_eq!(parse_serial_text(written), Err(NotSerialText), "{written}");
        }
    }

    #[test]
    fn a_serial_number_of_at_most_128_bits_is_ours() {
        let key = rcgen::KeyPair::generate().unwrap();
        let (most, one_more) = ([0xff; 16], [&[1], &[0; 16][..]].concat());
        for (bytes, expected) in [
            (vec![0x01], Some(1)),
            (vec![0x00, 0xf1, 0x0a], Some(0xf1_0a)),
            ([&[0x80], &[0; 15][..]].concat(), Some(1 << 127)),
            (most.to_vec(), Some(u128::MAX)),
            (one_more, None),
            (vec![0x7f; 20], None),
        ] {
            let mut params = rcgen::CertificateParams::default();
            params.serial_number = Some(rcgen::SerialNumber::from_slice(&bytes));
            let made = params.self_signed(&key).unwrap();
            let (_, certificate) = X509Certificate::from_der(made.der()).unwrap();
            assert_eq!(Serial::of(&certificate), expected.map(Serial), "{bytes:x?}");
        }
    }

    #[test]
    fn serial_text_and_its_parser_agree_whatever_the_highest_bit() {
        let key = rcgen::KeyPair::generate().unwrap();
        for bytes in [vec![0x8f; 16], vec![0x01; 16], vec![0x00, 0x02], vec![0xff; 19]] {
            let mut params = rcgen::CertificateParams::default();
            params.serial_number = Some(rcgen::SerialNumber::from_slice(&bytes));
            let made = params.self_signed(&key).unwrap();
            let (_, certificate) = X509Certificate::from_der(made.der()).unwrap();
            let text = serial_text(&certificate);
            assert_eq!(parse_serial_text(&certificate.raw_serial_as_string()), Ok(text.clone()));
            assert!(Serial::of(&certificate).is_none_or(|serial| serial.to_string() == text), "{text}");
        }
    }
}
