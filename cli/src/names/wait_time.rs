//! Waits on the command line, such as `90s`, `2m` and `1m30s`, in the syntax of kubectl's durations.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest wait, which is one day.
const SECONDS_MAX: u64 = 24 * 60 * 60;

/// A time to wait, 1 second to 1 day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitTime {
    seconds: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("use whole numbers with s, m or h, from 1s to 24h: 90s, 15m, 1h30m. A plain number is in seconds")]
pub(crate) struct NotAWaitTime;

impl WaitTime {
    pub(crate) fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl FromStr for WaitTime {
    type Err = NotAWaitTime;

    fn from_str(text: &str) -> Result<Self, NotAWaitTime> {
        let seconds = total(text).ok_or(NotAWaitTime)?;
        if (1..=SECONDS_MAX).contains(&seconds) { Ok(Self { seconds }) } else { Err(NotAWaitTime) }
    }
}

/// The sum of the parts, in seconds. `None` if a part is no number with a unit, or the sum is too large.
fn total(text: &str) -> Option<u64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let (mut rest, mut total) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: u64 = rest.get(..digits)?.parse().ok()?;
        let seconds = match rest.as_bytes().get(digits)? {
            b's' => 1,
            b'm' => 60,
            b'h' => 60 * 60,
            _ => return None,
        };
        total = total.checked_add(count.checked_mul(seconds)?)?;
        rest = rest.get(digits + 1..)?;
    }
    Some(total)
}

impl fmt::Display for WaitTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (minutes, seconds) = (self.seconds / 60, self.seconds % 60);
        match (minutes, seconds) {
            (0, seconds) => write!(f, "{seconds}s"),
            (minutes, 0) => write!(f, "{minutes}m"),
            (minutes, seconds) => write!(f, "{minutes}m{seconds}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_durations_as_of_kubectl_or_plain_seconds() {
        for (text, seconds) in [
            ("10s", 10),
            ("2m", 120),
            ("1h", 3600),
            ("1m30s", 90),
            ("45", 45),
            ("1h0m5s", 3605),
            ("24h", 86_400),
        ] {
            let parsed: WaitTime = text.parse().unwrap();
            assert_eq!(parsed.duration(), Duration::from_secs(seconds), "{text}");
            assert_eq!(parsed.to_string().parse::<WaitTime>().unwrap(), parsed, "{text}");
        }
        for text in [
            "",
            "0",
            "0s",
            "s",
            "10x",
            "1d",
            "25h",
            "1.5h",
            "-1s",
            "10 s",
            "1m30",
            "ä",
            "99999999999999999999s",
        ] {
            assert!(text.parse::<WaitTime>().is_err(), "{text}");
        }
    }
}
