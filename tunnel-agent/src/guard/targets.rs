//! What this agent dials from within its cluster, whatever the server wants.
//!
//! The list is the agent's own. A name is resolved once, the addresses that it has are held against the list, and an address
//! that was held against it is what is dialed: there is no second look-up that could find another.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use policy::{Host, Network, Target, TargetEntry};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::services::Nowhere;

/// Most addresses of a name that are looked at.
pub const ADDRESSES_MAX: usize = 16;

/// A name is known within this time, or not at all.
pub const RESOLVE_MAX: Duration = Duration::from_secs(5);

/// What may be dialed. The default is nothing.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    entries: Vec<TargetEntry>,
    own: Vec<SocketAddr>,
    /// Where endpoints of Services may be; anywhere that is not special, if empty.
    service_networks: Vec<Network>,
}

/// An address that was held against the list: this one is dialed, and no other. Only [`Targets::check`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked(SocketAddr);

/// Why a target is not dialed.
#[derive(Debug, thiserror::Error)]
pub enum NotDialed {
    /// Neither it nor any address of it is in the list.
    #[error("{0} is not in this agent's list of targets")]
    Unlisted(Target),
    /// It is loopback, link-local, metadata of a cloud, multicast, unspecified, embeds another address, or is where this
    /// agent listens itself, and is not named in full.
    #[error("{0} is special, and dialed only where this agent's list of targets names its address in full")]
    Special(Target),
    /// Its name has no address.
    #[error("{0} has no address; check its name and the cluster's DNS")]
    NoAddress(Target),
    /// Its name cannot be looked up.
    #[error("{0} cannot be resolved")]
    Unresolved(Target, #[source] io::Error),
    /// It is a port of a Service that leads nowhere.
    #[error("{0} leads nowhere")]
    Nowhere(Target, #[source] Nowhere),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Dial(Checked),
    Special,
    Unlisted,
}

impl Targets {
    /// A list, of an agent that listens at `own` addresses itself.
    #[must_use]
    pub fn new(entries: Vec<TargetEntry>, own: Vec<SocketAddr>) -> Self {
        Self { entries, own, service_networks: Vec::new() }
    }

    /// The same list, where endpoints of Services are dialed in these networks alone; anywhere, if there are none.
    #[must_use]
    pub fn with_service_networks(self, service_networks: Vec<Network>) -> Self {
        Self { service_networks, ..self }
    }

    /// The same list with `more` entries.
    #[must_use]
    pub fn and(&self, more: impl IntoIterator<Item = TargetEntry>) -> Self {
        let entries = self.entries.iter().cloned().chain(more).collect();
        Self { entries, own: self.own.clone(), service_networks: self.service_networks.clone() }
    }

    /// The addresses of `target` that may be dialed, in the order in which `resolve` has them, which is asked at most once.
    ///
    /// # Errors
    ///
    /// [`NotDialed`]: there is none.
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
        let verdicts: Vec<Verdict> =
            found.map(|address| self.verdict(SocketAddr::new(address, target.port()), is_named)).collect();
        let checked: Vec<Checked> = verdicts.iter().filter_map(Verdict::checked).collect();
        if !checked.is_empty() {
            return Ok(checked);
        }
        Err(if verdicts.contains(&Verdict::Special) {
            NotDialed::Special(target.clone())
        } else {
            NotDialed::Unlisted(target.clone())
        })
    }

    /// Whether `target`, as it is written, is one of the list.
    #[must_use]
    pub fn lists(&self, target: &Target) -> bool {
        self.entries.iter().any(|entry| entry.has(target))
    }

    /// The endpoints of the Service that `target` names which may be dialed, of those to which it is `led`. Who writes
    /// EndpointSlices says where a Service leads: nothing special is dialed by that, not even what another entry names in full.
    ///
    /// # Errors
    ///
    /// [`NotDialed`]: the list does not have the Service, or there is no such endpoint.
    pub fn check_led(
        &self,
        target: &Target,
        led: Result<Vec<SocketAddr>, Nowhere>,
    ) -> Result<Vec<Checked>, NotDialed> {
        if !self.lists(target) {
            return Err(NotDialed::Unlisted(target.clone()));
        }
        let led = led.map_err(|why| NotDialed::Nowhere(target.clone(), why))?;
        let led = led.into_iter().map(|address| SocketAddr::new(unmapped(address.ip()), address.port()));
        let ordinary: Vec<_> =
            led.filter(|address| !is_special(address.ip()) && !self.is_own(*address)).collect();
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

    /// What the list says of an address, to which a name led that it has where `is_named`.
    fn verdict(&self, address: SocketAddr, is_named: bool) -> Verdict {
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
            Verdict::Dial(Checked(address))
        } else if !is_named && !self.entries.iter().any(is_within) {
            Verdict::Unlisted
        } else if is_special(address.ip()) || self.is_own(address) {
            Verdict::Special
        } else {
            Verdict::Dial(Checked(address))
        }
    }

    /// Whether this agent itself may be what listens there. One that listens on all addresses does so on some that nobody
    /// knows here, so that its port alone tells.
    fn is_own(&self, address: SocketAddr) -> bool {
        let is_there = |own: &SocketAddr| own.ip().is_unspecified() || unmapped(own.ip()) == address.ip();
        self.own.iter().any(|own| own.port() == address.port() && is_there(own))
    }
}

impl Checked {
    /// The address.
    #[must_use]
    pub fn address(self) -> SocketAddr {
        self.0
    }

