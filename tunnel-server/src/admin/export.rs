//! An export of the records on its way to an administrator.

use std::pin::Pin;

use futures::Stream;
use futures::stream;
use proto::admin::ExportResponse;
use tonic::Status;

use super::requests;
use crate::directory::RecordExport;

/// Most exports at once. With two, one whose reader hangs does not keep the other away.
pub const EXPORTS_MAX: usize = 2;

/// The messages of one export, as its reader takes them.
pub(super) type ExportMessages = Pin<Box<dyn Stream<Item = Result<ExportResponse, Status>> + Send>>;

/// Passes an export on, piece by piece.
pub(super) fn messages(export: RecordExport) -> ExportMessages {
    Box::pin(stream::unfold(export, async |mut export| {
        let piece = export.next().await?;
        let message = piece.map(|chunk| ExportResponse { chunk });
        Some((message.map_err(|error| requests::store_status(&error)), export))
    }))
}
