//! A way in that says who comes and to which cluster: a listener of its own for the egress of one API server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use proto::ClusterId;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::Peer;
use super::low_priority::LowPrioritySwitch;
use super::park_timeout::ConnectionWaits;
use super::{Gateway, disconnect};
use crate::identity::Authenticated;
use crate::listener::CallerStream;
use crate::shares::{self, Limit};

/// Who comes by it, whoever that is, and where to. Clones have their slots in common.
#[derive(Debug, Clone)]
pub struct EntryPoint {
    /// The principal.
    pub principal: Authenticated,
    /// The only one whose targets it is for.
    pub cluster: ClusterId,
    /// How many connections it has.
    pub slots: EntryPointSlots,
}

/// The connections that one way in may have to targets at once. Clones have them in common.
#[derive(Debug, Clone)]
pub struct EntryPointSlots {
    free: Arc<Semaphore>,
    max: usize,
}

impl EntryPointSlots {
    /// So many.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), max }
    }

    /// One of them.
    ///
    /// # Errors
    /// All are taken.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, Limit> {
        let place = Arc::clone(&self.free).try_acquire_owned();
        place.map_err(|_| shares::counted(Limit::EgressConnections(self.max)))
    }

    /// How many there are, and how many are taken.
    #[must_use]
    pub fn used(&self) -> (usize, usize) {
        (self.max, self.max - self.free.available_permits())
    }
}

impl EntryPoint {
    /// Who came by it from `address`.
    fn peer(self, address: SocketAddr, is_local: bool) -> Peer {
        let (waits, low_priority) = (ConnectionWaits::default(), LowPrioritySwitch::default());
        Peer {
            address,
            is_local,
            server_name: None,
            certified: None,
            waits,
            entry_point: Some(self),
            low_priority,
        }
    }
}

impl Peer {
    /// The door, as the audit log calls it.
    pub(super) fn listener(&self) -> &'static str {
        if self.entry_point.is_some() { "egress" } else { "gateway" }
    }

    /// The other end of the socket, if it is one of a network.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        (!self.is_local).then_some(self.address)
    }

    /// The same in words.
    pub(super) fn source(&self) -> String {
        self.address().map_or_else(|| "unix".to_owned(), |address| address.to_string())
    }
}

impl Gateway {
    /// Serves a connection by a way in, whose handshake is done, until it ends or its bytes are the target's.
    pub async fn serve_entry_point(self, stream: CallerStream, entry_point: EntryPoint) {
        let peer = entry_point.peer(stream.peer(), false);
        let (stream, disconnected, exchange) = disconnect::watch(stream.into_stream());
        self.serve_to_its_end(stream, peer, Some(exchange), disconnected).await;
    }

    /// The same at a Unix socket.
    pub async fn serve_local_entry_point(self, stream: UnixStream, entry_point: EntryPoint) {
        // Nobody's address: there is no network between.
        let peer = entry_point.peer((Ipv4Addr::LOCALHOST, 0).into(), true);
        // hyper sees a hang-up itself where nothing stands behind the request, and whoever sends more there waits for its answer.
        let stream = hyper_util::rt::TokioIo::new(stream);
        self.serve_to_its_end(stream, peer, None, std::future::pending()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_in_has_as_many_connections_as_it_may_and_not_one_more() {
        let slots = EntryPointSlots::new(2);
        let (first, _second) = (slots.take().unwrap(), slots.clone().take().unwrap());
        assert_eq!(slots.take().unwrap_err(), Limit::EgressConnections(2));
        assert_eq!(slots.used(), (2, 2));

        drop(first);

        assert!(slots.take().is_ok());
    }
}
