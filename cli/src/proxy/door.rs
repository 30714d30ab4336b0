//! The local door: HTTP CONNECT or SOCKS5 on loopback, for whoever knows this run's secret.

mod connect;
mod join;
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

use super::gateway::Gateway;

/// Whose password the secret is, because URLs have no password without a user.
pub(super) const USER: &str = "u";

/// Connections at once, by both together.
const CONNECTIONS_MAX: usize = 512;

/// Whoever has connected says a first byte within this time, which says by what they come.
const FIRST_MAX: Duration = Duration::from_secs(10);

/// How long nothing is accepted after the system refused.
const PAUSE: Duration = Duration::from_millis(100);

/// Who may come in, and to where it leads.
pub(super) struct Door {
    /// User and secret as `Proxy-Authorization` has them.
    ticket: String,
    gateway: Arc<Gateway>,
    scope: Scope,
    places: Arc<Semaphore>,
}

impl Door {
    pub(super) fn new(secret: &str, gateway: Arc<Gateway>, scope: Scope) -> Self {
        Self {
            ticket: ticket(USER, secret),
            gateway,
            scope,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }

    /// Serves whoever comes, for as long as it is polled.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let accepted = listener.accept().await;
            let (Ok((stream, _)), Ok(place)) = (accepted, Arc::clone(&self.places).acquire_owned().await)
            else {
                sleep(PAUSE).await;
                continue;
            };
            self.scope.spawn(Arc::clone(&self).serve_connection(stream, place));
        }
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream, place: OwnedSemaphorePermit) {
        let _ = stream.set_nodelay(true);
        let mut first = [0];
        match timeout(FIRST_MAX, stream.peek(&mut first)).await {
            Ok(Ok(1..)) if first == [socks5::VERSION] => self.by_socks(stream, place).await,
            Ok(Ok(1..)) => self.by_connect(stream, place).await,
            // Gone, or silent.
            _ => {}
        }
    }

    /// Whether that is what [`ticket`] makes of user and secret, in a time that says nothing of it.
    fn knows(&self, ticket: &[u8]) -> bool {
        verify_slices_are_equal(ticket, self.ticket.as_bytes()).is_ok()
    }
}

fn ticket(user: &str, secret: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{secret}")))
}
