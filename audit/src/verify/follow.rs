//! All lines of a log in their order, beside what the checkpoints have seen.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Fault, NotVerified, Signed, Sources, What, cannot_read, is_about};
use crate::chain::Head;
use crate::checkpoint::{Checkpoint, Extent};
use crate::files;
use crate::keys::ChainKey;
use crate::walk::{Follower, Lines, Wrong};

/// What a log holds.
pub(crate) struct Followed {
    pub(crate) follower: Follower,
    /// The last file as far as it has whole lines: how many bytes, and their digest.
    pub(crate) last: Option<(u64, digest::Context)>,
    /// What follows the last whole line.
    pub(crate) torn: Option<Fault>,
    /// Bytes of that.
    pub(crate) torn_bytes: u64,
}

/// Checkpoints of a log that went to a stream, of which no file can be told.
type Streamed<'a> = VecDeque<&'a Checkpoint>;

/// Reads all files.
pub(crate) fn follow(
    sources: &Sources,
    key: Option<&ChainKey>,
    signed: &Signed,
) -> Result<Followed, NotVerified> {
    let mut followed = Followed { follower: Follower::new(key), last: None, torn: None, torn_bytes: 0 };
    let mut streamed: Streamed<'_> = signed.iter().filter(|checkpoint| checkpoint.file.is_none()).collect();
    for path in &sources.files {
        // Only behind the last file's last line may something be that is none.
        if let Some(torn) = followed.torn.take() {
            return Err(torn.into());
        }
        let seen =
            signed.iter().filter(|checkpoint| about(checkpoint).is_some_and(|extent| is_about(extent, path)));
        followed.file(path, seen.collect(), &mut streamed)?;
    }
    if let (Some(checkpoint), Some(path)) = (streamed.pop_front(), sources.files.last()) {
        return Err(cut(path, followed.follower.last(), checkpoint).into());
    }
    if sources.is_whole {
        is_whole(sources, &followed.follower, signed)?;
    }
    Ok(followed)
}

impl Followed {
    fn file(
        &mut self,
        path: &Path,
        mut seen: VecDeque<&Checkpoint>,
        streamed: &mut Streamed<'_>,
    ) -> Result<(), NotVerified> {
        let mut lines = Lines::of(path).map_err(cannot_read(path))?;
        let (mut bytes, mut digest, mut number) = (0, digest::Context::new(&digest::SHA256), 0);
        let named = path.file_name().and_then(|name| name.to_str()).and_then(files::first_of);
        self.follower.file_begins();
        while let Some(line) = lines.next().map_err(cannot_read(path))? {
            number += 1;
            let fault = |what| Fault { file: path.to_owned(), line: Some(number), what };
            let head = match self.follower.line(line) {
                Ok(head) => head,
                Err(Wrong::NotWhole) => {
                    self.torn_bytes = line.bytes.len() as u64;
                    self.torn = Some(fault(Wrong::NotWhole.into()));
                    break;
                }
                Err(wrong) => return Err(fault(wrong.into()).into()),
            };
            if number == 1 && named.is_some_and(|named| named != head.sequence) {
                return Err(fault(What::Name).into());
            }
            while let Some(checkpoint) =
                streamed.pop_front_if(|checkpoint| checkpoint.sequence <= head.sequence)
            {
                let is_here = checkpoint.sequence == head.sequence;
                if is_here && checkpoint.mac != head.code.to_text() {
                    return Err(fault(What::Extent(checkpoint.number)).into());
                }
            }
            digest.update(line.bytes);
            digest.update(b"\n");
            bytes += line.bytes.len() as u64 + 1;
            while let Some(checkpoint) = seen.pop_front_if(|checkpoint| reaches(checkpoint) <= bytes) {
                if !has_seen(checkpoint, bytes, &digest, head) {
                    return Err(fault(What::Extent(checkpoint.number)).into());
                }
            }
        }
        self.last = Some((bytes, digest));
        match seen.pop_front() {
            Some(checkpoint) => Err(cut(path, self.follower.last(), checkpoint).into()),
            None => Ok(()),
        }
    }
}

/// Whether the files are all that the last checkpoint says is kept.
fn is_whole(sources: &Sources, follower: &Follower, signed: &Signed) -> Result<(), NotVerified> {
    let Some(checkpoint) = signed.last() else { return Ok(()) };
    let last_file = sources.files.last().cloned().unwrap_or_else(PathBuf::new);
    let is_missing = |extent: &Extent| {
        files::first_of(&extent.name).is_some_and(|first| first >= checkpoint.oldest)
            && !sources.files.iter().any(|path| is_about(extent, path))
    };
    if let Some((missing, extent)) =
        signed.iter().filter_map(|seen| Some((seen, about(seen)?))).find(|(_, extent)| is_missing(extent))
    {
        let file = PathBuf::from(&extent.name);
        return Err(Fault { file, line: None, what: What::Missing(missing.number) }.into());
    }
    if follower.last().sequence < checkpoint.sequence {
        return Err(cut(&last_file, follower.last(), checkpoint).into());
    }
    let first = follower.first().unwrap_or(0);
    if first > checkpoint.oldest {
        let what = What::Beginning { first, number: checkpoint.number, oldest: checkpoint.oldest };
        let file = sources.files.first().cloned().unwrap_or_default();
        return Err(Fault { file, line: Some(1), what }.into());
    }
    Ok(())
}

fn about(checkpoint: &Checkpoint) -> Option<&Extent> {
    checkpoint.file.as_ref()
}

fn reaches(checkpoint: &Checkpoint) -> u64 {
    about(checkpoint).map_or(0, |extent| extent.bytes)
}

/// Whether a checkpoint was signed with exactly this before it.
fn has_seen(checkpoint: &Checkpoint, bytes: u64, digest: &digest::Context, head: Head) -> bool {
    let sha256 = STANDARD.encode(digest.clone().finish());
    let is_file = about(checkpoint).is_some_and(|extent| extent.bytes == bytes && extent.sha256 == sha256);
    is_file && checkpoint.sequence == head.sequence && checkpoint.mac == head.code.to_text()
}

fn cut(path: &Path, last: Head, checkpoint: &Checkpoint) -> Fault {
    let Checkpoint { number, time, sequence: seen, .. } = checkpoint.clone();
    Fault { file: path.to_owned(), line: None, what: What::Cut { last: last.sequence, number, time, seen } }
}
