//! The door at which TLS passes through untouched, to the API server that its server name says.
//!
//! What somebody proves is proved inside TLS, to the API server. Here it is only known from where they come: so whoever comes is
//! one principal, the way in itself, and only networks that are named may come at all.

mod hello;
mod places;
mod refusal;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use audit::Why;
use bytes::Bytes;
use daemon::metrics::exchanges::{Active, Exchanges};
use daemon::{Failure, Scope, listen};
use policy::Network;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::config::{self, Site};
use crate::dialing::asking::{self, Asking, Refuses as _};
use crate::dialing::whole::Whole;
use crate::dialing::{Connected, Dials, gone};
use crate::identity::{self, Caller};
use crate::listener::accepting;
use crate::listener::sources::prefix;
use crate::metrics;
use crate::shares::{Kind, Share, Use};
use hello::Hello;
use places::{Place, Places};

pub use refusal::{Alert, Refusal};

/// A whole ClientHello arrives within this time.
const HELLO_MAX: Duration = Duration::from_secs(10);

/// A bound port at which nobody is answered yet.
#[derive(Debug)]
pub struct Passthrough {
    listener: TcpListener,
    address: SocketAddr,
    config: config::Passthrough,
    places: Places,
}

/// What connections have in common.
struct Door {
    config: config::Passthrough,
    dials: Dials,
    exchanges: Exchanges,
    scope: Scope,
}

/// Who came, from where, and its place.
struct Newcomer {
    stream: TcpStream,
    from: SocketAddr,
    /// By which it may come.
    condition: Network,
    place: Place,
}

impl Passthrough {
    /// Takes the port.
    ///
    /// # Errors
    /// [`Failure`]: it is taken.
    pub async fn bind(config: config::Passthrough) -> Result<Self, Failure> {
        let listener = listen::tcp("passthrough.listen", config.listen).await?;
        let address = listener.local_addr().map_err(Failure::could_not_go_on)?;
        let places = Places::new(config.connections, config.connections_per_source);
        metrics::describe_refusals(&Refusal::CAUSES);
        Ok(Self { listener, address, config, places })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How much of its limits is used, also while it runs.
    pub fn uses(&self) -> impl Fn() -> [Use; 2] + Send + Sync + 'static {
        let places = self.places.clone();
        move || places.uses()
    }

    /// Serves whoever may come, until the drain. What is connected then goes on.
    pub async fn run(self, dials: Dials, scope: Scope) {
        let Self { listener, config, places, .. } = self;
        let door = Arc::new(Door { config, dials, exchanges: metrics::exchanges(), scope: scope.clone() });
        let mut homes = scope.homes_in_turn();
        let spawn = |(stream, from)| {
            if let Some(newcomer) = door.let_in(stream, from, &places) {
                scope.spawn_on(homes(), Arc::clone(&door).serve(newcomer));
            }
        };
        let refused = |error| warn!(%error, "cannot accept a connection whose TLS is to pass through");
        // Both arms are cancel-safe: accepting may be dropped at any time. Biased, so that a flood holds no drain up.
        tokio::select! {
            biased;
            () = scope.draining() => {}
            () = accepting::each(|| listener.accept(), spawn, refused) => {}
        }
    }
}

impl Door {
    /// Whoever may come and has a place; everybody else is reset.
    fn let_in(&self, stream: TcpStream, from: SocketAddr, places: &Places) -> Option<Newcomer> {
        let admitted = match self.config.sources.of(from.ip()) {
            Some(condition) => {
                places.take(prefix(from.ip())).map(|place| (condition, place)).map_err(Refusal::from)
            }
            None => Err(Refusal::Source),
        };
        match admitted {
            Ok((condition, place)) => Some(Newcomer { stream, from, condition, place }),
            Err(refusal) => {
                self.refused(&refusal, from);
                // One that is closed already cannot be reset.
                let _ = stream.set_zero_linger();
                None
            }
        }
    }

    async fn serve(self: Arc<Self>, newcomer: Newcomer) {
        let Newcomer { stream, from, condition, place } = newcomer;
        // It was accepted on another runtime. Small answers must not wait for the acknowledgement of earlier ones.
        let stream = stream.into_std().and_then(TcpStream::from_std);
        let Ok(mut stream) = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) else {
            return;
        };
        // Both arms are cancel-safe: nothing is done yet for whoever is let go.
        let heard = tokio::select! {
            heard = timeout(HELLO_MAX, hello::read(&mut stream)) => heard,
            () = self.scope.draining() => return,
        };
        let heard = match heard {
            Ok(Ok(hello)) => Ok(hello),
            Ok(Err(fault)) => Err(fault.into()),
            Err(_) => Err(Refusal::Silent),
        };
        let site = heard.and_then(|hello| Ok((self.site_of(&hello)?, hello.bytes)));
        let served = match site {
            // Both arms are cancel-safe: what is being connected for somebody who has gone is dropped.
            Ok((site, bytes)) => tokio::select! {
                served = self.connected(site, from, condition) => served.map(|connected| (connected, bytes)),
                () = gone(&stream) => return,
            },
            Err(refusal) => {
                self.refused(&refusal, from);
                Err(refusal)
            }
        };
        match served {
            Ok(((connected, held), bytes)) => {
                let stream = Whole::behind(Bytes::from(bytes), stream);
                connected.join(async { Ok::<_, std::io::Error>(stream) }, (held, place));
            }
            Err(refusal) => tell(&mut stream, &refusal).await,
        }
    }

    fn site_of(&self, hello: &Hello) -> Result<&Site, Refusal> {
        let name = hello.server_name.as_deref().ok_or(Refusal::NoName)?;
        self.config.servers.get(name).ok_or(Refusal::UnknownName)
    }

    /// Connects the way in to the API server, if it may be, with what that takes of limits.
    async fn connected(
        &self,
        site: &Site,
        from: SocketAddr,
        condition: Network,
    ) -> Result<(Connected, (Share, Active)), Refusal> {
        let caller = identity::by_place(&self.config.name, prefix(from.ip()), condition);
        let begun = asking::counted(&self.exchanges, self.begun(&caller, site, from)).await;
        begun.map(|((connected, share), active)| (connected, (share, active)))
    }

    async fn begun(
        &self,
        caller: &Caller,
        site: &Site,
        from: SocketAddr,
    ) -> Result<(Connected, Share), Refusal> {
        let Site { cluster, target } = site;
        let said = target.to_string();
        let asking = Asking { caller, listener: "passthrough", from, target: &said, kind: Kind::WayIn };
        let permitted = self.dials.permit(caller, cluster.clone(), target.clone());
        self.dials.begin(&asking, async { Ok(permitted.await?) }).await
    }

    /// Counts somebody of whom no more is known than where they came from.
    fn refused(&self, refusal: &Refusal, from: SocketAddr) {
        debug!(%from, %refusal, "TLS does not pass through");
        metrics::refused(refusal.cause());
        self.dials.recorder().stranger(from.ip().to_canonical(), Why::Refused);
    }
}

/// Says why in TLS, where there is somebody who speaks it.
async fn tell(stream: &mut TcpStream, refusal: &Refusal) {
    if let Some(alert) = refusal.alert() {
        // Who has gone needs no answer.
        let told = stream.write_all(&alert.record()).await;
        drop(told.and(stream.shutdown().await));
    }
}
