//! The door by clusters' own addresses: this host has them, and whoever may come to one is connected to the cluster that it means to
//! them.
//!
//! What somebody proves is proved to the API server, inside TLS of which nobody here knows anything. Where two clusters have one
//! address, it is from where somebody comes that says which is meant, and nobody can come from both.

mod given;
mod interface;
mod publishing;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use daemon::{Failure, Scope, listen, reset};
use tokio::net::TcpListener;
use tracing::warn;

use crate::config::{self, ClusterTarget, VipEntryPoint};
use crate::dialing::Dials;
use crate::dialing::by_place::{self, ByPlace, Newcomer};
use crate::dialing::whole::Whole;
use crate::directory::Directory;
use crate::shares::{Limit, Use};
use interface::Interface;
use publishing::Publisher;

pub use given::dry_run;
pub use interface::NotMade;
pub use publishing::{HostNamespace, LISTED_BYTES_MAX, LOOK_EVERY, LOOK_GAP};

/// An interface with its addresses, and ports at which nobody is answered yet.
pub struct Vip {
    listeners: Vec<Listener>,
    ways: Vec<Arc<ByPlace>>,
    interface: Interface,
    publisher: Option<Publisher>,
}

struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    /// To no two of which one comes from one place.
    meanings: Vec<Arc<Meaning>>,
}

/// Where an address leads those who come by one way.
struct Meaning {
    way: Arc<ByPlace>,
    site: ClusterTarget,
}

/// What connections have in common.
struct Door {
    dials: Dials,
    scope: Scope,
    /// As long as anything goes on.
    _interface: Interface,
}

impl Vip {
    /// Has `directory` give clusters of ranges their addresses, which are to be Services in `published` if that is given; makes the
    /// interface, and takes its ports.
    ///
    /// # Errors
    /// [`Failure`] with [`crate::directory::AddressError`] or [`NotMade`], or a port is taken. Then there is no interface.
    pub async fn bind(
        mut config: config::VipConfig,
        directory: &Directory,
        published: Option<HostNamespace>,
    ) -> Result<Self, Failure> {
        let given = given::give(&mut config, directory).await?;
        let publisher = published.map(|at| Publisher::new(at, given, directory.clone()));
        let limits: [fn(usize) -> Limit; 2] = [Limit::VipConnections, Limit::VipSource];
        let (mut ways, mut all) = (Vec::new(), BTreeMap::<SocketAddr, Vec<Arc<Meaning>>>::new());
        for VipEntryPoint { entry_point: way, addresses, .. } in config.entry_points {
            let way = Arc::new(ByPlace::new(way, "vip", limits));
            for (address, site) in addresses {
                let meaning = Meaning { way: Arc::clone(&way), site };
                all.entry(address).or_default().push(Arc::new(meaning));
            }
            ways.push(way);
        }
        let interface = Interface::make(&config.interface, &all.keys().map(SocketAddr::ip).collect()).await;
        let interface = interface.map_err(Failure::could_not_go_on)?;
        let mut listeners = Vec::with_capacity(all.len());
        for (address, meanings) in all {
            let socket = listen::tcp("vip.ways[].addresses[].listen", address).await?;
            listeners.push(Listener { socket, address, meanings });
        }
        Ok(Self { listeners, ways, interface, publisher })
    }

    /// How much of its limits is used, also while it runs: of the way in that has most.
    pub fn uses(&self) -> impl Fn() -> Vec<Use> + Send + Sync + 'static {
        let ways: Vec<_> = self.ways.iter().map(|way| way.uses()).collect();
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
        let Self { listeners, interface, publisher, .. } = self;
        let door = Arc::new(Door { dials, scope: scope.clone(), _interface: interface });
        for listener in listeners {
            scope.spawn(Arc::clone(&door).accept(listener));
        }
        if let Some(publisher) = publisher {
            scope.attend(publisher.run(scope.clone()));
        }
    }
}

impl fmt::Display for config::VipConfig {
    /// What is changed of this host, as `ip` would do it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, entry_points: ways, .. } = self;
        writeln!(f, "# as long as the server runs:")?;
        writeln!(f, "ip tuntap add dev {interface} mode tun")?;
        writeln!(f, "ip link set {interface} up")?;
        let all = ways.iter().flat_map(|way| way.addresses.keys());
        let addresses: BTreeSet<_> =
            all.map(|address| policy::Network::only(address.ip()).to_string()).collect();
        for address in addresses {
            writeln!(f, "ip address add {address} dev {interface}")?;
        }
        for way in ways {
            let name = &way.entry_point.name;
            writeln!(f, "# for entry-point:{name}, from {}:", way.entry_point.sources)?;
            for (address, ClusterTarget { cluster, target }) in &way.addresses {
                writeln!(f, "#   {address} is {target} of {cluster}")?;
            }
        }
        Ok(())
    }
}

impl Door {
    async fn accept(self: Arc<Self>, listener: Listener) {
        let Listener { socket, address, meanings } = listener;
        let begin = |came| {
            let ways = meanings.iter().map(|meaning| (&*meaning.way, meaning));
            let (newcomer, meaning) = by_place::let_in(&self.dials, came, ways)?;
            Some(Arc::clone(&self).serve(newcomer, Arc::clone(meaning)))
        };
        let refused = |error| warn!(%address, %error, "cannot accept a connection to a cluster's address");
        by_place::accept(&socket, &self.scope, begin, refused).await;
    }

    async fn serve(self: Arc<Self>, newcomer: Newcomer, meaning: Arc<Meaning>) {
        let Some(Newcomer { stream, from, place, condition }) = newcomer.here() else { return };
        let Meaning { way, site } = &*meaning;
        // Both arms are cancel-safe: what is being connected for somebody who has gone is dropped. Who has said all that it has to
        // say may be waiting for a target that speaks.
        let connected = tokio::select! {
            connected = way.connect(&self.dials, site, (from, condition)) => connected,
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
