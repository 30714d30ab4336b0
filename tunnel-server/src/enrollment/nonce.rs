//! The nonce that a pod signs, so that an older signature proves nothing.

use std::sync::{Mutex, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use trust::proof::NONCE_BYTES;

/// The nonce of one connection. There is one at a time, it is good for one request, and it ends with its
/// connection, so that nobody can fill a table of them.
#[derive(Debug, Default)]
pub(super) struct Nonce(Mutex<Option<[u8; NONCE_BYTES]>>);

impl Nonce {
    /// A new nonce in place of the last one; `None` if the system has no random bytes.
    pub(super) fn fresh(&self) -> Option<[u8; NONCE_BYTES]> {
        let mut nonce = [0; NONCE_BYTES];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(nonce);
        Some(nonce)
    }

    /// The current nonce, if it equals `shown`. The nonce is used up in either case.
    pub(super) fn take(&self, shown: &[u8]) -> Option<[u8; NONCE_BYTES]> {
        let given = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        verify_slices_are_equal(&given, shown).ok().map(|()| given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_good_for_one_request_on_its_own_connection() {
        let (nonce, elsewhere) = (Nonce::default(), Nonce::default());
        assert_eq!(nonce.take(&[]), None, "none was given out");
        let given = nonce.fresh().unwrap();
        elsewhere.fresh().unwrap();

        assert_eq!(elsewhere.take(&given), None);
        assert_eq!(nonce.take(&given), Some(given));
        assert_eq!(nonce.take(&given), None, "it was used");
        let (replaced, given) = (nonce.fresh().unwrap(), nonce.fresh().unwrap());
        assert_eq!(nonce.take(&replaced), None);
        assert_eq!(nonce.take(&given), None, "a wrong guess has used it up");
    }
}
