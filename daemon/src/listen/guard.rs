//! The one place that accepts TCP connections, for all listeners of all programs. It limits the connections of
//! each source, so that one address cannot close a listener to others.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::socket_acceptconn;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use super::counters::{CertificateGuard, Counters, SourceGuard};
use super::source_limits::PROVING_TIME_MAX;
use super::{BindError, ListenerLimits, keep_alive};
use crate::scope::Scope;

/// Connections that may wait in the kernel to be accepted; the kernel's own bound is `net.core.somaxconn`.
const BACKLOG: u32 = 1024;

/// The pause after the system has refused an accept. It is long enough for other connections to close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound TCP socket that admits connections within its limits.
#[derive(Debug)]
pub struct GuardedListener {
    key: &'static str,
    socket: TcpListener,
    address: SocketAddr,
    counters: Arc<Counters>,
}

/// An admitted connection, of which nothing was read yet.
#[derive(Debug)]
pub struct GuardedConnection {
    /// The connection, registered with the runtime that accepted it.
    pub stream: TcpStream,
    /// The remote address of the connection.
    pub peer: SocketAddr,
    /// The permit of the connection; hold it as long as the connection.
    pub permit: ConnectionPermit,
    /// The slot of its handshake; drop it when the handshake is over.
    pub handshake: HandshakeSlot,
    /// Ends the connection when it has to be closed.
    pub expulsion: Expulsion,
}

/// The permit of one connection among [`ListenerLimits::connections_max`]. The limits cover the connection
/// until this is dropped.
#[derive(Debug)]
#[must_use = "the connection is no longer counted when this is dropped"]
pub struct ConnectionPermit {
    counters: Arc<Counters>,
    _slot: OwnedSemaphorePermit,
    source: Mutex<SourceGuard>,
    certificate: Mutex<Option<CertificateGuard>>,
    has_proved: Arc<AtomicBool>,
}

/// The slot of one handshake among [`ListenerLimits::handshakes_max`], until this is dropped.
#[derive(Debug)]
#[must_use = "the handshake is no longer counted when this is dropped"]
pub struct HandshakeSlot {
    _slot: Option<OwnedSemaphorePermit>,
}

/// The end of a connection beyond its source's limits whose client does not prove in time who it is.
#[derive(Debug)]
pub struct Expulsion {
    /// None for a connection within the limits.
    pending: Option<PendingExpulsion>,
    has_proved: Arc<AtomicBool>,
}

#[derive(Debug)]
struct PendingExpulsion {
    /// Resolves when another connection of the same source takes the slot.
    displaced: oneshot::Receiver<()>,
    deadline: Instant,
}

/// The certificate has as many connections as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many connections with this certificate")]
pub struct CertificateLimited;

impl GuardedListener {
    /// Listens on `address`, which is configured under `key`.
    ///
    /// # Errors
    /// [`BindError`], which names the key and the remedy.
    pub fn bind(key: &'static str, address: SocketAddr, limits: ListenerLimits) -> Result<Self, BindError> {
        let (socket, address) = bind(address).map_err(|source| BindError::new(key, address, source))?;
        Ok(Self { key, socket, address, counters: Arc::new(Counters::new(limits)) })
    }

