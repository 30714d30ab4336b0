//! Quinn's runtime over a spawner that the application passes in, so that quinn's drivers have an owner, too.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};

/// Owns the tasks that drive a carrier. They are background tasks: a shutdown does not wait for them, but
/// ends them last.
///
/// A driver runs on the runtime of the task that accepted or dialed, which makes that runtime the tunnel's
/// home.
pub trait Spawn: Send + Sync + 'static {
    /// Runs `driver` on the runtime of the calling task.
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>);
}

/// Tokio's timers and sockets, and the application's task spawner.
pub(crate) struct OwnedRuntime(pub(crate) Arc<dyn Spawn>);

impl Runtime for OwnedRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn(driver);
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

impl fmt::Debug for OwnedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnedRuntime")
    }
}
