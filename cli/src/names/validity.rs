//! Durations on the command line, such as `90m`, `24h` and `30d`.

use std::fmt;
use std::str::FromStr;

use time::Duration;

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// Longest duration, which keeps date arithmetic from overflowing. Each kind of certificate has a lower maximum.
const DAYS_MAX: i64 = 100 * 365;

/// A duration of whole minutes, hours or days, at least one minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Validity {
    seconds: i64,
}

#[derive(Debug, thiserror::Error)]
#[error("use a whole number with m, h or d, from 1m to {max}d: 90m, 24h, 30d", max = DAYS_MAX)]
pub(crate) struct NotAValidity;

impl Validity {
    pub(crate) const fn days(days: i64) -> Self {
        Self { seconds: days * SECONDS_PER_DAY }
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::seconds(self.seconds)
    }
}

impl FromStr for Validity {
    type Err = NotAValidity;

    fn from_str(text: &str) -> Result<Self, NotAValidity> {
        let unit = match text.chars().last() {
            Some('m') => 60,
            Some('h') => 60 * 60,
            Some('d') => SECONDS_PER_DAY,
            Some(_) | None => return Err(NotAValidity),
        };
        let digits = &text[..text.len() - 1];
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NotAValidity);
        }
        let seconds =
            digits.parse::<i64>().ok().and_then(|count| count.checked_mul(unit)).ok_or(NotAValidity)?;
        if (1..=DAYS_MAX * SECONDS_PER_DAY).contains(&seconds) {
            Ok(Self { seconds })
        } else {
            Err(NotAValidity)
        }
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds {
            seconds if seconds % SECONDS_PER_DAY == 0 => write!(f, "{}d", seconds / SECONDS_PER_DAY),
            seconds if seconds % 3600 == 0 => write!(f, "{}h", seconds / 3600),
            seconds => write!(f, "{}m", seconds / 60),
        }
    }
}