    /// Connects to it, and looks whether it is it that answered.
    ///
    /// # Errors
    ///
    /// Nobody answers there.
    pub async fn dial(self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.0).await?;
        let peer = stream.peer_addr()?;
        if (unmapped(peer.ip()), peer.port()) == (self.0.ip(), self.0.port()) {
            return Ok(stream);
        }
        Err(io::Error::new(io::ErrorKind::ConnectionRefused, "another address has answered"))
    }
}

impl Verdict {
    fn checked(&self) -> Option<Checked> {
        match self {
            Self::Dial(checked) => Some(*checked),
            Self::Special | Self::Unlisted => None,
        }
    }
}

/// The addresses of a name, as this machine's resolver has them.
///
/// # Errors
///
/// It has none, or not within [`RESOLVE_MAX`].
pub async fn by_system(name: &str) -> io::Result<Vec<IpAddr>> {
    let found = timeout(RESOLVE_MAX, lookup_host((name, 0))).await.map_err(io::Error::other)??;
    Ok(found.map(|address| address.ip()).take(ADDRESSES_MAX).collect())
}

/// The same address in its shortest form: what is mapped into IPv6 is dialed over IPv4.
fn unmapped(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Whether an address is none that a network in the list may mean, nor a cluster by what it says of itself.
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
    // "This network", and what is reserved with the broadcast address at its end (RFC 6890).
    let [first, ..] = address.octets();
    let is_reserved = first == 0 || first >= 240;
    is_reserved || address.is_loopback() || address.is_link_local() || address.is_multicast() || is_metadata
}

fn is_special_v6(address: Ipv6Addr) -> bool {
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);
    let segments = address.segments();
    // Loopback, the unspecified address and addresses of IPv4 written as IPv6.
    let is_among_the_first = segments[..6] == [0; 6];
    // NAT64 (RFC 6052, RFC 8215), Teredo and 6to4 lead to an address of IPv4 that nobody has held against the list.
    let embeds = segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0]
        || segments[..3] == [0x64, 0xff9b, 1]
        || segments[..2] == [0x2001, 0]
        || segments[0] == 0x2002;
    // Link-local addresses, and site-local ones of old behind them.
    let is_local = segments[0] & 0xff80 == 0xfe80;
    is_among_the_first || embeds || is_local || address.is_multicast() || address == METADATA
}

#[cfg(test)]
mod tests;
