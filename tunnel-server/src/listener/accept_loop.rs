//! Accepting where a handshake of ours does not follow: a rest after the system has refused, and a place for each connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// How long accepting rests after it failed; it fails for want of file descriptors, which come back by themselves.
const REST: Duration = Duration::from_millis(100);

/// Serves each connection, says of what the system refuses why, and tries again. Goes on until it is dropped, which it may be at
/// any of its awaits: an accept takes nothing unless it is ready.
pub(crate) async fn run<S, F>(accept: impl Fn() -> F, mut serve: impl FnMut(S), refused: impl Fn(io::Error))
where
    F: Future<Output = io::Result<S>>,
{
    loop {
        match accept().await {
            Ok(stream) => serve(stream),
            Err(error) => {
                refused(error);
                sleep(REST).await;
            }
        }
    }
}

/// The same, and each connection has one of `places` as long as it lasts; while there is none, nobody is accepted. A place that was
/// taken for nobody is free again.
pub(crate) async fn run_limited<S, F>(
    places: usize,
    accept: impl Fn() -> F,
    mut serve: impl FnMut(S, OwnedSemaphorePermit),
    refused: impl Fn(io::Error),
) where
    F: Future<Output = io::Result<S>>,
{
    let places = Arc::new(Semaphore::new(places));
    let accept = || async {
        // Nobody closes it.
        let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
        Ok((accept().await?, place))
    };
    run(accept, |(stream, place)| serve(stream, place), refused).await;
}
