//! The door on this machine: a socket at which the kernel says who is there.

use std::time::Duration;

use tokio::net::UnixStream;
use tonic_reflection::server::v1::ServerReflection;
use tracing::warn;

use super::CONNECTIONS_MAX;
use super::authorize::Actor;
use super::hall::Hall;
use crate::listener::accept_loop;
use crate::listener::unix_socket::LocalSocket;

/// Serves whoever comes to the socket, until this is dropped.
pub(super) async fn accept<R: ServerReflection>(socket: LocalSocket, hall: Hall<R>) {
    let attend = |(stream, _), place| {
        let (within, owner) = (hall.clone(), socket.owner);
        hall.scope().attend(async move {
            serve(stream, owner, within).await;
            drop(place);
        });
    };
    let refused = |error| warn!(%error, "cannot accept a connection for the admin API");
    accept_loop::run_limited(CONNECTIONS_MAX, || socket.listener.accept(), attend, refused).await;
}

async fn serve<R: ServerReflection>(stream: UnixStream, owner: u32, hall: Hall<R>) {
    match stream.peer_cred() {
        Ok(peer) => hall.serve(stream, Actor::Local { uid: peer.uid(), owner }, Duration::MAX).await,
        Err(error) => warn!(%error, "the system does not say who is at the admin socket"),
    }
}
