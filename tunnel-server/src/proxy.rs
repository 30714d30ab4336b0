//! The door for callers without a certificate, who have a dial token: they are connected to targets, and nothing else.
//!
//! Two ways in, HTTP CONNECT by TLS and SOCKS5, differ in how they ask and how they are answered. Who asks, for which cluster
//! and whether they may is decided here, for both.

mod connect;
mod refusal;
mod socks;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use audit::{Completion, EndReason, Status, Why};
use daemon::Scope;
use daemon::metrics::exchanges::{Active, Exchanges};
use policy::Target;
use proto::ClusterId;
use tracing::debug;
use uuid::Uuid;

use crate::dialing::{self, Connected, Dials, NotConnected};
use crate::directory::{DialBearer, DialTokenEntry, Directory};
use crate::exchanges::Live;
use crate::exchanges::record::{Origin, of_caller};
use crate::identity::{Caller, Credential};
use crate::listener::failures::Failures;
use crate::metrics;
use crate::permit::{Dial, Permit};
use crate::shares::{Kind, Limit, Share};

pub use connect::LIMITS;
pub use refusal::Refusal;
pub use socks::Socks;

/// The door. Clones are the same one.
#[derive(Clone)]
pub struct Proxy(Arc<Inner>);

struct Inner {
    directory: Directory,
    dials: Dials,
    failures: Failures,
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
    held: (Share, Active),
}

impl Proxy {
    /// A door for owners of `directory`'s dial tokens.
    #[must_use]
    pub fn new(directory: Directory, dials: Dials, scope: Scope) -> Self {
        metrics::describe_refusals(&Refusal::CAUSES);
        let failures_max = dials.shares().limits().source.failed_logins;
        let failures = Failures::new(failures_max);
        let exchanges = metrics::exchanges();
        Self(Arc::new(Inner { directory, dials, failures, failures_max, exchanges, scope }))
    }

    /// Connects who asks to the target, or says why not. Cancel-safe: dropped, it leaves nothing behind.
    async fn serve(&self, asked: &Asked<'_>) -> Result<Served, Refusal> {
        let active = self.0.exchanges.begin();
        active.set_sort("dial");
        let served = self.served(asked).await;
        let code = served.as_ref().map_or_else(Refusal::status, |_| http::StatusCode::OK);
        active.answered(code.as_u16());
        match served {
            Ok((connected, share)) => Ok(Served { connected, held: (share, active) }),
            Err(refusal) => {
                debug!(%refusal, "refused");
                metrics::refused(refusal.cause());
                Err(refusal)
            }
        }
    }

    async fn served(&self, asked: &Asked<'_>) -> Result<(Connected, Share), Refusal> {
        let Inner { dials, .. } = &*self.0;
        let (caller, clusters) = self.known(asked)?;
        // Before anything is written of it: who asks too fast fills no log.
        dials.shares().ask(&caller)?;
        let audit_id = Uuid::now_v7().to_string();
        let origin = Origin {
            listener: asked.listener,
            source: asked.from.to_string(),
            address: Some(asked.from),
            audit_id: &audit_id,
        };
        let event = of_caller(&caller, origin, "dial", "dial", asked.target);
        let (permit, live) = match self.wanted(&caller, clusters, asked.target).await {
            Ok(permitted) => permitted,
            Err(refusal) => {
                let event = dialing::forbidden(event, refusal.forbidden());
                dials.recorder().told(event, completion(&refusal)).await?;
                return Err(refusal);
            }
        };
        let status = |fault: &NotConnected| Refusal::status_of(fault).as_u16();
        Ok(dials.begin((permit, live), event, (&audit_id, Kind::Upgrade), status).await?)
    }

    /// Who asks, and the clusters of their token. A token is looked at however often others of the same source have failed: that
    /// costs one hash, and nobody guesses it.
    fn known(&self, asked: &Asked<'_>) -> Result<(Caller, Vec<ClusterId>), Refusal> {
        let bearer: Option<DialBearer> = asked.token.parse().ok();
        let now = SystemTime::now();
        let admitted =
            bearer.map(|bearer| self.0.directory.admits_dial_token(&bearer, asked.user, now)).transpose();
        match admitted {
            Ok(Some(DialTokenEntry { id, token })) => {
                let credential =
                    Credential { id: id.into(), issued: token.created.time(), expires: token.expires.time() };
                Ok((Caller::by_dial_token(token.user.clone(), credential), token.cluster_ids()))
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
            return dials.shares().refused(Limit::SourceFailures(*failures_max)).into();
        }
        failures.failed(source, now);
        Refusal::NotAuthenticated
    }

    /// What is asked for, if it may be.
    async fn wanted(
        &self,
        caller: &Caller,
        clusters: Vec<ClusterId>,
        target: &str,
    ) -> Result<(Permit<Dial>, Live), Refusal> {
        let target: Target = target.parse().map_err(|_| Refusal::NoTarget)?;
        let cluster = self.cluster_of(caller, clusters, &target)?;
        Ok(self.0.dials.permit(caller, cluster, target).await?)
    }

    /// The token's one cluster; or of several the one of which this caller may have the target. What agents say of themselves
    /// decides nothing here: an agent that advertises another's address would take it over.
    fn cluster_of(
        &self,
        caller: &Caller,
        clusters: Vec<ClusterId>,
        target: &Target,
    ) -> Result<ClusterId, Refusal> {
        let one: Result<[ClusterId; 1], _> = clusters.try_into();
        let several = match one {
            Ok([cluster]) => return Ok(cluster),
            Err(several) => several,
        };
        let fitting: BTreeSet<ClusterId> =
            several.into_iter().filter(|cluster| self.0.dials.may_have(caller, cluster, target)).collect();
        let mut fitting: Vec<_> = fitting.into_iter().collect();
        match (fitting.pop(), fitting.is_empty()) {
            (Some(cluster), true) => Ok(cluster),
            (Some(cluster), false) => {
                fitting.push(cluster);
                Err(Refusal::Ambiguous(target.clone(), fitting))
            }
            (None, _) => Err(Refusal::Nowhere(target.clone())),
        }
    }
}

fn completion(refusal: &Refusal) -> Completion {
    let status = Status { code: refusal.status().as_u16(), reason: refusal.cause() };
    Completion::new(Some(status), EndReason::Refused)
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("failures_max", &self.0.failures_max).finish_non_exhaustive()
    }
}
