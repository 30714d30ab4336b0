//! What the last run left: where the chain is, and what was not ended.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::{CHECKPOINTS_FILE, Checkpoints, PUBLIC_KEY_FILE, append};
use crate::desk::{Duty, Entry};
use crate::event::{Completion, EndReason};
use crate::files::{self, Files, Limits};
use crate::keys::{ChainKey, SigningKey};
use crate::settings::{OpenError, Settings, Sync, Target};
use crate::stream::Stream;
use crate::verify::{self, Followed, NotVerified, Signed, Sources, follow};
use crate::walk::{Follower, Opened};
use crate::writer::Begun;

/// Below a log's directory: what is kept of one that goes to standard output.
const STDOUT: &str = "stdout";

/// Opens the log behind its last whole line, if it is as it was written.
pub(crate) fn recover(
    settings: &Settings,
    chain: &ChainKey,
    signing: &SigningKey,
) -> Result<Begun, OpenError> {
    let directory = &match settings.target {
        Target::Files { .. } => settings.directory.clone(),
        Target::Stdout => settings.directory.join(STDOUT),
    };
    let refused = |act| {
        let path = directory.clone();
        move |source| OpenError::Io { act, path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(refused("create"))?;
    let lock = lock(directory)?;
    let public = signing.public().map_err(io::Error::other).map_err(refused("sign for"))?;
    fs::write(directory.join(PUBLIC_KEY_FILE), public.to_pem()).map_err(refused("write to"))?;
    let beside = directory.join(CHECKPOINTS_FILE);
    append(&beside).map_err(refused("write to"))?;
    let signed = verify::read(&beside, Some(&public), Some(chain)).map_err(changed(directory))?;
    let number = signed.last().map_or(0, |checkpoint| checkpoint.number);
    let checkpoints = Checkpoints::open(directory, signing.clone(), number, signed.bytes);
    let checkpoints = checkpoints.map_err(refused("write to"))?;
    match settings.target {
        Target::Files { bytes_max, kept } => {
            let firsts = files::firsts(directory).map_err(refused("read"))?;
            let Followed { follower, last, torn_bytes: cut_bytes, .. } =
                written(directory, &firsts, chain, &signed).map_err(changed(directory))?;
            let limits = Limits { bytes_max, kept, sync_each: settings.sync == Sync::Always };
            let files = Files::open(directory, limits, firsts, last).map_err(refused("write to"))?;
            let (sink, head, owed) = (Box::new(files), follower.last(), unended(follower));
            Ok(Begun { sink, checkpoints, head, owed, cut_bytes, lock })
        }
        Target::Stdout => {
            let (stream, head) = Stream::open(directory, io::stdout()).map_err(refused("write to"))?;
            Ok(Begun { sink: Box::new(stream), checkpoints, head, owed: Vec::new(), cut_bytes: 0, lock })
        }
    }
}

/// Makes sure that nobody else writes there, as long as the file is open.
fn lock(directory: &PathBuf) -> Result<File, OpenError> {
    let refused = |source| OpenError::Io { act: "lock", path: directory.clone(), source };
    let file = File::open(directory).map_err(refused)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Taken(directory.clone())),
        Err(TryLockError::Error(error)) => Err(refused(error)),
    }
}

/// The log in the files that begin with the lines `firsts`.
fn written(
    directory: &Path,
    firsts: &VecDeque<u64>,
    chain: &ChainKey,
    signed: &Signed,
) -> Result<Followed, NotVerified> {
    let files = firsts.iter().map(|first| directory.join(files::name(*first))).collect();
    follow(&Sources { files, checkpoints: None, is_whole: true }, Some(chain), signed)
}

fn changed(directory: &Path) -> impl Fn(NotVerified) -> OpenError + use<> {
    let directory = directory.to_owned();
    move |error| match error {
        NotVerified::Fault(fault) => {
            OpenError::Changed { directory: directory.clone(), source: Box::new(fault) }
        }
        NotVerified::Io { path, source } => OpenError::Io { act: "read", path, source },
        NotVerified::NoKey | NotVerified::NoFiles => {
            OpenError::Io { act: "read", path: directory.clone(), source: io::Error::other(error) }
        }
    }
}

/// The ends of exchanges that were open when the last run ended: nobody has seen them.
fn unended(follower: Follower) -> Vec<Entry> {
    let open = follower.into_open();
    let entry = |(intent, opened): (u64, Opened)| Entry {
        event: Arc::new(opened.event(intent)),
        completion: Some(Completion::new(None, EndReason::Unknown)),
        duty: Duty::Aside,
    };
    open.into_iter().map(entry).collect()
}
