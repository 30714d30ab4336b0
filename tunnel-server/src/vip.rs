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

use daemon::listen::GuardedListener;
use daemon::{Failure, Scope, peer_reset};

use crate::config::{self, ClusterTarget, VipEntryPoint};
use crate::dialing::Dialer;
use crate::dialing::by_source::{self, AdmittedConnection, BoundEntryPoint};
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
    entry_points: Vec<Arc<BoundEntryPoint>>,
    interface: Interface,
    publisher: Option<Publisher>,
}

struct VipSocket {
    socket: GuardedListener,
    /// The clusters behind this address. No source is allowed by two of them.
    routes: Vec<Arc<AddressRoute>>,
}

/// The target of an address, for clients of one entry point.
struct AddressRoute {
    entry_point: Arc<BoundEntryPoint>,
    site: ClusterTarget,
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
    /// [`Failure`] with [`crate::directory::AddressError`] or [`InterfaceError`], or because a port is taken.
    /// No interface is left behind.
    pub async fn bind(
        mut config: config::VipConfig,
        directory: &Directory,
        published: Option<HostNamespace>,
    ) -> Result<Self, Failure> {
        let assigned = assigned::assign(&mut config, directory).await?;
        let publisher = published.map(|at| Publisher::new(at, assigned, directory.clone()));
        let limits: [fn(usize) -> LimitExceeded; 2] =
            [LimitExceeded::VipConnections, LimitExceeded::VipSource];
        let (mut entry_points, mut all) = (Vec::new(), BTreeMap::<SocketAddr, Vec<Arc<AddressRoute>>>::new());
        for VipEntryPoint { entry_point, addresses, .. } in config.entry_points {
            let entry_point = Arc::new(BoundEntryPoint::new(entry_point, "vip", limits));
            for (address, site) in addresses {
                let route = AddressRoute { entry_point: Arc::clone(&entry_point), site };
                all.entry(address).or_default().push(Arc::new(route));
            }
            entry_points.push(entry_point);
        }
        let interface = Interface::make(&config.interface, &all.keys().map(SocketAddr::ip).collect()).await;
        let interface = interface.map_err(Failure::could_not_go_on)?;
        let mut listeners = Vec::with_capacity(all.len());
        for (address, routes) in all {
            let key = "vip.ways[].addresses[].listen";
            listeners
                .push(VipSocket { socket: GuardedListener::bind(key, address, by_source::LIMITS)?, routes });
        }
        Ok(Self { listeners, entry_points, interface, publisher })
    }

    /// Reports the use of the limits, also while it runs. The busiest entry point counts.
    pub fn usage(&self) -> impl Fn() -> Vec<LimitUsage> + Send + Sync + 'static {
        let readers: Vec<_> = self.entry_points.iter().map(|entry_point| entry_point.usage()).collect();
        move || {
            let usage: Vec<[LimitUsage; 2]> = readers.iter().map(|usage| usage()).collect();
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
            scope.spawn_background(publisher.run(scope.clone()));
        }
    }
}

impl fmt::Display for config::VipConfig {
    /// Writes the changes to this host as `ip` commands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, entry_points: ways, .. } = self;
        writeln!(f, "# as long as the server runs:")?;
        writeln!(f, "ip tuntap add dev {interface} mode tun")?;
        writeln!(f, "ip link set {interface} up")?;
        let all = ways.iter().flat_map(|entry_point| entry_point.addresses.keys());
        let addresses: BTreeSet<_> =
            all.map(|address| policy::Network::only(address.ip()).to_string()).collect();
        for address in addresses {
            writeln!(f, "ip address add {address} dev {interface}")?;
        }
        for entry_point in ways {
            let name = &entry_point.entry_point.name;
            writeln!(f, "# for entry-point:{name}, from {}:", entry_point.entry_point.sources)?;
            for (address, ClusterTarget { cluster, target }) in &entry_point.addresses {
                writeln!(f, "#   {address} is {target} of {cluster}")?;
            }
        }
        Ok(())
    }
}

impl VipService {
    async fn accept(self: Arc<Self>, listener: VipSocket) {
        let VipSocket { socket, routes } = listener;
        let begin = |accepted| {
            let entry_points = routes.iter().map(|route| (&*route.entry_point, route));
            let (admitted, route) = by_source::check_source(&self.dialer, accepted, entry_points)?;
            Some(Arc::clone(&self).serve(admitted, Arc::clone(route)))
        };
        socket.run(&self.scope, begin).await;
    }

    async fn serve(self: Arc<Self>, admitted: AdmittedConnection, route: Arc<AddressRoute>) {
        let Some(AdmittedConnection { stream, from, slot, condition }) = admitted.move_to_current_runtime()
        else {
            return;
        };
        let AddressRoute { entry_point, site } = &*route;
        // Both arms are cancel-safe: if the client has reset the connection, the dial is dropped. A client that has only shut
        // down its sending side may still wait for the target to speak.
        let connected = tokio::select! {
            connected = entry_point.connect(&self.dialer, site, (from, condition)) => connected,
            () = peer_reset(&stream) => return,
        };
        // A refused client is reset, because the protocol of the port is not known.
        let stream = ResetOnDrop::new(stream);
        if let Ok((connected, guards)) = connected {
            let guards = (guards, slot, Arc::clone(&self));
            connected.relay(async { Ok::<_, Infallible>(stream) }, guards);
        }
    }
}
