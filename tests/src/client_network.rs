//! A network of people who use kubectl without any tunnel client.

use std::io::{self, ErrorKind};

use crate::caller::SOON;
use crate::dial::connect_from;
use crate::kube::EdgeCluster;
use crate::kube::kubectl::Kubectl;
use crate::lab::{Lab, NamespaceRuntime};
use crate::network::NetworkNamespace;
use crate::scratch::Scratch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A network that has a route to the server's host, and nothing else.
#[derive(Debug)]
#[must_use = "the network is gone when this is dropped"]
pub struct ClientNetwork {
    network: NetworkNamespace,
    runtime: NamespaceRuntime,
    home: Scratch,
}

impl ClientNetwork {
    /// Builds the network 10.8.`number`.0/24, with its clients at the second address.
    ///
    /// # Panics
    /// If it cannot be built.
    pub async fn build(lab: &Lab, number: u8) -> Self {
        let network = NetworkNamespace::new().await.unwrap();
        let device = format!("office-{number}");
        lab.cloud().connect(&device, &network, "eth0").await.unwrap();
        lab.cloud().ip(&format!("addr add 10.8.{number}.1/24 dev {device}")).await.unwrap();
        network.ip(&format!("addr add 10.8.{number}.2/24 dev eth0")).await.unwrap();
        network.ip(&format!("route add default via 10.8.{number}.1")).await.unwrap();
        let home = Scratch::new("tombolo-client-network-").unwrap();
        Self { runtime: NamespaceRuntime::new(&network), network, home }
    }

    /// Connects from this network to an address.
    ///
    /// # Errors
    /// An error of the system.
    pub async fn connected(&self, address: &'static str) -> io::Result<TcpStream> {
        let stream = self.runtime.run(async move { TcpStream::connect(address).await?.into_std() }).await?;
        // It was registered with the office's runtime.
        let stream = TcpStream::from_std(stream)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Gives the office one more address.
    ///
    /// # Panics
    /// If it has that.
    pub async fn has_too(&self, address: &str) {
        self.network.ip(&format!("addr add {address}/24 dev eth0")).await.unwrap();
    }

    /// Opens a connection from that address of the network, and checks that it echoes.
    ///
    /// # Errors
    /// The kind of the connection's error.
    ///
    /// # Panics
    /// If the echo differs.
    pub async fn echoing(&self, source: &str, address: &str) -> Result<TcpStream, ErrorKind> {
        let source = source.parse().expect("an address");
        let address = address.parse().expect("an address and a port");
        let output = async move {
            let mut stream = connect_from(source, address).await?;
            stream.write_all(b"hello").await?;
            let mut echoed = [0; 5];
            timeout(SOON, stream.read_exact(&mut echoed)).await.map_err(|_| ErrorKind::TimedOut)??;
            assert_eq!(&echoed, b"hello");
            Ok(stream)
        };
        self.runtime.run(output).await.map_err(|error: io::Error| error.kind())
    }

    /// Checks that a server accepts a connection there and waits for the client's first byte.
    ///
    /// # Errors
    /// The kind of the connection's error.
    pub async fn reached(&self, address: &'static str) -> Result<(), ErrorKind> {
        let read = async move {
            let mut stream = TcpStream::connect(address).await?;
            timeout(SOON, stream.read_u8()).await.map_err(|_| ErrorKind::TimedOut)?
        };
        self.runtime.run(read).await.map(drop).map_err(|error: io::Error| error.kind())
    }

    /// The network, for programs that run in it.
    pub fn network(&self) -> &NetworkNamespace {
        &self.network
    }

    /// kubectl here, with the cluster's own kubeconfig.
    pub fn kubectl(&self, cluster: &EdgeCluster) -> Kubectl {
        let kubectl = cluster.admin().with_home(self.home.path()).limit(SOON);
        kubectl.in_network_namespace(Some(self.network.path().to_owned()))
    }
}
