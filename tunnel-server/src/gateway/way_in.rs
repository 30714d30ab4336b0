//! A way in that says who comes and to which cluster: a listener of its own for the egress of one API server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use proto::ClusterId;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::aside::Aside;
use super::connection::Peer;
use super::patience::Waits;
use super::{Gateway, hangup};
use crate::identity::Authenticated;
use crate::limits::{self, LimitExceeded};
use crate::listener::CallerStream;

/// Who comes by it, whoever that is, and where to. Clones have their places in common.
#[derive(Debug, Clone)]
pub struct WayIn {
    /// The principal.
    pub principal: Authenticated,
    /// The only one whose targets it is for.
    pub cluster: ClusterId,
    /// How many connections it has.
    pub places: Places,
}

/// The connections that one way in may have to targets at once. Clones have them in common.
#[derive(Debug, Clone)]
pub struct Places {
    free: Arc<Semaphore>,
    max: usize,
}

impl Places {
    /// So many.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), max }
    }

    /// One of them.
    ///
    /// # Errors
    /// All are taken.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, LimitExceeded> {
        let place = Arc::clone(&self.free).try_acquire_owned();
        place.map_err(|_| limits::count_exceeded(LimitExceeded::EgressConnections(self.max)))
    }

    /// How many there are, and how many are taken.
    #[must_use]
    pub fn used(&self) -> (usize, usize) {
        (self.max, self.max - self.free.available_permits())
    }
}

impl WayIn {
    /// Who came by it from `address`.
    fn peer(self, address: SocketAddr, is_local: bool) -> Peer {
        let (waits, aside) = (Waits::default(), Aside::default());
        Peer { address, is_local, server_name: None, certified: None, waits, way_in: Some(self), aside }
    }
}

impl Peer {
    /// The door, as the audit log calls it.
    pub(super) fn listener(&self) -> &'static str {
        if self.way_in.is_some() { "egress" } else { "gateway" }
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
    pub async fn serve_way_in(self, stream: CallerStream, way_in: WayIn) {
        let peer = way_in.peer(stream.peer(), false);
        let (stream, hung_up, exchange) = hangup::watch(stream.into_stream());
        self.serve_to_its_end(stream, peer, Some(exchange), hung_up).await;
    }

    /// The same at a Unix socket.
    pub async fn serve_local_way_in(self, stream: UnixStream, way_in: WayIn) {
        // Nobody's address: there is no network between.
        let peer = way_in.peer((Ipv4Addr::LOCALHOST, 0).into(), true);
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
        let places = Places::new(2);
        let (first, _second) = (places.take().unwrap(), places.clone().take().unwrap());
        assert_eq!(places.take().unwrap_err(), LimitExceeded::EgressConnections(2));
        assert_eq!(places.used(), (2, 2));

        drop(first);

        assert!(places.take().is_ok());
    }
}
