//! When a certificate holds, and when the next one is due.

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) begins: u64,
    pub(super) ends: u64,
}

impl Span {
    /// Of the leaf at the head of `chain`.
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let (_, leaf) = X509Certificate::from_der(chain.first()?).ok()?;
        let second = |at: i64| u64::try_from(at).ok();
        let validity = leaf.validity();
        Some(Self {
            begins: second(validity.not_before.timestamp())?,
            ends: second(validity.not_after.timestamp())?,
        })
    }

    /// When the next certificate is to be asked for: between 57 and 67 hundredths of its life, drawn evenly by `random`, so
    /// that agents which were enrolled together do not come back together.
    pub(super) fn due(self, random: u64) -> u64 {
        let life = self.ends.saturating_sub(self.begins) as f64;
        let share = 2.0 / 3.0 - 0.1 * (random as f64 / u64::MAX as f64);
        self.begins.saturating_add((life * share) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_before_two_thirds_of_its_life_are_over_and_not_by_all_at_once() {
        let span = Span { begins: 1_000_000, ends: 1_090_000 };
        assert_eq!((span.due(0), span.due(u64::MAX)), (1_060_000, 1_051_000));
        let dues: Vec<u64> = (0..10).map(|n| span.due(u64::MAX / 10 * n)).collect();
        assert!(dues.windows(2).all(|two| two[0] > two[1]), "{dues:?}");
    }
}
