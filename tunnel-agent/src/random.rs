//! Random numbers for jitter, which need no secrecy.

/// An evenly distributed number. 0 where the generator fails, which costs only the jitter.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
