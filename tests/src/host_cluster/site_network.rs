//! The one network of a site: a switch, the host cluster's control plane beside it, and machines on cables.

use std::net::Ipv4Addr;

use crate::network::{NetworkError, NetworkNamespace};

/// The network of all machines.
#[derive(Debug)]
pub struct SiteNetwork {
    core: NetworkNamespace,
}

/// A machine of the site: a network of its own with one address.
#[derive(Debug)]
pub struct SiteMachine {
    /// The network, for programs of the machine.
    pub network: NetworkNamespace,
    /// The machine's address, which every other machine reaches.
    pub address: Ipv4Addr,
}

impl SiteNetwork {
    /// The address of the control plane, which is at the switch itself.
    pub const CORE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

    /// Makes the switch, with the control plane at its first address.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub async fn new() -> Result<Self, NetworkError> {
        let core = NetworkNamespace::new().await?;
        core.ip("link add name switch type bridge").await?;
        core.ip("link set switch up").await?;
        core.ip(&format!("addr add {}/24 dev switch", Self::CORE)).await?;
        Ok(Self { core })
    }

    /// The network of the control plane.
    pub fn core(&self) -> &NetworkNamespace {
        &self.core
    }

    /// Plugs in a machine whose address ends with this number.
    ///
    /// # Errors
    /// [`NetworkError`], also if the number is taken.
    pub async fn machine(&self, number: u8) -> Result<SiteMachine, NetworkError> {
        let network = NetworkNamespace::new().await?;
        let port = format!("port{number}");
        self.core.connect(&port, &network, "eth0").await?;
        self.core.ip(&format!("link set {port} master switch")).await?;
        let [a, b, c, _] = Self::CORE.octets();
        let address = Ipv4Addr::new(a, b, c, number);
        network.ip(&format!("addr add {address}/24 dev eth0")).await?;
        // Without a route the kernel refuses to send to a Service before any rule sees the packet.
        network.ip(&format!("route add default via {}", Self::CORE)).await?;
        Ok(SiteMachine { network, address })
    }

    /// Gives each of these machines a route to the pods of all others.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub async fn join_pods(machines: &[SiteMachine]) -> Result<(), NetworkError> {
        for machine in machines {
            for other in machines.iter().filter(|other| other.address != machine.address) {
                let route = format!("route add {} via {}", other.pods(), other.address);
                machine.network.ip(&route).await?;
            }
        }
        Ok(())
    }
}

impl SiteMachine {
    /// The network of the machine's pods, if it is a node of the host cluster.
    pub fn pods(&self) -> String {
        format!("10.244.{}.0/24", self.address.octets()[3])
    }
}
