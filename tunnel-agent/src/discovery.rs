//! Where the cluster says its control plane answers, asked from the cluster itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use daemon::{Scope, chain};
use futures::future::{join, join_all};
use policy::{Host, ServiceName, Target, TargetEntry};
use proto::greeting::ENDPOINTS_MAX;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::apiserver::{ApiServer, DocumentError};
use crate::config::Tenants;
use crate::guard::services::{Backends, Services};
use crate::guard::targets::is_special;
use crate::metrics;

mod bell;
mod kubeadm;
mod services;
mod slices;
mod source;
mod tenants;

use bell::Bell;
use source::Source;

/// How often the cluster is asked what it does not let the agent watch.
const REFRESH_EVERY: Duration = Duration::from_secs(60);

/// How often it is asked while it does not answer.
const RETRY_EVERY: Duration = Duration::from_secs(10);

/// Pause behind a watch that broke at once.
const LOST_PAUSE: Duration = Duration::from_secs(2);

/// Shortest pause between two questions where something changes all the time.
const SETTLE: Duration = Duration::from_millis(250);

/// Largest answer: a thousand endpoints would fit.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// What the cluster says of its endpoints, as it changes.
#[derive(Debug)]
pub struct Discovery {
    api_server: ApiServer,
    sources: Vec<Source>,
    /// Whether requests are balanced among the API servers that are found.
    balances: bool,
    /// What is advertised in any case: before what is found, and behind it.
    configured: Vec<String>,
    targets: Vec<String>,
    /// What each source said last.
    found: Mutex<Vec<Vec<String>>>,
    endpoints: watch::Sender<Vec<String>>,
    /// The Services among what is configured, and the ports that are wanted of them.
    wanted: BTreeMap<ServiceName, BTreeSet<u16>>,
    services: watch::Sender<Services>,
}

/// What one source says.
struct Found {
    endpoints: Vec<String>,
    /// If it is one that names Services.
    services: Option<BTreeMap<ServiceName, Backends>>,
    version: String,
}

