//! A copy of the store on its way to an administrator.

use std::iter;
use std::pin::Pin;

use futures::Stream;
use futures::stream;
use proto::admin::BackupResponse;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

/// Most copies of the store at once, because each is in memory until its reader has taken it. With two, one whose
/// reader hangs does not keep the other away.
pub const BACKUPS_MAX: usize = 2;

/// Most bytes of the copy in one message.
const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// The messages of one copy, as its reader takes them.
pub(super) type BackupChunks = Pin<Box<dyn Stream<Item = Result<BackupResponse, Status>> + Send>>;

/// Divides a copy into messages. `permit` is held until the last is taken, or the reader has gone.
pub(super) fn chunks(bytes: Vec<u8>, permit: OwnedSemaphorePermit) -> BackupChunks {
    let mut copy = (bytes, 0, permit);
    let messages = iter::from_fn(move || {
        let (bytes, sent, _permit) = &mut copy;
        let chunk = bytes.get(*sent..)?.chunks(CHUNK_BYTES_MAX).next()?.to_vec();
        *sent += chunk.len();
        Some(Ok(BackupResponse { chunk }))
    });
    Box::pin(stream::iter(messages))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::StreamExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    /// The sizes are none, one, and around one and two messages.
    #[tokio::test]
    async fn a_copy_arrives_in_order_and_gives_its_slot_back_at_its_end() {
        for size in [0, 1, CHUNK_BYTES_MAX - 1, CHUNK_BYTES_MAX, CHUNK_BYTES_MAX + 1, 2 * CHUNK_BYTES_MAX] {
            let slots = Arc::new(Semaphore::new(BACKUPS_MAX));
            let permit = Arc::clone(&slots).try_acquire_owned().unwrap();
            let bytes: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect();

            let mut messages = chunks(bytes.clone(), permit);
            let mut arrived = Vec::new();
            while let Some(message) = messages.next().await {
                assert_eq!(slots.available_permits(), BACKUPS_MAX - 1);
                let chunk = message.unwrap().chunk;
                assert!((1..=CHUNK_BYTES_MAX).contains(&chunk.len()), "{}", chunk.len());
                arrived.extend(chunk);
            }
            drop(messages);

            assert!(arrived == bytes, "{size}");
            assert_eq!(slots.available_permits(), BACKUPS_MAX);
        }
    }
}
