//! Verifies that nobody has changed a log since it was written.

mod checkpoints;
mod fault;
mod replay;
mod sources;

use crate::keys::{ChainKey, PublicKey};
pub use crate::reader::LineFault;
pub use fault::{Fault, FaultKind, VerifyError};
pub use sources::Sources;

pub(crate) use checkpoints::{SignedCheckpoints, read};
pub(crate) use replay::{Replay, replay};

/// The keys to verify a log with; at least one of them.
#[derive(Debug, Clone, Default)]
pub struct VerifyKeys {
    /// The chain key, which verifies every line.
    pub chain: Option<ChainKey>,
    /// The public key, which verifies the checkpoints, and by them every line up to the last one.
    pub public: Option<PublicKey>,
}

/// The result of a verification that found no fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The number of files read.
    pub files: usize,
    /// The number of lines read.
    pub lines: u64,
    /// The first line's number; 0 where there is none.
    pub first: u64,
    /// The number of the last line.
    pub last: u64,
    /// The number of checkpoints read.
    pub checkpoints: usize,
    /// The last line that a checkpoint covers; 0 without a checkpoint.
    pub covered_up_to: u64,
    /// True if the signatures of the checkpoints were verified.
    pub is_signature_verified: bool,
    /// True if the MAC of each line was verified.
    pub is_chain_verified: bool,
    /// Exchanges that have begun and not ended.
    pub open: usize,
}

/// Reads all of `sources`, and verifies them with `keys`.
///
/// # Errors
/// [`VerifyError`], with the first fault that was found.
pub fn verify(sources: &Sources, keys: &VerifyKeys) -> Result<Report, VerifyError> {
    if keys.chain.is_none() && keys.public.is_none() {
        return Err(VerifyError::NoKey);
    }
    // Checkpoints are read first: a running server writes lines before it signs them.
    // Without the public key they are compared all the same: a log that ends before them was cut.
    let mut signed = match &sources.checkpoints {
        Some(path) => read(path, keys.public.as_ref(), keys.chain.as_ref())?,
        None => SignedCheckpoints::default(),
    };
    if let Some(torn) = signed.torn.take() {
        return Err(torn.into());
    }
    // A log on a stream leaves checkpoints here, and no files.
    if sources.files.is_empty() && signed.last().is_none_or(|checkpoint| checkpoint.file.is_none()) {
        return Err(VerifyError::NoFiles);
    }
    let replayed = replay(sources, keys.chain.as_ref(), &signed)?;
    if let Some(torn) = replayed.torn {
        return Err(torn.into());
    }
    let reader = &replayed.reader;
    let (first, last) = (reader.first().unwrap_or(0), reader.last().sequence);
    Ok(Report {
        files: sources.files.len(),
        lines: if first == 0 { 0 } else { last + 1 - first },
        first,
        last,
        checkpoints: signed.len(),
        covered_up_to: signed.last().map_or(0, |checkpoint| checkpoint.sequence),
        is_signature_verified: keys.public.is_some(),
        is_chain_verified: keys.chain.is_some(),
        open: reader.open().len(),
    })
}

#[cfg(test)]
mod tests;
