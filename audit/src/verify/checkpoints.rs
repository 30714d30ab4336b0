//! The checkpoints of a log, read and held against each other.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::{Fault, NotVerified, What, Wrong, cannot_read};
use crate::checkpoint::{CHECKPOINT_BYTES_MAX, Checkpoint};
use crate::keys::{ChainKey, PublicKey};

/// Checkpoints in their order, each with a signature that holds.
#[derive(Debug, Default)]
pub(crate) struct Signed {
    all: Vec<Checkpoint>,
    /// Bytes of the whole lines.
    pub(crate) bytes: u64,
    /// What follows the last whole line.
    pub(crate) torn: Option<Fault>,
}

impl Signed {
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

/// Reads checkpoints up to the last whole line.
pub(crate) fn read(
    path: &Path,
    public: Option<&PublicKey>,
    chain: Option<&ChainKey>,
) -> Result<Signed, NotVerified> {
    let mut reader = BufReader::new(File::open(path).map_err(cannot_read(path))?);
    let mut signed = Signed::default();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let most = CHECKPOINT_BYTES_MAX as u64;
        reader.by_ref().take(most).read_until(b'\n', &mut bytes).map_err(cannot_read(path))?;
        let fault = |what| Fault { file: path.to_owned(), line: Some(line), what };
        let Some(whole) = bytes.strip_suffix(b"\n") else {
            signed.torn = (!bytes.is_empty()).then(|| fault(Wrong::NotWhole.into()));
            break;
        };
        let checkpoint = Checkpoint::read(whole, public).map_err(|error| fault(error.into()))?;
        if let Some(chain) = chain
            && chain.mark() != checkpoint.log
        {
            return Err(fault(What::OtherLog(checkpoint.log)).into());
        }
        if let Some(before) = signed.all.last() {
            goes_on(before, &checkpoint).map_err(fault)?;
        }
        signed.all.push(checkpoint);
        signed.bytes += bytes.len() as u64;
    }
    Ok(signed)
}

fn goes_on(before: &Checkpoint, next: &Checkpoint) -> Result<(), What> {
    let expected = before.number + 1;
    if next.number != expected {
        return Err(What::Number { expected, found: next.number });
    }
    if next.log != before.log {
        return Err(What::OtherLog(next.log.clone()));
    }
    if next.sequence < before.sequence || next.oldest < before.oldest {
        return Err(What::Backwards);
    }
    Ok(())
}
