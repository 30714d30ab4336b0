//! The only line between a site and the cloud: its bytes are counted, and it can be cut.

use serde_json::Value;

use super::SiteNetwork;
use crate::lab::{SiteError, masquerade};
use crate::network::{NetworkError, NetworkNamespace};

/// The ends of the line at the site and in the cloud. The first name is that of the devices which masquerade.
const DEVICES: (&str, &str) = ("uplink", "site");

/// The addresses of both ends, of the shared address space of RFC 6598.
const ADDRESSES: (&str, &str) = ("100.64.9.1", "100.64.9.0");

/// A cable from the switch of a site to the cloud. The cloud has no route to the site.
#[derive(Debug)]
pub struct CloudLine {
    core: NetworkNamespace,
    cloud: NetworkNamespace,
}

impl SiteNetwork {
    /// Plugs the site into the cloud. All its machines appear there under one address.
    ///
    /// # Errors
    /// [`SiteError`].
    pub async fn join_cloud(&self, cloud: &NetworkNamespace) -> Result<CloudLine, SiteError> {
        let core = self.core();
        masquerade(core).await?;
        core.connect(DEVICES.0, cloud, DEVICES.1).await?;
        core.ip(&format!("addr add {}/31 dev {}", ADDRESSES.0, DEVICES.0)).await?;
        cloud.ip(&format!("addr add {}/31 dev {}", ADDRESSES.1, DEVICES.1)).await?;
        core.ip(&format!("route add default via {}", ADDRESSES.1)).await?;
        let [core, cloud] = [core, cloud].map(NetworkNamespace::try_clone);
        Ok(CloudLine { core: core.map_err(NetworkError::Open)?, cloud: cloud.map_err(NetworkError::Open)? })
    }
}

impl CloudLine {
    /// All bytes that have passed in both directions, with the headers of Ethernet.
    ///
    /// # Panics
    /// If the program `ip` does not say it.
    pub async fn bytes(&self) -> u64 {
        let shown = self.core.ip(&format!("-json -statistics link show {}", DEVICES.0)).await.expect("ip");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let count = |direction: &str| shown[0]["stats64"][direction]["bytes"].as_u64().expect("a number");
        count("rx") + count("tx")
    }

    /// Cuts the line: nothing passes in either direction.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub async fn cut(&self) -> Result<(), NetworkError> {
        // The end in the cloud, so that the site keeps its routes.
        self.cloud.ip(&format!("link set {} down", DEVICES.1)).await.map(drop)
    }

    /// Joins both ends of the line again.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub async fn mend(&self) -> Result<(), NetworkError> {
        self.cloud.ip(&format!("link set {} up", DEVICES.1)).await.map(drop)
    }
}
