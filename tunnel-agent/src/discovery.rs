//! Discovers the control plane's addresses and version, and the endpoints of Services, by asking the cluster itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api_servers::list::list_version;
use daemon::Scope;
use futures::future::{join_all, join3};
use policy::{Host, ServiceName, Target, TargetEntry};
use proto::greeting::ENDPOINTS_MAX;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::apiserver::{ApiServer, DocumentError};
use crate::config::Tenants;
use crate::guard::services::{Backends, Services};
use crate::guard::targets::is_special;
use crate::metrics::{self, DiscoveryOutcome};

mod error;
mod kubeadm;
mod refresh;
mod services;
mod source;
mod tenants;
mod version;

pub use error::DiscoveryError;
use error::FailureLog;
use refresh::{ANSWER_BYTES_MAX, REFRESH_EVERY, RETRY_EVERY};
use source::Source;

/// The cluster's own endpoints and Services, followed as they change.
#[derive(Debug)]
pub struct Discovery {
    api_server: ApiServer,
    sources: Vec<Source>,
    /// True if requests are balanced among the API servers that are found.
    balances: bool,
    /// Endpoints that are advertised in any case, before those that are found.
    configured: Vec<String>,
    /// Targets that are advertised in any case, after those that are found.
    targets: Vec<String>,
    /// The endpoints of each source's last answer.
    found: Mutex<Vec<Vec<String>>>,
    endpoints: watch::Sender<Vec<String>>,
    /// The Services that the configuration names, each with the ports to dial.
    named_services: BTreeMap<ServiceName, BTreeSet<u16>>,
    services: watch::Sender<Services>,
    /// The version of the API server, or nothing.
    version: watch::Sender<String>,
}

/// The parsed answer of one source.
struct SourceAnswer {
    endpoints: Vec<String>,
    /// Present where the source names Services.
    services: Option<BTreeMap<ServiceName, Backends>>,
    version: String,
}

impl Discovery {
    /// Discovers the control plane, unless `advertise` names its endpoints, and the API servers of `tenants`.
    /// `targets` are advertised in any case. If `balances`, requests are balanced among the API servers that
    /// are found.
    #[must_use]
    pub fn new(
        api_server: ApiServer,
        advertise: Vec<String>,
        targets: &[TargetEntry],
        tenants: &[Tenants],
        balances: bool,
    ) -> Self {
        let asked: &[Source] = match advertise.as_slice() {
            [] => &[Source::Slices, Source::ClusterInfo, Source::KubeadmConfig],
            [..] if balances => &[Source::Slices],
            [..] => &[],
        };
        let sources: Vec<Source> =
            asked.iter().cloned().chain(tenants.iter().cloned().map(Source::Tenants)).collect();
        let advertised: Vec<Target> = advertise.iter().filter_map(|endpoint| endpoint.parse().ok()).collect();
        let exactly = targets.iter().filter_map(|entry| match entry {
            TargetEntry::Exactly(target) => Some(target),
            TargetEntry::Within(..) => None,
        });
        let named_services = services::named(advertised.iter().chain(exactly));
        let targets: Vec<String> = targets.iter().map(TargetEntry::to_string).collect();
        let found = Mutex::new(vec![Vec::new(); sources.len()]);
        let endpoints = merge(&advertise, &[], &targets);
        metrics::endpoints(endpoints.len());
        let endpoints = watch::Sender::new(endpoints);
        Self {
            api_server,
            sources,
            balances,
            configured: advertise,
            targets,
            found,
            endpoints,
            named_services,
            services: watch::Sender::new(Services::default()),
            version: watch::Sender::new(String::new()),
        }
    }

    /// The advertised endpoints with the targets after them, as they change: `host:port` or
    /// `network/bits:port`, at most [`ENDPOINTS_MAX`].
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Vec<String>> {
        self.endpoints.subscribe()
    }

    /// The endpoints of Services as they change: of configured ones, and of tenants' ones that were found.
    #[must_use]
    pub fn services(&self) -> watch::Receiver<Services> {
        self.services.subscribe()
    }

    /// The version of the API server as it changes, such as `v1.36.3`. Empty until the API server has told one.
    #[must_use]
    pub fn version(&self) -> watch::Receiver<String> {
        self.version.subscribe()
    }

    /// Requests and watches until the drain. While a cluster does not answer, its last answer holds.
    pub async fn run(self, scope: Scope) {
        let followed = self.sources.iter().enumerate().filter(|(_, source)| !source.is_optional());
        let sources = join_all(followed.map(|(index, _)| self.follow(index)));
        let named = self.named_services.iter();
        let services = join_all(named.map(|named| services::follow(&self.api_server, named, &self.services)));
        let following = join3(sources, services, version::follow(&self.api_server, &self.version));
        // Both arms are cancel-safe: an exchange that is dropped is cancelled, and so is a sleep.
        tokio::select! {
            _ = following => {}
            () = scope.draining() => {}
        }
    }

    /// Asks every source once, and publishes the answers.
    ///
    /// # Errors
    ///
    /// [`DiscoveryError`] of the first source that fails.
    pub async fn ask_all(&self) -> Result<(), DiscoveryError> {
        for (index, source) in self.sources.iter().enumerate() {
            self.publish(index, self.ask(source).await?);
        }
        Ok(())
    }

