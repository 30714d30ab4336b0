//! Reads all lines of a log in order, and compares them with its checkpoints.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::checkpoints::SignedCheckpoints;
use super::fault::{Fault, FaultKind, VerifyError, cannot_read};
use super::sources::Sources;
use crate::chain::Head;
use crate::checkpoint::{Checkpoint, Extent};
use crate::files;
use crate::keys::ChainKey;
use crate::reader::{ChainReader, LineFault, LogLines};

/// The state of a log after its last line.
pub(crate) struct Replay {
    pub(crate) reader: ChainReader,
    /// The complete lines of the last file: their number of bytes, and their digest.
    pub(crate) last: Option<(u64, digest::Context)>,
    /// The fault of an incomplete last line.
    pub(crate) torn: Option<Fault>,
    /// The number of bytes in the incomplete last line.
    pub(crate) torn_bytes: u64,
}

/// Checkpoints of a log on a stream, which name no file.
type Streamed<'a> = VecDeque<&'a Checkpoint>;

/// Reads all files of `sources` in order.
pub(crate) fn replay(
    sources: &Sources,
    key: Option<&ChainKey>,
    signed: &SignedCheckpoints,
) -> Result<Replay, VerifyError> {
    let mut replay = Replay { reader: ChainReader::new(key), last: None, torn: None, torn_bytes: 0 };
    let mut streamed: Streamed<'_> = signed.iter().filter(|checkpoint| checkpoint.file.is_none()).collect();
    for path in &sources.files {
        // Only the last file may end with an incomplete line.
        if let Some(torn) = replay.torn.take() {
            return Err(torn.into());
        }
        let seen = signed
            .iter()
            .filter(|checkpoint| file_of(checkpoint).is_some_and(|extent| describes(extent, path)));
        replay.read_file(path, seen.collect(), &mut streamed)?;
    }
    if let (Some(checkpoint), Some(path)) = (streamed.pop_front(), sources.files.last()) {
        return Err(cut_off(path, replay.reader.last(), checkpoint).into());
    }
    if sources.is_complete {
        check_complete(sources, &replay.reader, signed)?;
    }
    Ok(replay)
}

impl Replay {
    fn read_file(
        &mut self,
        path: &Path,
        mut seen: VecDeque<&Checkpoint>,
        streamed: &mut Streamed<'_>,
    ) -> Result<(), VerifyError> {
        let mut lines = LogLines::open(path).map_err(cannot_read(path))?;
        let (mut bytes, mut digest, mut number) = (0, digest::Context::new(&digest::SHA256), 0);
        let named = path.file_name().and_then(|name| name.to_str()).and_then(files::first_of);
        self.reader.file_begins();
        while let Some(line) = lines.next().map_err(cannot_read(path))? {
            number += 1;
            let fault = |kind| Fault { file: path.to_owned(), line: Some(number), kind };
            let head = match self.reader.line(line) {
                Ok(head) => head,
                Err(LineFault::Incomplete) => {
                    self.torn_bytes = line.bytes.len() as u64;
                    self.torn = Some(fault(LineFault::Incomplete.into()));
                    break;
                }
                Err(wrong) => return Err(fault(wrong.into()).into()),
            };
            if number == 1 && named.is_some_and(|named| named != head.sequence) {
                return Err(fault(FaultKind::Name).into());
            }
            while let Some(checkpoint) =
                streamed.pop_front_if(|checkpoint| checkpoint.sequence <= head.sequence)
            {
                let is_here = checkpoint.sequence == head.sequence;
                if is_here && checkpoint.mac != head.mac.to_text() {
                    return Err(fault(FaultKind::Extent(checkpoint.number)).into());
                }
            }
            digest.update(line.bytes);
            digest.update(b"\n");
            bytes += line.bytes.len() as u64 + 1;
            while let Some(checkpoint) = seen.pop_front_if(|checkpoint| bytes_covered(checkpoint) <= bytes) {
                if !matches_position(checkpoint, bytes, &digest, head) {
                    return Err(fault(FaultKind::Extent(checkpoint.number)).into());
                }
            }
        }
        self.last = Some((bytes, digest));
        match seen.pop_front() {
            Some(checkpoint) => Err(cut_off(path, self.reader.last(), checkpoint).into()),
            None => Ok(()),
        }
    }
}

/// Checks that every file is there that the last checkpoint says is kept.
fn check_complete(
    sources: &Sources,
    reader: &ChainReader,
    signed: &SignedCheckpoints,
) -> Result<(), VerifyError> {
    let Some(checkpoint) = signed.last() else { return Ok(()) };
    if sources.files.is_empty() && checkpoint.file.is_none() {
        // The lines of a log on a stream are elsewhere.
        return Ok(());
    }
    let last_file = sources.files.last().cloned().unwrap_or_else(PathBuf::new);
    let is_missing = |extent: &Extent| {
        files::first_of(&extent.name).is_some_and(|first| first >= checkpoint.oldest)
            && !sources.files.iter().any(|path| describes(extent, path))
    };
    if let Some((missing, extent)) =
        signed.iter().filter_map(|seen| Some((seen, file_of(seen)?))).find(|(_, extent)| is_missing(extent))
    {
        let file = PathBuf::from(&extent.name);
        return Err(Fault { file, line: None, kind: FaultKind::Missing(missing.number) }.into());
    }
    if reader.last().sequence < checkpoint.sequence {
        return Err(cut_off(&last_file, reader.last(), checkpoint).into());
    }
    let first = reader.first().unwrap_or(0);
    if first > checkpoint.oldest {
        let kind = FaultKind::Beginning { first, number: checkpoint.number, oldest: checkpoint.oldest };
        let file = sources.files.first().cloned().unwrap_or_default();
        return Err(Fault { file, line: Some(1), kind }.into());
    }
    Ok(())
}

fn file_of(checkpoint: &Checkpoint) -> Option<&Extent> {
    checkpoint.file.as_ref()
}

fn bytes_covered(checkpoint: &Checkpoint) -> u64 {
    file_of(checkpoint).map_or(0, |extent| extent.bytes)
}

/// Returns true if a checkpoint covers exactly these bytes, up to this line.
fn matches_position(checkpoint: &Checkpoint, bytes: u64, digest: &digest::Context, head: Head) -> bool {
    let sha256 = STANDARD.encode(digest.clone().finish());
    let is_file = file_of(checkpoint).is_some_and(|extent| extent.bytes == bytes && extent.sha256 == sha256);
    is_file && checkpoint.sequence == head.sequence && checkpoint.mac == head.mac.to_text()
}

fn cut_off(path: &Path, last: Head, checkpoint: &Checkpoint) -> Fault {
    let Checkpoint { number, time, sequence: seen, .. } = checkpoint.clone();
    Fault {
        file: path.to_owned(),
        line: None,
        kind: FaultKind::CutOff { last: last.sequence, number, time, seen },
    }
}

/// Returns true if `extent` describes the file at `path`.
fn describes(extent: &Extent, path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == extent.name.as_str())
}
