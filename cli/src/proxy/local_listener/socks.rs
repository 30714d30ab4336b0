//! SOCKS5 with user and password (RFC 1928, RFC 1929): one request, then bytes in both directions.

use std::sync::Arc;

use daemon::listen::ConnectionPermit;
use daemon::{error_chain, peer_closed, socks5};
use http::uri::Authority;
use proto::socks5::Reply;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::relay::relay;
use super::{LocalListener, basic_authorization};
use crate::print;

impl LocalListener {
    /// Serves a SOCKS5 connection until it is closed.
    pub(super) async fn serve_socks(self: Arc<Self>, mut stream: TcpStream, permit: ConnectionPermit) {
        let request = socks5::read_request(&mut stream, |login| {
            let is_authorized =
                self.is_authorized(basic_authorization(&login.user, &login.password).as_bytes());
            if is_authorized {
                permit.proved();
            }
            is_authorized
        });
        // Every other client has its reply already, as far as SOCKS5 has one.
        let Ok(Some((_, target))) = request.await else { return };
        let Ok(target) = target.parse::<Authority>() else {
            return send_reply(&mut stream, Reply::Failed).await;
        };
        // Both arms are cancel-safe: the connection of a client that has gone is dropped.
        let connected = tokio::select! {
            connected = self.gateway.connect(&target, &self.scope) => connected,
            () = peer_closed(&stream) => return,
        };
        match connected {
            Ok(target) => {
                send_reply(&mut stream, Reply::Succeeded).await;
                relay(stream, &[], target).await;
            }
            Err(error) => {
                // SOCKS5 replies carry no text, so the reason is printed here. A closed standard error is no problem.
                let _ = print::note(&format!("{target} cannot be reached: {}", error_chain(&error)));
                send_reply(&mut stream, Reply::from_status(error.status().as_u16())).await;
            }
        }
    }
}

/// Sends a reply. An error means that the client has gone.
async fn send_reply(stream: &mut TcpStream, reply: Reply) {
    let _ = stream.write_all(&reply.bytes()).await;
}
