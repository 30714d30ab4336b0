//! Who comes by a way in at which nobody proves anything: from where they may, with a place, and to a site that is written down.

use std::io;
use std::net::SocketAddr;

use audit::Why;
use daemon::Scope;
use daemon::metrics::exchanges::{Active, Exchanges};
use http::StatusCode;
use policy::Network;
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use super::asking::{self, Asking, Refuses};
use super::places::{Place, Places};
use super::{Connected, Dials, NotConnected, Within};
use crate::config::{self, ClusterTarget};
use crate::identity;
use crate::listener::accepting;
use crate::listener::sources::prefix;
use crate::metrics;
use crate::shares::{Kind, Limit, Share, Use};

/// The word for programs where somebody comes from elsewhere.
const SOURCE_REFUSED: &str = "SourceRefused";

/// A way in.
pub(crate) struct ByPlace {
    config: config::SourceEntryPoint,
    /// As the audit log calls it.
    listener: &'static str,
    places: Places,
    exchanges: Exchanges,
}

/// Who came, and what it holds as long as it is there.
pub(crate) struct Newcomer {
    pub(crate) stream: TcpStream,
    pub(crate) from: SocketAddr,
    pub(crate) place: Place,
    /// By which it may come.
    pub(crate) condition: Network,
}

/// Why somebody is reset unheard.
#[derive(Debug, thiserror::Error)]
enum Turned {
    /// From elsewhere.
    #[error("it comes from none of the networks from which one may")]
    Source,
    /// There are too many.
    #[error(transparent)]
    Limited(#[from] Limit),
}

/// Why somebody who was let in is not connected; a sentence for the log.
#[derive(Debug, thiserror::Error)]
pub enum NotServed {
    /// Too much at once, or too fast.
    #[error("{0}")]
    Limited(#[from] Limit),
    /// It may not be, or cannot.
    #[error("{0}")]
    NotConnected(#[from] NotConnected),
}

impl Turned {
    fn cause(&self) -> &'static str {
        match self {
            Self::Source => SOURCE_REFUSED,
            Self::Limited(limit) => limit.cause(),
        }
    }
}

impl Refuses for NotServed {
    fn status(&self) -> StatusCode {
        match self {
            Self::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NotConnected(fault) => fault.status(),
        }
    }

    fn cause(&self) -> &'static str {
        match self {
            Self::Limited(limit) => limit.cause(),
            Self::NotConnected(fault) => fault.cause(),
        }
    }

    fn fault(&self) -> Option<&NotConnected> {
        if let Self::NotConnected(fault) = self { Some(fault) } else { None }
    }
}

impl ByPlace {
    /// `limits` are those that are passed where too many come, in all and from one source.
    pub(crate) fn new(
        config: config::SourceEntryPoint,
        listener: &'static str,
        limits: [fn(usize) -> Limit; 2],
    ) -> Self {
        metrics::describe_refusals(&[SOURCE_REFUSED]);
        let places = Places::new([config.connections, config.connections_per_source], limits);
        Self { config, listener, places, exchanges: metrics::exchanges() }
    }

    /// How much of its limits is used, also while it runs.
    pub(crate) fn uses(&self) -> impl Fn() -> [Use; 2] + Send + Sync + 'static {
        let places = self.places.clone();
        move || places.uses()
    }

    /// Connects whoever came to the API server, if they may be, with what that takes of limits.
    ///
    /// # Errors
    /// Why not, which is counted.
    pub(crate) async fn connect(
        &self,
        dials: &Dials,
        site: &ClusterTarget,
        (from, condition): (SocketAddr, Network),
    ) -> Result<(Connected, (Share, Active)), NotServed> {
        let caller = identity::by_source(&self.config.name, prefix(from.ip()), condition);
        let ClusterTarget { cluster, target } = site;
        let said = target.to_string();
        let asking =
            Asking { caller: &caller, listener: self.listener, from, target: &said, kind: Kind::WayIn };
        let permitted = dials.permit(&caller, Within::Cluster(cluster.clone()), target.clone());
        let begun = dials.begin(&asking, async { Ok::<_, NotServed>(permitted.await?) });
        let ((connected, share), active) = asking::counted(&self.exchanges, begun).await?;
        Ok((connected, (share, active)))
    }
}

impl Newcomer {
    /// The same on this runtime, where no small answer waits for the acknowledgement of an earlier one. None, where it has gone.
    pub(crate) fn here(self) -> Option<Self> {
        let Self { stream, from, place, condition } = self;
        // It was accepted on another runtime.
        let stream = stream.into_std().and_then(TcpStream::from_std).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self { stream, from, place, condition })
    }
}

/// Has `begin` make something of whoever comes, on each home in turn, until the drain.
pub(crate) async fn accept<F>(
    listener: &TcpListener,
    scope: &Scope,
    begin: impl Fn((TcpStream, SocketAddr)) -> Option<F>,
    refused: impl Fn(io::Error),
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut homes = scope.homes_in_turn();
    let spawn = |came| {
        if let Some(serving) = begin(came) {
            scope.spawn_on(homes(), serving);
        }
    };
    // Both arms are cancel-safe: accepting may be dropped at any time. Biased, so that a flood holds no drain up.
    tokio::select! {
        biased;
        () = scope.draining() => {}
        () = accepting::each(|| listener.accept(), spawn, refused) => {}
    }
}

/// Whoever may come by one of these ways and has a place there, and what stands beside it; everybody else is reset.
pub(crate) fn let_in<'a, T>(
    dials: &Dials,
    (stream, from): (TcpStream, SocketAddr),
    ways: impl IntoIterator<Item = (&'a ByPlace, T)>,
) -> Option<(Newcomer, T)> {
    let open =
        |(way, beside): (&'a ByPlace, T)| Some((way, way.config.sources.network_of(from.ip())?, beside));
    let admitted = match ways.into_iter().find_map(open) {
        Some((way, condition, beside)) => {
            let place = way.places.take(prefix(from.ip()));
            place.map(|place| (place, condition, beside)).map_err(Turned::from)
        }
        None => Err(Turned::Source),
    };
    match admitted {
        Ok((place, condition, beside)) => Some((Newcomer { stream, from, place, condition }, beside)),
        Err(turned) => {
            count_stranger(dials, from, turned.cause(), &turned);
            // One that is closed already cannot be reset.
            let _ = stream.set_zero_linger();
            None
        }
    }
}

/// Counts somebody of whom no more is known than where they came from.
pub(crate) fn count_stranger(
    dials: &Dials,
    from: SocketAddr,
    cause: &'static str,
    why: &dyn std::fmt::Display,
) {
    debug!(%from, %why, "not let in");
    metrics::refused(cause);
    dials.recorder().stranger(from.ip().to_canonical(), Why::Refused);
}
