//! Accepting where a handshake of ours does not follow: a place for each connection, and a rest after the system has refused.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// How long accepting rests after it failed; it fails for want of file descriptors, which come back by themselves.
const REST: Duration = Duration::from_millis(100);

/// Gives each connection one of `places`, which it holds as long as it lasts; while there is none, nobody is accepted. Says of
/// what the system refuses why, and tries again. Goes on until it is dropped, at any of its awaits: a place that was taken for
/// nobody is free again, and an accept takes nothing unless it is ready.
pub(crate) async fn each<S, F>(
    places: usize,
    accept: impl Fn() -> F,
    mut serve: impl FnMut(S, OwnedSemaphorePermit),
    refused: impl Fn(io::Error),
) where
    F: Future<Output = io::Result<S>>,
{
    let places = Arc::new(Semaphore::new(places));
    // Nobody closes it.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match accept().await {
            Ok(stream) => serve(stream, place),
            Err(error) => {
                refused(error);
                sleep(REST).await;
            }
        }
    }
}
