//! The TCP listener for other machines: TLS with a certificate of the administrators' CA, whose name has a
//! role in the configuration.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use audit::{FailureCause, Log};
use daemon::Failure;
use rustls::ServerConfig;
use tokio::sync::watch;
use tonic_reflection::server::v1::ServerReflection;
use tracing::debug;

use super::authorize::Actor;
use super::connection::ConnectionService;
use crate::config::{AdminRevoked, AdminRole, AdminRules};
use crate::identity::{AdminCertificate, Verified, admin_identity};
use crate::listener::{AcceptedConnection, AgreedProtocol, Counters, Listener, ListenerLimits, ListenerTls};

/// The limits of the listener: enough for a few people and their programs.
const LIMITS: ListenerLimits =
    ListenerLimits { handshake: Duration::from_secs(5), of_certificate: 32, ..ListenerLimits::DEFAULT };

/// A bound port at which nobody is answered yet.
#[derive(Debug)]
pub struct Remote {
    listener: Listener,
    access: AdminAccess,
}

/// The conditions by which a certificate gets a role.
#[derive(Debug)]
struct AdminAccess {
    trust_domain: String,
    /// Now and later: a change holds for connections that are open.
    rules: watch::Receiver<Arc<AdminRules>>,
}

/// The role of a certificate by one version of the rules.
type RoleDecision = Result<Option<AdminRole>, AdminRevoked>;

impl Remote {
    /// Takes the port. Each handshake is by the newest value of `tls`, which [`tls::for_admins`](crate::listener::tls::for_admins)
    /// makes. Administrators may do what `rules` say at that time.
    ///
    /// # Errors
    /// [`Failure`]: the port is taken.
    pub fn bind(
        listen: SocketAddr,
        tls: watch::Receiver<Arc<ServerConfig>>,
        rules: watch::Receiver<Arc<AdminRules>>,
        trust_domain: &str,
    ) -> Result<Self, Failure> {
        let tls = ListenerTls::callers_by_newest(tls);
        let listener = Listener::bind("admin.tcp.listen", listen, tls, LIMITS)?;
        Ok(Self { listener, access: AdminAccess { trust_domain: trust_domain.to_owned(), rules } })
    }

    /// The counters of the listener, which also work while it runs.
    #[must_use]
    pub fn counts(&self) -> Arc<Counters> {
        self.listener.counters()
    }

    /// The address that is bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Serves connections until the drain. Those that are open then are served like those at the socket.
    pub(super) async fn accept<R: ServerReflection>(self, connections: ConnectionService<R>, log: Log) {
        let Self { listener, access } = self;
        let (scope, access) = (connections.scope().clone(), Arc::new(access));
        listener
            .run(scope, move |accepted| {
                let (connections, log, access) = (connections.clone(), log.clone(), Arc::clone(&access));
                async move {
                    // A background task, so that no drain waits for it.
                    connections.scope().clone().spawn_background(serve(accepted, access, connections, log));
                }
            })
            .await;
    }
}

async fn serve<R: ServerReflection>(
    accepted: AcceptedConnection,
    access: Arc<AdminAccess>,
    connections: ConnectionService<R>,
    log: Log,
) {
    let AcceptedConnection { stream, peer, peer_certificates, protocol, home: _, permit } = accepted;
    let chain = peer_certificates.unwrap_or_default();
    let certificate = match admin_identity(&chain, &access.trust_domain) {
        Ok(certificate) => certificate,
        Err(error) => {
            log.unauthenticated(peer.ip(), FailureCause::Refused);
            debug!(%peer, %error, "a certificate of the administrators' CA that is no administrator's");
            return;
        }
    };
    // TLS accepts clients that offer no ALPN protocol.
    if protocol != AgreedProtocol::Http2 {
        debug!(%peer, "a connection to the admin API that does not speak HTTP/2");
        return;
    }
    let mut rules = access.rules.clone();
    let decision = decision(&certificate, &rules.borrow_and_update());
    let role = match decision {
        Ok(role) => role,
        Err(error) => {
            log.unauthenticated(peer.ip(), FailureCause::Refused);
            debug!(%peer, %error, "an administrator was refused");
            return;
        }
    };
    let life = certificate.ends.duration_since(SystemTime::now()).unwrap_or_default();
    let (name, serial) = (certificate.name.clone(), certificate.serial.clone());
    let served = connections.serve(stream, Actor::Remote { name, role, serial, from: peer }, life);
    // Both arms are cancel-safe: a connection that is dropped ends with all that runs over it.
    tokio::select! {
        () = served => {}
        () = changed(&certificate, decision, &mut rules) => {
            debug!(%peer, "a connection to the admin API was closed: its administrator's role has changed");
        }
    }
    drop(permit);
}

fn decision(certificate: &Verified<AdminCertificate>, rules: &AdminRules) -> RoleDecision {
    rules.role(&certificate.name, &certificate.serial, certificate.issued)
}

/// Resolves when other rules make something else of a certificate. Cancel-safe.
async fn changed(
    certificate: &Verified<AdminCertificate>,
    before: RoleDecision,
    rules: &mut watch::Receiver<Arc<AdminRules>>,
) {
    loop {
        if rules.changed().await.is_err() {
            // The task that reads the file has ended, and so does the process.
            return pending().await;
        }
        if decision(certificate, &rules.borrow_and_update()) != before {
            return;
        }
    }
}
