//! SOCKS5 (RFC 1928, RFC 1929): the owner of a dial token names a target, and then only bytes pass. It has no TLS.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use daemon::{Failure, Scope, listen};
use http::StatusCode;
use proto::socks5::{self, CHOSEN, Fault, LOGGED_IN, Login, NOT_CHOSEN, NOT_LOGGED_IN, Parsed, Reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{Asked, Proxy, Refusal, Served};
use crate::dialing::asking::Refuses as _;
use crate::dialing::gone;
use crate::dialing::whole::Whole;
use crate::listener::accepting;
use crate::metrics;

/// Connections at once.
const CONNECTIONS_MAX: usize = 512;

/// Everything up to the target's name arrives within this time.
const ASKED_MAX: Duration = Duration::from_secs(10);

/// A bound port at which nobody is answered yet.
#[derive(Debug)]
pub struct Socks {
    listener: TcpListener,
    address: SocketAddr,
}

/// Why a message could not be read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("the connection broke")]
    Broken(#[from] io::Error),
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
            () = accepting::each_placed(CONNECTIONS_MAX, || self.listener.accept(), spawn, refused) => {}
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
        asked = timeout(ASKED_MAX, ask(&door, &mut stream, from)) => asked,
        () = scope.draining() => return,
    };
    let (Login { user, password }, target) = match asked {
        Ok(Ok(Some(asked))) => asked,
        // It was answered.
        Ok(Ok(None)) => return,
        Ok(Err(error)) => {
            return debug!(%from, error = %daemon::chain(&error), "somebody who does not speak SOCKS5");
        }
        Err(_) => return debug!(%from, "somebody who says nothing at SOCKS5"),
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

/// Who asks and for what; `None` where that was refused already.
async fn ask(
    door: &Proxy,
    stream: &mut TcpStream,
    from: SocketAddr,
) -> Result<Option<(Login, String)>, Unread> {
    if !message(stream, socks5::greeting).await? {
        stream.write_all(&NOT_CHOSEN).await?;
        return Ok(None);
    }
    stream.write_all(&CHOSEN).await?;
    let login = message(stream, socks5::login).await?;
    let asked = Asked { listener: "socks", from, user: &login.user, token: &login.password, target: "" };
    if let Err(refusal) = door.known(&asked) {
        metrics::refused(refusal.cause());
        stream.write_all(&NOT_LOGGED_IN).await?;
        return Ok(None);
    }
    stream.write_all(&LOGGED_IN).await?;
    match message(stream, socks5::request).await {
        Ok(target) => Ok(Some((login, target))),
        Err(Unread::Fault(fault)) => {
            if let Some(reply) = Reply::to_fault(fault) {
                stream.write_all(&reply.bytes()).await?;
            }
            Err(fault.into())
        }
        Err(error) => Err(error),
    }
}

/// One message, and not one byte of what stands behind it.
async fn message<T>(
    stream: &mut TcpStream,
    parse: impl Fn(&[u8]) -> Result<Parsed<T>, Fault>,
) -> Result<T, Unread> {
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes)? {
            Parsed::Whole(message) => return Ok(message),
            Parsed::Lacks(lacking) => {
                let had = bytes.len();
                bytes.resize(had + lacking, 0);
                stream.read_exact(&mut bytes[had..]).await?;
            }
        }
    }
}

fn reply(refusal: &Refusal) -> Reply {
    match refusal.status() {
        StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => Reply::NotAllowed,
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT | StatusCode::SERVICE_UNAVAILABLE => {
            Reply::Unreachable
        }
        _ => Reply::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_number_of_its_kind() {
        let clusters = vec!["edge-a".parse().unwrap(), "edge-b".parse().unwrap()];
        let target = || "10.0.0.1:443".parse().unwrap();
        for (refusal, expected) in [
            (Refusal::Ambiguous(target(), clusters), Reply::NotAllowed),
            (Refusal::Nowhere(target()), Reply::NotAllowed),
            (Refusal::NotAuthenticated, Reply::NotAllowed),
            (Refusal::NoTarget, Reply::Failed),
        ] {
            assert_eq!(reply(&refusal), expected, "{refusal}");
        }
    }
}
