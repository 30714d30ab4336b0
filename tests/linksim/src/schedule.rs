//! The schedule of a link: the times at which it is dark, and the notation for them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::units::{self, UnitError, format_time};

/// One of the two directions of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From side A to side B.
    AToB,
    /// From side B to side A.
    BToA,
}

/// Both directions, in the order of reports.
pub const DIRECTIONS: [Direction; 2] = [Direction::AToB, Direction::BToA];

/// A period in which nothing passes, in one direction or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dark {
    /// The beginning, counted from the link's start.
    pub begin: Duration,
    /// The time for which it lasts.
    pub length: Duration,
    /// The direction that is dark; both, if `None`.
    pub direction: Option<Direction>,
}

/// The reason why a text is no [`Dark`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A text of the wrong shape.
    #[error("{0:?} is no dark time; write START+LENGTH, as in 10s+30s, and :a-to-b or :b-to-a for one way")]
    Shape(String),
    /// A time that cannot be read.
    #[error(transparent)]
    Unit(#[from] UnitError),
}

impl Direction {
    /// The direction's name: `a-to-b` or `b-to-a`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AToB => "a-to-b",
            Self::BToA => "b-to-a",
        }
    }

    /// The direction of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        DIRECTIONS.into_iter().find(|direction| direction.name() == name)
    }
}

impl Dark {
    /// Returns true if the darkness applies to this direction.
    pub fn applies_to(&self, direction: Direction) -> bool {
        self.direction.is_none_or(|only| only == direction)
    }

    /// Returns true if the link is dark at this time.
    pub fn is_at(&self, now: Duration) -> bool {
        (self.begin..self.end()).contains(&now)
    }

    /// The time at which the link is open again.
    pub fn end(&self) -> Duration {
        self.begin + self.length
    }
}

impl FromStr for Dark {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shape = || ScheduleError::Shape(text.to_owned());
        let (times, direction) = match text.split_once(':') {
            Some((times, name)) => (times, Some(Direction::from_name(name).ok_or_else(shape)?)),
            None => (text, None),
        };
        let (begin, length) = times.split_once('+').ok_or_else(shape)?;
        Ok(Self { begin: units::time(begin)?, length: units::time(length)?, direction })
    }
}

impl fmt::Display for Dark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}+{}", format_time(self.begin), format_time(self.length))?;
        self.direction.map_or(Ok(()), |direction| write!(formatter, ":{}", direction.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dark_time_is_read_written_and_kept() {
        for text in ["10s+30s", "0s+500ms:a-to-b", "1s+1s:b-to-a"] {
            assert_eq!(text.parse::<Dark>().unwrap().to_string(), text);
        }
        let dark: Dark = "10s+30s:a-to-b".parse().unwrap();
        assert!(dark.applies_to(Direction::AToB) && !dark.applies_to(Direction::BToA));
        let at = |seconds| dark.is_at(Duration::from_secs(seconds));
        assert_eq!([9, 10, 39, 40].map(at), [false, true, true, false]);
    }

    #[test]
    fn a_text_that_is_no_dark_time_is_refused() {
        for text in ["", "10s", "10s+", "10s+3s:up", "+3s"] {
            assert!(text.parse::<Dark>().is_err(), "{text:?}");
        }
    }
}
