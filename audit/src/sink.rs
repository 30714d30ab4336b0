//! The destination of sealed lines: files, or a stream.

use std::io;

use crate::chain::Head;
use crate::checkpoint::Extent;

/// The disk space that an append may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// The reserve must stay free.
    Normal,
    /// The reserve may be used.
    Reserved,
}

/// Takes complete lines, from one thread.
pub(crate) trait Sink: Send {
    /// Appends `lines`, the last of which is `head`. On failure the sink removes all of them, as far as it can.
    fn append(&mut self, lines: &[u8], head: Head, space: Space) -> io::Result<()>;

    /// Syncs all appended lines to the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Returns true if the next line should begin a file.
    fn is_full(&self) -> bool;

    /// Begins a file whose first line will be `first`.
    fn begin_file(&mut self, first: u64) -> io::Result<()>;

    /// The current file and its extent; `None` for a stream.
    fn extent(&self) -> Option<Extent>;

    /// The first line that retention would keep now.
    fn oldest_kept(&self) -> u64;

    /// Removes the files beyond the retention limit; returns whether there were any.
    fn retire(&mut self) -> io::Result<bool>;

    /// Releases reserved space that was not used.
    fn close(&mut self) -> io::Result<()>;
}
