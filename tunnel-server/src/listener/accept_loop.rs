//! Accept loops for sockets without TLS of ours: they pause after an error of the system and limit the
//! connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// The pause after a failed accept. Accepting fails when file descriptors run out, which others give back.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Serves each connection, reports errors of the system and tries again. It runs until it is dropped.
/// Cancel-safe: an accept takes nothing unless it is ready.
pub(crate) async fn run<S, F>(accept: impl Fn() -> F, mut serve: impl FnMut(S), refused: impl Fn(io::Error))
where
    F: Future<Output = io::Result<S>>,
{
    loop {
        match accept().await {
            Ok(stream) => serve(stream),
            Err(error) => {
                refused(error);
                sleep(ERROR_PAUSE).await;
            }
        }
    }
}

/// Like [`run`], but each connection holds one of `permits` as long as it lasts. While none is free, no
/// connection is accepted. A permit that was taken without a connection is returned.
pub(crate) async fn run_limited<S, F>(
    permits: usize,
    accept: impl Fn() -> F,
    mut serve: impl FnMut(S, OwnedSemaphorePermit),
    refused: impl Fn(io::Error),
) where
    F: Future<Output = io::Result<S>>,
{
    let permits = Arc::new(Semaphore::new(permits));
    let accept = || async {
        // The semaphore is never closed.
        let permit = Arc::clone(&permits).acquire_owned().await.map_err(io::Error::other)?;
        Ok((accept().await?, permit))
    };
    run(accept, |(stream, permit)| serve(stream, permit), refused).await;
}
