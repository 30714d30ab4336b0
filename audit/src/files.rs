//! A log in files named `audit-NUMBER.log` after their first line, so that no file is ever renamed.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::io::Errno;

use crate::chain::Head;
use crate::checkpoint::{Extent, append};
use crate::sink::{Sink, Space};

/// Lower bound of a file's size.
pub const FILE_BYTES_MIN: u64 = 1024 * 1024;
/// Upper bound of a file's size.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Lower bound of how many files are kept. With one, rotation would leave only an empty file.
pub const FILES_MIN: usize = 2;
/// Upper bound of how many files are kept.
pub const FILES_MAX: usize = 1_000;

/// Disk space for lines that must be written: failures of the log, revocations, and changes of readiness.
pub const RESERVE_BYTES: u64 = 1024 * 1024;

/// Space is allocated in pieces of this size, so that not every line needs an allocation.
const CLAIM_BYTES: u64 = 4 * 1024 * 1024;

const NAME_HEAD: &str = "audit-";
const NAME_TAIL: &str = ".log";

/// Digits of a number in a name, so that names sort as numbers do.
const NAME_DIGITS: usize = 20;

/// The files of a log, the last of them open.
pub(crate) struct Files {
    directory: PathBuf,
    limits: Limits,
    /// First lines of all files, the oldest first; the last file is open.
    firsts: VecDeque<u64>,
    open: Option<Open>,
}

/// Settings of rotation and retention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The size at which the log rotates to a new file.
    pub(crate) bytes_max: u64,
    /// The number of files that are kept.
    pub(crate) kept: usize,
    /// True if every append is synced to the disk at once.
    pub(crate) sync_each: bool,
}

struct Open {
    file: File,
    bytes: u64,
    digest: digest::Context,
    /// The end of the allocated space.
    claimed: u64,
    /// True if bytes of a failed write still follow the last line.
    is_torn: bool,
}

impl Files {
    /// Opens the files that begin with the lines `firsts`. The last one has `bytes` with this digest, and is continued.
    pub(crate) fn open(
        directory: &Path,
        limits: Limits,
        firsts: VecDeque<u64>,
        last: Option<(u64, digest::Context)>,
    ) -> io::Result<Self> {
        let mut files = Self { directory: directory.to_owned(), limits, firsts, open: None };
        if let (Some(first), Some((bytes, digest))) = (files.firsts.back(), last) {
            let file = append(&files.directory.join(name(*first)))?;
            // A power loss may have left an incomplete line.
            file.set_len(bytes)?;
            files.open = Some(Open { file, bytes, digest, claimed: bytes, is_torn: false });
        }
        Ok(files)
    }
}

impl Sink for Files {
    fn append(&mut self, lines: &[u8], _: Head, space: Space) -> io::Result<()> {
        let sync_each = self.limits.sync_each;
        let open = self.open.as_mut().ok_or_else(|| io::Error::other("no file is open"))?;
        open.truncate_torn()?;
        if space == Space::Normal {
            open.claim(lines.len() as u64 + RESERVE_BYTES)?;
        }
        let written = open.file.write_all(lines);
        let written = written.and_then(|()| if sync_each { open.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            open.is_torn = true;
            // If truncation fails now, it is tried again before the next line.
            let _ = open.truncate_torn();
            return Err(error);
        }
        open.bytes += lines.len() as u64;
        open.digest.update(lines);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.open.as_ref().map_or(Ok(()), |open| open.file.sync_data())
    }

    fn is_full(&self) -> bool {
        self.open.as_ref().is_none_or(|open| open.bytes == 0 || open.bytes >= self.limits.bytes_max)
    }

    fn begin_file(&mut self, first: u64) -> io::Result<()> {
        let file = append(&self.directory.join(name(first)))?;
        // A file that could not be begun before may hold an incomplete line.
        file.set_len(0)?;
        let mut open = Open {
            file,
            bytes: 0,
            digest: digest::Context::new(&digest::SHA256),
            claimed: 0,
            is_torn: false,
        };
        open.claim(RESERVE_BYTES)?;
        open.file.sync_all()?;
        File::open(&self.directory)?.sync_all()?;
        if let Some(last) = self.open.replace(open) {
            // Releases the reserve of the file before, whose lines are synced already.
            let _ = last.file.set_len(last.bytes);
        }
        if self.firsts.back() != Some(&first) {
            self.firsts.push_back(first);
        }
        Ok(())
    }

    fn extent(&self) -> Option<Extent> {
        let (open, first) = (self.open.as_ref()?, self.firsts.back()?);
        let sha256 = STANDARD.encode(open.digest.clone().finish());
        Some(Extent { name: name(*first), bytes: open.bytes, sha256 })
    }

    fn oldest_kept(&self) -> u64 {
        let past = self.firsts.len().saturating_sub(self.limits.kept);
        self.firsts.get(past).copied().unwrap_or(1)
    }

    fn retire(&mut self) -> io::Result<bool> {
        let mut any = false;
        while self.firsts.len() > self.limits.kept
            && let Some(first) = self.firsts.front()
        {
            match fs::remove_file(self.directory.join(name(*first))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            self.firsts.pop_front();
            any = true;
        }
        Ok(any)
    }

    fn close(&mut self) -> io::Result<()> {
        self.open.as_ref().map_or(Ok(()), |open| open.file.set_len(open.bytes))
    }
}

impl Open {
    /// Removes the bytes that a failed write has left.
    fn truncate_torn(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.bytes)?;
            // The allocated space may be released with them.
            self.claimed = self.bytes;
            self.is_torn = false;
        }
        Ok(())
    }

    /// Allocates space for `more` bytes, in larger pieces while the disk has enough.
    fn claim(&mut self, more: u64) -> io::Result<()> {
        let needed = self.bytes + more;
        if needed <= self.claimed {
            return Ok(());
        }
        let mut claim = |up_to: u64| {
            allocate(&self.file, self.bytes, up_to - self.bytes)?;
            self.claimed = up_to;
            Ok(())
        };
        match claim(needed + CLAIM_BYTES).or_else(|_: Errno| claim(needed)) {
            // This file system cannot allocate in advance: then each write shows whether there is space.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Allocates space behind the end of a file, whose length stays.
#[cfg(target_os = "linux")]
fn allocate(file: &File, from: u64, bytes: u64) -> Result<(), Errno> {
    use rustix::fs::{FallocateFlags, fallocate};

    fallocate(file, FallocateFlags::KEEP_SIZE, from, bytes)
}

/// Elsewhere logs are verified, and no server writes one.
#[cfg(not(target_os = "linux"))]
fn allocate(_: &File, _: u64, _: u64) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// The name of the file that begins with line `first`.
pub(crate) fn name(first: u64) -> String {
    format!("{NAME_HEAD}{first:0NAME_DIGITS$}{NAME_TAIL}")
}

/// The first line of the file of that name, if it is one of a log's.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME_HEAD)?.strip_suffix(NAME_TAIL)?;
    let is_number = digits.len() == NAME_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// The first lines of all files in `directory`, the oldest first.
pub(crate) fn firsts(directory: &Path) -> io::Result<VecDeque<u64>> {
    let mut firsts = Vec::new();
    for entry in fs::read_dir(directory)? {
        firsts.extend(entry?.file_name().to_str().and_then(first_of));
    }
    firsts.sort_unstable();
    Ok(firsts.into())
}