/// Why the cluster did not say where its control plane is.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The API server.
    #[error("the API server does not say where the control plane is; {1}")]
    Document(#[source] DocumentError, &'static str),
    /// Something else.
    #[error("the API server's answer is not what was asked for")]
    Unreadable(#[source] serde_json::Error),
}

impl Discovery {
    /// A discovery that knows `advertise` and, if that is empty, nothing of the control plane before [`Discovery::run`] has asked;
    /// and what else is dialed, in any case. API servers of `tenants` are looked for beside either. Where it `balances`, the API
    /// server's requests are, among those that the cluster says there are.
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
        let written: Vec<Target> = advertise.iter().filter_map(|endpoint| endpoint.parse().ok()).collect();
        let exactly = targets.iter().filter_map(|entry| match entry {
            TargetEntry::Exactly(target) => Some(target),
            TargetEntry::Within(..) => None,
        });
        let wanted = services::wanted(written.iter().chain(exactly));
        let targets: Vec<String> = targets.iter().map(TargetEntry::to_string).collect();
        let found = Mutex::new(vec![Vec::new(); sources.len()]);
        let endpoints = together(&advertise, &[], &targets);
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
            wanted,
            services: watch::Sender::new(Services::default()),
        }
    }

    /// The endpoints now, and whenever they change, with the targets behind them: `host:port` or `network/bits:port`, at most
    /// [`ENDPOINTS_MAX`].
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Vec<String>> {
        self.endpoints.subscribe()
    }

    /// Where Services lead, now and whenever that changes: those that are configured, and those of tenants that were found.
    #[must_use]
    pub fn services(&self) -> watch::Receiver<Services> {
        self.services.subscribe()
    }

    /// Asks and watches until the drain. Returns at once where all is configured. A cluster that does not answer keeps what
    /// it last said.
    pub async fn run(self, scope: Scope) {
        let leading = self.sources.iter().enumerate().filter(|(_, source)| !source.is_optional());
        let sources = join_all(leading.map(|(place, _)| self.follow(place)));
        let wanted = self.wanted.iter();
        let services =
            join_all(wanted.map(|wanted| services::follow(&self.api_server, wanted, &self.services)));
        let following = join(sources, services);
        // Both arms are cancel-safe: an exchange that is dropped is cancelled, and so is a sleep.
        tokio::select! {
            _ = following => {}
            () = scope.draining() => {}
        }
    }

    /// Asks every source once, and publishes what they say.
    ///
    /// # Errors
    ///
    /// [`DiscoveryError`] of the first that does not say.
    pub async fn ask_all(&self) -> Result<(), DiscoveryError> {
        for (place, source) in self.sources.iter().enumerate() {
            self.learn(place, self.ask(source).await?);
        }
        Ok(())
    }

    /// Asks one source again and again.
    async fn follow(&self, place: usize) {
        let source = &self.sources[place];
        let mut failing = Failing::default();
        loop {
            let pause = match self.ask(source).await {
                Ok(found) => {
                    metrics::discovered(true);
                    failing.settle();
                    let version = found.version.clone();
                    self.learn(place, found);
                    // What keeps no versions is no Kubernetes, and has neither watches nor what kubeadm leaves behind.
                    if version.is_empty() {
                        REFRESH_EVERY
                    } else {
                        self.ask_beside(source).await;
                        self.wait(source, &version).await
                    }
                }
                Err(error) => {
                    metrics::discovered(false);
                    failing.tell(&error, |said| {
                        warn!(error = said, "the control plane's endpoints are not known")
                    });
                    RETRY_EVERY
                }
            };
            sleep(pause).await;
        }
    }

    /// Asks what many clusters do not have.
    async fn ask_beside(&self, source: &Source) {
        if !matches!(source, Source::Slices) {
            return;
        }
        for (place, source) in self.sources.iter().enumerate().filter(|(_, source)| source.is_optional()) {
            // Where it cannot be asked now, what it said before stays.
            if let Ok(found) = self.ask(source).await {
                self.learn(place, found);
            }
        }
    }

    async fn ask(&self, source: &Source) -> Result<Found, DiscoveryError> {
        match self.api_server.document(&source.path(), ANSWER_BYTES_MAX).await {
            Ok(answer) => Ok(Found {
                endpoints: source.read(&answer)?,
                services: source.services(&answer)?,
                version: source::versioned(&answer),
            }),
            Err(DocumentError::Status(status)) if source.is_optional() && status.is_client_error() => {
                debug!(%status, "the cluster does not say its control plane's name; {}", source.advice());
                Ok(Found { endpoints: Vec::new(), services: None, version: String::new() })
            }
            Err(error) => Err(DiscoveryError::Document(error, source.advice())),
        }
    }

    /// Waits until something may have changed, and says for how long not to ask even so.
    async fn wait(&self, source: &Source, version: &str) -> Duration {
        let path = source.watch(version, bell::WATCH_FOR.as_secs());
        pause_after(&bell::wait(&self.api_server, path.as_deref()).await)
    }

    /// Publishes a change.
    fn learn(&self, place: usize, found: Found) {
        let Found { endpoints: found, services, version: _ } = found;
        if let Some(services) = services {
            // Before they are advertised: what is advertised can be dialed.
            self.services.send_if_modified(|known| known.find(place, services));
        }
        let is_own = matches!(self.sources[place], Source::Slices);
        if self.balances && is_own {
            let ordinary = found.iter().filter(|found| is_ordinary(found));
            let addresses: Vec<SocketAddr> = ordinary.filter_map(|found| found.parse().ok()).collect();
            self.api_server.balance(&addresses);
        }
        let all = {
            let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            // What is configured to be advertised stands in place of what the cluster says of its own.
            known[place] = if is_own && !self.configured.is_empty() { Vec::new() } else { found };
            known.concat()
        };
        let endpoints = together(&self.configured, &all, &self.targets);
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

/// What one question fails by, which is said when it is news.
#[derive(Default)]
struct Failing(Option<String>);

impl Failing {
    fn tell(&mut self, error: &DiscoveryError, say: impl FnOnce(&str)) {
        let said = chain(error).to_string();
        if self.0.as_ref() != Some(&said) {
            say(&said);
            self.0 = Some(said);
        }
    }

    /// It is answered again.
    fn settle(&mut self) {
        self.0 = None;
    }
}

/// For how long not to ask behind a watch that has ended.
fn pause_after(bell: &Bell) -> Duration {
    match bell {
        Bell::Rung => SETTLE,
        Bell::Over => Duration::ZERO,
        Bell::Lost => LOST_PAUSE,
        Bell::None => REFRESH_EVERY,
    }
}

/// What is advertised, each once, and as many as may be: what is configured never gives way to what is found, of which nothing
/// special counts, because a cluster says it of itself.
fn together(configured: &[String], found: &[String], targets: &[String]) -> Vec<String> {
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
    fn more_endpoints_than_may_be_advertised_are_cut_off_and_no_target_is() {
        let found: Vec<String> = (0..100).map(|n| format!("10.0.0.{n}:6443")).collect();
        let targets = texts(&["db.shop.svc:5432", "10.96.0.0/12:443"]);

        let together = together(&[], &found, &targets);

        assert_eq!(together.len(), ENDPOINTS_MAX);
        assert_eq!(together[..ENDPOINTS_MAX - 2], found[..ENDPOINTS_MAX - 2]);
        assert_eq!(together[ENDPOINTS_MAX - 2..], targets);
    }

    #[test]
    fn nothing_special_is_advertised_because_a_cluster_says_so() {
        let found = [
            "169.254.169.254:80",
            "127.0.0.1:6443",
            "[::1]:6443",
            "192.168.1.10:6443",
            "[::ffff:127.0.0.1]:6443",
            "api.site.example:6443",
            "192.168.1.10:6443",
            "nonsense",
        ];

        let together = together(&texts(&["127.0.0.1:1"]), &texts(&found), &[]);

        assert_eq!(together, ["127.0.0.1:1", "192.168.1.10:6443", "api.site.example:6443"]);
    }
}
