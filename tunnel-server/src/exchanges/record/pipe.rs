//! A caller's end of a pipe, counted.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{InspectReader, InspectWriter};

use super::Record;

/// Counts what comes from `caller`, and what goes there.
pub(crate) fn counted<T: AsyncRead + AsyncWrite + Unpin>(
    caller: T,
    record: Option<Record>,
) -> impl AsyncRead + AsyncWrite + Unpin {
    let (up, down) = (record.clone(), record);
    let reader = InspectReader::new(caller, move |bytes: &[u8]| {
        if let Some(record) = &up {
            record.sent_up(bytes.len());
        }
    });
    InspectWriter::new(reader, move |bytes: &[u8]| {
        if let Some(record) = &down {
            record.sent_down(bytes.len());
        }
    })
}
