//! SOCKS5 (RFC 1928, RFC 1929): the owner of a dial token names a target, and then only bytes pass. It has no TLS.

use std::io;
use std::net::SocketAddr;

use daemon::{Failure, Scope, gone, listen, socks5};
use proto::socks5::{Login, Reply};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{debug, warn};

use super::{Asked, Proxy, Refusal, Served};
use crate::dialing::admit::Refuses as _;
use crate::dialing::reset_on_drop::Whole;
use crate::listener::accept_loop;
use crate::metrics;

/// Connections at once.
const CONNECTIONS_MAX: usize = 512;

/// A bound port at which nobody is answered yet.
#[derive(Debug)]
pub struct Socks {
    listener: TcpListener,
    address: SocketAddr,
}

impl Socks {
    /// Takes the port.
    ///
    /// # Errors
    /// [`Failure`]: it is taken.
    pub async fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let listener = listen::tcp("socks.listen", address).await?;
        let address = listener.local_addr().map_err(Failure::could_not_go_on)?;
        Ok(Self { listener, address })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves whoever comes, until the drain. What is connected then goes on.
    pub async fn run(self, door: Proxy, scope: Scope) {
        let mut homes = scope.homes_in_turn();
        let spawn = |(stream, from), place| {
            let home = homes();
            scope.spawn_on(home, serve(door.clone(), stream, from, place));
        };
        let refused = |error| warn!(%error, "cannot accept a connection of SOCKS5");
        // Both arms are cancel-safe: accepting may be dropped at any time.
        tokio::select! {
            () = scope.draining() => {}
            () = accept_loop::run_limited(CONNECTIONS_MAX, || self.listener.accept(), spawn, refused) => {}
        }
    }
}

async fn serve(door: Proxy, stream: TcpStream, from: SocketAddr, place: OwnedSemaphorePermit) {
    // It was accepted on another runtime.
    let stream = stream.into_std().and_then(TcpStream::from_std);
    let Ok(mut stream) = stream else { return };
    let scope = door.0.scope.clone();
    // Both arms are cancel-safe: nothing is done yet for whoever is let go.
    let asked = tokio::select! {
        asked = socks5::ask(&mut stream, |login| door.knows(login, from)) => asked,
        () = scope.draining() => return,
    };
    let (Login { user, password }, target) = match asked {
        Ok(Some(asked)) => asked,
        // It was answered.
        Ok(None) => return,
        Err(error) => {
            return debug!(%from, error = %daemon::chain(&error), "somebody who asks for nothing by SOCKS5");
        }
    };
    let asked = Asked { listener: "socks", from, user: &user, token: &password, target: &target };
    // Both arms are cancel-safe: what is being connected for somebody who has gone is dropped.
    let served = tokio::select! {
        served = door.serve(&asked) => served,
        () = gone(&stream) => return,
    };
    match served {
        Ok(Served { connected, held }) => {
            let mut stream = Whole::of(stream);
            if stream.write_all(&Reply::Succeeded.bytes()).await.is_ok() {
                connected.join(async { Ok::<_, io::Error>(stream) }, (held, place));
            }
        }
        // Who has gone needs no answer.
        Err(refusal) => drop(stream.write_all(&reply(&refusal).bytes()).await),
    }
}

impl Proxy {
    /// Whether somebody is the owner of a token, to be told so before they say what they want.
    fn knows(&self, login: &Login, from: SocketAddr) -> bool {
        let asked = Asked { listener: "socks", from, user: &login.user, token: &login.password, target: "" };
        let known = self.known(&asked);
        if let Err(refusal) = &known {
            metrics::refused(refusal.cause());
        }
        known.is_ok()
    }
}

fn reply(refusal: &Refusal) -> Reply {
    Reply::to_status(refusal.status().as_u16())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialing::NotConnected;

    #[test]
    fn a_refusal_has_the_number_of_its_kind() {
        let clusters = vec!["edge-a".parse().unwrap(), "edge-b".parse().unwrap()];
        let target = || "10.0.0.1:443".parse().unwrap();
        for (refusal, expected) in [
            (NotConnected::Ambiguous(target(), clusters).into(), Reply::NotAllowed),
            (NotConnected::Nowhere(target()).into(), Reply::NotAllowed),
            (Refusal::NotAuthenticated, Reply::NotAllowed),
            (Refusal::NoTarget, Reply::Failed),
        ] {
            assert_eq!(reply(&refusal), expected, "{refusal}");
        }
    }
}
