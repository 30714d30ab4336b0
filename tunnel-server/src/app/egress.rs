//! The listeners for the egress of API servers: each is for one of them and one cluster.

use std::net::Ipv4Addr;
use std::sync::Arc;

use audit::{Log, Why};
use daemon::{Failure, Scope};
use proto::ClusterId;
use tokio::net::UnixStream;
use tracing::{debug, info, warn};

use crate::config::{
    CertifiedPair, EGRESS_CONNECTIONS_MAX, EgressConfig, EgressListener, EgressTcp, EgressUnix,
};
use crate::gateway::{Gateway, Places, WayIn};
use crate::identity::{self, Authenticated, EntryPointError};
use crate::listener::socket::{LocalSocket, Reach};
use crate::listener::{Accepted, Doors, Entered, Limits, Listener, accepting, tls};

/// A bound listener.
pub(super) struct Way {
    site: Site,
    door: Door,
}

/// Where it leads.
#[derive(Clone)]
struct Site {
    name: Arc<str>,
    cluster: ClusterId,
    places: Places,
}

enum Door {
    Tcp { listener: Listener, client_name: Arc<str> },
    Unix { socket: LocalSocket, uids: Vec<u32> },
}

impl Way {
    /// Takes its port or its socket, at which the server shows `pair` unless another certificate is configured.
    ///
    /// # Errors
    /// [`Failure`]: it is taken, or a certificate is of no use.
    pub(super) async fn bind(egress: EgressConfig, pair: &CertifiedPair) -> Result<Self, Failure> {
        let EgressConfig { name, cluster, connections, listener: door } = egress;
        let site = Site { name: name.into(), cluster, places: Places::new(connections) };
        let door = match door {
            EgressListener::Tcp(tcp) => self::tcp(tcp, pair)?,
            EgressListener::Unix(EgressUnix { path, uids }) => {
                let reach =
                    if uids.iter().all(|uid| is_ours(*uid)) { Reach::Owner } else { Reach::Everybody };
                Door::Unix { socket: LocalSocket::bind("egress.uds.path", &path, reach).await?, uids }
            }
        };
        Ok(Self { site, door })
    }

    /// The connections that it may have.
    pub(super) fn places(&self) -> Places {
        self.site.places.clone()
    }

    /// Serves whoever comes, by tasks of `scope`, until the drain.
    pub(super) fn run(self, gateway: Gateway, log: Log, scope: &Scope) {
        let Self { site, door } = self;
        let (name, cluster) = (Arc::clone(&site.name), site.cluster.clone());
        match door {
            Door::Tcp { listener, client_name } => {
                info!(name = &*name, %cluster, address = %listener.address(), "an API server's egress may come");
                scope.spawn(listener.run(scope.clone(), move |accepted| {
                    let (site, gateway, log) = (site.clone(), gateway.clone(), log.clone());
                    serve(accepted, site, Arc::clone(&client_name), gateway, log)
                }));
            }
            Door::Unix { socket, uids } => {
                info!(name = &*name, %cluster, socket = %socket.path().display(), "an API server's egress may come");
                scope.spawn(accept(socket, uids.into(), site, gateway, log, scope.clone()));
            }
        }
    }
}

impl Site {
    /// The way in that a principal of it has come by.
    fn way_in(&self, principal: Authenticated) -> WayIn {
        WayIn { principal, cluster: self.cluster.clone(), places: self.places.clone() }
    }

    /// Notes that somebody may not come.
    fn refused(&self, from: impl std::fmt::Display, why: &EntryPointError) {
        debug!(name = &*self.name, %from, %why, "somebody may not come by an API server's way in");
    }
}

fn tcp(tcp: EgressTcp, pair: &CertifiedPair) -> Result<Door, Failure> {
    let EgressTcp { listen, certificate, roots, client_name } = tcp;
    let pair = certificate.as_ref().unwrap_or(pair);
    let tls =
        tls::for_way_in(pair.chain.clone(), pair.key.clone_key(), roots).map_err(Failure::misconfigured)?;
    let listener = Listener::bind("egress.tcp.listen", listen, Doors::callers(tls), Limits::default())?;
    Ok(Door::Tcp { listener, client_name: client_name.into() })
}

async fn serve(accepted: Accepted, site: Site, client_name: Arc<str>, gateway: Gateway, log: Log) {
    let (entered, _, place) = accepted.entered();
    let Entered::Caller(stream) = entered else { return };
    let chain = stream.peer_certificates().unwrap_or_default();
    match identity::by_certificate(&site.name, chain, &client_name) {
        Ok(principal) => gateway.serve_way_in(stream, site.way_in(principal)).await,
        Err(why) => {
            log.stranger(stream.peer().ip(), Why::Refused);
            site.refused(stream.peer(), &why);
        }
    }
    drop(place);
}

/// Accepts until the drain.
async fn accept(socket: LocalSocket, uids: Arc<[u32]>, site: Site, gateway: Gateway, log: Log, scope: Scope) {
    let mut homes = scope.homes_in_turn();
    let spawn = |(stream, _), place| {
        let (site, gateway, log, uids) = (site.clone(), gateway.clone(), log.clone(), Arc::clone(&uids));
        let home = homes();
        scope.spawn_on(home, async move {
            serve_local(stream, &uids, site, gateway, log).await;
            drop(place);
        });
    };
    let refused =
        |error| warn!(name = &*site.name, %error, "cannot accept a connection of an API server's egress");
    // Both arms are cancel-safe: accepting may be dropped at any time.
    tokio::select! {
        () = scope.draining() => {}
        () = accepting::each_placed(EGRESS_CONNECTIONS_MAX, || socket.listener.accept(), spawn, refused) => {}
    }
}

async fn serve_local(stream: UnixStream, uids: &[u32], site: Site, gateway: Gateway, log: Log) {
    // It was accepted on another runtime.
    let stream = stream.into_std().and_then(UnixStream::from_std);
    let (stream, uid) = match stream.and_then(|stream| Ok((stream.peer_cred()?.uid(), stream))) {
        Ok((uid, stream)) => (stream, uid),
        Err(error) => {
            warn!(name = &*site.name, %error, "the system does not say who is at an egress socket");
            return;
        }
    };
    match identity::by_socket(&site.name, uid, uids) {
        Ok(principal) => gateway.serve_local_way_in(stream, site.way_in(principal)).await,
        Err(why) => {
            log.stranger(Ipv4Addr::LOCALHOST.into(), Why::Refused);
            site.refused("a Unix socket", &why);
        }
    }
}

/// Whether a process of that user may open whatever this one may.
fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}
