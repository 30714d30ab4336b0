//! The door at which TLS passes through untouched, to the API server that its server name says.
//!
//! What somebody proves is proved inside TLS, to the API server. Here it is only known from where they come: so whoever comes is
//! one principal, the way in itself, and only networks that are named may come at all.

mod hello;
mod refusal;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::{Failure, Scope, gone, listen};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tracing::warn;

use crate::config::{self, ClusterTarget};
use crate::dialing::Dials;
use crate::dialing::by_place::{self, ByPlace, Newcomer};
use crate::dialing::whole::Whole;
use crate::metrics;
use crate::shares::{Limit, Use};
use hello::Hello;

pub use refusal::{Alert, Refusal};

/// A whole ClientHello arrives within this time.
const HELLO_MAX: Duration = Duration::from_secs(10);

/// A bound port at which nobody is answered yet.
pub struct Passthrough {
    listener: TcpListener,
    address: SocketAddr,
    way: ByPlace,
    servers: BTreeMap<String, ClusterTarget>,
}

/// What connections have in common.
struct Door {
    way: ByPlace,
    servers: BTreeMap<String, ClusterTarget>,
    dials: Dials,
    scope: Scope,
}

impl Passthrough {
    /// Takes the port.
    ///
    /// # Errors
    /// [`Failure`]: it is taken.
    pub async fn bind(config: config::PassthroughConfig) -> Result<Self, Failure> {
        let config::PassthroughConfig { entry_point: way, listen, servers } = config;
        let listener = listen::tcp("passthrough.listen", listen).await?;
        let address = listener.local_addr().map_err(Failure::could_not_go_on)?;
        metrics::describe_refusals(&Refusal::CAUSES);
        let limits: [fn(usize) -> Limit; 2] = [Limit::PassthroughConnections, Limit::PassthroughSource];
        Ok(Self { listener, address, way: ByPlace::new(way, "passthrough", limits), servers })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How much of its limits is used, also while it runs.
    pub fn uses(&self) -> impl Fn() -> [Use; 2] + Send + Sync + 'static {
        self.way.uses()
    }

    /// Serves whoever may come, until the drain. What is connected then goes on.
    pub async fn run(self, dials: Dials, scope: Scope) {
        let Self { listener, way, servers, .. } = self;
        let door = Arc::new(Door { way, servers, dials, scope: scope.clone() });
        let begin = |came| {
            let (newcomer, ()) = by_place::let_in(&door.dials, came, [(&door.way, ())])?;
            Some(Arc::clone(&door).serve(newcomer))
        };
        let refused = |error| warn!(%error, "cannot accept a connection whose TLS is to pass through");
        by_place::accept(&listener, &scope, begin, refused).await;
    }
}

impl Door {
    async fn serve(self: Arc<Self>, newcomer: Newcomer) {
        let Some(Newcomer { mut stream, from, place, condition }) = newcomer.here() else { return };
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
                served = self.way.connect(&self.dials, site, (from, condition)) => served.map(|connected| (connected, bytes)).map_err(Refusal::from),
                () = gone(&stream) => return,
            },
            Err(refusal) => {
                by_place::count_stranger(&self.dials, from, refusal.cause(), &refusal);
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

    fn site_of(&self, hello: &Hello) -> Result<&ClusterTarget, Refusal> {
        let name = hello.server_name.as_deref().ok_or(Refusal::NoName)?;
        self.servers.get(name).ok_or(Refusal::UnknownName)
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
