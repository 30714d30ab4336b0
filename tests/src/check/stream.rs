//! A stream of bytes whose position can be read off any part of it, so that a loss, a repetition or a swap is
//! located.

use crate::rng::Rng;

/// The distance around a fault within which the position is searched to which the stream has jumped.
const JUMP_BYTES_MAX: u64 = 1024 * 1024;
/// So many bytes in a row are no coincidence.
const PROOF_BYTES: usize = 16;

/// The bytes of a stream, from its first to any.
#[derive(Debug, Clone)]
pub struct Generator {
    seed: u64,
    position: u64,
}

/// Takes a stream back and compares.
#[derive(Debug, Clone)]
pub struct Verifier {
    expected: Generator,
    hash: u64,
    fault: Option<StreamFault>,
    /// The bytes from the fault on, as far as they are needed to classify it.
    behind: Vec<u8>,
}

/// The place at which a stream differs from the one that was sent, and the kind of the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// Bytes are missing from here on.
    #[error("{bytes} bytes are missing at {at}")]
    Lost {
        /// Position of the first missing byte.
        at: u64,
        /// Number of bytes that are missing.
        bytes: u64,
    },
    /// Earlier bytes of the stream come again.
    #[error("at {at} the stream goes back by {bytes} bytes")]
    Repeated {
        /// Position at which the repetition begins.
        at: u64,
        /// Number of bytes by which the stream went back.
        bytes: u64,
    },
    /// Bytes that do not belong to this stream.
    #[error("what stands at {at} was never sent")]
    Foreign {
        /// Position of the first such byte.
        at: u64,
    },
}

impl Generator {
    /// A stream of this seed from its begin.
    pub fn new(seed: u64) -> Self {
        Self { seed, position: 0 }
    }

    /// Returns the next bytes of the stream.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let bytes = (0..count as u64).map(|offset| self.byte(self.position + offset)).collect();
        self.position += count as u64;
        bytes
    }

    /// Number of bytes that were taken so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The byte at any place.
    fn byte(&self, position: u64) -> u8 {
        let word = Rng::new(self.seed ^ (position / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15)).next_u64();
        word.to_le_bytes()[(position % 8) as usize]
    }
}

impl Verifier {
    /// Expects the stream of this seed.
    pub fn new(seed: u64) -> Self {
        // FNV-1a's offset.
        Self { expected: Generator::new(seed), hash: 0xCBF2_9CE4_8422_2325, fault: None, behind: Vec::new() }
    }

    /// Takes the next bytes that arrived.
    pub fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.fault.is_none() && self.expected.byte(self.expected.position) == *byte {
                self.expected.position += 1;
                self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
                continue;
            }
            self.fault.get_or_insert(StreamFault::Foreign { at: self.expected.position });
            if self.behind.len() < PROOF_BYTES {
                self.behind.push(*byte);
            }
        }
    }

    /// Number of bytes that were right without a gap, counted from the first.
    pub fn right_bytes(&self) -> u64 {
        self.expected.position
    }

    /// The rolling hash (FNV-1a) of these, for a comparison with another end's.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The first difference, if there is one.
    pub fn fault(&self) -> Option<StreamFault> {
        let at = self.fault.map(|_| self.expected.position)?;
        let stands_at = |position: u64| {
            let mut there = Generator { position, ..self.expected.clone() };
            self.behind.len() == PROOF_BYTES && there.take(PROOF_BYTES) == self.behind
        };
        let lost = (1..JUMP_BYTES_MAX).find(|bytes| stands_at(at + bytes));
        let repeated = || (1..JUMP_BYTES_MAX.min(at + 1)).find(|bytes| stands_at(at - bytes));
        Some(match (lost, repeated) {
            (Some(bytes), _) => StreamFault::Lost { at, bytes },
            (None, repeated) => {
                repeated().map_or(StreamFault::Foreign { at }, |bytes| StreamFault::Repeated { at, bytes })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_right_however_it_is_cut() {
        let bytes = Generator::new(7).take(1000);
        let mut complete = Verifier::new(7);
        complete.take(&bytes);
        let mut cut = Verifier::new(7);
        for piece in bytes.chunks(13) {
            cut.take(piece);
        }
        assert_eq!((cut.right_bytes(), cut.fault(), cut.hash()), (1000, None, complete.hash()));
    }

    #[test]
    fn a_loss_is_found_and_measured() {
        let bytes = Generator::new(7).take(5000);
        let found = verified(&[&bytes[..100], &bytes[130..]].concat());
        assert_eq!(found, Some(StreamFault::Lost { at: 100, bytes: 30 }));
    }

    #[test]
    fn a_repetition_is_found_and_measured() {
        let bytes = Generator::new(7).take(5000);
        let found = verified(&[&bytes[..100], &bytes[60..]].concat());
        assert_eq!(found, Some(StreamFault::Repeated { at: 100, bytes: 40 }));
    }

    #[test]
    fn a_single_flipped_bit_is_found() {
        let mut bytes = Generator::new(7).take(5000);
        bytes[4000] ^= 1;
        assert_eq!(verified(&bytes), Some(StreamFault::Foreign { at: 4000 }));
    }

    #[test]
    fn the_bytes_of_another_stream_are_foreign() {
        assert!(matches!(verified(&Generator::new(8).take(100)), Some(StreamFault::Foreign { .. })));
    }

    #[test]
    fn streams_of_the_same_bytes_have_the_same_hash_and_others_another() {
        let hash = |seed| {
            let mut verifier = Verifier::new(seed);
            verifier.take(&Generator::new(seed).take(64));
            verifier.hash()
        };
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }

    fn verified(bytes: &[u8]) -> Option<StreamFault> {
        let mut verifier = Verifier::new(7);
        verifier.take(bytes);
        verifier.fault()
    }
}
