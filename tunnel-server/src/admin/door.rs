//! The door on this machine: a socket at which the kernel says who is there.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tonic_reflection::server::v1::ServerReflection;
use tracing::warn;

use super::CONNECTIONS_MAX;
use super::authorize::Actor;
use super::hall::Hall;
use crate::listener::socket::LocalSocket;

/// How long accepting rests after it failed; it fails for want of file descriptors, which come back by themselves.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Serves whoever comes to the socket, until this is dropped.
pub(super) async fn accept<R: ServerReflection>(socket: LocalSocket, hall: Hall<R>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        match socket.listener.accept().await {
            Ok((stream, _)) => {
                let (within, owner) = (hall.clone(), socket.owner);
                hall.scope().attend(async move {
                    serve(stream, owner, within).await;
                    drop(slot);
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection for the admin API");
                sleep(ACCEPT_REST).await;
            }
        }
    }
}

async fn serve<R: ServerReflection>(stream: UnixStream, owner: u32, hall: Hall<R>) {
    match stream.peer_cred() {
        Ok(peer) => hall.serve(stream, Actor::Local { uid: peer.uid(), owner }, Duration::MAX).await,
        Err(error) => warn!(%error, "the system does not say who is at the admin socket"),
    }
}
