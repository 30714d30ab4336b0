//! The local listener of `tombolo proxy`: HTTP CONNECT and SOCKS5 on a loopback port, with a password that is new for each run.

mod connect;
mod relay;
mod socks;

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::Scope;
use proto::socks5;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::gateway::GatewayClient;

/// The user name of every client. A URL cannot have a password without one.
pub(super) const USER: &str = "u";

/// Most connections at once, of HTTP CONNECT and SOCKS5 together.
const CONNECTIONS_MAX: usize = 512;

/// Longest wait for the first byte of a connection, which tells SOCKS5 from HTTP.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(10);

/// Pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Authenticates local clients, and connects them through the gateway.
pub(super) struct LocalListener {
    /// The `Proxy-Authorization` value that clients have to send.
    authorization: String,
    gateway: Arc<GatewayClient>,
    scope: Scope,
    connections: Arc<Semaphore>,
}

impl LocalListener {
    pub(super) fn new(secret: &str, gateway: Arc<GatewayClient>, scope: Scope) -> Self {
        Self {
            authorization: basic_authorization(USER, secret),
            gateway,
            scope,
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }

    /// Accepts and serves connections for as long as it is polled.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let accepted = listener.accept().await;
            let (Ok((stream, _)), Ok(permit)) =
                (accepted, Arc::clone(&self.connections).acquire_owned().await)
            else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            self.scope.spawn(Arc::clone(&self).serve_connection(stream, permit));
        }
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let _ = stream.set_nodelay(true);
        let mut first = [0];
        match timeout(FIRST_BYTE_MAX, stream.peek(&mut first)).await {
            Ok(Ok(1..)) if first == [socks5::VERSION] => self.serve_socks(stream, permit).await,
            Ok(Ok(1..)) => self.serve_connect(stream, permit).await,
            // The client has gone, or sent nothing in time.
            _ => {}
        }
    }

    /// Tells whether this is the expected `Proxy-Authorization` value. The comparison takes constant time.
    fn is_authorized(&self, authorization: &[u8]) -> bool {
        verify_slices_are_equal(authorization, self.authorization.as_bytes()).is_ok()
    }
}

fn basic_authorization(user: &str, secret: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{secret}")))
}
