//! Exact decimal numbers in steps of one billionth, and the quantities in which Kubernetes writes them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of steps in one unit.
const NANO: i128 = 1_000_000_000;

/// Steps of one unit while a quantity is read. What is smaller is rounded up.
const ATTO: i128 = NANO * NANO;

/// Digits behind the point that are kept while a quantity is read.
const FRACTION_DIGITS: usize = 18;

/// The largest number that a Kubernetes quantity has, in either direction.
/// <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>
const UNITS_MAX: i128 = i64::MAX as i128;

/// The longest text of a quantity, in bytes.
const TEXT_BYTES_MAX: usize = 64;

/// The largest exponent in either direction. Kubernetes has no larger unit than 10^18.
const EXPONENT_MAX: u32 = 18;

/// A number in billionths. Sums of fewer than 2^34 quantities do not overflow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Decimal(i128);

/// A text is no quantity of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAQuantity {
    /// The text is no number with a unit of Kubernetes behind it.
    #[error("it is no number and no quantity such as 250m or 1.5Gi")]
    Syntax,
    /// The number is larger than Kubernetes allows.
    #[error("it is beyond 2^63-1, the largest quantity of Kubernetes")]
    TooLarge,
}

/// The unit behind a number.
enum Unit {
    Times(i128),
    Divided(i128),
}

impl Decimal {
    /// The sum of two numbers. `None` if it cannot be represented.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// This number divided by a count, rounded towards zero to a billionth. `None` for the count zero.
    #[must_use]
    pub fn divided_by(self, count: u64) -> Option<Self> {
        self.0.checked_div(i128::from(count)).map(Self)
    }

    /// Reads a sum as [`fmt::Display`] writes it. A sum may be larger than a quantity.
    pub(crate) fn parse_sum(text: &str) -> Option<Self> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty()
            || whole.len() > 30
            || fraction.len() > 9
            || !is_number(whole)
            || !is_number(fraction)
        {
            return None;
        }
        let steps: i128 = format!("{fraction:0<9}").parse().ok()?;
        let steps = whole.parse::<i128>().ok()?.checked_mul(NANO)?.checked_add(steps)?;
        Some(Self(if negative { -steps } else { steps }))
    }
}

impl FromStr for Decimal {
    type Err = NotAQuantity;

    /// Reads a quantity: `3`, `-0.5`, `250m`, `1.5Gi`, `12E6`. What is below a billionth is rounded away from zero, as
    /// Kubernetes does.
    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(NotAQuantity::Syntax);
        }
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, unit) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(NotAQuantity::Syntax);
        }
        let unit = Unit::parse(unit).ok_or(NotAQuantity::Syntax)?;
        let whole = whole.trim_start_matches('0');
        let whole: i128 = match whole.len() {
            0 => 0,
            1..=19 => whole.parse().map_err(|_| NotAQuantity::Syntax)?,
            _ => return Err(NotAQuantity::TooLarge),
        };
        let (kept, cut) = fraction.split_at(fraction.len().min(FRACTION_DIGITS));
        let fraction: i128 =
            format!("{kept:0<FRACTION_DIGITS$}").parse().map_err(|_| NotAQuantity::Syntax)?;
        let fraction = fraction + i128::from(cut.bytes().any(|digit| digit != b'0'));
        let steps = unit.steps(whole, fraction)?;
        Ok(Self(if negative { -steps } else { steps }))
    }
}

impl TryFrom<String> for Decimal {
    type Error = NotAQuantity;

    fn try_from(text: String) -> Result<Self, NotAQuantity> {
        Self::parse_sum(&text).ok_or(NotAQuantity::Syntax)
    }
}

impl From<Decimal> for String {
    fn from(number: Decimal) -> Self {
        number.to_string()
    }
}

