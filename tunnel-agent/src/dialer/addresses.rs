//! Which addresses a server's name has, by what DNS says now and has said before.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;

use crate::config::ServerAddress;

/// Most addresses of one name to which tunnels are held; what DNS names beyond is left out.
pub(super) const ADDRESSES_MAX: usize = 8;

/// The resolver has so long.
const RESOLVE_MAX: Duration = Duration::from_secs(5);

/// What is known of a name.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    known: Vec<SocketAddr>,
}

/// What an answer of DNS has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) come: Vec<SocketAddr>,
    pub(super) gone: Vec<SocketAddr>,
    /// How many were left out.
    pub(super) beyond: usize,
}

/// Why a name has no address.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unresolved {
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
    /// Takes an answer. Addresses that are known stay before new ones, so that a name with many more, in another order
    /// each time, does not move tunnels about.
    pub(super) fn learn(&mut self, found: &[SocketAddr]) -> Change {
        let mut next: Vec<SocketAddr> =
            self.known.iter().copied().filter(|known| found.contains(known)).collect();
        let mut beyond = 0;
        for address in found {
            if next.contains(address) {
                continue;
            }
            if next.len() < ADDRESSES_MAX {
                next.push(*address);
            } else {
                beyond += 1;
            }
        }
        let change = Change {
            come: next.iter().copied().filter(|address| !self.known.contains(address)).collect(),
            gone: self.known.iter().copied().filter(|address| !next.contains(address)).collect(),
            beyond,
        };
        self.known = next;
        change
    }
}

/// Asks the system's resolver. A name without an address is an error, so that a zone that is empty for a moment takes no
/// tunnel away.
pub(super) async fn resolve(server: &ServerAddress) -> Result<Vec<SocketAddr>, Unresolved> {
    let failed = |source| Unresolved::Failed { host: server.host.clone(), source };
    let found = match timeout(RESOLVE_MAX, tokio::net::lookup_host((server.host.as_str(), server.port))).await
    {
        Ok(Ok(found)) => found.collect::<Vec<_>>(),
        Ok(Err(error)) => return Err(failed(error)),
        Err(_) => return Err(failed(io::ErrorKind::TimedOut.into())),
    };
    if found.is_empty() { Err(Unresolved::NoAddress(server.to_string())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_told_once() {
        let mut addresses = Addresses::default();
        assert_eq!(addresses.learn(&[at(1), at(2), at(1)]).come, [at(1), at(2)]);
        assert_eq!(addresses.learn(&[at(2), at(1)]), Change::default());
        let change = addresses.learn(&[at(3), at(2)]);
        assert_eq!((change.come, change.gone), (vec![at(3)], vec![at(1)]));
    }

    #[test]
    fn a_name_with_too_many_addresses_keeps_those_it_has() {
        let mut addresses = Addresses::default();
        let all: Vec<SocketAddr> = (0..ADDRESSES_MAX as u16 + 3).map(at).collect();
        assert_eq!(addresses.learn(&all).beyond, 3);

        let other_way: Vec<SocketAddr> = all.iter().rev().copied().collect();

        assert_eq!(addresses.learn(&other_way), Change { beyond: 3, ..Change::default() });
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
