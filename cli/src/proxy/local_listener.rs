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
use daemon::listen::{ConnectionPermit, GuardedConnection, GuardedListener, ListenerLimits};
use proto::socks5;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::gateway::GatewayClient;

/// The user name of every client. A URL cannot have a password without one.
pub(super) const USER: &str = "u";

/// Most connections at once, of HTTP CONNECT and SOCKS5 together.
const CONNECTIONS_MAX: usize = 2_000;

/// The limits of the listener. The password is a client's proof.
pub(super) const LIMITS: ListenerLimits = ListenerLimits {
    connections_max: CONNECTIONS_MAX,
    handshakes_max: CONNECTIONS_MAX,
    ..ListenerLimits::DEFAULT
};

/// Longest wait for the first byte of a connection, which tells SOCKS5 from HTTP.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(10);

/// Authenticates local clients, and connects them through the gateway.
pub(super) struct LocalListener {
    /// The `Proxy-Authorization` value that clients have to send.
    authorization: String,
    gateway: Arc<GatewayClient>,
    scope: Scope,
}

impl LocalListener {
    pub(super) fn new(secret: &str, gateway: Arc<GatewayClient>, scope: Scope) -> Self {
        Self { authorization: basic_authorization(USER, secret), gateway, scope }
    }

    /// Accepts and serves connections for as long as it is polled.
    pub(super) async fn serve(self: Arc<Self>, listener: GuardedListener) {
        loop {
            let accepted = listener.next().await;
            self.scope.spawn(Arc::clone(&self).serve_guarded(accepted));
        }
    }

    /// Serves one connection until its end, or until its client has to prove itself and does not.
    async fn serve_guarded(self: Arc<Self>, accepted: GuardedConnection) {
        let GuardedConnection { stream, permit, handshake: _handshake, mut expulsion, .. } = accepted;
        // An upgraded connection has a task of its own, which this does not end.
        expulsion.unless_expelled(self.serve_connection(stream, permit)).await;
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream, permit: ConnectionPermit) {
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
