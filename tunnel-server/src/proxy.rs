//! The door for callers without a certificate, who have a dial token: they are connected to targets, and nothing else.
//!
//! Two ways in, HTTP CONNECT by TLS and SOCKS5, differ in how they ask and how they are answered. Who asks, for which cluster
//! and whether they may is decided here, for both.

mod connect;
mod refusal;
mod socks;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use audit::Why;
use daemon::Scope;
use daemon::metrics::exchanges::{Active, Exchanges};
use policy::Target;
use tracing::debug;

use crate::authz::{Dial, Permit};
use crate::dialing::admit::{self, Asking};
use crate::dialing::{Connected, Dials, Within};
use crate::directory::{DialBearer, DialToken, DialTokenEntry, Directory};
use crate::exchanges::Live;
use crate::identity::{Caller, Credential};
use crate::limits::{ExchangeKind, LimitExceeded, LimitGuard};
use crate::listener::failed_attempts::FailedAttempts;
use crate::metrics;

pub use connect::LIMITS;
pub use refusal::Refusal;
pub use socks::Socks;

/// The door. Clones are the same one.
#[derive(Clone)]
pub struct Proxy(Arc<Inner>);

struct Inner {
    directory: Directory,
    dials: Dials,
    failures: FailedAttempts,
    failures_max: u32,
    exchanges: Exchanges,
    scope: Scope,
}

/// What somebody wants, as they say it.
struct Asked<'a> {
    /// The way in, as the audit log calls it.
    listener: &'static str,
    from: SocketAddr,
    user: &'a str,
    token: &'a str,
    /// `HOST:PORT`.
    target: &'a str,
}

/// A target that somebody is connected to, with what that takes of limits.
struct Served {
    connected: Connected,
    held: (LimitGuard, Active),
}

impl Proxy {
    /// A door for owners of `directory`'s dial tokens.
    #[must_use]
    pub fn new(directory: Directory, dials: Dials, scope: Scope) -> Self {
        let failures_max = dials.limiter().limits().source.failed_logins;
        let failures = FailedAttempts::new(failures_max);
        let exchanges = metrics::exchanges();
        Self(Arc::new(Inner { directory, dials, failures, failures_max, exchanges, scope }))
    }

    /// Connects who asks to the target, or says why not. Cancel-safe: dropped, it leaves nothing behind.
    async fn serve(&self, asked: &Asked<'_>) -> Result<Served, Refusal> {
        let served = admit::counted(&self.0.exchanges, self.served(asked)).await;
        served.map(|((connected, guard), active)| Served { connected, held: (guard, active) })
    }

    async fn served(&self, asked: &Asked<'_>) -> Result<(Connected, LimitGuard), Refusal> {
        let Asked { listener, from, target, .. } = *asked;
        let (caller, within) = self.known(asked)?;
        let asking = Asking { caller: &caller, listener, from, target, kind: ExchangeKind::Upgrade };
        self.0.dials.begin(&asking, self.wanted(&caller, within, target)).await
    }

    /// Who asks, and for what their token is. A token is looked at however often others of the same source have failed: that
    /// costs one hash, and nobody guesses it.
    fn known(&self, asked: &Asked<'_>) -> Result<(Caller, Within), Refusal> {
        let bearer: Option<DialBearer> = asked.token.parse().ok();
        let now = SystemTime::now();
        let admitted =
            bearer.map(|bearer| self.0.directory.admits_dial_token(&bearer, asked.user, now)).transpose();
        match admitted {
            Ok(Some(DialTokenEntry { id, token })) => {
                let credential =
                    Credential { id: id.into(), issued: token.created.time(), expires: token.expires.time() };
                Ok((Caller::by_dial_token(token.user.clone(), credential), within(&token)))
            }
            Err(error) => {
                debug!(%error, "a dial token was refused");
                Err(self.stranger(asked.from.ip(), Why::Refused))
            }
            Ok(None) if asked.token.is_empty() => Err(self.stranger(asked.from.ip(), Why::NoCredential)),
            Ok(None) => Err(self.stranger(asked.from.ip(), Why::Refused)),
        }
    }

    /// Somebody whose credential is none.
    fn stranger(&self, from: IpAddr, why: Why) -> Refusal {
        let Inner { dials, failures, failures_max, .. } = &*self.0;
        let (source, now) = (from.to_canonical(), Instant::now());
        dials.recorder().stranger(source, why);
        if !failures.may_try(source, now) {
            return dials.limiter().count_exceeded(LimitExceeded::SourceFailures(*failures_max)).into();
        }
        failures.failed(source, now);
        Refusal::NotAuthenticated
    }

    /// What is asked for, if it may be.
    async fn wanted(
        &self,
        caller: &Caller,
        within: Within,
        target: &str,
    ) -> Result<(Permit<Dial>, Live), Refusal> {
        let target: Target = target.parse().map_err(|_| Refusal::NoTarget)?;
        Ok(self.0.dials.permit(caller, within, target).await?)
    }
}

/// Where the targets of a token are: in its one cluster, or wherever that is to be told.
fn within(token: &DialToken) -> Within {
    let (mut clusters, networks) = (token.cluster_ids(), token.network_names());
    match (clusters.pop(), clusters.is_empty() && networks.is_empty()) {
        (Some(one), true) => Within::Cluster(one),
        (last, _) => {
            clusters.extend(last);
            Within::OneOf(clusters, networks)
        }
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("failures_max", &self.0.failures_max).finish_non_exhaustive()
    }
}
