//! The door by clusters' own addresses: this host has them, and whoever may come to one is connected to the cluster that it means to
//! them.
//!
//! What somebody proves is proved to the API server, inside TLS of which nobody here knows anything. Where two clusters have one
//! address, it is from where somebody comes that says which is meant, and nobody can come from both.

mod interface;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use daemon::{Failure, Scope, listen, reset};
use http::StatusCode;
use tokio::net::{TcpListener, TcpStream};
use tracing::warn;

use crate::config::{self, Site};
use crate::dialing::asking::Refuses;
use crate::dialing::by_place::{self, ByPlace, Newcomer, Turned};
use crate::dialing::whole::Whole;
use crate::dialing::{Dials, NotConnected};
use crate::listener::accepting;
use crate::permit::Forbidden;
use crate::shares::{Limit, Use};
use interface::Interface;

pub use interface::NotMade;

/// An interface with its addresses, and ports at which nobody is answered yet.
pub struct Vip {
    listeners: Vec<(TcpListener, SocketAddr)>,
    ways: Arc<[Way]>,
    interface: Interface,
    config: config::Vip,
}

/// What connections have in common.
struct Door {
    ways: Arc<[Way]>,
    config: config::Vip,
    dials: Dials,
    scope: Scope,
    /// As long as anything goes on.
    _interface: Interface,
}

/// Those who may come, in the order of the configuration's ways.
type Way = ByPlace;

/// Why somebody who came is reset; a sentence for the log.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Too much at once, or too fast.
    #[error("{0}")]
    Limited(#[from] Limit),
    /// It may not be, or cannot.
    #[error("{0}")]
    NotConnected(#[from] NotConnected),
}

impl Refuses for Refusal {
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

    fn forbidden(&self) -> Option<&Forbidden> {
        if let Self::NotConnected(fault) = self { fault.forbidden() } else { None }
    }
}

impl Vip {
    /// Makes the interface, and takes its ports.
    ///
    /// # Errors
    /// [`Failure`] with [`NotMade`], or a port of it is taken. Then there is no interface.
    pub async fn bind(config: config::Vip) -> Result<Self, Failure> {
        let all: BTreeSet<SocketAddr> =
            config.ways.iter().flat_map(|way| way.addresses.keys().copied()).collect();
        let interface = Interface::make(&config.interface, &all.iter().map(SocketAddr::ip).collect()).await;
        let interface = interface.map_err(Failure::could_not_go_on)?;
        let mut listeners = Vec::with_capacity(all.len());
        for address in all {
            listeners.push((listen::tcp("vip.ways[].addresses[].listen", address).await?, address));
        }
        let limits: [fn(usize) -> Limit; 2] = [Limit::VipConnections, Limit::VipSource];
        let ways = config.ways.iter().map(|way| ByPlace::new(way.way.clone(), "vip", limits)).collect();
        Ok(Self { listeners, ways, interface, config })
    }

    /// How much of its limits is used, also while it runs: of the way in that has most.
    pub fn uses(&self) -> impl Fn() -> Vec<Use> + Send + Sync + 'static {
        let ways: Vec<_> = self.ways.iter().map(ByPlace::uses).collect();
        move || {
            let uses: Vec<[Use; 2]> = ways.iter().map(|uses| uses()).collect();
            [0, 1]
                .into_iter()
                .filter_map(|which| uses.iter().map(|uses| uses[which]).max_by_key(|used| used.most))
                .collect()
        }
    }

    /// Serves whoever may come, until the drain. What is connected then goes on, and the interface with it.
    pub fn run(self, dials: Dials, scope: &Scope) {
        let Self { listeners, ways, interface, config } = self;
        let door = Door { ways, config, dials, scope: scope.clone(), _interface: interface };
        let door = Arc::new(door);
        for (listener, address) in listeners {
            scope.spawn(Arc::clone(&door).accept(listener, address));
        }
    }
}

impl fmt::Display for config::Vip {
    /// What is changed of this host, as `ip` would do it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, ways } = self;
        writeln!(f, "# as long as the server runs:")?;
        writeln!(f, "ip tuntap add dev {interface} mode tun")?;
        writeln!(f, "ip link set {interface} up")?;
        let all: BTreeSet<_> = ways.iter().flat_map(|way| way.addresses.keys()).collect();
        let addresses: BTreeSet<_> = all
            .iter()
            .map(|address| policy::Network::only(address.ip()))
            .map(|network| network.to_string())
            .collect();
        for address in addresses {
            writeln!(f, "ip address add {address} dev {interface}")?;
        }
        for way in ways {
            let name = &way.way.name;
            writeln!(f, "# for way-in:{name}, from {}:", way.way.sources)?;
            for (address, Site { cluster, target }) in &way.addresses {
                writeln!(f, "#   {address} is {target} of {cluster}")?;
            }
        }
        Ok(())
    }
}

impl Door {
    async fn accept(self: Arc<Self>, listener: TcpListener, address: SocketAddr) {
        let mut homes = self.scope.homes_in_turn();
        let spawn = |came| {
            if let Some((newcomer, index)) = self.let_in(came, address) {
                self.scope.spawn_on(homes(), Arc::clone(&self).serve(newcomer, index, address));
            }
        };
        let refused = |error| warn!(%address, %error, "cannot accept a connection to a cluster's address");
        // Both arms are cancel-safe: accepting may be dropped at any time. Biased, so that a flood holds no drain up.
        tokio::select! {
            biased;
            () = self.scope.draining() => {}
            () = accepting::each(|| listener.accept(), spawn, refused) => {}
        }
    }

    /// Whoever may come to `address` and has a place, and by which way; everybody else is reset.
    fn let_in(&self, came: (TcpStream, SocketAddr), address: SocketAddr) -> Option<(Newcomer, usize)> {
        let ways = self.config.ways.iter().zip(&*self.ways).enumerate();
        let mut of_address = ways.filter(|(_, (configured, _))| configured.addresses.contains_key(&address));
        let Some((index, way, condition)) =
            of_address.find_map(|(index, (_, way))| Some((index, way, way.condition(came.1)?)))
        else {
            by_place::turn_away(&self.dials, came, &Turned::Source);
            return None;
        };
        Some((way.let_in(&self.dials, came, condition)?, index))
    }

    async fn serve(self: Arc<Self>, newcomer: Newcomer, index: usize, address: SocketAddr) {
        let (Some(way), Some(site)) =
            (self.ways.get(index), self.config.ways.get(index).and_then(|way| way.addresses.get(&address)))
        else {
            return;
        };
        let Some(Newcomer { stream, from, place, condition }) = newcomer.here() else { return };
        // Both arms are cancel-safe: what is being connected for somebody who has gone is dropped. Who has said all that it has to
        // say may be waiting for a target that speaks.
        let connected = tokio::select! {
            connected = way.connect::<Refusal>(&self.dials, site, (from, condition)) => connected,
            () = reset(&stream) => return,
        };
        // Reset when it is dropped, unless it has ended: there are no words for who speaks another protocol.
        let stream = Whole::of(stream);
        if let Ok((connected, held)) = connected {
            let held = (held, place, Arc::clone(&self));
            connected.join(async { Ok::<_, Infallible>(stream) }, held);
        }
    }
}
