//! The agent's own list of targets: it decides which addresses in the cluster are dialed, and the server
//! cannot widen it.
//!
//! A name is resolved once, its addresses are checked against the list, and a checked address is dialed.
//! There is no second lookup that could return another address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use policy::{Host, Network, Target, TargetEntry};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::services::BackendError;

/// Most addresses of a name that are checked. Others are ignored.
pub const ADDRESSES_MAX: usize = 16;

/// Longest wait for the resolution of a name, or for the endpoints of a Service.
pub const RESOLVE_MAX: Duration = Duration::from_secs(5);

/// The list of targets that may be dialed. It is empty by default.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    entries: Vec<TargetEntry>,
    own: Vec<SocketAddr>,
    /// Networks in which endpoints of Services may be. If empty, any address that is not special.
    service_networks: Vec<Network>,
}

/// Proof that an address was checked against the list. Only [`Targets`] makes one, and only such an address
/// is dialed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked(SocketAddr);

/// A target is not dialed.
#[derive(Debug, thiserror::Error)]
pub enum NotDialed {
    /// Neither the target nor any address of it is in the list.
    #[error("{0} is not in this agent's list of targets")]
    Unlisted(Target),
    /// Its address is loopback, link-local, metadata of a cloud, multicast, unspecified, embeds another
    /// address, or is one at which this agent itself listens. The list does not name it in full.
    #[error("{0} is special, and dialed only where this agent's list of targets names its address in full")]
    Special(Target),
    /// The name has no address.
    #[error("{0} has no address; check its name and the cluster's DNS")]
    NoAddress(Target),
    /// The name cannot be resolved.
    #[error("{0} cannot be resolved")]
    Unresolved(Target, #[source] io::Error),
    /// The Service has no endpoint to dial.
    #[error("{0} has no endpoint to dial")]
    NoBackend(Target, #[source] BackendError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Dial(Checked),
    Special,
    Unlisted,
}

impl Targets {
    /// A list with these entries, of an agent that itself listens at the `own` addresses.
    #[must_use]
    pub fn new(entries: Vec<TargetEntry>, own: Vec<SocketAddr>) -> Self {
        Self { entries, own, service_networks: Vec::new() }
    }

    /// The same list, with endpoints of Services only in these networks. Anywhere, if there are none.
    #[must_use]
    pub fn with_service_networks(self, service_networks: Vec<Network>) -> Self {
        Self { service_networks, ..self }
    }

    /// The same list with `more` entries added.
    #[must_use]
    pub fn and(&self, more: impl IntoIterator<Item = TargetEntry>) -> Self {
        let entries = self.entries.iter().cloned().chain(more).collect();
        Self { entries, own: self.own.clone(), service_networks: self.service_networks.clone() }
    }

    /// The addresses of `target` that may be dialed, in the order of `resolve`, which is called at most once.
    ///
    /// # Errors
    ///
    /// [`NotDialed`]: no address may be dialed.
    pub async fn check(
        &self,
        target: &Target,
        resolve: impl AsyncFnOnce(&str) -> io::Result<Vec<IpAddr>>,
    ) -> Result<Vec<Checked>, NotDialed> {
        let (found, is_named) = match target.host() {
            Host::Address(address) => (vec![*address], false),
            Host::Name(name) => {
                let found = resolve(name).await;
                let found = found.map_err(|error| NotDialed::Unresolved(target.clone(), error))?;
                let is_it = |entry: &TargetEntry| matches!(entry, TargetEntry::Exactly(one) if one == target);
                (found, self.entries.iter().any(is_it))
            }
        };
        if found.is_empty() {
            return Err(NotDialed::NoAddress(target.clone()));
        }
        let found = found.into_iter().take(ADDRESSES_MAX).map(unmapped);
        let decisions: Vec<Decision> =
            found.map(|address| self.decide(SocketAddr::new(address, target.port()), is_named)).collect();
        let checked: Vec<Checked> = decisions.iter().filter_map(Decision::checked).collect();
        if !checked.is_empty() {
            return Ok(checked);
        }
        Err(if decisions.contains(&Decision::Special) {
            NotDialed::Special(target.clone())
        } else {
            NotDialed::Unlisted(target.clone())
        })
    }

    /// Returns true if the list has `target` as it is written, before any resolution.
    #[must_use]
    pub fn lists(&self, target: &Target) -> bool {
        self.entries.iter().any(|entry| entry.has(target))
    }

    /// Those `endpoints` of the Service that `target` names which may be dialed. Anybody who can write
    /// EndpointSlices chooses them, so a special address is never dialed for a Service, not even one that
    /// another entry names in full.
    ///
    /// # Errors
    ///
    /// [`NotDialed`]: the list does not have the Service, or no endpoint may be dialed.
    pub fn check_endpoints(
        &self,
        target: &Target,
        endpoints: Result<Vec<SocketAddr>, BackendError>,
    ) -> Result<Vec<Checked>, NotDialed> {
        if !self.lists(target) {
            return Err(NotDialed::Unlisted(target.clone()));
        }
        let endpoints = endpoints.map_err(|why| NotDialed::NoBackend(target.clone(), why))?;
        let endpoints =
            endpoints.into_iter().map(|address| SocketAddr::new(unmapped(address.ip()), address.port()));
        let ordinary: Vec<_> =
            endpoints.filter(|address| !is_special(address.ip()) && !self.is_own(*address)).collect();
        if ordinary.is_empty() {
            return Err(NotDialed::Special(target.clone()));
        }
        let is_within = |address: &SocketAddr| {
            let networks = &self.service_networks;
            networks.is_empty() || networks.iter().any(|network| network.has(address.ip()))
        };
        let checked: Vec<_> =
            ordinary.into_iter().filter(is_within).map(Checked).take(ADDRESSES_MAX).collect();
        if checked.is_empty() { Err(NotDialed::Unlisted(target.clone())) } else { Ok(checked) }
    }

    /// Checks an address. `is_named` says that the list has the name from which it was resolved.
    fn decide(&self, address: SocketAddr, is_named: bool) -> Decision {
        let is_exact = |entry: &TargetEntry| match entry {
            TargetEntry::Exactly(one) => {
                *one.host() == Host::Address(address.ip()) && one.port() == address.port()
            }
            TargetEntry::Within(..) => false,
        };
        let is_within = |entry: &TargetEntry| match entry {
            TargetEntry::Within(network, port) => network.has(address.ip()) && *port == address.port(),
            TargetEntry::Exactly(_) => false,
        };
        if self.entries.iter().any(is_exact) {
            Decision::Dial(Checked(address))
        } else if !is_named && !self.entries.iter().any(is_within) {
            Decision::Unlisted
        } else if is_special(address.ip()) || self.is_own(address) {
            Decision::Special
        } else {
            Decision::Dial(Checked(address))
        }
    }

    /// Returns true if this agent itself may listen there. If it listens on all addresses, which are not all
    /// known here, the port alone decides.
    fn is_own(&self, address: SocketAddr) -> bool {
        let is_same = |own: &SocketAddr| own.ip().is_unspecified() || unmapped(own.ip()) == address.ip();
        self.own.iter().any(|own| own.port() == address.port() && is_same(own))
    }
}

impl Checked {
    /// The address that was checked.
    #[must_use]
    pub fn address(self) -> SocketAddr {
        self.0
    }

    /// Connects to it, and verifies that this address has answered.
    ///
    /// # Errors
    ///
    /// Nobody answers at this address.
    pub async fn dial(self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.0).await?;
        let peer = stream.peer_addr()?;
        if (unmapped(peer.ip()), peer.port()) == (self.0.ip(), self.0.port()) {
            return Ok(stream);
        }
        Err(io::Error::new(io::ErrorKind::ConnectionRefused, "another address has answered"))
    }
}

impl Decision {
    fn checked(&self) -> Option<Checked> {
        match self {
            Self::Dial(checked) => Some(*checked),
            Self::Special | Self::Unlisted => None,
        }
    }
}

/// Resolves a name by this machine's resolver.
///
/// # Errors
///
/// The name has no address, or the resolver took longer than [`RESOLVE_MAX`].
pub async fn by_system(name: &str) -> io::Result<Vec<IpAddr>> {
    let found = timeout(RESOLVE_MAX, lookup_host((name, 0))).await.map_err(io::Error::other)??;
    Ok(found.map(|address| address.ip()).take(ADDRESSES_MAX).collect())
}

/// The same address in its shortest form: an IPv4 address that is mapped into IPv6 is dialed over IPv4.
fn unmapped(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Returns true if an address is special: neither a network in the list nor a cluster's own answer permits
/// it.
#[must_use]
pub fn is_special(address: IpAddr) -> bool {
    match unmapped(address) {
        IpAddr::V4(address) => is_special_v4(address),
        IpAddr::V6(address) => is_special_v6(address),
    }
}

fn is_special_v4(address: Ipv4Addr) -> bool {
    // Metadata of clouds, where it is not link-local.
    let is_metadata = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)].contains(&address);
    // "This network", and the reserved block that ends with the broadcast address (RFC 6890).
    let [first, ..] = address.octets();
    let is_reserved = first == 0 || first >= 240;
    is_reserved || address.is_loopback() || address.is_link_local() || address.is_multicast() || is_metadata
}

fn is_special_v6(address: Ipv6Addr) -> bool {
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);
    let segments = address.segments();
    // Loopback, the unspecified address and addresses of IPv4 written as IPv6.
    let is_among_the_first = segments[..6] == [0; 6];
    // NAT64 (RFC 6052, RFC 8215), Teredo and 6to4 embed an IPv4 address that was not checked against the
    // list.
    let embeds = segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0]
        || segments[..3] == [0x64, 0xff9b, 1]
        || segments[..2] == [0x2001, 0]
        || segments[0] == 0x2002;
    // Link-local addresses, and the deprecated site-local ones after them.
    let is_local = segments[0] & 0xff80 == 0xfe80;
    is_among_the_first || embeds || is_local || address.is_multicast() || address == METADATA
}

#[cfg(test)]
mod tests;