    /// Takes over a socket that another process has bound, and on which it listens.
    ///
    /// # Errors
    /// The socket is none of TCP that listens, or the system refused.
    pub fn take_over(key: &'static str, socket: OwnedFd, limits: ListenerLimits) -> io::Result<Self> {
        if !socket_acceptconn(&socket)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket does not listen"));
        }
        ioctl_fionbio(&socket, true)?;
        let socket = TcpListener::from_std(socket.into())?;
        let address = socket.local_addr()?;
        Ok(Self { key, socket, address, counters: Arc::new(Counters::new(limits)) })
    }

    /// One more descriptor of the socket, for a process that takes it over.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Counts a connection of this address that another process has accepted and hands over. `None` if this
    /// listener is full.
    #[must_use]
    pub fn admit_again(&self, peer: SocketAddr) -> Option<ConnectionPermit> {
        let slots = self.counters.take_slots()?;
        let source = self.counters.admit_source_again(peer);
        Some(self.permit(slots.connection, source))
    }

    /// The bound address, with the port that the system chose if 0 was configured.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The listener's counters, which can be read while it runs.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Waits for the next connection that the limits admit; others are closed. After an error of the system it
    /// tries again. Cancel-safe: nothing is accepted unless it is ready.
    pub async fn next(&self) -> GuardedConnection {
        let mut is_paused = false;
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    is_paused = false;
                    if let Some(admitted) = self.admit(stream, peer) {
                        return admitted;
                    }
                }
                Err(error) if concerns_one_connection(&error) => self.counters.count_failed_accept(),
                Err(error) => {
                    self.counters.count_failed_accept();
                    if !is_paused {
                        warn!(key = self.key, %error, "cannot accept connections for now, trying again");
                        is_paused = true;
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Runs what `begin` makes of each admitted connection, on the homes of `scope` in turn, until the drain.
    /// Connections that are open then continue.
    pub async fn run<F>(&self, scope: &Scope, begin: impl Fn(GuardedConnection) -> Option<F>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut homes = scope.homes_in_turn();
        let mut draining = pin!(scope.draining());
        loop {
            // Both arms are cancel-safe: accepting may be dropped at any time. Biased, so that many new
            // connections do not delay a drain.
            let accepted = tokio::select! {
                biased;
                () = &mut draining => return,
                accepted = self.next() => accepted,
            };
            if let Some(serving) = begin(accepted) {
                scope.spawn_on(homes(), serving);
            }
        }
    }

    /// Admits a connection within the limits. The newest one is closed otherwise, and the existing ones are
    /// served.
    fn admit(&self, stream: TcpStream, peer: SocketAddr) -> Option<GuardedConnection> {
        let Some(slots) = self.counters.take_slots() else {
            debug!(key = self.key, %peer, "too many connections or handshakes, closed a new one");
            return None;
        };
        let (source, displaced) = self.counters.admit_source(peer, slots.lane)?;
        if let Err(error) = keep_alive::watch(&stream) {
            debug!(key = self.key, %peer, %error, "a connection cannot be watched for its end");
        }
        let pending = source
            .must_prove()
            .then(|| PendingExpulsion { displaced, deadline: Instant::now() + PROVING_TIME_MAX });
        let permit = self.permit(slots.connection, source);
        let expulsion = Expulsion { pending, has_proved: Arc::clone(&permit.has_proved) };
        let handshake = HandshakeSlot { _slot: slots.handshake };
        Some(GuardedConnection { stream, peer, permit, handshake, expulsion })
    }

    fn permit(&self, slot: OwnedSemaphorePermit, source: SourceGuard) -> ConnectionPermit {
        ConnectionPermit {
            counters: Arc::clone(&self.counters),
            _slot: slot,
            source: Mutex::new(source),
            certificate: Mutex::default(),
            has_proved: Arc::default(),
        }
    }
}

impl ConnectionPermit {
    /// Notes that the client has proved who it is: by a certificate, or by another credential. The connection
    /// no longer counts against its source.
    pub fn proved(&self) {
        // Before the release, which may resolve the expulsion.
        self.has_proved.store(true, Ordering::Release);
        self.source.lock().unwrap_or_else(PoisonError::into_inner).proved();
    }

    /// Notes that the client has shown this certificate, which was verified, and counts the connection
    /// against its limit.
    ///
    /// # Errors
    /// [`CertificateLimited`]: the connection must be closed.
    pub fn certified(&self, leaf: &[u8]) -> Result<(), CertificateLimited> {
        let guard = self.counters.admit_certificate(leaf).ok_or(CertificateLimited)?;
        *self.certificate.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
        self.proved();
        Ok(())
    }
}

impl Expulsion {
    /// Returns true if the client must prove in time who it is.
    #[must_use]
    pub fn must_prove(&self) -> bool {
        self.pending.is_some() && !self.has_proved.load(Ordering::Acquire)
    }

    /// Drives `serving` to its end. `None` if the connection has to be closed before: it was displaced, or
    /// its time is over, and its client has not proved who it is. One within the limits never has to.
    pub async fn unless_expelled<T>(&mut self, serving: impl Future<Output = T>) -> Option<T> {
        // Both arms are cancel-safe: a connection whose future is dropped is closed.
        tokio::select! {
            served = serving => Some(served),
            () = self.expelled() => None,
        }
    }

    /// Resolves when the connection has to be closed, and never for one within the limits. Cancel-safe.
    async fn expelled(&mut self) {
        let Some(PendingExpulsion { displaced, deadline }) = &mut self.pending else {
            return pending().await;
        };
        // Both arms are cancel-safe: neither holds anything.
        tokio::select! {
            _ = displaced => {}
            () = sleep_until(*deadline) => {}
        }
        if self.has_proved.load(Ordering::Acquire) {
            self.pending = None;
            pending::<()>().await;
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted server can bind the port at once, although old connections are still in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let socket = socket.listen(BACKLOG)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Returns true if the error concerns only one connection, so that the next accept may succeed (`accept(2)`).
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests;
