//! Recovers the state of the last run: the chain's position, and exchanges without a completion.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::{CHECKPOINTS_FILE, Checkpoints, PUBLIC_KEY_FILE, append};
use crate::event::{Completion, EndReason};
use crate::files::{self, Files, Limits};
use crate::keys::{ChainKey, SigningKey};
use crate::reader::{ChainReader, OpenIntent};
use crate::settings::{OpenError, Settings, Sync, Target};
use crate::shared::{Entry, EntryKind};
use crate::stream::Stream;
use crate::verify::{self, Replay, SignedCheckpoints, Sources, VerifyError, replay};
use crate::writer::Recovered;

/// Opens the log after its last complete line, if verification finds no fault.
pub(crate) fn recover(
    settings: &Settings,
    chain: &ChainKey,
    signing: &SigningKey,
) -> Result<Recovered, OpenError> {
    let directory = &settings.log_directory();
    let failed = |act| {
        let path = directory.clone();
        move |source| OpenError::Io { act, path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed("create"))?;
    let lock = lock(directory)?;
    let public = signing.public().map_err(io::Error::other).map_err(failed("sign for"))?;
    fs::write(directory.join(PUBLIC_KEY_FILE), public.to_pem()).map_err(failed("write to"))?;
    let beside = directory.join(CHECKPOINTS_FILE);
    append(&beside).map_err(failed("write to"))?;
    let signed = verify::read(&beside, Some(&public), Some(chain)).map_err(verify_error(directory))?;
    let number = signed.last().map_or(0, |checkpoint| checkpoint.number);
    let checkpoints = Checkpoints::open(directory, signing.clone(), number, signed.bytes);
    let checkpoints = checkpoints.map_err(failed("write to"))?;
    match settings.target {
        Target::Files { bytes_max, kept } => {
            let firsts = files::firsts(directory).map_err(failed("read"))?;
            let Replay { reader, last, torn_bytes: cut_bytes, .. } =
                replay_files(directory, &firsts, chain, &signed).map_err(verify_error(directory))?;
            let limits = Limits { bytes_max, kept, sync_each: settings.sync == Sync::Always };
            let files = Files::open(directory, limits, firsts, last).map_err(failed("write to"))?;
            let (sink, head, pending) = (Box::new(files), reader.last(), unfinished(reader));
            Ok(Recovered { sink, checkpoints, head, pending, cut_bytes, lock })
        }
        Target::Stdout => {
            let (stream, head) = Stream::open(directory, io::stdout()).map_err(failed("write to"))?;
            Ok(Recovered {
                sink: Box::new(stream),
                checkpoints,
                head,
                pending: Vec::new(),
                cut_bytes: 0,
                lock,
            })
        }
    }
}

/// Locks the directory against other processes, as long as the returned file is open.
fn lock(directory: &PathBuf) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io { act: "lock", path: directory.clone(), source };
    let file = File::open(directory).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Taken(directory.clone())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Verifies the files that begin with the lines `firsts`.
fn replay_files(
    directory: &Path,
    firsts: &VecDeque<u64>,
    chain: &ChainKey,
    signed: &SignedCheckpoints,
) -> Result<Replay, VerifyError> {
    let files = firsts.iter().map(|first| directory.join(files::name(*first))).collect();
    replay(&Sources { files, checkpoints: None, is_complete: true }, Some(chain), signed)
}

fn verify_error(directory: &Path) -> impl Fn(VerifyError) -> OpenError + use<> {
    let directory = directory.to_owned();
    move |error| match error {
        VerifyError::Fault(fault) => {
            OpenError::Changed { directory: directory.clone(), source: Box::new(fault) }
        }
        VerifyError::Io { path, source } => OpenError::Io { act: "read", path, source },
        VerifyError::NoKey | VerifyError::NoFiles => {
            OpenError::Io { act: "read", path: directory.clone(), source: io::Error::other(error) }
        }
    }
}

/// Completions of exchanges that were open when the last run ended; their outcome is unknown.
fn unfinished(reader: ChainReader) -> Vec<Entry> {
    let open = reader.into_open();
    let entry = |(intent, opened): (u64, OpenIntent)| Entry {
        event: Arc::new(opened.event(intent)),
        completion: Some(Completion::new(None, EndReason::Unknown)),
        kind: EntryKind::BestEffort,
    };
    open.into_iter().map(entry).collect()
}
