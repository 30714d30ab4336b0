//! The predecessor's side: it listens on a Unix socket, and sends all to a successor that asks.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::facts::{ConnectionFacts, ListenerFacts, SteeringFacts};
use super::wire::{FrameKind, HandoverError, VERSION, Wire, payload};

/// Longest wait for the question of a process that has connected.
const QUESTION_MAX: Duration = Duration::from_secs(1);

/// Longest wait for the end of a successor's start after it has all. This process ends then in any case.
const GONE_MAX: Duration = Duration::from_secs(2);

/// The pause after the system has refused an accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket at which a successor asks. Its file stays, because the successor replaces it.
#[derive(Debug)]
pub struct HandoverSocket(UnixListener);

/// A successor that has asked.
pub struct Successor(Wire);

impl HandoverSocket {
    /// Listens at `path`, in place of a predecessor's socket. Only the own user may connect.
    ///
    /// # Errors
    /// The path is too long for a socket, or the system refused.
    pub fn bind(path: &Path) -> io::Result<Self> {
        // Under another name first: there is never a socket at `path` that is open to others.
        let new = path.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        Ok(Self(listener))
    }

    /// Waits for a successor that asks. Others are closed. Cancel-safe: a process whose question is dropped
    /// starts without us.
    pub async fn next(&self) -> Successor {
        loop {
            match self.0.accept().await {
                Ok((stream, _)) => match question(Wire::new(stream)).await {
                    Ok(wire) => return Successor(wire),
                    Err(error) => warn!(%error, "a process asked for a handover and gets none"),
                },
                Err(error) => {
                    warn!(%error, "a successor could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn question(wire: Result<Wire, HandoverError>) -> Result<Wire, HandoverError> {
    let mut wire = wire?;
    let asked = timeout(QUESTION_MAX, wire.receive()).await;
    let frame = asked.map_err(|_| HandoverError::Timeout(QUESTION_MAX.as_secs()))??;
    let version = frame.payload.as_slice().try_into().map(u32::from_le_bytes);
    match (frame.kind, version) {
        (FrameKind::Ask, Ok(VERSION)) => Ok(wire),
        (FrameKind::Ask, Ok(version)) => Err(HandoverError::Version(version)),
        _ => Err(HandoverError::Damaged("it is no question")),
    }
}

impl Successor {
    /// Sends a socket that listens.
    ///
    /// # Errors
    /// [`HandoverError`]
    pub async fn listener(
        &mut self,
        facts: ListenerFacts,
        socket: BorrowedFd<'_>,
    ) -> Result<(), HandoverError> {
        self.0.send(FrameKind::Listener, &payload(&facts, [&[], &[]]), &[socket]).await
    }

    /// Sends the sockets of a connection: the caller's, and then the API server's if there is one. `unwritten`
    /// are the bytes to the API server and those from it.
    ///
    /// # Errors
    /// [`HandoverError`]
    pub async fn connection(
        &mut self,
        facts: ConnectionFacts,
        unwritten: [&[u8]; 2],
        sockets: &[BorrowedFd<'_>],
    ) -> Result<(), HandoverError> {
        self.0.send(FrameKind::Connection, &payload(&facts, unwritten), sockets).await
    }

    /// Sends the socket that owns the table of nftables.
    ///
    /// # Errors
    /// [`HandoverError`]
    pub async fn steering(
        &mut self,
        facts: SteeringFacts,
        socket: BorrowedFd<'_>,
    ) -> Result<(), HandoverError> {
        self.0.send(FrameKind::Steering, &payload(&facts, [&[], &[]]), &[socket]).await
    }

    /// Says that this was all, and waits until the successor has it. Then [`Self::go`] decides.
    ///
    /// # Errors
    /// [`HandoverError`]
    pub async fn has_all(&mut self) -> Result<(), HandoverError> {
        let sum = self.0.sum();
        self.0.send(FrameKind::End, &sum, &[]).await?;
        let answer = self.0.receive().await?;
        if answer.kind == FrameKind::HaveAll { Ok(()) } else { Err(HandoverError::Damaged("no answer")) }
    }

    /// Lets go: if this succeeds, the successor serves, and this process must not. It does not wait, so nothing
    /// can come between the decision and what follows it.
    ///
    /// # Errors
    /// The successor has given up, so this process goes on.
    pub fn go(&mut self) -> Result<(), HandoverError> {
        self.0.send_now(FrameKind::Go)
    }

    /// Waits until the successor has started, so that whatever supervises both knows of it before this process
    /// ends.
    pub async fn has_started(mut self) {
        let _ = timeout(GONE_MAX, self.0.closed()).await;
    }
}
