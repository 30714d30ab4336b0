//! Signed statements of how far a log was written, in a separate file of which copies may be kept elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::error::Unspecified;
use serde::{Deserialize, Serialize};

use crate::event::line::micro_time;
use crate::json;
use crate::keys::{PublicKey, SigningKey};

/// The file with the checkpoints, in a log's directory.
pub const CHECKPOINTS_FILE: &str = "checkpoints.jsonl";

/// The file with the public key, beside it.
pub const PUBLIC_KEY_FILE: &str = "audit.pub";

/// Prefix of every signed message, so that no signature is valid for anything but a checkpoint.
const SIGNED_AS: &[u8] = b"tombolo audit checkpoint 1\n";

const SIGNATURE_HEAD: &[u8] = br#","signature":""#;
const SIGNATURE_TAIL: &[u8] = br#""}"#;

/// Longest line of the file.
pub(crate) const CHECKPOINT_BYTES_MAX: usize = 4 * 1024;

/// The extent of a log at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Checkpoint {
    /// The number of this checkpoint in the log, from 1.
    pub(crate) number: u64,
    /// The id of the server that writes the log.
    pub(crate) server: String,
    /// The mark of the chain's key.
    pub(crate) log: String,
    /// The time of signing, as RFC 3339.
    pub(crate) time: String,
    /// The number of the last line.
    pub(crate) sequence: u64,
    /// The MAC of the last line.
    pub(crate) mac: String,
    /// The first line that is still kept.
    pub(crate) oldest: u64,
    /// The file of the last line; `None` for a log on standard output.
    pub(crate) file: Option<Extent>,
    /// The cause of this checkpoint: `lines`, `time`, `rotation`, `retention`, `start` or `stop`.
    pub(crate) why: String,
}

/// The written part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Extent {
    /// The name of the file in the directory.
    pub(crate) name: String,
    /// The number of bytes written to it.
    pub(crate) bytes: u64,
    /// SHA-256 of them, in base64.
    pub(crate) sha256: String,
}

/// The file of checkpoints, open for appending.
pub(crate) struct Checkpoints {
    path: PathBuf,
    file: File,
    key: SigningKey,
    /// The number of the last checkpoint.
    number: u64,
    /// The number of bytes in complete lines.
    bytes: u64,
}

/// A line is not a valid checkpoint of this log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotACheckpoint {
    /// The line has not the form of a checkpoint.
    Form,
    /// The signature is not of this key.
    Signature,
}

impl Checkpoint {
    /// Parses a line without its line break, and verifies its signature if `public` is given.
    pub(crate) fn read(line: &[u8], public: Option<&PublicKey>) -> Result<Self, NotACheckpoint> {
        let rest = line.strip_suffix(SIGNATURE_TAIL).ok_or(NotACheckpoint::Form)?;
        let found = rest.windows(SIGNATURE_HEAD.len()).rposition(|window| window == SIGNATURE_HEAD);
        let (body, signature) = rest.split_at(found.ok_or(NotACheckpoint::Form)?);
        let signature =
            std::str::from_utf8(&signature[SIGNATURE_HEAD.len()..]).map_err(|_| NotACheckpoint::Form)?;
        if public.is_some_and(|public| !public.verifies(&[SIGNED_AS, body].concat(), signature)) {
            return Err(NotACheckpoint::Signature);
        }
        serde_json::from_slice(&[body, b"}"].concat()).map_err(|_| NotACheckpoint::Form)
    }

    fn signed(&self, key: &SigningKey) -> Result<Vec<u8>, Unspecified> {
        let mut line = json::ascii(self).map_err(|_| Unspecified)?;
        line.pop();
        let signature = key.sign(&[SIGNED_AS, &line].concat())?;
        line.extend_from_slice(SIGNATURE_HEAD);
        line.extend_from_slice(signature.as_bytes());
        line.extend_from_slice(SIGNATURE_TAIL);
        line.push(b'\n');
        Ok(line)
    }
}

impl Checkpoints {
    /// Opens the file after checkpoint `number`, which ends at `bytes`.
    pub(crate) fn open(directory: &Path, key: SigningKey, number: u64, bytes: u64) -> io::Result<Self> {
        let path = directory.join(CHECKPOINTS_FILE);
        let file = append(&path)?;
        // A power loss may have left an incomplete line.
        file.set_len(bytes)?;
        Ok(Self { path, file, key, number, bytes })
    }

    /// Numbers and signs a checkpoint, and writes it to the disk.
    pub(crate) fn add(&mut self, mut checkpoint: Checkpoint) -> io::Result<()> {
        checkpoint.number = self.number + 1;
        checkpoint.time = micro_time(std::time::SystemTime::now());
        let line = checkpoint.signed(&self.key).map_err(io::Error::other)?;
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // An incomplete line would damage the next one.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.number = checkpoint.number;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Removes checkpoints of lines before `oldest`, whose files are gone.
    pub(crate) fn forget_before(&mut self, oldest: u64) -> io::Result<()> {
        let text = fs::read(&self.path)?;
        let kept: Vec<u8> = text
            .split_inclusive(|byte| *byte == b'\n')
            .skip_while(|line| {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                Checkpoint::read(line, None).is_ok_and(|checkpoint| checkpoint.sequence < oldest)
            })
            .flatten()
            .copied()
            .collect();
        if kept.len() == text.len() {
            return Ok(());
        }
        let beside = self.path.with_extension("new");
        let _ = fs::remove_file(&beside);
        let mut file = append(&beside)?;
        file.write_all(&kept)?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        self.file = file;
        self.bytes = kept.len() as u64;
        Ok(())
    }
}

/// Opens a file for appending, with mode 0600.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(no_link).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_read_back_and_a_changed_byte_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let key = SigningKey::generate().unwrap();
        let public = key.public().unwrap();
        let mut checkpoints = Checkpoints::open(directory.path(), key, 0, 0).unwrap();
        let checkpoint = Checkpoint {
            number: 0,
            server: "a".into(),
            log: "m".into(),
            time: String::new(),
            sequence: 7,
            mac: "x".into(),
            oldest: 1,
            file: None,
            why: "stop".into(),
        };
        checkpoints.add(checkpoint.clone()).unwrap();
        checkpoints.add(Checkpoint { sequence: 9, ..checkpoint }).unwrap();

        let text = fs::read(directory.path().join(CHECKPOINTS_FILE)).unwrap();
        let line = text.split(|byte| *byte == b'\n').next().unwrap();
        let read = Checkpoint::read(line, Some(&public)).unwrap();
        assert_eq!((read.number, read.sequence), (1, 7));
        for at in 0..line.len() {
            let mut changed = line.to_vec();
            changed[at] ^= 1;
            assert!(Checkpoint::read(&changed, Some(&public)).is_err(), "byte {at}");
        }

        checkpoints.forget_before(9).unwrap();
        let kept = fs::read(directory.path().join(CHECKPOINTS_FILE)).unwrap();
        assert_eq!(Checkpoint::read(kept.strip_suffix(b"\n").unwrap(), Some(&public)).unwrap().number, 2);
    }
}
