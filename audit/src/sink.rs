//! Where sealed lines go.

use std::io;

use crate::chain::Head;
use crate::checkpoint::Extent;

/// How lines are appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// The reserve stays free behind them.
    Usual,
    /// Into the reserve, if need be.
    Reserved,
}

/// Takes whole lines, from one thread.
pub(crate) trait Sink: Send {
    /// Appends `lines`, of which the last is `head`. If it fails, none of them is there, as far as that can be had.
    fn append(&mut self, lines: &[u8], head: Head, room: Room) -> io::Result<()>;

    /// Brings what was appended to the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Whether the next line should begin a file.
    fn is_full(&self) -> bool;

    /// Begins a file whose first line will be `first`.
    fn begin_file(&mut self, first: u64) -> io::Result<()>;

    /// The file that is written, as far as it is.
    fn extent(&self) -> Option<Extent>;

    /// The first line that would be kept if nothing more than the limit were.
    fn oldest_kept(&self) -> u64;

    /// Takes away the files that are past the limit; whether there were any.
    fn retire(&mut self) -> io::Result<bool>;

    /// Gives back the space that was reserved and is not needed.
    fn close(&mut self) -> io::Result<()>;
}
