//! Exports: all records of one moment as a text, in pieces for a reader that may be slow.

use std::time::Duration;

use records::export::ExportWriter;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::info;

use super::store::RecordStore;
use super::{Directory, StoreError};

/// Bytes of a piece, from which it is sent.
const PIECE_BYTES: usize = 64 * 1024;

/// Most pieces that wait for the reader of an export.
const PIECES_UNREAD_MAX: usize = 4;

/// Longest wait for the reader of an export to take a piece.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// An export that goes on while its pieces are taken. Once this is dropped, it ends.
pub struct RecordExport {
    first: Option<Vec<u8>>,
    rest: mpsc::Receiver<Result<Vec<u8>, StoreError>>,
}

/// The sending end of an export, on a thread that can block.
struct PieceSender {
    pieces: mpsc::Sender<Result<Vec<u8>, StoreError>>,
    runtime: Handle,
}

impl Directory {
    /// Begins an export of the records as they are at one moment. A change that is made meanwhile is in it completely or not
    /// at all. `taken` is the time of now, by RFC 3339. The export holds `permit` until it ends.
    ///
    /// # Errors
    /// The records cannot be read. A later error comes in place of a piece, and the text is then not complete.
    pub async fn export<P>(
        &self,
        trust_domain: String,
        taken: String,
        permit: P,
    ) -> Result<RecordExport, StoreError>
    where
        P: Send + 'static,
    {
        // The times at which clusters were last seen are only in memory until then.
        self.save().await?;
        let (pieces, mut rest) = mpsc::channel(PIECES_UNREAD_MAX);
        let (inner, sender) = (self.0.clone(), PieceSender { pieces, runtime: Handle::current() });
        // It ends with its reader.
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            if let Err(error) = write(&inner.store, &trust_domain, &taken, &sender) {
                // A reader that has gone needs no reason.
                let _ = sender.send(Err(error));
            }
        });
        match rest.recv().await {
            Some(Ok(first)) => Ok(RecordExport { first: Some(first), rest }),
            Some(Err(error)) => Err(error),
            None => Err(StoreError::Stopping),
        }
    }
}

impl RecordExport {
    /// The next piece of the text; `None` after the last one, or after an error.
    ///
    /// # Errors
    /// The records cannot be read, or nobody has taken a piece for too long.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, StoreError>> {
        match self.first.take() {
            Some(first) => Some(Ok(first)),
            None => self.rest.recv().await,
        }
    }
}

fn write(
    store: &RecordStore,
    trust_domain: &str,
    taken: &str,
    sender: &PieceSender,
) -> Result<(), StoreError> {
    let mut out = Vec::new();
    let mut writer = ExportWriter::begin(trust_domain, taken, &mut out);
    store.export(&mut writer, &mut out, &mut |out| {
        if out.len() < PIECE_BYTES {
            return Ok(());
        }
        sender.send(Ok(std::mem::take(out)))
    })?;
    let summary = writer.end(&mut out);
    sender.send(Ok(out))?;
    info!(records = summary.records, sha256 = summary.sha256, "the records were exported");
    Ok(())
}

impl PieceSender {
    fn send(&self, piece: Result<Vec<u8>, StoreError>) -> Result<(), StoreError> {
        match self.runtime.block_on(async { timeout(UNREAD_MAX, self.pieces.send(piece)).await }) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(StoreError::NotRead),
        }
    }
}
