//! Virtual addresses of clusters: this host has them, and connects each client to the cluster that the
//! address stands for.
//!
//! Clients authenticate to the API server inside TLS, which this server cannot read. If two clusters share an
//! address, the client's source network decides, and no source may select both.

mod assigned;
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

use crate::config::{self, Site, VipWay};
use crate::dialing::Dialer;
use crate::dialing::by_source::{self, AdmittedConnection, SourceEntryPoint};
use crate::dialing::reset_on_drop::ResetOnDrop;
use crate::directory::Directory;
use crate::limits::{LimitExceeded, LimitUsage};
use interface::Interface;
use publishing::Publisher;

pub use assigned::dry_run;
pub use interface::InterfaceError;
pub use publishing::{HostNamespace, LIST_BYTES_MAX, SYNC_GAP, SYNC_INTERVAL};

/// An interface with its addresses, and bound ports that do not accept yet.
pub struct VipListener {
    listeners: Vec<VipSocket>,
    ways: Vec<Arc<SourceEntryPoint>>,
    interface: Interface,
    publisher: Option<Publisher>,
}

struct VipSocket {
    socket: TcpListener,
    address: SocketAddr,
    /// The clusters behind this address. No source is allowed by two of them.
    routes: Vec<Arc<AddressRoute>>,
}

/// The target of an address, for clients of one entry point.
struct AddressRoute {
    way: Arc<SourceEntryPoint>,
    site: Site,
}

/// The state that all connections share.
struct VipService {
    dialer: Dialer,
    scope: Scope,
    /// Keeps the interface as long as any connection is open.
    _interface: Interface,
}

impl VipListener {
    /// Assigns addresses to clusters of ranges by `directory`, makes the interface, and binds the ports. With
    /// `published` the addresses also become Services in that namespace.
    ///
    /// # Errors
    /// [`Failure`] with [`crate::directory::NotHandedOut`] or [`InterfaceError`], or because a port is taken.
    /// No interface is left behind.
    pub async fn bind(
        mut config: config::Vip,
        directory: &Directory,
        published: Option<HostNamespace>,
    ) -> Result<Self, Failure> {
        let given = assigned::assign(&mut config, directory).await?;
        let publisher = published.map(|at| Publisher::new(at, given, directory.clone()));
        let limits: [fn(usize) -> LimitExceeded; 2] =
            [LimitExceeded::VipConnections, LimitExceeded::VipSource];
        let (mut ways, mut all) = (Vec::new(), BTreeMap::<SocketAddr, Vec<Arc<AddressRoute>>>::new());
        for VipWay { way, addresses, .. } in config.ways {
            let way = Arc::new(SourceEntryPoint::new(way, "vip", limits));
            for (address, site) in addresses {
                let route = AddressRoute { way: Arc::clone(&way), site };
                all.entry(address).or_default().push(Arc::new(route));
            }
            ways.push(way);
        }
        let interface = Interface::make(&config.interface, &all.keys().map(SocketAddr::ip).collect()).await;
        let interface = interface.map_err(Failure::could_not_go_on)?;
        let mut listeners = Vec::with_capacity(all.len());
        for (address, routes) in all {
            let socket = listen::tcp("vip.ways[].addresses[].listen", address).await?;
            listeners.push(VipSocket { socket, address, routes });
        }
        Ok(Self { listeners, ways, interface, publisher })
    }

    /// Reports the use of the limits, also while it runs. The busiest entry point counts.
    pub fn usage(&self) -> impl Fn() -> Vec<LimitUsage> + Send + Sync + 'static {
        let ways: Vec<_> = self.ways.iter().map(|way| way.usage()).collect();
        move || {
            let usage: Vec<[LimitUsage; 2]> = ways.iter().map(|usage| usage()).collect();
            [0, 1]
                .into_iter()
                .filter_map(|which| usage.iter().map(|usage| usage[which]).max_by_key(|used| used.most))
                .collect()
        }
    }

    /// Serves connections until the drain. Connections that are open then continue, and keep the interface.
    pub fn run(self, dialer: Dialer, scope: &Scope) {
        let Self { listeners, interface, publisher, .. } = self;
        let service = Arc::new(VipService { dialer, scope: scope.clone(), _interface: interface });
        for listener in listeners {
            scope.spawn(Arc::clone(&service).accept(listener));
        }
        if let Some(publisher) = publisher {
            scope.attend(publisher.run(scope.clone()));
        }
    }
}

impl fmt::Display for config::Vip {
    /// Writes the changes to this host as `ip` commands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, ways, .. } = self;
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
            let name = &way.way.name;
            writeln!(f, "# for entry-point:{name}, from {}:", way.way.sources)?;
            for (address, Site { cluster, target }) in &way.addresses {
                writeln!(f, "#   {address} is {target} of {cluster}")?;
            }
        }
        Ok(())
    }
}

impl VipService {
    async fn accept(self: Arc<Self>, listener: VipSocket) {
        let VipSocket { socket, address, routes } = listener;
        let begin = |accepted| {
            let ways = routes.iter().map(|route| (&*route.way, route));
            let (admitted, route) = by_source::check_source(&self.dialer, accepted, ways)?;
            Some(Arc::clone(&self).serve(admitted, Arc::clone(route)))
        };
        let refused = |error| warn!(%address, %error, "cannot accept a connection to a cluster's address");
        by_source::accept(&socket, &self.scope, begin, refused).await;
    }

    async fn serve(self: Arc<Self>, admitted: AdmittedConnection, route: Arc<AddressRoute>) {
        let Some(AdmittedConnection { stream, from, slot, condition }) = admitted.move_to_current_runtime()
        else {
            return;
        };
        let AddressRoute { way, site } = &*route;
        // Both arms are cancel-safe: if the client has reset the connection, the dial is dropped. A client that has only shut
        // down its sending side may still wait for the target to speak.
        let connected = tokio::select! {
            connected = way.connect(&self.dialer, site, (from, condition)) => connected,
            () = reset(&stream) => return,
        };
        // A refused client is reset, because the protocol of the port is not known.
        let stream = ResetOnDrop::new(stream);
        if let Ok((connected, guards)) = connected {
            let guards = (guards, slot, Arc::clone(&self));
            connected.relay(async { Ok::<_, Infallible>(stream) }, guards);
        }
    }
}
