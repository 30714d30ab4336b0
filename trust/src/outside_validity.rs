//! A certificate that is not valid now, which may be the fault of this machine's clock.

use std::fmt;
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

/// A certificate is outside of its validity, by this machine's clock. The texts follow the name of the
/// certificate: "the agent's certificate expired 3 days ago…".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutsideValidity {
    /// It begins so much later. A CA issues no certificate for the future, so the clock is wrong.
    #[error(
        "becomes valid in {span}, so this machine's clock is behind by that much at least: set it, for example by NTP",
        span = Span(*.0)
    )]
    NotYet(Duration),
    /// It ended so long ago, or the clock is wrong.
    #[error(
        "expired {span} ago, unless this machine's clock is ahead by that much: check the clock, or have a new \
         certificate issued",
        span = Span(*.0)
    )]
    Expired(Duration),
}

impl OutsideValidity {
    /// The distance of a certificate from its validity at `now`; `None` while it is valid, or if it cannot be
    /// parsed.
    #[must_use]
    pub fn of_certificate(certificate: &CertificateDer<'_>, now: SystemTime) -> Option<Self> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (begins, ends) = validity(certificate)?;
        Self::at(now, begins, ends)
    }

    /// Compares `now` with a validity period, all in seconds since 1970. Both ends belong to the period.
    #[must_use]
    pub fn at(now: u64, begins: u64, ends: u64) -> Option<Self> {
        let span =
            |from: u64, to: u64| Some(Duration::from_secs(to.checked_sub(from)?)).filter(|it| !it.is_zero());
        span(ends, now).map(Self::Expired).or_else(|| span(now, begins).map(Self::NotYet))
    }
}

/// The first and the last second of a certificate's validity, since 1970; `None` if it cannot be parsed.
#[must_use]
pub fn validity(certificate: &CertificateDer<'_>) -> Option<(u64, u64)> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let second = |at: ASN1Time| u64::try_from(at.timestamp()).ok();
    Some((second(certificate.validity().not_before)?, second(certificate.validity().not_after)?))
}

/// A duration in the largest unit of which it has two.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let units = [(86_400, "days"), (3_600, "hours"), (60, "minutes")];
        match units.into_iter().find(|(unit, _)| seconds >= 2 * unit) {
            Some((unit, name)) => write!(f, "{} {name}", seconds / unit),
            None => write!(f, "{seconds} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600;

    #[test]
    fn a_certificate_is_valid_to_its_last_second_and_not_beyond() {
        let (begins, ends) = (1_000_000, 1_086_400);
        for (now, outside) in [
            (begins, None),
            (ends, None),
            (ends + 1, Some(OutsideValidity::Expired(Duration::from_secs(1)))),
            (begins - 1, Some(OutsideValidity::NotYet(Duration::from_secs(1)))),
            (0, Some(OutsideValidity::NotYet(Duration::from_secs(begins)))),
            (u64::MAX, Some(OutsideValidity::Expired(Duration::from_secs(u64::MAX - ends)))),
        ] {
            assert_eq!(OutsideValidity::at(now, begins, ends), outside, "{now}");
        }
    }

    #[test]
    fn the_side_and_the_size_of_a_wrong_clock_are_named() {
        let behind = OutsideValidity::at(0, 20_000 * 24 * HOUR, 20_001 * 24 * HOUR).unwrap().to_string();
        let ahead = OutsideValidity::at(100 * HOUR, 0, 97 * HOUR).unwrap().to_string();

        assert!(behind.contains("clock is behind by") && behind.contains("in 20000 days"), "{behind}");
        assert!(ahead.contains("clock is ahead by") && ahead.contains("expired 3 hours ago"), "{ahead}");
    }

    #[test]
    fn a_span_has_at_least_two_of_its_unit() {
        for (seconds, text) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 minutes"),
            (2 * HOUR, "2 hours"),
            (47 * HOUR, "47 hours"),
            (48 * HOUR, "2 days"),
        ] {
            assert_eq!(Span(Duration::from_secs(seconds)).to_string(), text);
        }
    }
}
