//! The Unix socket of the admin API, at which the kernel reports the user of the other end.

use std::time::Duration;

use tokio::net::UnixStream;
use tonic_reflection::server::v1::ServerReflection;
use tracing::warn;

use super::authorize::Actor;
use super::connection::ConnectionService;
use super::service::CONNECTIONS_MAX;
use crate::listener::accept_loop;
use crate::listener::unix_socket::LocalSocket;

/// Serves connections to the socket until this future is dropped.
pub(super) async fn accept<R: ServerReflection>(socket: LocalSocket, connections: ConnectionService<R>) {
    let spawn = |(stream, _), permit| {
        let (of_connection, owner) = (connections.clone(), socket.owner);
        connections.scope().spawn_background(async move {
            serve(stream, owner, of_connection).await;
            drop(permit);
        });
    };
    let refused = |error| warn!(%error, "cannot accept a connection for the admin API");
    accept_loop::run_limited(CONNECTIONS_MAX, || socket.listener.accept(), spawn, refused).await;
}

async fn serve<R: ServerReflection>(stream: UnixStream, owner: u32, connections: ConnectionService<R>) {
    match stream.peer_cred() {
        Ok(peer) => connections.serve(stream, Actor::Local { uid: peer.uid(), owner }, Duration::MAX).await,
        Err(error) => {
            warn!(%error, "the kernel does not report the user of a connection to the admin socket")
        }
    }
}
