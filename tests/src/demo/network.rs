//! The addresses of the cloud and the edges: network namespaces with uplinks, or loopback addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;

use super::DemoError;
use super::forward::Forwarder;
use super::isolation::Isolation;
use super::link::DemoLink;
use crate::kube::ClusterOptions;
use crate::network::{NetworkError, NetworkNamespace};
use crate::process::Process;

/// The clusters' names, and their contexts' names in the kubeconfig.
pub(super) const EDGES: [&str; 2] = ["edge-a", "edge-b"];

/// The address that each edge cluster takes for its control plane's. In a namespace it really is.
pub(super) const CONTROL_PLANE: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 168, 1, 10)), 6443);

/// The server's address in the cloud, as agents dial it (RFC 5737: for documentation).
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The site's end of the link to the cloud; the cloud's end has the cluster's name.
const UPLINK: &str = "uplink";
const PORT: u16 = 8443;
const SERVER_PROBES_PORT: u16 = 9090;
const AGENT_PROBES_PORT: u16 = 9091;

/// The addresses of the demo, with their namespaces. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct DemoNetwork {
    _forwarder: Option<Forwarder>,
    /// The addresses of the server in the cloud.
    pub(super) cloud: Cloud,
    /// The clusters' parts, in the order of [`EDGES`].
    pub(super) edges: Vec<Edge>,
    /// The gateway, as the person's terminal reaches it.
    pub(super) gateway: SocketAddr,
    /// The server's probes and metrics, as the person's terminal reaches them.
    pub(super) probes: SocketAddr,
}

/// The addresses of the server.
#[derive(Debug)]
pub(super) struct Cloud {
    pub(super) namespace: Option<NetworkNamespace>,
    /// The address that the gateway binds.
    pub(super) gateway: SocketAddr,
    /// The address that the listener for agents binds.
    pub(super) tunnel: SocketAddr,
    /// The address that agents dial.
    pub(super) dialed: SocketAddr,
    /// The address that the probes bind.
    pub(super) probes: SocketAddr,
}

/// The addresses of a cluster and its agent.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) name: &'static str,
    pub(super) namespace: Option<NetworkNamespace>,
    /// The options with which the API server is started.
    pub(super) options: ClusterOptions,
    /// The address that the agent's probes bind.
    pub(super) probes: SocketAddr,
}

impl DemoNetwork {
    pub(super) async fn prepare(isolation: &Isolation, gateway_port: Option<u16>) -> Result<Self, DemoError> {
        let gateway = listener(gateway_port, PORT)?;
        let probes = listener(None, SERVER_PROBES_PORT)?;
        match isolation {
            Isolation::Namespaces | Isolation::UserNamespace => Self::in_namespaces(gateway, probes).await,
            Isolation::Loopback { .. } => Self::on_loopback(&gateway, &probes).map_err(DemoError::Files),
        }
    }

    async fn in_namespaces(gateway: TcpListener, probes: TcpListener) -> Result<Self, DemoError> {
        let cloud = NetworkNamespace::new().await?;
        cloud.ip(&format!("addr add {SERVER}/32 dev lo")).await?;
        let mut edges = Vec::new();
        for (number, name) in (0..).zip(EDGES) {
            edges.push(edge_in_namespace(&cloud, number, name).await?);
        }
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let inside = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let reached = (address(&gateway)?, address(&probes)?);
        let rules = vec![(gateway, inside(PORT)), (probes, inside(SERVER_PROBES_PORT))];
        let forwarder = Forwarder::start(&cloud, rules).map_err(DemoError::Files)?;
        let cloud = Cloud {
            namespace: Some(cloud),
            gateway: any,
            tunnel: any,
            dialed: SocketAddr::from((SERVER, PORT)),
            probes: inside(SERVER_PROBES_PORT),
        };
        Ok(Self { _forwarder: Some(forwarder), cloud, edges, gateway: reached.0, probes: reached.1 })
    }

    // The listeners go when this returns, and the server takes their ports.
    fn on_loopback(gateway: &TcpListener, probes: &TcpListener) -> io::Result<Self> {
        let (gateway, probes) = (gateway.local_addr()?, probes.local_addr()?);
        let tunnel = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let cloud = Cloud { namespace: None, gateway, tunnel, dialed: tunnel, probes };
        let mut edges = Vec::new();
        for (number, name) in (1..).zip(EDGES) {
            let address = Ipv4Addr::new(127, 0, number, 10);
            let probes = TcpListener::bind((address, 0))?.local_addr()?;
            edges.push(Edge { name, namespace: None, options: ClusterOptions::loopback(address), probes });
        }
        Ok(Self { _forwarder: None, cloud, edges, gateway, probes })
    }
}

impl DemoNetwork {
    /// The link between the first cluster's agent and the server.
    pub(super) fn first_link<'a>(&'a self, agent: &'a Process) -> DemoLink<'a> {
        let edge = &self.edges[0];
        let ends = self.cloud.namespace.as_ref().zip(edge.namespace.as_ref());
        DemoLink { ends: ends.map(|(cloud, site)| [(cloud, edge.name), (site, UPLINK)]), agent }
    }
}

impl Cloud {
    pub(super) fn namespace_path(&self) -> Option<PathBuf> {
        self.namespace.as_ref().map(|namespace| namespace.path().to_owned())
    }
}

impl Edge {
    pub(super) fn namespace_path(&self) -> Option<PathBuf> {
        self.namespace.as_ref().map(|namespace| namespace.path().to_owned())
    }
}

// The edge has a route to the cloud. The cloud has none to 192.168.1.10, nor could it have two.
async fn edge_in_namespace(
    cloud: &NetworkNamespace,
    number: u8,
    name: &'static str,
) -> Result<Edge, NetworkError> {
    let edge = NetworkNamespace::new().await?;
    edge.ip(&format!("addr add {}/32 dev lo", CONTROL_PLANE.ip())).await?;
    cloud.connect(name, &edge, UPLINK).await?;
    let (near, far) = (Ipv4Addr::new(203, 0, 113, number * 2), Ipv4Addr::new(203, 0, 113, number * 2 + 1));
    cloud.ip(&format!("addr add {near}/31 dev {name}")).await?;
    edge.ip(&format!("addr add {far}/31 dev {UPLINK}")).await?;
    edge.ip(&format!("route add default via {near}")).await?;
    let options = ClusterOptions {
        network_namespace: Some(edge.path().to_owned()),
        address: CONTROL_PLANE.ip(),
        port: Some(CONTROL_PLANE.port()),
        advertise: CONTROL_PLANE.ip(),
        ..ClusterOptions::default()
    };
    let probes = SocketAddr::from((Ipv4Addr::LOCALHOST, AGENT_PROBES_PORT));
    Ok(Edge { name, namespace: Some(edge), options, probes })
}

// A port that the person asked for is that one or an error; the usual one may be another if it is taken.
fn listener(asked: Option<u16>, usual: u16) -> Result<TcpListener, DemoError> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    match asked {
        Some(port) => bind(port).map_err(|source| DemoError::Port { port, source }),
        None => bind(usual).or_else(|_| bind(0)).map_err(|source| DemoError::Port { port: usual, source }),
    }
}

fn address(listener: &TcpListener) -> Result<SocketAddr, DemoError> {
    listener.local_addr().map_err(DemoError::Files)
}
