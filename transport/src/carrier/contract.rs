//! Types that every carrier returns for the same operations.

use std::io;
use std::pin::Pin;

/// The result of sending a heartbeat.
pub(crate) enum Pinged {
    /// The carrier has sent it, and will report its answer.
    Sent,
    /// It has to be written to the control stream; the carrier will report its answer.
    Unsent,
}

/// Resolves when the peer has received a direction to its end, or has stopped it.
pub(crate) type Stopped = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;
