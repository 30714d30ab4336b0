//! SOCKS5 without TLS (RFC 1928, RFC 1929). The owner of a dial token names a target, and then only bytes are
//! relayed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use daemon::listen::{GuardedConnection, GuardedListener, ListenerEvent};
use daemon::{Failure, Scope, peer_closed, socks5};
use proto::socks5::{Login, Reply};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tracing::debug;

use super::{DialProxy, ProxyRefusal, ProxyRequest, ServedConnection};
use crate::dialing::admit::DialRefusal as _;
use crate::dialing::reset_on_drop::ResetOnDrop;
use crate::listener::{ConnectionPermit, Counters, ListenerLimits};
use crate::metrics;

/// Most connections over SOCKS5 at once.
const CONNECTIONS_MAX: usize = 2_000;

/// The limits of the listener. A login with a dial token is a client's proof.
const LIMITS: ListenerLimits = ListenerLimits {
    connections_max: CONNECTIONS_MAX,
    handshakes_max: CONNECTIONS_MAX,
    ..ListenerLimits::DEFAULT
};

/// A bound port that does not accept yet.
#[derive(Debug)]
pub struct SocksListener {
    listener: GuardedListener,
}

impl SocksListener {
    /// Binds the configured port of SOCKS5.
    ///
    /// # Errors
    /// [`Failure`] if the port is taken.
    pub fn bind(address: SocketAddr) -> Result<Self, Failure> {
        Ok(Self { listener: GuardedListener::bind("socks.listen", address, LIMITS)? })
    }

    /// The address that is bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The counters of the listener, which can be read while it runs.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.listener.counters()
    }

    /// Serves connections until the drain. Connections that are open then continue.
    pub async fn run(self, proxy: DialProxy, scope: Scope) {
        let counters = self.listener.counters();
        let begin = |accepted| Some(serve_guarded(proxy.clone(), accepted, Arc::clone(&counters)));
        self.listener.run(&scope, begin).await;
    }
}

/// Serves one connection until its end, or until its client has to prove itself and does not.
async fn serve_guarded(proxy: DialProxy, accepted: GuardedConnection, counters: Arc<Counters>) {
    let GuardedConnection { stream, peer, permit, handshake: _, mut expulsion } = accepted;
    // A relay has a task of its own, which this does not end.
    if expulsion.unless_expelled(serve(proxy, stream, peer, permit)).await.is_none() {
        counters.count(ListenerEvent::SourceLimited);
    }
}

async fn serve(proxy: DialProxy, stream: TcpStream, from: SocketAddr, permit: ConnectionPermit) {
    // The socket was accepted on another runtime.
    let stream = stream.into_std().and_then(TcpStream::from_std);
    let Ok(mut stream) = stream else { return };
    let scope = proxy.0.scope.clone();
    // Both arms are cancel-safe: no work has begun for this connection.
    let request = tokio::select! {
        request = socks5::read_request(&mut stream, |login| proxy.is_authenticated(login, from, &permit)) => request,
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
    let request = ProxyRequest {
        listener: "socks",
        from,
        user: &user,
        token: &password,
        target: &target,
        permit: &permit,
    };
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
    fn is_authenticated(&self, login: &Login, from: SocketAddr, permit: &ConnectionPermit) -> bool {
        let Login { user, password } = login;
        let request = ProxyRequest { listener: "socks", from, user, token: password, target: "", permit };
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
