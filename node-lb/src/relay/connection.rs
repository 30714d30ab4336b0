//! One connection of a caller, from its accept to its end.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use daemon::Scope;
use daemon::listen::{ConnectionPermit, HandshakeSlot};
use rustix::io::ioctl_fionbio;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::dialing::{self, ApiServer};
use super::first_bytes::FirstBytes;
use super::{DIALS_MAX, QUIET_FOR, moving};
use crate::balancer::{Balancer, Join};
use crate::copy::{CopyError, Half, copy};
use crate::handover::{
    ConnectionFacts, Direction, HandedConnection, HandoverError, ListenerFacts, Successor,
};
use crate::members::ConnectionResult;
use crate::pods::PodAddress;
use crate::random::{random, random_below};

/// A connection of a caller. While nothing drives it, no byte of it moves.
#[derive(Debug)]
pub(super) struct Connection {
    caller: TcpStream,
    origin: Origin,
    /// The API server, once one is connected.
    api_server: Option<ApiServer>,
    /// The way from the caller to the API server.
    to: Half,
    /// The way from the API server to the caller.
    from: Half,
    first: FirstBytes,
    /// API servers that have ended the connection before their first byte.
    tried: Vec<SocketAddr>,
    activity: Activity,
    handshake: Option<HandshakeSlot>,
}

/// The end of the time before an API server's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// The first byte of the API server is there.
    Answers,
    /// The API server has closed the connection without a byte.
    Closed,
    /// The API server has reset it.
    Broken,
    /// The API server is found to be down.
    Cut,
    /// The connection has ended otherwise.
    Ended(ConnectionResult),
}

/// The listener and the caller of a connection, and what is held as long as the connection.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) listener: ListenerFacts,
    pub(super) peer: SocketAddr,
    /// `None` if the connection was handed over, and its listener is not configured any more.
    pub(super) _permit: Option<ConnectionPermit>,
    /// The address for pods stays on this host as long as a connection uses it.
    pub(super) _pods: Option<Arc<PodAddress>>,
}

/// The time of the last byte.
#[derive(Debug)]
struct Activity {
    opened: Instant,
    /// Milliseconds from `opened` to the last byte in either direction.
    last_byte: AtomicU64,
}

impl Connection {
    /// A connection that was just accepted.
    pub(super) fn new(caller: TcpStream, origin: Origin, handshake: HandshakeSlot) -> Self {
        // Typed characters and small frames are sent at once.
        let _ = caller.set_nodelay(true);
        let (to, from) = Default::default();
        let (first, tried, activity) = (FirstBytes::new(), Vec::new(), Activity::begin());
        let handshake = Some(handshake);
        Self { caller, origin, api_server: None, to, from, first, tried, activity, handshake }
    }

    /// Goes on with a connection that another process has handed over.
    ///
    /// # Errors
    /// The runtime takes no more sockets.
    pub(super) fn take_over(
        handed: HandedConnection,
        origin: Origin,
        balancer: &Balancer,
    ) -> io::Result<Self> {
        let HandedConnection { facts, caller, api_server, to, from } = handed;
        let api_server = match (facts.api_server, api_server) {
            (Some(address), Some(socket)) => {
                Some(ApiServer::new(stream(socket)?, balancer.choose_again(address)))
            }
            (None | Some(_), _) => None,
        };
        // An API server that is still looked for has got nothing.
        let first = if api_server.is_none() { FirstBytes::of(&to) } else { FirstBytes::unknown() };
        Ok(Self {
            caller: stream(caller)?,
            origin,
            api_server,
            to: Half::new(to, facts.to.is_done),
            from: Half::new(from, facts.from.is_done),
            first,
            tried: Vec::new(),
            // It counts as new, so that it does not move while this process learns of its API servers.
            activity: Activity::begin(),
            handshake: None,
        })
    }

