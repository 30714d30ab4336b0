//! The successor's side: it asks a process that runs, and takes everything or nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tracing::{info, warn};

use super::facts::{ConnectionFacts, ListenerFacts, SteeringFacts};
use super::wire::{Frame, FrameKind, HandoverError, VERSION, Wire, parse};

/// Longest time until everything has come. The predecessor takes 5 s at most.
const OFFER_MAX: Duration = Duration::from_secs(6);

/// Longest wait for the predecessor to let go.
const GO_MAX: Duration = Duration::from_secs(6);

/// Most sockets that are taken: more than the limits of all listeners together.
const ITEMS_MAX: usize = 32 * 1024;

/// Everything that a process has handed over.
#[derive(Debug, Default)]
pub struct Inventory {
    /// The sockets that listen for callers.
    pub listeners: Vec<(ListenerFacts, OwnedFd)>,
    /// The connections of callers, in no order.
    pub connections: Vec<HandedConnection>,
    /// The netlink socket that owns the table of nftables.
    pub steering: Option<(SteeringFacts, OwnedFd)>,
}

/// A connection that was handed over.
#[derive(Debug)]
pub struct HandedConnection {
    /// All that is known of it.
    pub facts: ConnectionFacts,
    /// The socket of the caller.
    pub caller: OwnedFd,
    /// The socket of the API server.
    pub api_server: Option<OwnedFd>,
    /// Bytes that were read from the caller and not yet written to the API server.
    pub to: Vec<u8>,
    /// The same of the way back.
    pub from: Vec<u8>,
}

/// A predecessor that has sent everything, and can go on until [`Offer::accept`] has succeeded.
#[must_use = "the predecessor goes on when this is dropped"]
pub struct Offer(Wire);

/// A predecessor that has let go. It ends when this is dropped.
#[must_use = "the predecessor ends when this is dropped"]
pub struct Predecessor(#[expect(dead_code, reason = "the predecessor waits for its end")] Wire);

/// Asks the process at the socket `path` for all that it serves. `None` if there is none, or it does not hand
/// over, which is logged. It takes some seconds at most.
pub async fn ask(path: &Path) -> Option<(Inventory, Offer)> {
    let stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) => {
            // Both are usual: no process has run before, or it has ended.
            if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
                warn!(%error, path = %path.display(), "no process can be asked for a handover");
            }
            return None;
        }
    };
    let received = timeout(OFFER_MAX, receive(stream)).await;
    match received.unwrap_or(Err(HandoverError::Timeout(OFFER_MAX.as_secs()))) {
        Ok((inventory, wire)) => {
            let (listeners, connections) = (inventory.listeners.len(), inventory.connections.len());
            info!(listeners, connections, "a process that runs hands over");
            Some((inventory, Offer(wire)))
        }
        Err(error) => {
            let error = daemon::error_chain(&error).to_string();
            warn!(error, "the process that runs does not hand over; starting without it");
            None
        }
    }
}

async fn receive(stream: UnixStream) -> Result<(Inventory, Wire), HandoverError> {
    let mut wire = Wire::new(stream)?;
    wire.send(FrameKind::Ask, &VERSION.to_le_bytes(), &[]).await?;
    // The sum is that of the predecessor's frames, and of the question that it has received.
    let mut inventory = Inventory::default();
    for _ in 0..ITEMS_MAX {
        let sum = wire.sum();
        let Frame { kind, payload, fds } = wire.receive().await?;
        match kind {
            FrameKind::Listener => inventory.listeners.push(listener(&payload, fds)?),
            FrameKind::Connection => inventory.connections.push(connection(&payload, fds)?),
            FrameKind::Steering => inventory.steering = Some(steering(&payload, fds)?),
            FrameKind::End if payload == sum => return Ok((inventory, wire)),
            FrameKind::End => return Err(HandoverError::Damaged("its sum is another one")),
            FrameKind::Ask | FrameKind::HaveAll | FrameKind::Go => {
                return Err(HandoverError::Damaged("a frame at a wrong time"));
            }
        }
    }
    Err(HandoverError::TooMany(ITEMS_MAX))
}

