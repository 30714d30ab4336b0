//! The validity period of a certificate, and the time at which its successor is due.

use rustls_pki_types::CertificateDer;

/// The validity period, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) begins: u64,
    pub(super) ends: u64,
}

impl Validity {
    /// The validity of the leaf at the begin of `chain`.
    pub(super) fn from_chain(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let (begins, ends) = trust::validity(chain.first()?)?;
        Some(Self { begins, ends })
    }

    /// The time at which to request the next certificate: between 57 % and 67 % of its life, chosen by
    /// `random`, so that agents that were enrolled together do not renew together.
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
    fn agents_renew_before_two_thirds_of_a_life_and_not_all_at_once() {
        let validity = Validity { begins: 1_000_000, ends: 1_090_000 };
        assert_eq!((validity.due(0), validity.due(u64::MAX)), (1_060_000, 1_051_000));
        let dues: Vec<u64> = (0..10).map(|n| validity.due(u64::MAX / 10 * n)).collect();
        assert!(dues.windows(2).all(|two| two[0] > two[1]), "{dues:?}");
    }
}
