//! The addresses of a server's name, by the answers that DNS gives now and gave before.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;

use crate::config::ServerAddress;

/// Most addresses of one name to which tunnels are kept. Further ones in an answer of DNS are left out.
pub(super) const ADDRESSES_MAX: usize = 8;

/// Longest wait for one answer of the resolver.
const RESOLVE_MAX: Duration = Duration::from_secs(5);

/// The addresses of one name that are in use.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    known: Vec<SocketAddr>,
}

/// The difference that an answer of DNS has made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) added: Vec<SocketAddr>,
    pub(super) removed: Vec<SocketAddr>,
    /// Number of addresses that were left out.
    pub(super) left_out: usize,
}

/// A name could not be resolved.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    #[error("{host} cannot be resolved: check the name and this host's DNS")]
    Failed {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("{0} has no address")]
    NoAddress(String),
}

impl Addresses {
    /// Returns true if the address is in use.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.known.contains(&address)
    }

    /// Takes an answer over. Known addresses stay before new ones: a name with too many addresses, in another
    /// order each time, does not move tunnels.
    pub(super) fn update(&mut self, found: &[SocketAddr]) -> Change {
        let mut next: Vec<SocketAddr> =
            self.known.iter().copied().filter(|known| found.contains(known)).collect();
        let mut left_out = 0;
        for address in found {
            if next.contains(address) {
                continue;
            }
            if next.len() < ADDRESSES_MAX {
                next.push(*address);
            } else {
                left_out += 1;
            }
        }
        let change = Change {
            added: next.iter().copied().filter(|address| !self.known.contains(address)).collect(),
            removed: self.known.iter().copied().filter(|address| !next.contains(address)).collect(),
            left_out,
        };
        self.known = next;
        change
    }
}

/// Asks the system's resolver. A name without an address is an error, so that a zone that is empty for a
/// moment ends no tunnel.
pub(super) async fn resolve(server: &ServerAddress) -> Result<Vec<SocketAddr>, ResolveError> {
    let failed = |source| ResolveError::Failed { host: server.host.clone(), source };
    let found = match timeout(RESOLVE_MAX, tokio::net::lookup_host((server.host.as_str(), server.port))).await
    {
        Ok(Ok(found)) => found.collect::<Vec<_>>(),
        Ok(Err(error)) => return Err(failed(error)),
        Err(_) => return Err(failed(io::ErrorKind::TimedOut.into())),
    };
    if found.is_empty() { Err(ResolveError::NoAddress(server.to_string())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_and_removed_addresses_are_reported_once() {
        let mut addresses = Addresses::default();
        assert_eq!(addresses.update(&[at(1), at(2), at(1)]).added, [at(1), at(2)]);
        assert_eq!(addresses.update(&[at(2), at(1)]), Change::default());
        let change = addresses.update(&[at(3), at(2)]);
        assert_eq!((change.added, change.removed), (vec![at(3)], vec![at(1)]));
    }

    #[test]
    fn a_name_with_too_many_addresses_keeps_those_it_has() {
        let mut addresses = Addresses::default();
        let all: Vec<SocketAddr> = (0..ADDRESSES_MAX as u16 + 3).map(at).collect();
        assert_eq!(addresses.update(&all).left_out, 3);

        let other_way: Vec<SocketAddr> = all.iter().rev().copied().collect();

        assert_eq!(addresses.update(&other_way), Change { left_out: 3, ..Change::default() });
    }

    #[tokio::test]
    async fn a_name_that_is_an_address_needs_no_dns() {
        let server = ServerAddress { host: "::1".to_owned(), port: 443 };
        assert_eq!(resolve(&server).await.unwrap(), ["[::1]:443".parse().unwrap()]);
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }
}
