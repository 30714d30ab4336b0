//! The proxy for callers with a dial token and no certificate. It connects them to targets and does nothing
//! else.
//!
//! HTTP CONNECT over TLS and SOCKS5 differ only in how a caller asks and is answered. Authentication, cluster
//! and permission are decided here, for both.

mod connect;
mod refusal;
mod socks;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use audit::FailureCause;
use daemon::Scope;
use daemon::metrics::requests::{ActiveRequest, RequestMetrics};
use policy::Target;
use tracing::debug;

use crate::authz::{Dial, Permit};
use crate::dialing::admit::{self, DialRequest};
use crate::dialing::{Dialer, TargetScope, TargetStream};
use crate::directory::{DialBearer, DialToken, DialTokenEntry, Directory};
use crate::exchanges::RunningExchange;
use crate::identity::{Caller, Credential};
use crate::limits::{ExchangeKind, LimitExceeded, LimitGuard};
use crate::listener::ConnectionPermit;
use crate::listener::failed_attempts::FailedAttempts;
use crate::metrics;

pub use connect::LIMITS;
pub use refusal::ProxyRefusal;
pub use socks::SocksListener;

/// The proxy for dial tokens. Clones share one proxy.
#[derive(Clone)]
pub struct DialProxy(Arc<SharedProxy>);

struct SharedProxy {
    directory: Directory,
    dialer: Dialer,
    failures: FailedAttempts,
    failures_max: u32,
    exchanges: RequestMetrics,
    scope: Scope,
}

/// A request to the proxy, as the caller wrote it.
struct ProxyRequest<'a> {
    /// The name of the entry point in the audit log.
    listener: &'static str,
    from: SocketAddr,
    user: &'a str,
    token: &'a str,
    /// The target as `HOST:PORT`, not yet parsed.
    target: &'a str,
    /// The permit of the connection, which notes that its caller has proved who it is.
    permit: &'a ConnectionPermit,
}

/// A connected target, and the guards of the limits that it uses.
struct ServedConnection {
    connected: TargetStream,
    guards: (LimitGuard, ActiveRequest),
}

impl DialProxy {
    /// Creates a proxy for the owners of `directory`'s dial tokens.
    #[must_use]
    pub fn new(directory: Directory, dialer: Dialer, scope: Scope) -> Self {
        let failures_max = dialer.limiter().limits().source.failed_logins;
        let failures = FailedAttempts::new(failures_max);
        let exchanges = metrics::requests();
        Self(Arc::new(SharedProxy { directory, dialer, failures, failures_max, exchanges, scope }))
    }

    /// Connects the caller to its target, or refuses. Cancel-safe: dropping the future undoes everything.
    async fn serve(&self, request: &ProxyRequest<'_>) -> Result<ServedConnection, ProxyRefusal> {
        let served = admit::with_metrics(&self.0.exchanges, self.admit(request)).await;
        served.map(|((connected, guard), active)| ServedConnection { connected, guards: (guard, active) })
    }

    async fn admit(&self, request: &ProxyRequest<'_>) -> Result<(TargetStream, LimitGuard), ProxyRefusal> {
        let ProxyRequest { listener, from, target, .. } = *request;
        let (caller, scope) = self.authenticate(request)?;
        let request = DialRequest { caller: &caller, listener, from, target, kind: ExchangeKind::Upgrade };
        self.0.dialer.admit(&request, self.permit(&caller, scope, target)).await
    }

    /// Authenticates the caller by its token. A token is checked even if its source has failed too often:
    /// that costs one hash, and a token cannot be guessed.
    fn authenticate(&self, request: &ProxyRequest<'_>) -> Result<(Caller, TargetScope), ProxyRefusal> {
        let bearer: Option<DialBearer> = request.token.parse().ok();
        let now = SystemTime::now();
        let admitted =
            bearer.map(|bearer| self.0.directory.admits_dial_token(&bearer, request.user, now)).transpose();
        match admitted {
            Ok(Some(DialTokenEntry { id, token })) => {
                let credential =
                    Credential { id: id.into(), issued: token.created.time(), expires: token.expires.time() };
                request.permit.proved();
                Ok((Caller::by_dial_token(token.user.clone(), credential), target_scope(&token)))
            }
            Err(error) => {
                debug!(%error, "a dial token was refused");
                Err(self.reject_unauthenticated(request.from.ip(), FailureCause::Refused))
            }
            Ok(None) if request.token.is_empty() => {
                Err(self.reject_unauthenticated(request.from.ip(), FailureCause::NoCredential))
            }
            Ok(None) => Err(self.reject_unauthenticated(request.from.ip(), FailureCause::Refused)),
        }
    }

    /// Counts a failed login and makes its refusal.
    fn reject_unauthenticated(&self, from: IpAddr, why: FailureCause) -> ProxyRefusal {
        let SharedProxy { dialer, failures, failures_max, .. } = &*self.0;
        let (source, now) = (from.to_canonical(), Instant::now());
        dialer.recorder().count_unauthenticated(source, why);
        if !failures.may_try(source, now) {
            return dialer.limiter().count_exceeded(LimitExceeded::SourceFailures(*failures_max)).into();
        }
        failures.failed(source, now);
        ProxyRefusal::NotAuthenticated
    }

    /// Parses the target and permits the dial.
    async fn permit(
        &self,
        caller: &Caller,
        scope: TargetScope,
        target: &str,
    ) -> Result<(Permit<Dial>, RunningExchange), ProxyRefusal> {
        let target: Target = target.parse().map_err(|_| ProxyRefusal::InvalidTarget)?;
        Ok(self.0.dialer.permit(caller, scope, target).await?)
    }
}

/// The clusters and networks in which the token's targets may be.
fn target_scope(token: &DialToken) -> TargetScope {
    let (mut clusters, networks) = (token.cluster_ids(), token.network_names());
    match (clusters.pop(), clusters.is_empty() && networks.is_empty()) {
        (Some(one), true) => TargetScope::Cluster(one),
        (last, _) => {
            clusters.extend(last);
            TargetScope::OneOf(clusters, networks)
        }
    }
}

impl std::fmt::Debug for DialProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DialProxy").field("failures_max", &self.0.failures_max).finish_non_exhaustive()
    }
}