    /// Asks one source again and again, whenever its answer may have changed.
    async fn follow(&self, index: usize) {
        let source = &self.sources[index];
        let mut failures = FailureLog::default();
        loop {
            let pause = match self.ask(source).await {
                Ok(found) => {
                    metrics::discovered(DiscoveryOutcome::Answered);
                    failures.reset();
                    let version = found.version.clone();
                    self.publish(index, found);
                    // Without versions it is no Kubernetes, and has neither watches nor kubeadm's ConfigMaps.
                    if version.is_empty() {
                        REFRESH_EVERY
                    } else {
                        self.ask_optional(source).await;
                        self.wait(source, &version).await
                    }
                }
                Err(error) => {
                    metrics::discovered(DiscoveryOutcome::Failed);
                    failures.log_if_new(&error, |message| {
                        warn!(error = message, "the control plane's endpoints are not known")
                    });
                    RETRY_EVERY
                }
            };
            sleep(pause).await;
        }
    }

    /// Asks the sources that many clusters do not have.
    async fn ask_optional(&self, source: &Source) {
        if !matches!(source, Source::Slices) {
            return;
        }
        for (index, source) in self.sources.iter().enumerate().filter(|(_, source)| source.is_optional()) {
            // If it fails now, its last answer holds.
            if let Ok(found) = self.ask(source).await {
                self.publish(index, found);
            }
        }
    }

    async fn ask(&self, source: &Source) -> Result<SourceAnswer, DiscoveryError> {
        match self.api_server.document(&source.path(), ANSWER_BYTES_MAX).await {
            Ok(answer) => Ok(SourceAnswer {
                endpoints: source.read(&answer)?,
                services: source.services(&answer)?,
                version: list_version(&answer),
            }),
            Err(DocumentError::Status(status)) if source.is_optional() && status.is_client_error() => {
                debug!(%status, "the cluster does not name its control plane's endpoint; {}", source.advice());
                Ok(SourceAnswer { endpoints: Vec::new(), services: None, version: String::new() })
            }
            Err(error) => Err(DiscoveryError::Document(error, source.advice())),
        }
    }

    /// Waits until the answer may have changed, and returns the pause before the next request.
    async fn wait(&self, source: &Source, version: &str) -> Duration {
        let path = source.watch(version, refresh::WATCH_FOR.as_secs());
        refresh::pause_after(&refresh::wait(&self.api_server, path.as_deref()).await)
    }

    /// Publishes the answer of a source, if it has changed.
    fn publish(&self, index: usize, found: SourceAnswer) {
        let SourceAnswer { endpoints: found, services, version: _ } = found;
        if let Some(services) = services {
            // Before they are advertised, because whatever is advertised may be dialed.
            self.services.send_if_modified(|known| known.set_found(index, services));
        }
        let is_own = matches!(self.sources[index], Source::Slices);
        if self.balances && is_own {
            let ordinary = found.iter().filter(|found| is_ordinary(found));
            let addresses: Vec<SocketAddr> = ordinary.filter_map(|found| found.parse().ok()).collect();
            self.api_server.balance(&addresses);
        }
        let all = {
            let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            // Configured endpoints replace those that the cluster names for itself.
            known[index] = if is_own && !self.configured.is_empty() { Vec::new() } else { found };
            known.concat()
        };
        let endpoints = merge(&self.configured, &all, &self.targets);
        metrics::endpoints(endpoints.len());
        self.endpoints.send_if_modified(|known| {
            let changed = *known != endpoints;
            if changed {
                info!(?endpoints, "the control plane's endpoints");
                *known = endpoints;
            }
            changed
        });
    }
}

/// The list to advertise, without duplicates and up to the limit. Configured endpoints come before found
/// ones. SourceAnswer special addresses are left out, because a cluster names them itself.
fn merge(configured: &[String], found: &[String], targets: &[String]) -> Vec<String> {
    let room = ENDPOINTS_MAX - targets.len().min(ENDPOINTS_MAX);
    let mut endpoints: Vec<String> = Vec::new();
    for endpoint in configured.iter().chain(found.iter().filter(|found| is_ordinary(found))) {
        if endpoints.len() < room && !endpoints.contains(endpoint) {
            endpoints.push(endpoint.clone());
        }
    }
    endpoints.extend_from_slice(targets);
    endpoints
}

fn is_ordinary(endpoint: &str) -> bool {
    match endpoint.parse::<Target>().as_ref().map(Target::host) {
        Ok(Host::Address(address)) => !is_special(*address),
        Ok(Host::Name(_)) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn too_many_endpoints_are_cut_off_and_no_target_is() {
        let found: Vec<String> = (0..100).map(|n| format!("10.0.0.{n}:6443")).collect();
        let targets = texts(&["db.shop.svc:5432", "10.96.0.0/12:443"]);

        let merged = merge(&[], &found, &targets);

        assert_eq!(merged.len(), ENDPOINTS_MAX);
        assert_eq!(merged[..ENDPOINTS_MAX - 2], found[..ENDPOINTS_MAX - 2]);
        assert_eq!(merged[ENDPOINTS_MAX - 2..], targets);
    }

    #[test]
    fn a_special_address_is_not_advertised_because_a_cluster_names_it() {
        let found = [
            "169.254.169.254:80",
            "127.0.0.1:6443",
            "[::1]:6443",
            "192.168.1.10:6443",
            "[::ffff:127.0.0.1]:6443",
            "api.site.example:6443",
            "192.168.1.10:6443",
            "not a target",
        ];

        let merged = merge(&texts(&["127.0.0.1:1"]), &texts(&found), &[]);

        assert_eq!(merged, ["127.0.0.1:1", "192.168.1.10:6443", "api.site.example:6443"]);
    }
}
