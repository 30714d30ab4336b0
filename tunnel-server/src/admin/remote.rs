//! The door to other machines: TLS with a certificate of the administrators' CA, whose name the configuration gives a role.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use audit::{Log, Why};
use daemon::Failure;
use tokio::sync::watch;
use tonic_reflection::server::v1::ServerReflection;
use tracing::debug;
use trust::names::Label;

use super::authorize::Actor;
use super::hall::Hall;
use crate::config::{AdminRole, AdminTcp, CertifiedPair};
use crate::identity::{AdminCertificate, admin_identity};
use crate::listener::{Accepted, Doors, Limits, Listener, Spoken, tls};

/// How many may come at once, and how quickly: a few people and their programs.
const LIMITS: Limits =
    Limits { connections_max: 128, handshakes_max: 64, handshake: Duration::from_secs(5), source: None };

/// A bound port at which nobody is answered yet.
#[derive(Debug)]
pub struct Remote {
    listener: Listener,
    known: Known,
}

/// Who may come.
#[derive(Debug)]
struct Known {
    trust_domain: String,
    roles: BTreeMap<Label, AdminRole>,
}

impl Remote {
    /// Takes the port. The server shows `pair` there.
    ///
    /// # Errors
    /// [`Failure`]: the port is taken, or a certificate is of no use.
    pub fn bind(tcp: AdminTcp, pair: &CertifiedPair, trust_domain: &str) -> Result<Self, Failure> {
        let AdminTcp { listen, roots, roles } = tcp;
        let tls = tls::for_admins(pair.chain.clone(), pair.key.clone_key(), roots)
            .map_err(Failure::misconfigured)?;
        // The sender is dropped: certificates are read at the start.
        let (_, tls) = watch::channel(Arc::new(tls));
        let doors = Doors { callers: Some(tls), agents: None };
        let listener = Listener::bind("admin.tcp.listen", listen, doors, LIMITS)?;
        Ok(Self { listener, known: Known { trust_domain: trust_domain.to_owned(), roles } })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Serves whoever comes, until the drain; who is here then is served as those at the socket are.
    pub(super) async fn accept<R: ServerReflection>(self, hall: Hall<R>, log: Log) {
        let Self { listener, known } = self;
        let (scope, known) = (hall.scope().clone(), Arc::new(known));
        listener
            .run(scope, move |accepted| {
                let (hall, log, known) = (hall.clone(), log.clone(), Arc::clone(&known));
                async move {
                    // An attendant: no drain waits for it.
                    hall.scope().clone().attend(serve(accepted, known, hall, log));
                }
            })
            .await;
    }
}

async fn serve<R: ServerReflection>(accepted: Accepted, known: Arc<Known>, hall: Hall<R>, log: Log) {
    let Accepted { stream, peer, peer_certificates, spoken, home: _, place } = accepted;
    let chain = peer_certificates.unwrap_or_default();
    let AdminCertificate { name, serial, ends } = match admin_identity(&chain, &known.trust_domain) {
        Ok(shown) => shown.into_inner(),
        Err(error) => {
            log.stranger(peer.ip(), Why::Refused);
            debug!(%peer, %error, "a certificate of the administrators' CA that is no administrator's");
            return;
        }
    };
    // TLS lets those in who offer no protocol at all.
    if spoken != Spoken::Http2 {
        debug!(%peer, "a connection to the admin API that does not speak HTTP/2");
        return;
    }
    let role = known.roles.get(&name).copied();
    let life = ends.duration_since(SystemTime::now()).unwrap_or_default();
    hall.serve(stream, Actor::Remote { name, role, serial, from: peer }, life).await;
    drop(place);
}
