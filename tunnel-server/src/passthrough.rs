//! Passes TLS through untouched, to the API server that the ClientHello's server name selects.
//!
//! The caller authenticates to the API server inside TLS. This server knows only the source address. All
//! callers are therefore one principal, the entry point itself, and only configured networks may connect.

mod client_hello;
mod refusal;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::listen::GuardedListener;
use daemon::{Failure, Scope, peer_closed};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::{self, ClusterTarget};
use crate::dialing::Dialer;
use crate::dialing::by_source::{self, AdmittedConnection, BoundEntryPoint};
use crate::dialing::reset_on_drop::ResetOnDrop;
use crate::limits::{LimitExceeded, LimitUsage};
use crate::metrics;
use client_hello::BufferedHello;

pub use refusal::{PassthroughRefusal, TlsAlert};

/// The longest wait for a complete ClientHello.
const HELLO_MAX: Duration = Duration::from_secs(10);

/// A bound port that does not accept yet.
pub struct PassthroughListener {
    listener: GuardedListener,
    entry_point: BoundEntryPoint,
    servers: BTreeMap<String, ClusterTarget>,
}

/// The state that all connections share.
struct PassthroughService {
    entry_point: BoundEntryPoint,
    servers: BTreeMap<String, ClusterTarget>,
    dialer: Dialer,
    scope: Scope,
}

impl PassthroughListener {
    /// Binds the configured port of the passthrough.
    ///
    /// # Errors
    /// [`Failure`] if the port is taken.
    pub fn bind(config: config::PassthroughConfig) -> Result<Self, Failure> {
        let config::PassthroughConfig { entry_point, listen, servers } = config;
        let listener = GuardedListener::bind("passthrough.listen", listen, by_source::LIMITS)?;
        metrics::describe_refusals(PassthroughRefusal::CAUSES);
        let limits: [fn(usize) -> LimitExceeded; 2] =
            [LimitExceeded::PassthroughConnections, LimitExceeded::PassthroughSource];
        Ok(Self { listener, entry_point: BoundEntryPoint::new(entry_point, "passthrough", limits), servers })
    }

    /// The address that is bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Reports the use of the entry point's limits, also while it runs.
    pub fn usage(&self) -> impl Fn() -> [LimitUsage; 2] + Send + Sync + 'static {
        self.entry_point.usage()
    }

    /// Serves connections until the drain. Connections that are open then continue.
    pub async fn run(self, dialer: Dialer, scope: Scope) {
        let Self { listener, entry_point, servers, .. } = self;
        let service = Arc::new(PassthroughService { entry_point, servers, dialer, scope: scope.clone() });
        let begin = |accepted| {
            let (admitted, ()) =
                by_source::check_source(&service.dialer, accepted, [(&service.entry_point, ())])?;
            Some(Arc::clone(&service).serve(admitted))
        };
        listener.run(&scope, begin).await;
    }
}

impl PassthroughService {
    async fn serve(self: Arc<Self>, admitted: AdmittedConnection) {
        let Some(AdmittedConnection { mut stream, from, slot, condition }) =
            admitted.move_to_current_runtime()
        else {
            return;
        };
        // Both arms are cancel-safe: no work has begun for this connection.
        let hello = tokio::select! {
            hello = timeout(HELLO_MAX, client_hello::read(&mut stream)) => hello,
            () = self.scope.draining() => return,
        };
        let hello = match hello {
            Ok(Ok(hello)) => Ok(hello),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(PassthroughRefusal::Silent),
        };
        let site = hello.and_then(|hello| Ok((self.target_of(&hello)?, hello.bytes)));
        let served = match site {
            // Both arms are cancel-safe: if the client has gone, the dial is dropped.
            Ok((site, bytes)) => tokio::select! {
                served = self.entry_point.connect(&self.dialer, site, (from, condition)) => served.map(|connected| (connected, bytes)).map_err(PassthroughRefusal::from),
                () = peer_closed(&stream) => return,
            },
            Err(refusal) => {
                by_source::count_unauthenticated(&self.dialer, from, refusal.cause(), &refusal);
                Err(refusal)
            }
        };
        match served {
            Ok(((connected, guards), bytes)) => {
                let stream = ResetOnDrop::with_prefix(Bytes::from(bytes), stream);
                connected.relay(async { Ok::<_, std::io::Error>(stream) }, (guards, slot));
            }
            Err(refusal) => send_alert(&mut stream, &refusal).await,
        }
    }

    fn target_of(&self, hello: &BufferedHello) -> Result<&ClusterTarget, PassthroughRefusal> {
        let name = hello.server_name.as_deref().ok_or(PassthroughRefusal::NoName)?;
        self.servers.get(name).ok_or(PassthroughRefusal::UnknownName)
    }
}

/// Sends the alert of a refusal, unless the client does not speak TLS.
async fn send_alert(stream: &mut TcpStream, refusal: &PassthroughRefusal) {
    if let Some(alert) = refusal.alert() {
        // A client that has gone needs no answer.
        let sent = stream.write_all(&alert.record()).await;
        drop(sent.and(stream.shutdown().await));
    }
}
