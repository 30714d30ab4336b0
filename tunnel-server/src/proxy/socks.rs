//! SOCKS5 without TLS (RFC 1928, RFC 1929). The owner of a dial token names a target, and then only bytes are
//! relayed.

use std::io;
use std::net::SocketAddr;

use daemon::{Failure, Scope, listen, peer_closed, socks5};
use proto::socks5::{Login, Reply};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{debug, warn};

use super::{DialProxy, ProxyRefusal, ProxyRequest, ServedConnection};
use crate::dialing::admit::DialRefusal as _;
use crate::dialing::reset_on_drop::ResetOnDrop;
use crate::listener::accept_loop;
use crate::metrics;

/// Most connections over SOCKS5 at once.
const CONNECTIONS_MAX: usize = 512;

/// A bound port that does not accept yet.
#[derive(Debug)]
pub struct SocksListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl SocksListener {
    /// Binds the configured port of SOCKS5.
    ///
    /// # Errors
    /// [`Failure`] if the port is taken.
    pub async fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let listener = listen::tcp("socks.listen", address).await?;
        let address = listener.local_addr().map_err(Failure::could_not_go_on)?;
        Ok(Self { listener, address })
    }

    /// The address that is bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections until the drain. Connections that are open then continue.
    pub async fn run(self, proxy: DialProxy, scope: Scope) {
        let mut homes = scope.homes_in_turn();
        let spawn = |(stream, from), permit| {
            let home = homes();
            scope.spawn_on(home, serve(proxy.clone(), stream, from, permit));
        };
        let refused = |error| warn!(%error, "cannot accept a connection of SOCKS5");
        // Both arms are cancel-safe: accepting may be dropped at any time.
        tokio::select! {
            () = scope.draining() => {}
            () = accept_loop::run_limited(CONNECTIONS_MAX, || self.listener.accept(), spawn, refused) => {}
        }
    }
}

async fn serve(proxy: DialProxy, stream: TcpStream, from: SocketAddr, permit: OwnedSemaphorePermit) {
    // The socket was accepted on another runtime.
    let stream = stream.into_std().and_then(TcpStream::from_std);
    let Ok(mut stream) = stream else { return };
    let scope = proxy.0.scope.clone();
    // Both arms are cancel-safe: no work has begun for this connection.
    let request = tokio::select! {
        request = socks5::read_request(&mut stream, |login| proxy.is_authenticated(login, from)) => request,
        () = scope.draining() => return,
    };
    let (Login { user, password }, target) = match request {
        Ok(Some(request)) => request,
        // The client has its answer already.
        Ok(None) => return,
        Err(error) => {
            return debug!(%from, error = %daemon::error_chain(&error), "a SOCKS5 client made no valid request");
        }
    };
    let request = ProxyRequest { listener: "socks", from, user: &user, token: &password, target: &target };
    // Both arms are cancel-safe: if the client has gone, the dial is dropped.
    let served = tokio::select! {
        served = proxy.serve(&request) => served,
        () = peer_closed(&stream) => return,
    };
    match served {
        Ok(ServedConnection { connected, guards }) => {
            let mut stream = ResetOnDrop::new(stream);
            if stream.write_all(&Reply::Succeeded.bytes()).await.is_ok() {
                connected.relay(async { Ok::<_, io::Error>(stream) }, (guards, permit));
            }
        }
        // A client that has gone needs no answer.
        Err(refusal) => drop(stream.write_all(&reply(&refusal).bytes()).await),
    }
}

impl DialProxy {
    /// Returns true if the login is a valid dial token. SOCKS5 answers this before the client names a target.
    fn is_authenticated(&self, login: &Login, from: SocketAddr) -> bool {
        let request =
            ProxyRequest { listener: "socks", from, user: &login.user, token: &login.password, target: "" };
        let authenticated = self.authenticate(&request);
        if let Err(refusal) = &authenticated {
            metrics::refused(refusal.cause());
        }
        authenticated.is_ok()
    }
}

fn reply(refusal: &ProxyRefusal) -> Reply {
    Reply::from_status(refusal.status().as_u16())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialing::DialError;

    #[test]
    fn each_refusal_has_its_socks_reply() {
        let clusters = vec!["edge-a".parse().unwrap(), "edge-b".parse().unwrap()];
        let target = || "10.0.0.1:443".parse().unwrap();
        for (refusal, expected) in [
            (DialError::Ambiguous(target(), clusters).into(), Reply::NotAllowed),
            (DialError::NotFound(target()).into(), Reply::NotAllowed),
            (ProxyRefusal::NotAuthenticated, Reply::NotAllowed),
            (ProxyRefusal::InvalidTarget, Reply::Failed),
        ] {
            assert_eq!(reply(&refusal), expected, "{refusal}");
        }
    }
}
