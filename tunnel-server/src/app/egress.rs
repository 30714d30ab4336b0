//! The entry points for API servers' egress. Each serves one API server, and leads to one cluster.

use std::net::Ipv4Addr;
use std::sync::Arc;

use audit::{FailureCause, Log};
use daemon::{Failure, Scope};
use proto::ClusterId;
use tokio::net::UnixStream;
use tracing::{debug, info, warn};
use transport::tls::SharedCertificate;

use super::certificates;
use super::trusted_roots::RootsFollower;
use crate::config::{EGRESS_CONNECTIONS_MAX, EgressConfig, EgressListener, EgressTcp, EgressUnix};
use crate::gateway::{EntryPoint, EntryPointSlots, Gateway};
use crate::identity::{self, Authenticated, EntryPointError};
use crate::listener::unix_socket::{LocalSocket, SocketAccess};
use crate::listener::{AcceptedConnection, Listener, ListenerLimits, PeerStream, accept_loop};
use crate::metrics::ReloadedFile;

/// A bound listener and the cluster that it leads to.
pub(super) struct BoundEgress {
    route: EgressRoute,
    socket: EgressSocket,
}

/// The cluster that an egress listener leads to, and its limit on connections.
#[derive(Clone)]
struct EgressRoute {
    name: Arc<str>,
    cluster: ClusterId,
    places: EntryPointSlots,
}

enum EgressSocket {
    Tcp { listener: Listener, client_name: Arc<str> },
    Unix { socket: LocalSocket, uids: Vec<u32> },
}

impl BoundEgress {
    /// Binds the port or the socket. The server shows `certificate` unless the entry point has a certificate of its
    /// own.
    ///
    /// # Errors
    /// [`Failure`] if the port is taken or a certificate cannot be used.
    pub(super) async fn bind(
        egress: EgressConfig,
        certificate: &Arc<SharedCertificate>,
        roots: &RootsFollower,
        scope: &Scope,
    ) -> Result<Self, Failure> {
        let EgressConfig { name, cluster, connections, listener } = egress;
        let route = EgressRoute { name: name.into(), cluster, places: EntryPointSlots::new(connections) };
        let socket = match listener {
            EgressListener::Tcp(tcp) => self::tcp(*tcp, certificate, roots, scope)?,
            EgressListener::Unix(EgressUnix { path, uids }) => {
                let access = if uids.iter().all(|uid| is_ours(*uid)) {
                    SocketAccess::Owner
                } else {
                    SocketAccess::Everybody
                };
                EgressSocket::Unix {
                    socket: LocalSocket::bind("egress.uds.path", &path, access).await?,
                    uids,
                }
            }
        };
        Ok(Self { route, socket })
    }

    /// The slots for connections of this listener.
    pub(super) fn slots(&self) -> EntryPointSlots {
        self.route.places.clone()
    }

    /// Serves connections in tasks of `scope` until the drain.
    pub(super) fn run(self, gateway: Gateway, log: Log, scope: &Scope) {
        let Self { route, socket } = self;
        let (name, cluster) = (Arc::clone(&route.name), route.cluster.clone());
        match socket {
            EgressSocket::Tcp { listener, client_name } => {
                info!(name = &*name, %cluster, address = %listener.address(), "serving an API server's egress");
                scope.spawn(listener.run(scope.clone(), move |accepted| {
                    let (route, gateway, log) = (route.clone(), gateway.clone(), log.clone());
                    serve(accepted, route, Arc::clone(&client_name), gateway, log)
                }));
            }
            EgressSocket::Unix { socket, uids } => {
                info!(name = &*name, %cluster, socket = %socket.path().display(), "serving an API server's egress");
                scope.spawn(accept(socket, uids.into(), route, gateway, log, scope.clone()));
            }
        }
    }
}

impl EgressRoute {
    /// The entry point, for a principal that was identified at it.
    fn entry_point(&self, principal: Authenticated) -> EntryPoint {
        EntryPoint { principal, cluster: self.cluster.clone(), slots: self.places.clone() }
    }

    /// Logs that a client was refused at this entry point.
    fn refused(&self, from: impl std::fmt::Display, why: &EntryPointError) {
        debug!(name = &*self.name, %from, %why, "refused a client of an API server's egress");
    }
}

fn tcp(
    tcp: EgressTcp,
    shared: &Arc<SharedCertificate>,
    follower: &RootsFollower,
    scope: &Scope,
) -> Result<EgressSocket, Failure> {
    let EgressTcp { listen, certificate, roots, client_name } = tcp;
    let certificate = match certificate {
        Some(own) => certificates::follow(ReloadedFile::EgressCertificate, "egress", own, scope)?,
        None => Arc::clone(shared),
    };
    let tls = follower.egress(&certificate, &roots)?;
    let listener = Listener::bind("egress.tcp.listen", listen, tls, ListenerLimits::DEFAULT)?;
    Ok(EgressSocket::Tcp { listener, client_name: client_name.into() })
}

async fn serve(
    accepted: AcceptedConnection,
    route: EgressRoute,
    client_name: Arc<str>,
    gateway: Gateway,
    log: Log,
) {
    let (stream, _, permit) = accepted.into_peer_stream();
    let PeerStream::Caller(stream) = stream else { return };
    let chain = stream.peer_certificates().unwrap_or_default();
    match identity::by_certificate(&route.name, chain, &client_name) {
        Ok(principal) => gateway.serve_entry_point(stream, route.entry_point(principal)).await,
        Err(why) => {
            log.unauthenticated(stream.peer().ip(), FailureCause::Refused);
            route.refused(stream.peer(), &why);
        }
    }
    drop(permit);
}

/// Accepts connections from the socket until the drain.
async fn accept(
    socket: LocalSocket,
    uids: Arc<[u32]>,
    route: EgressRoute,
    gateway: Gateway,
    log: Log,
    scope: Scope,
) {
    let mut homes = scope.homes_in_turn();
    let spawn = |(stream, _), permit| {
        let (route, gateway, log, uids) = (route.clone(), gateway.clone(), log.clone(), Arc::clone(&uids));
        let home = homes();
        scope.spawn_on(home, async move {
            serve_local(stream, &uids, route, gateway, log).await;
            drop(permit);
        });
    };
    let refused =
        |error| warn!(name = &*route.name, %error, "cannot accept a connection of an API server's egress");
    // Both arms are cancel-safe: accepting may be dropped at any time.
    tokio::select! {
        () = scope.draining() => {}
        () = accept_loop::run_limited(EGRESS_CONNECTIONS_MAX, || socket.listener.accept(), spawn, refused) => {}
    }
}

async fn serve_local(stream: UnixStream, uids: &[u32], route: EgressRoute, gateway: Gateway, log: Log) {
    // The socket was accepted on another runtime.
    let stream = stream.into_std().and_then(UnixStream::from_std);
    let (stream, uid) = match stream.and_then(|stream| Ok((stream.peer_cred()?.uid(), stream))) {
        Ok((uid, stream)) => (stream, uid),
        Err(error) => {
            warn!(name = &*route.name, %error, "the system does not report the user of an egress connection");
            return;
        }
    };
    match identity::by_socket(&route.name, uid, uids) {
        Ok(principal) => gateway.serve_local_entry_point(stream, route.entry_point(principal)).await,
        Err(why) => {
            log.unauthenticated(Ipv4Addr::LOCALHOST.into(), FailureCause::Refused);
            route.refused("a Unix socket", &why);
        }
    }
}

/// Returns true if a process of that user may open every file that this one may.
fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}
