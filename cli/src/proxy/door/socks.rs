//! SOCKS5 (RFC 1928, RFC 1929): who knows the secret names a target, and then only bytes pass.

use std::sync::Arc;

use daemon::{chain, gone, socks5};
use http::uri::Authority;
use proto::socks5::Reply;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::join::join;
use super::{Door, ticket};
use crate::print;

impl Door {
    /// Serves a connection until it is over.
    pub(super) async fn by_socks(self: Arc<Self>, mut stream: TcpStream, place: OwnedSemaphorePermit) {
        let _place = place;
        let known =
            socks5::ask(&mut stream, |login| self.knows(ticket(&login.user, &login.password).as_bytes()));
        // Everybody else has been answered, as far as SOCKS5 has an answer.
        let Ok(Some((_, target))) = known.await else { return };
        let Ok(target) = target.parse::<Authority>() else {
            return answer(&mut stream, Reply::Failed).await;
        };
        // Both arms are cancel-safe: what is being connected for somebody who has gone is dropped.
        let connected = tokio::select! {
            connected = self.gateway.connect(&target, &self.scope) => connected,
            () = gone(&stream) => return,
        };
        match connected {
            Ok(far) => {
                answer(&mut stream, Reply::Succeeded).await;
                join(stream, &[], far).await;
            }
            Err(error) => {
                // SOCKS5 has numbers and no words, so it is said here; who does not read does not want to know.
                let _ = print::note(&format!("{target} is not reached: {}", chain(&error)));
                answer(&mut stream, Reply::to_status(error.status().as_u16())).await;
            }
        }
    }
}

/// Who has gone needs no answer.
async fn answer(stream: &mut TcpStream, reply: Reply) {
    let _ = stream.write_all(&reply.bytes()).await;
}
