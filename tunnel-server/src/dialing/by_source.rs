//! Entry points that identify callers only by their source network. Each connection gets a slot and a
//! configured target.

use std::net::SocketAddr;

use audit::FailureCause;
use daemon::listen::{GuardedConnection, source_of};
use daemon::metrics::requests::{ActiveRequest, RequestMetrics};
use http::StatusCode;
use policy::Network;
use tokio::net::TcpStream;
use tracing::debug;

use super::admit::{self, DialRefusal, DialRequest};
use super::source_slots::{SourceSlot, SourceSlots};
use super::{DialError, Dialer, TargetScope, TargetStream};
use crate::config::{self, ClusterTarget};
use crate::identity;
use crate::limits::{ExchangeKind, LimitExceeded, LimitGuard, LimitUsage};
use crate::listener::{ConnectionPermit, ListenerLimits, PerSourceLimits};
use crate::metrics;

/// The limits of a listener whose entry points have slots of their own for each source.
pub(crate) const LIMITS: ListenerLimits = ListenerLimits {
    connections_max: 2 * config::ENTRY_POINT_CONNECTIONS_MAX,
    handshakes_max: 2 * config::ENTRY_POINT_CONNECTIONS_MAX,
    source: PerSourceLimits::UNLIMITED,
    ..ListenerLimits::DEFAULT
};

/// The cause of a refusal because of the source address.
const SOURCE_REFUSED: &str = "SourceRefused";

/// An entry point with its allowed source networks and its slots.
pub(crate) struct BoundEntryPoint {
    config: config::SourceEntryPoint,
    /// The name of the entry point in the audit log.
    listener: &'static str,
    slots: SourceSlots,
    exchanges: RequestMetrics,
}

/// An admitted connection and the slots that it holds.
pub(crate) struct AdmittedConnection {
    pub(crate) stream: TcpStream,
    pub(crate) from: SocketAddr,
    pub(crate) slot: (SourceSlot, ConnectionPermit),
    /// The configured network that contains the source.
    pub(crate) condition: Network,
}

/// The reason why a connection is reset before anything is read.
#[derive(Debug, thiserror::Error)]
enum SourceRefused {
    /// The source is in none of the allowed networks.
    #[error("its source address is in none of the allowed networks")]
    UnlistedSource,
    /// The entry point, or the source, has too many connections.
    #[error(transparent)]
    Limited(#[from] LimitExceeded),
}

/// The reason why an admitted connection was not served. The message is for the log.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A limit of the caller or of the cluster is reached.
    #[error("{0}")]
    Limited(#[from] LimitExceeded),
    /// The target may not be dialed, or cannot be.
    #[error("{0}")]
    NotConnected(#[from] DialError),
}

impl SourceRefused {
    fn cause(&self) -> &'static str {
        match self {
            Self::UnlistedSource => SOURCE_REFUSED,
            Self::Limited(limit) => limit.cause(),
        }
    }
}

impl DialRefusal for ServeError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NotConnected(error) => error.status(),
        }
    }

    fn cause(&self) -> &'static str {
        match self {
            Self::Limited(limit) => limit.cause(),
            Self::NotConnected(error) => error.cause(),
        }
    }

    fn dial_error(&self) -> Option<&DialError> {
        if let Self::NotConnected(error) = self { Some(error) } else { None }
    }
}

impl BoundEntryPoint {
    /// Creates an entry point. `limits` name the limits on all connections and on those of one source.
    pub(crate) fn new(
        config: config::SourceEntryPoint,
        listener: &'static str,
        limits: [fn(usize) -> LimitExceeded; 2],
    ) -> Self {
        metrics::describe_refusals(&[SOURCE_REFUSED]);
        let slots = SourceSlots::new([config.connections, config.connections_per_source], limits);
        Self { config, listener, slots, exchanges: metrics::requests() }
    }

    /// Reports the use of the entry point's limits, also while it runs.
    pub(crate) fn usage(&self) -> impl Fn() -> [LimitUsage; 2] + Send + Sync + 'static {
        let slots = self.slots.clone();
        move || slots.usage()
    }

    /// Connects an admitted client to the API server of `site`.
    ///
    /// # Errors
    /// The reason why not, which metrics have counted.
    pub(crate) async fn connect(
        &self,
        dialer: &Dialer,
        site: &ClusterTarget,
        (from, condition): (SocketAddr, Network),
    ) -> Result<(TargetStream, (LimitGuard, ActiveRequest)), ServeError> {
        let caller = identity::by_source(&self.config.name, source_of(from.ip()), condition);
        let ClusterTarget { cluster, target } = site;
        let target_text = target.to_string();
        let request = DialRequest {
            caller: &caller,
            listener: self.listener,
            from,
            target: &target_text,
            kind: ExchangeKind::EntryPoint,
        };
        let permitted = dialer.permit(&caller, TargetScope::Cluster(cluster.clone()), target.clone());
        let admitted = dialer.admit(&request, async { Ok::<_, ServeError>(permitted.await?) });
        let ((connected, guard), active) = admit::with_metrics(&self.exchanges, admitted).await?;
        Ok((connected, (guard, active)))
    }
}

impl AdmittedConnection {
    /// Moves the connection to the runtime of the calling task, and disables Nagle's algorithm. `None` if the
    /// connection has ended.
    pub(crate) fn move_to_current_runtime(self) -> Option<Self> {
        let Self { stream, from, slot, condition } = self;
        // The socket was accepted on another runtime.
        let stream = stream.into_std().and_then(TcpStream::from_std).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self { stream, from, slot, condition })
    }
}

/// Admits a connection to the first entry point that allows its source and has a free slot. It returns the
/// context of that entry point. Any other connection is reset.
pub(crate) fn check_source<'a, T>(
    dialer: &Dialer,
    GuardedConnection { stream, peer: from, permit, .. }: GuardedConnection,
    entry_points: impl IntoIterator<Item = (&'a BoundEntryPoint, T)>,
) -> Option<(AdmittedConnection, T)> {
    let matching = |(entry_point, context): (&'a BoundEntryPoint, T)| {
        Some((entry_point, entry_point.config.sources.network_of(from.ip())?, context))
    };
    let admitted = match entry_points.into_iter().find_map(matching) {
        Some((entry_point, condition, context)) => {
            let slot = entry_point.slots.take(source_of(from.ip()));
            slot.map(|slot| (slot, condition, context)).map_err(SourceRefused::from)
        }
        None => Err(SourceRefused::UnlistedSource),
    };
    match admitted {
        Ok((slot, condition, context)) => {
            Some((AdmittedConnection { stream, from, slot: (slot, permit), condition }, context))
        }
        Err(refused) => {
            count_unauthenticated(dialer, from, refused.cause(), &refused);
            // This fails only if the connection is closed already.
            let _ = stream.set_zero_linger();
            None
        }
    }
}

/// Counts an unauthenticated client, of which only the source address is known.
pub(crate) fn count_unauthenticated(
    dialer: &Dialer,
    from: SocketAddr,
    cause: &'static str,
    why: &dyn std::fmt::Display,
) {
    debug!(%from, %why, "refused an unauthenticated client");
    metrics::refused(cause);
    dialer.recorder().count_unauthenticated(from.ip().to_canonical(), FailureCause::Refused);
}
