//! Reads the checkpoints of a log, and compares each with the one before it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::fault::{Fault, FaultKind, VerifyError, cannot_read};
use crate::checkpoint::{CHECKPOINT_BYTES_MAX, Checkpoint};
use crate::keys::{ChainKey, PublicKey};
use crate::reader::LineFault;

/// All checkpoints in order, each with a valid signature.
#[derive(Debug, Default)]
pub(crate) struct SignedCheckpoints {
    all: Vec<Checkpoint>,
    /// Bytes of the complete lines.
    pub(crate) bytes: u64,
    /// The fault of an incomplete last line.
    pub(crate) torn: Option<Fault>,
}

impl SignedCheckpoints {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn last(&self) -> Option<&Checkpoint> {
        self.all.last()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Checkpoint> {
        self.all.iter()
    }
}

/// Reads checkpoints up to the last complete line.
pub(crate) fn read(
    path: &Path,
    public: Option<&PublicKey>,
    chain: Option<&ChainKey>,
) -> Result<SignedCheckpoints, VerifyError> {
    let mut reader = BufReader::new(File::open(path).map_err(cannot_read(path))?);
    let mut signed = SignedCheckpoints::default();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let most = CHECKPOINT_BYTES_MAX as u64;
        reader.by_ref().take(most).read_until(b'\n', &mut bytes).map_err(cannot_read(path))?;
        let fault = |kind| Fault { file: path.to_owned(), line: Some(line), kind };
        let Some(complete) = bytes.strip_suffix(b"\n") else {
            signed.torn = (!bytes.is_empty()).then(|| fault(LineFault::Incomplete.into()));
            break;
        };
        let checkpoint = Checkpoint::read(complete, public).map_err(|error| fault(error.into()))?;
        if let Some(chain) = chain
            && chain.mark() != checkpoint.log
        {
            return Err(fault(FaultKind::OtherLog(checkpoint.log)).into());
        }
        if let Some(before) = signed.all.last() {
            check_succession(before, &checkpoint).map_err(fault)?;
        }
        signed.all.push(checkpoint);
        signed.bytes += bytes.len() as u64;
    }
    Ok(signed)
}

fn check_succession(before: &Checkpoint, next: &Checkpoint) -> Result<(), FaultKind> {
    let expected = before.number + 1;
    if next.number != expected {
        return Err(FaultKind::Number { expected, found: next.number });
    }
    if next.log != before.log {
        return Err(FaultKind::OtherLog(next.log.clone()));
    }
    if next.sequence < before.sequence || next.oldest < before.oldest {
        return Err(FaultKind::Backwards);
    }
    Ok(())
}