    /// Serves the connection to its end. Cancel-safe: driven again, it goes on, here or in another process.
    pub(super) async fn drive(&mut self, balancer: &Balancer, scope: &Scope) {
        loop {
            if self.api_server.is_none() {
                let connecting = dialing::connect(balancer, &self.tried);
                self.api_server = timeout(DIALS_MAX, connecting).await.ok().flatten();
            }
            self.handshake = None;
            let Some(api_server) = &mut self.api_server else {
                balancer.refused();
                // An end without a byte would look like an API server that closes.
                let _ = self.caller.set_zero_linger();
                return;
            };
            let mut opening = Opening::Answers;
            if self.first.to_send_again().is_some() {
                let first = &mut self.first;
                opening = open(&self.caller, api_server, &mut self.to, first, &self.activity, scope).await;
            }
            let is_unanswered = matches!(opening, Opening::Closed | Opening::Broken | Opening::Cut);
            if is_unanswered && self.begins_anew(balancer) {
                continue;
            }
            let Some(api_server) = &mut self.api_server else { return };
            let result = match opening {
                Opening::Broken => ConnectionResult::Broken,
                Opening::Cut => ConnectionResult::Cut,
                Opening::Ended(result) => result,
                Opening::Answers | Opening::Closed => {
                    self.first.answered();
                    let halves = (&mut self.to, &mut self.from);
                    relay(&self.caller, api_server, halves, &self.activity, balancer.joins(), scope).await
                }
            };
            return self.ended(result, balancer);
        }
    }

    /// Prepares the connection for another API server, if that can get the same bytes as this one.
    fn begins_anew(&mut self, balancer: &Balancer) -> bool {
        let is_late = self.activity.opened.elapsed() > DIALS_MAX;
        let Some(first) = self.first.to_send_again().filter(|_| !is_late && !self.to.is_done()) else {
            return false;
        };
        self.to = Half::new(first.to_vec(), false);
        if let Some(api_server) = self.api_server.take() {
            api_server.chosen.traffic.count(ConnectionResult::Unanswered);
            self.tried.push(api_server.chosen.address);
        }
        balancer.suspect();
        true
    }

    fn ended(&self, result: ConnectionResult, balancer: &Balancer) {
        let Some(api_server) = &self.api_server else { return };
        if matches!(result, ConnectionResult::Broken | ConnectionResult::Cut) {
            // A reset on both sides: what was cut short must not look complete.
            let _ = (self.caller.set_zero_linger(), api_server.stream.set_zero_linger());
        }
        api_server.chosen.traffic.count(result);
        if result == ConnectionResult::Moved {
            balancer.moved();
        }
    }

    /// Sends the connection to a successor. It stays here, too, until that has all.
    pub(super) async fn send(&self, successor: &mut Successor) -> Result<(), HandoverError> {
        let direction =
            |half: &Half| Direction { unwritten: half.unwritten().len(), is_done: half.is_done() };
        let Origin { listener, peer, .. } = self.origin;
        let address = self.api_server.as_ref().map(|api_server| api_server.chosen.address);
        let (to, from) = (direction(&self.to), direction(&self.from));
        let facts = ConnectionFacts { listener, peer, api_server: address, to, from };
        let mut sockets = vec![self.caller.as_fd()];
        sockets.extend(self.api_server.as_ref().map(|api_server| api_server.stream.as_fd()));
        successor.connection(facts, [self.to.unwritten(), self.from.unwritten()], &sockets).await
    }

    /// Ends the connection in this process, because another one has it.
    pub(super) fn hand_over(self) {
        if let Some(api_server) = &self.api_server {
            api_server.chosen.traffic.count(ConnectionResult::HandedOver);
        }
    }
}

