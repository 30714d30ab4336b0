//! Counts the bytes of a connection that has become a pipe.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{InspectReader, InspectWriter};

use super::audit::AuditEntry;

/// Adds the bytes that `caller` sends and receives to its audit entry, if there is one.
pub(crate) fn count_bytes<T: AsyncRead + AsyncWrite + Unpin>(
    caller: T,
    entry: Option<AuditEntry>,
) -> impl AsyncRead + AsyncWrite + Unpin {
    let (up, down) = (entry.clone(), entry);
    let reader = InspectReader::new(caller, move |bytes: &[u8]| {
        if let Some(entry) = &up {
            entry.add_bytes_up(bytes.len());
        }
    });
    InspectWriter::new(reader, move |bytes: &[u8]| {
        if let Some(entry) = &down {
            entry.add_bytes_down(bytes.len());
        }
    })
}
