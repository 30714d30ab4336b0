//! Parses and formats lengths of time, shares, rates and sizes.

use std::time::Duration;

/// The reason why a value cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text is no length of time.
    #[error("{0:?} is no length of time; write 250us, 40ms, 3s, 5m or 1h")]
    Time(String),
    /// The text is no share.
    #[error("{0:?} is no share; write 5% or 0.1%, at most 100%")]
    Share(String),
    /// The text is no rate.
    #[error("{0:?} is no rate; write 64kbit, 50mbit or 1gbit")]
    Rate(String),
    /// The text is no size.
    #[error("{0:?} is no size; write 1500, 256KiB or 4MiB")]
    Size(String),
}

/// Longest time that is accepted, 30 days: longer than any trial, and sums of such times stay far from
/// overflow.
pub const TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// A length of time, at most [`TIME_MAX`].
///
/// # Errors
/// [`UnitError::Time`].
pub fn time(text: &str) -> Result<Duration, UnitError> {
    let seconds = scaled(text, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]);
    let seconds = seconds.filter(|seconds| *seconds <= TIME_MAX.as_secs_f64());
    seconds.map(Duration::from_secs_f64).ok_or_else(|| UnitError::Time(text.to_owned()))
}

/// A share from zero to one, written in per cent.
///
/// # Errors
/// [`UnitError::Share`].
pub fn share(text: &str) -> Result<f64, UnitError> {
    let share = scaled(text, &[("%", 0.01)]).filter(|share| *share <= 1.0);
    share.ok_or_else(|| UnitError::Share(text.to_owned()))
}

/// Bits a second, more than zero.
///
/// # Errors
/// [`UnitError::Rate`].
pub fn rate(text: &str) -> Result<u64, UnitError> {
    let rate = scaled(text, &[("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)]);
    let rate = rate.filter(|rate| (1.0..=1e12).contains(rate));
    rate.map(|rate| rate as u64).ok_or_else(|| UnitError::Rate(text.to_owned()))
}

/// Parses a size in bytes, at most 1 GB.
///
/// # Errors
/// [`UnitError::Size`].
pub fn size(text: &str) -> Result<usize, UnitError> {
    let size = scaled(text, &[("KiB", 1024.0), ("MiB", 1024.0 * 1024.0), ("", 1.0)]);
    let size = size.filter(|size| *size <= 1e9);
    size.map(|size| size as usize).ok_or_else(|| UnitError::Size(text.to_owned()))
}

/// `40ms`, as [`time`] reads it.
pub fn format_time(time: Duration) -> String {
    match time.as_micros() {
        0 => "0s".to_owned(),
        micros if micros % 1_000_000 == 0 => format!("{}s", micros / 1_000_000),
        micros if micros % 1000 == 0 => format!("{}ms", micros / 1000),
        micros => format!("{micros}us"),
    }
}

/// `5%`, as [`share`] reads it.
pub fn format_share(share: f64) -> String {
    // Rounded where binary fractions would show.
    let text = format!("{:.6}", share * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// `50mbit`, as [`rate`] reads it.
pub fn format_rate(rate: u64) -> String {
    match rate {
        rate if rate % 1_000_000 == 0 => format!("{}mbit", rate / 1_000_000),
        rate if rate % 1000 == 0 => format!("{}kbit", rate / 1000),
        rate => format!("{rate}bit"),
    }
}

// The first unit that fits wins, so that `ms` stands before `s`, and `mbit` before `bit`.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let number = |unit: &(&str, f64)| {
        let digits = text.strip_suffix(unit.0)?;
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        Some(digits.parse::<f64>().ok().filter(|_| plain)? * unit.1)
    };
    units.iter().find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_and_formatted_back() {
        for text in ["250us", "40ms", "3s", "0s"] {
            assert_eq!(format_time(time(text).unwrap()), text);
        }
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        for text in ["5%", "0.1%", "100%", "0%", "33.3%"] {
            assert_eq!(format_share(share(text).unwrap()), text);
        }
        for text in ["64kbit", "50mbit", "1500bit"] {
            assert_eq!(format_rate(rate(text).unwrap()), text);
        }
        assert_eq!(rate("1gbit"), Ok(1_000_000_000));
        assert_eq!((size("1500"), size("256KiB")), (Ok(1500), Ok(256 * 1024)));
    }

    #[test]
    fn a_value_without_a_unit_or_bound_is_refused() {
        for text in ["", "40", "ms", "-1s", "1e9s", "infs", "nan%s", "800h", "1 s"] {
            assert_eq!(time(text), Err(UnitError::Time(text.to_owned())));
        }
        for text in ["5", "101%", "%", "-1%"] {
            assert_eq!(share(text), Err(UnitError::Share(text.to_owned())));
        }
        for text in ["0bit", "50", "50Mbps"] {
            assert_eq!(rate(text), Err(UnitError::Rate(text.to_owned())));
        }
        assert!(size("1GB").is_err() && size("").is_err());
    }
}