pub(super) fn listener(payload: &[u8], fds: Vec<OwnedFd>) -> Result<(ListenerFacts, OwnedFd), HandoverError> {
    let (facts, rest) = parse(payload)?;
    let socket = only(fds)?;
    if !rest.is_empty() || !is_internet(&socket) || !socket_acceptconn(&socket).unwrap_or_default() {
        return Err(HandoverError::Damaged("a listener does not listen"));
    }
    Ok((facts, socket))
}

pub(super) fn connection(payload: &[u8], fds: Vec<OwnedFd>) -> Result<HandedConnection, HandoverError> {
    const BYTES: HandoverError = HandoverError::Damaged("bytes of a connection are missing");
    let (facts, bytes): (ConnectionFacts, _) = parse(payload)?;
    let (to, from) = bytes.split_at_checked(facts.to.unwritten).ok_or(BYTES)?;
    if from.len() != facts.from.unwritten {
        return Err(BYTES);
    }
    let mut fds = fds.into_iter();
    let (caller, api_server, more) = (fds.next(), fds.next(), fds.next());
    let caller = caller.filter(|_| more.is_none() && api_server.is_some() == facts.api_server.is_some());
    let caller = caller.ok_or(HandoverError::Damaged("sockets of a connection are missing"))?;
    if ![Some(&caller), api_server.as_ref()].into_iter().flatten().all(is_internet) {
        return Err(HandoverError::Damaged("a connection is none of TCP"));
    }
    Ok(HandedConnection { facts, caller, api_server, to: to.to_vec(), from: from.to_vec() })
}

pub(super) fn steering(payload: &[u8], fds: Vec<OwnedFd>) -> Result<(SteeringFacts, OwnedFd), HandoverError> {
    let (facts, rest) = parse(payload)?;
    let socket = only(fds)?;
    if !rest.is_empty() || socket_domain(&socket).ok() != Some(AddressFamily::NETLINK) {
        return Err(HandoverError::Damaged("the owner of a table is no netlink socket"));
    }
    Ok((facts, socket))
}

fn only(fds: Vec<OwnedFd>) -> Result<OwnedFd, HandoverError> {
    let [socket] =
        <[OwnedFd; 1]>::try_from(fds).map_err(|_| HandoverError::Damaged("a socket is missing"))?;
    Ok(socket)
}

/// Returns true if the socket is one of TCP.
fn is_internet(socket: &OwnedFd) -> bool {
    let is_inet = matches!(socket_domain(socket), Ok(AddressFamily::INET | AddressFamily::INET6));
    is_inet && socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM)
}

impl Offer {
    /// Says that this process has all and can serve, and waits until the predecessor lets go.
    ///
    /// # Errors
    /// [`HandoverError`]: the predecessor goes on, and nothing of the inventory may be used.
    pub async fn accept(mut self) -> Result<Predecessor, HandoverError> {
        self.0.send(FrameKind::HaveAll, &[], &[]).await?;
        let answer = match timeout(GO_MAX, self.0.receive()).await {
            Ok(answer) => answer,
            Err(_) => {
                // After this the predecessor cannot let go, so what it has not sent before it never sends.
                self.0.shut_down();
                self.0.receive().await.map_err(|_| HandoverError::Timeout(GO_MAX.as_secs()))
            }
        };
        match answer?.kind {
            FrameKind::Go => Ok(Predecessor(self.0)),
            FrameKind::Ask
            | FrameKind::Listener
            | FrameKind::Connection
            | FrameKind::Steering
            | FrameKind::End
            | FrameKind::HaveAll => Err(HandoverError::Damaged("it does not let go")),
        }
    }
}
