//! The state that all requests of the gateway share, and how it is built.

use std::sync::Arc;
use std::time::Duration;

use ::audit::Log;
use daemon::Scope;
use daemon::metrics::requests::RequestMetrics;
use policy::action::GatewayNames;
use tokio::sync::{Semaphore, watch};

use super::cluster_sets::resources::ClusterSets;
use super::clusters::ClusterSnapshots;
use super::login_throttle::LoginThrottle;
use super::refusal::RefusalCause;
use super::watch::resources::WatchResources;
use crate::authz::{Delegation, Policy};
use crate::config::{self, ClusterSet, LimitsConfig, PARKED_MAX, Parking};
use crate::dialing::{self, DialError, Dialer};
use crate::exchanges::audit::AuditLog;
use crate::exchanges::slow_readers::SlowReaders;
use crate::exchanges::{self, ExchangeTable, TerminationReason};
use crate::forwarding::exchange::ForwardContext;
use crate::forwarding::kept_body::KeptBytes;
use crate::identity::Authenticator;
use crate::impersonation::ImpersonationRules;
use crate::limits::{LimitExceeded, LimitUsage, Limiter};
use crate::metrics;
use crate::registry::{self, Registry};

/// The gateway: serves the requests of callers. Clones share one state.
#[derive(Clone)]
pub struct Gateway(pub(super) Arc<GatewayShared>);

/// The checks that a request passes before anything is sent to its cluster.
#[derive(Debug)]
pub struct AccessControl {
    /// Authenticates the caller of each request.
    pub authenticator: Authenticator,
    /// The host names from which the cluster is read.
    pub names: GatewayNames,
    /// Permits the action of a request.
    pub policy: Policy,
    /// Asks another cluster about the action too, if the policy is configured so.
    pub delegation: Delegation,
    /// Chooses the identity that is asserted at the cluster.
    pub impersonation_rules: ImpersonationRules,
    /// Repeats these checks while an exchange runs.
    pub exchanges: ExchangeTable,
    /// The origins whose pages may make a browser send requests, such as `https://console.example`.
    pub browser_origins: Vec<String>,
    /// The cluster sets, now and after each change of the configuration.
    pub cluster_sets: watch::Receiver<Arc<[ClusterSet]>>,
}

/// The settings of the gateway.
#[derive(Debug, Clone, Copy)]
pub struct GatewaySettings {
    /// The limits of requests that wait for a disconnected cluster.
    pub parking: Parking,
    /// The limits of watches that are resumed.
    pub watches: config::WatchesConfig,
    /// Time for which what runs may continue after a drain began.
    pub drain_grace: Duration,
    /// The limits of each caller and each cluster.
    pub limits: LimitsConfig,
}

/// The state behind [`Gateway`], which its clones share.
pub(super) struct GatewayShared {
    pub(super) browser_origins: Arc<[String]>,
    pub(super) authenticator: Authenticator,
    pub(super) names: GatewayNames,
    pub(super) policy: Policy,
    pub(super) delegation: Delegation,
    pub(super) forwarding: ForwardContext,
    pub(super) parking: Parking,
    pub(super) exchanges: ExchangeTable,
    /// One permit for each of the requests that are served at once.
    pub(super) slots: Arc<Semaphore>,
    pub(super) request_metrics: RequestMetrics,
    pub(super) limiter: Limiter,
    pub(super) login_throttle: LoginThrottle,
    pub(super) watches: WatchResources,
    pub(super) dials: Dialer,
    pub(super) audit_log: AuditLog,
    pub(super) cluster_sets: ClusterSets,
    pub(super) cluster_snapshots: ClusterSnapshots,
}

impl Gateway {
    /// Makes a gateway to the clusters of `registry` for callers that pass `access`, and starts its
    /// background tasks in `scope`. A request that cannot be written to `log` is not served.
    #[must_use]
    pub fn new(
        access: AccessControl,
        registry: Registry,
        settings: GatewaySettings,
        log: Log,
        scope: Scope,
    ) -> Self {
        let GatewaySettings { parking, watches, drain_grace, limits } = settings;
        let AccessControl {
            authenticator,
            names,
            policy,
            delegation,
            impersonation_rules,
            exchanges,
            browser_origins,
            cluster_sets,
        } = access;
        describe_metrics();
        scope.spawn_background(exchanges.clone().enforce());
        scope.spawn_background(exchanges.clone().reauthorize());
        let slow_readers = SlowReaders::new();
        scope.spawn_background(slow_readers.clone().end_excess());
        scope.spawn_background(exchanges::end_unaudited(log.clone(), slow_readers.clone()));
        let audit_log = AuditLog::new(log, scope.clone());
        let places = registry::WaitQueue::new(parking.per_cluster, PARKED_MAX);
        let limiter = Limiter::new(limits);
        let dials = Dialer::new(dialing::DialerParts {
            limiter: limiter.clone(),
            registry: registry.clone(),
            policy: policy.clone(),
            delegation: delegation.clone(),
            table: exchanges.clone(),
            recorder: audit_log.clone(),
            slow_readers: slow_readers.clone(),
            wait_queue: places.clone(),
            park_timeout: parking.limit,
            scope: scope.clone(),
        });
        Self(Arc::new(GatewayShared {
            browser_origins: browser_origins.into(),
            authenticator,
            names,
            policy,
            delegation,
            forwarding: ForwardContext {
                registry,
                impersonation_rules,
                places,
                slow_readers,
                kept_bytes: KeptBytes::default(),
                scope,
            },
            parking,
            exchanges,
            slots: Arc::new(Semaphore::new(limits.server.requests)),
            request_metrics: metrics::requests(),
            limiter,
            login_throttle: LoginThrottle::new(limits.source.failed_logins),
            watches: WatchResources::new(watches, drain_grace),
            dials,
            audit_log,
            cluster_sets: ClusterSets::new(cluster_sets),
            cluster_snapshots: ClusterSnapshots::default(),
        }))
    }

    /// Connects callers of other listeners to targets, within the limits of this gateway.
    #[must_use]
    pub fn dials(&self) -> Dialer {
        self.0.dials.clone()
    }

    /// The limits of callers and clusters.
    #[must_use]
    pub fn limiter(&self) -> Limiter {
        self.0.limiter.clone()
    }

    /// The queue in which requests wait for disconnected clusters.
    #[must_use]
    pub fn places(&self) -> registry::WaitQueue {
        self.0.forwarding.places.clone()
    }

    /// The current use of each limit of sources, callers and clusters.
    #[must_use]
    pub fn uses(&self) -> Vec<LimitUsage> {
        let max = self.0.limiter.limits().source.failed_logins as usize;
        let most = self.0.login_throttle.most(std::time::Instant::now());
        let of_sources = LimitUsage { limit: LimitExceeded::SourceFailures(0).as_str(), max, most };
        [of_sources].into_iter().chain(self.0.limiter.usage()).collect()
    }
}

/// Sets the counters of refusals and early ends to zero for every reason.
fn describe_metrics() {
    let causes: Vec<&str> = RefusalCause::ALL.iter().map(|cause| cause.as_str()).collect();
    metrics::describe_refusals(&causes);
    metrics::describe_refusals(DialError::CAUSES);
    metrics::describe_terminations(TerminationReason::ALL.iter().map(|reason| reason.as_str()));
}
