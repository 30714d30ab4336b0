//! A value that can be compared: a number, or a moment.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

use crate::decimal::{Decimal, NotAQuantity};

/// A number or a moment. Every moment is greater than every number, so that the order is total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scalar {
    /// A number or a quantity, exact to a billionth.
    Number(Decimal),
    /// A moment as RFC 3339 writes it, exact to a nanosecond.
    Time(OffsetDateTime),
}

/// A value that is neither a number nor a moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAScalar {
    /// It is no text and no number.
    #[error("it is {0}, and no number, quantity or time")]
    Kind(&'static str),
    /// The text is no quantity and no time.
    #[error("{0:?} is no number, quantity or time")]
    Text(String),
    /// The quantity is larger than Kubernetes allows.
    #[error("{0}")]
    Quantity(NotAQuantity),
}

/// The longest text that an error repeats, in characters.
const REPEATED_CHARS_MAX: usize = 40;

impl Scalar {
    /// Reads a field of an object.
    ///
    /// # Errors
    ///
    /// [`NotAScalar`]
    pub fn from_value(value: &Value) -> Result<Self, NotAScalar> {
        match value {
            Value::Number(number) => number.to_string().parse(),
            Value::String(text) => text.parse(),
            Value::Null => Err(NotAScalar::Kind("null")),
            Value::Bool(_) => Err(NotAScalar::Kind("a boolean")),
            Value::Array(_) => Err(NotAScalar::Kind("a list")),
            Value::Object(_) => Err(NotAScalar::Kind("an object")),
        }
    }

    /// The number, if it is one. Moments have no sum.
    #[must_use]
    pub fn number(self) -> Option<Decimal> {
        match self {
            Self::Number(number) => Some(number),
            Self::Time(_) => None,
        }
    }
}

impl FromStr for Scalar {
    type Err = NotAScalar;

    fn from_str(text: &str) -> Result<Self, NotAScalar> {
        match text.parse() {
            Ok(number) => Ok(Self::Number(number)),
            Err(NotAQuantity::TooLarge) => Err(NotAScalar::Quantity(NotAQuantity::TooLarge)),
            Err(NotAQuantity::Syntax) => {
                let moment = OffsetDateTime::parse(text, &Rfc3339).ok();
                let moment = moment.and_then(|moment| moment.checked_to_offset(UtcOffset::UTC));
                // RFC 3339 has no other years, so another one could not be written again.
                let moment = moment.filter(|moment| (0..=9999).contains(&moment.year()));
                let repeated = || text.chars().take(REPEATED_CHARS_MAX).collect();
                moment.map(Self::Time).ok_or_else(|| NotAScalar::Text(repeated()))
            }
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Time(moment) => f.write_str(&moment.format(&Rfc3339).map_err(|_| fmt::Error)?),
        }
    }
}

impl TryFrom<String> for Scalar {
    type Error = NotAScalar;

    fn try_from(text: String) -> Result<Self, NotAScalar> {
        text.parse()
    }
}

impl From<Scalar> for String {
    fn from(scalar: Scalar) -> Self {
        scalar.to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_quantities_and_times_are_read_and_written() {
        for (value, text) in [
            (json!(3), "3"),
            (json!(-0.5), "-0.5"),
            (json!(1e20), ""),
            (json!("250m"), "0.25"),
            (json!("2024-02-29T23:59:59Z"), "2024-02-29T23:59:59Z"),
            (json!("2024-03-01T01:00:00.25+02:00"), "2024-02-29T23:00:00.25Z"),
        ] {
            let read = Scalar::from_value(&value).map(|scalar| scalar.to_string()).unwrap_or_default();
            assert_eq!(read, text, "{value}");
        }
    }

    #[test]
    fn everything_else_is_named_in_the_error() {
        for (value, message) in [
            (json!({}), "it is an object, and no number, quantity or time"),
            (json!("2023-02-29T00:00:00Z"), "\"2023-02-29T00:00:00Z\" is no number, quantity or time"),
            (json!("many"), "\"many\" is no number, quantity or time"),
            (json!("10E"), "it is beyond 2^63-1, the largest quantity of Kubernetes"),
        ] {
            assert_eq!(Scalar::from_value(&value).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn moments_are_compared_whatever_their_zone() {
        let moment = |text: &str| text.parse::<Scalar>().unwrap();
        assert!(moment("2024-01-01T00:00:00+02:00") < moment("2024-01-01T00:00:00Z"));
        assert!(moment("9E") < moment("1970-01-01T00:00:00Z"));
    }
}