impl Unit {
    fn parse(text: &str) -> Option<Self> {
        let times = |power| Some(Self::Times(power));
        match text {
            "" => times(1),
            "n" => Some(Self::Divided(NANO)),
            "u" => Some(Self::Divided(1_000_000)),
            "m" => Some(Self::Divided(1_000)),
            "k" => times(1_000),
            "M" => times(1_000_000),
            "G" => times(NANO),
            "T" => times(1_000 * NANO),
            "P" => times(1_000_000 * NANO),
            "E" => times(ATTO),
            "Ki" => times(1 << 10),
            "Mi" => times(1 << 20),
            "Gi" => times(1 << 30),
            "Ti" => times(1 << 40),
            "Pi" => times(1 << 50),
            "Ei" => times(1 << 60),
            _ => {
                let exponent = text.strip_prefix(['e', 'E'])?;
                let (negative, digits) = match exponent.strip_prefix('-') {
                    Some(digits) => (true, digits),
                    None => (false, exponent.strip_prefix('+').unwrap_or(exponent)),
                };
                if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                let power = digits.parse().ok().filter(|power| *power <= EXPONENT_MAX)?;
                let power = 10_i128.pow(power);
                Some(if negative { Self::Divided(power) } else { Self::Times(power) })
            }
        }
    }

    /// The billionths of a number with this unit: of `whole` below 10^19, and of a `fraction` in steps of 10^-18.
    fn steps(&self, whole: i128, fraction: i128) -> Result<i128, NotAQuantity> {
        let (whole, fraction) = match *self {
            Self::Times(times) => {
                let carried = fraction * times;
                (whole * times + carried / ATTO, carried % ATTO)
            }
            Self::Divided(by) => {
                let rest = whole % by;
                // Below 10^18 times 10^18, so that it fits.
                let carried = rest * ATTO + fraction;
                (whole / by, carried / by + i128::from(carried % by != 0))
            }
        };
        let nano = whole.checked_mul(NANO).ok_or(NotAQuantity::TooLarge)?;
        let steps = nano + fraction / NANO + i128::from(fraction % NANO != 0);
        if steps > UNITS_MAX * NANO { Err(NotAQuantity::TooLarge) } else { Ok(steps) }
    }
}

impl fmt::Display for Decimal {
    /// Formats the exact number without a unit: `1.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (steps, nano) = (self.0.unsigned_abs(), NANO.unsigned_abs());
        let sign = if self.0 < 0 { "-" } else { "" };
        match steps % nano {
            0 => write!(f, "{sign}{}", steps / nano),
            fraction => {
                let fraction = format!("{fraction:09}");
                write!(f, "{sign}{}.{}", steps / nano, fraction.trim_end_matches('0'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, number) in [
            ("0", "0"),
            ("3", "3"),
            ("-3", "-3"),
            ("+1.50", "1.5"),
            ("250m", "0.25"),
            ("-250m", "-0.25"),
            ("1n", "0.000000001"),
            ("100u", "0.0001"),
            ("0.1n", "0.000000001"),
            ("-0.1n", "-0.000000001"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1.5Gi", "1610612736"),
            ("16Ki", "16384"),
            ("7Ei", "8070450532247928832"),
            ("9E", "9000000000000000000"),
            ("12E6", "12000000"),
            ("12e-3", "0.012"),
            ("1e+3", "1000"),
            ("0.0000000000000000001", "0.000000001"),
            ("9223372036854775807", "9223372036854775807"),
            ("0000000000000000000000001", "1"),
        ] {
            assert_eq!(
                text.parse::<Decimal>().map(|number| number.to_string()),
                Ok(number.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_that_is_no_quantity_is_refused() {
        for text in [
            "", "-", ".", "m", "1.2.3", "1 Gi", "1gi", "1K", "0x1", "1e99", "1e", "abc", "--1", "1e-+3",
            "\u{661}",
        ] {
            assert_eq!(text.parse::<Decimal>(), Err(NotAQuantity::Syntax), "{text}");
        }
        for text in ["9223372036854775808", "8Ei", "10E", "-10E", "1000000000000000000000"] {
            assert_eq!(text.parse::<Decimal>(), Err(NotAQuantity::TooLarge), "{text}");
        }
    }

    #[test]
    fn a_sum_is_read_as_it_was_written_and_never_wraps() {
        for steps in [0, 1, -1, NANO, -NANO * 7 / 2, i128::from(u64::MAX) * NANO] {
            let sum = Decimal(steps);
            assert_eq!(Decimal::parse_sum(&sum.to_string()), Some(sum));
        }
        for text in ["", "-", "+1", "1e3", "1m", "0.0000000001", "1.2.3", "--1"] {
            assert_eq!(Decimal::parse_sum(text), None, "{text}");
        }
        assert_eq!(Decimal(i128::MAX).checked_add(Decimal(1)), None);
    }
}