/// Passes the caller's first bytes on until the API server's first byte can be read. All may be dropped at any time.
async fn open(
    caller: &TcpStream,
    api_server: &mut ApiServer,
    to: &mut Half,
    first: &mut FirstBytes,
    activity: &Activity,
    scope: &Scope,
) -> Opening {
    let ApiServer { stream, chosen, cuts } = api_server;
    let up = async {
        let copied = copy(caller, stream, to, |bytes| {
            first.sent(bytes);
            chosen.traffic.sent(bytes.len());
            activity.note_byte(Instant::now());
        });
        match copied.await {
            Ok(()) => pending().await,
            Err(CopyError::From) => Opening::Ended(ConnectionResult::Broken),
            Err(CopyError::To) => Opening::Broken,
        }
    };
    let mut byte = [0];
    // All arms are cancel-safe. Biased, so that an answer which is there counts before anything else.
    tokio::select! {
        biased;
        peeked = stream.peek(&mut byte) => match peeked {
            Ok(0) => Opening::Closed,
            Err(_) => Opening::Broken,
            Ok(_) => Opening::Answers,
        },
        opening = up => opening,
        _ = cuts.changed() => Opening::Cut,
        () = activity.drained(scope) => Opening::Ended(ConnectionResult::Drained),
    }
}

/// Relays until the end of the connection. All may be dropped at any time, and no byte is lost.
async fn relay(
    caller: &TcpStream,
    api_server: &mut ApiServer,
    (to, from): (&mut Half, &mut Half),
    activity: &Activity,
    joins: watch::Receiver<Option<Join>>,
    scope: &Scope,
) -> ConnectionResult {
    let ApiServer { stream, chosen, cuts } = api_server;
    let up = copy(caller, stream, to, |bytes| {
        chosen.traffic.sent(bytes.len());
        activity.note_byte(Instant::now());
    });
    let down = copy(stream, caller, from, |bytes| {
        let now = Instant::now();
        chosen.traffic.received(bytes.len(), now);
        activity.note_byte(now);
    });
    // All arms may be dropped at any time: the connection ends then.
    tokio::select! {
        both = futures::future::try_join(up, down) => if both.is_ok() { ConnectionResult::Closed } else { ConnectionResult::Broken },
        _ = cuts.changed() => ConnectionResult::Cut,
        () = moved(chosen.address, activity, joins) => ConnectionResult::Moved,
        () = activity.drained(scope) => ConnectionResult::Drained,
    }
}

/// Resolves in a quiet moment, if the connection is to move to an API server that has joined.
async fn moved(address: SocketAddr, activity: &Activity, mut joins: watch::Receiver<Option<Join>>) {
    joins.mark_unchanged();
    loop {
        if joins.changed().await.is_err() {
            return pending().await;
        }
        let Some(join) = *joins.borrow_and_update() else { continue };
        if join.address != address && moving::moves(activity.opened.elapsed(), join.others, random()) {
            sleep(random_below(moving::MOVE_WITHIN)).await;
            return activity.quiet().await;
        }
    }
}

impl Activity {
    fn begin() -> Self {
        Self { opened: Instant::now(), last_byte: AtomicU64::new(0) }
    }

    fn note_byte(&self, now: Instant) {
        let since = now.saturating_duration_since(self.opened).as_millis();
        self.last_byte.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Resolves in the first quiet moment of a drain.
    async fn drained(&self, scope: &Scope) {
        scope.draining().await;
        self.quiet().await;
    }

    /// Resolves once no byte has passed for [`QUIET_FOR`].
    async fn quiet(&self) {
        loop {
            let last_byte = Duration::from_millis(self.last_byte.load(Ordering::Relaxed));
            let silent = self.opened.elapsed().saturating_sub(last_byte);
            if silent >= QUIET_FOR {
                return;
            }
            sleep(QUIET_FOR.saturating_sub(silent)).await;
        }
    }
}

/// Registers a socket of another process with this runtime.
fn stream(socket: OwnedFd) -> io::Result<TcpStream> {
    ioctl_fionbio(&socket, true)?;
    TcpStream::from_std(socket.into())
}
