//! Who comes by a way in at which nobody proves anything: from where they may, with a place, and to a site that is written down.

use std::net::SocketAddr;

use audit::Why;
use daemon::metrics::exchanges::{Active, Exchanges};
use policy::Network;
use tokio::net::TcpStream;
use tracing::debug;

use super::asking::{self, Asking, Refuses};
use super::places::{Place, Places};
use super::{Connected, Dials};
use crate::config::{self, Site};
use crate::identity;
use crate::listener::sources::prefix;
use crate::metrics;
use crate::shares::{Kind, Limit, Share, Use};

/// The word for programs where somebody comes from elsewhere.
const SOURCE_REFUSED: &str = "SourceRefused";

/// A way in.
pub(crate) struct ByPlace {
    config: config::ByPlace,
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
pub(crate) enum Turned {
    /// From elsewhere.
    #[error("it comes from none of the networks from which one may")]
    Source,
    /// There are too many.
    #[error(transparent)]
    Limited(#[from] Limit),
}

impl Turned {
    fn cause(&self) -> &'static str {
        match self {
            Self::Source => SOURCE_REFUSED,
            Self::Limited(limit) => limit.cause(),
        }
    }
}

impl ByPlace {
    /// `limits` are those that are passed where too many come, in all and from one source.
    pub(crate) fn new(
        config: config::ByPlace,
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

    /// The network by which somebody may come from there, if there is one.
    pub(crate) fn condition(&self, from: SocketAddr) -> Option<Network> {
        self.config.sources.of(from.ip())
    }

    /// Whoever comes by `condition`, which is of the way in that it came by, and has a place; everybody else is reset.
    pub(crate) fn let_in(
        &self,
        dials: &Dials,
        (stream, from): (TcpStream, SocketAddr),
        condition: Network,
    ) -> Option<Newcomer> {
        match self.places.take(prefix(from.ip())) {
            Ok(place) => Some(Newcomer { stream, from, place, condition }),
            Err(limit) => {
                turn_away(dials, (stream, from), &limit.into());
                None
            }
        }
    }

    /// Connects whoever came to the API server, if they may be, with what that takes of limits.
    ///
    /// # Errors
    /// Why not, in the words of the door.
    pub(crate) async fn connect<R: Refuses>(
        &self,
        dials: &Dials,
        site: &Site,
        (from, condition): (SocketAddr, Network),
    ) -> Result<(Connected, (Share, Active)), R> {
        let caller = identity::by_place(&self.config.name, prefix(from.ip()), condition);
        let Site { cluster, target } = site;
        let said = target.to_string();
        let asking =
            Asking { caller: &caller, listener: self.listener, from, target: &said, kind: Kind::WayIn };
        let permitted = dials.permit(&caller, cluster.clone(), target.clone());
        let begun = dials.begin(&asking, async { Ok::<_, R>(permitted.await?) });
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

/// Resets somebody of whom no more is known than where they came from, and counts them.
pub(crate) fn turn_away(dials: &Dials, (stream, from): (TcpStream, SocketAddr), turned: &Turned) {
    count_stranger(dials, from, turned.cause(), turned);
    // One that is closed already cannot be reset.
    let _ = stream.set_zero_linger();
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
