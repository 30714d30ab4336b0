//! Builds the agent from its configuration, and runs it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use daemon::{
    BoundProbes, Failure, Metrics, NotReady, Probes, Product, Readiness, Scope, StateDir, StateFile,
};
use proto::greeting::BootNonce;
use transport::EndpointKeys;
use transport::tls::ExpectedServers;

use crate::apiserver::{ApiServer, Timeouts};
use crate::clock::Clock;
use crate::config::{ApiServers, Config, CredentialSource};
use crate::dialer::{ConfiguredServer, ControlPlane, Dependencies, Dialer};
use crate::discovery::Discovery;
use crate::enrollment::Enrollment;
use crate::forward::{FairQueue, Forwarder};
use crate::guard::Guard;
use crate::guard::targets::Targets;
use crate::identity::Identity;
use crate::metrics;
use crate::relay::Relay;
use crate::server_trust::ServerTrust;
use crate::streams::Streams;

mod clock_warning;
mod identity_files;
mod scrape;

use identity_files::IdentityFiles;

/// The names of this program.
pub const PRODUCT: Product =
    Product { name: "tunnel-agent", metrics_prefix: "tombolo_agent", version: env!("CARGO_PKG_VERSION") };

/// An agent that has read everything it needs, and bound its probes.
pub struct Bound {
    probes: BoundProbes,
    starting: NotReady,
    discovery: Discovery,
    source: CertificateSource,
    clock: Clock,
    servers: Vec<ConfiguredServer>,
    expected: ExpectedServers,
    state: StateDir,
    dependencies: Dependencies,
}

/// The source of the agent's certificate.
enum CertificateSource {
    /// Files that the configuration names, and that may change.
    Files(Box<Identity>, IdentityFiles),
    /// The agent enrolls, however long that takes.
    Enrolled(Enrollment),
}

impl Bound {
    /// Reads certificates, keys and the API server's credential, and binds the probes. Dials nothing yet.
    ///
    /// # Errors
    /// [`Failure`], whose cause names what is wrong and what to do.
    pub fn bind(config: Config, metrics: Metrics, scope: &Scope) -> Result<Self, Failure> {
        metrics::describe();
        let readiness = Readiness::new();
        let starting = readiness.handle("agent");
        let state = StateDir::open(&config.state_dir)?;
        let clock = Clock::default();
        let api_server = ApiServer::new(config.api_server.clone(), Timeouts::default(), clock.clone(), scope)
            .map_err(Failure::misconfigured)?;
        let source = certificate_source(&config, &state, &api_server, &clock, scope)?;
        let keys = keys(&state)?;
        let probes = Probes::bind(config.probes_listen, readiness.clone(), metrics.clone())?;
        let links = metrics::links();
        let for_callers = config
            .pass_through
            .then(|| api_server.for_callers(config.api_server.clone(), Timeouts::default(), scope))
            .transpose()
            .map_err(Failure::misconfigured)?;
        let queue = FairQueue::new(config.limits);
        scrape::observe(&metrics, &links, [Some(&api_server), for_callers.as_ref()].into_iter().flatten());
        scrape::observe_queue(&metrics, &queue, config.limits);
        let Config { advertise, targets, tenants, api_servers, .. } = &config;
        if let ApiServers::Listed(addresses) = api_servers {
            api_server.balance(addresses);
        }
        let balances = *api_servers == ApiServers::Found;
        let discovery = Discovery::new(api_server.clone(), advertise.clone(), targets, tenants, balances);
        let guard = Guard::new(config.impersonation.clone(), config.pass_through);
        let targets = Targets::new(config.targets_to_dial(), vec![probes.address()])
            .with_service_networks(config.service_networks.clone());
        let relay = Relay::new(targets, api_server.clone(), discovery.subscribe(), discovery.services());
        let control_plane =
            ControlPlane::new(discovery.subscribe(), api_server.certificates(), discovery.version());
        let forwarder = Forwarder::new(api_server, for_callers, queue, scope.clone());
        let streams = Streams::new(guard, forwarder, relay);
        let expected =
            ExpectedServers { trust_domain: config.trust_domain.clone(), ids: config.server_ids.clone() };
        let dependencies = Dependencies {
            boot: boot_nonce()?,
            keys,
            carriers: config.carrier.carriers(),
            proxies: config.proxies.clone(),
            outage_limit: config.outage_limit,
            streams,
            control_plane,
            readiness,
            links,
            tunnels: config.tunnels,
            state: state.clone(),
        };
        let servers = configured_servers(&config);
        Ok(Self { probes, starting, discovery, source, clock, servers, expected, state, dependencies })
    }

    /// The address at which `/livez`, `/readyz` and `/metrics` answer.
    #[must_use]
    pub fn probes_address(&self) -> SocketAddr {
        self.probes.address()
    }

    /// Runs until the drain has begun. Tasks that still run then belong to the scope.
    ///
    /// # Errors
    /// The certificate, or the trust bundle in the state directory, cannot be used.
    pub async fn run(self, scope: Scope) -> Result<(), Failure> {
        let Self { probes, starting, discovery, source, clock, servers, expected, state, dependencies } =
            self;
        probes.run(&scope);
        scope.spawn_background(discovery.run(scope.clone()));
        // Both arms are cancel-safe: a certificate is written to disk before it is used.
        tokio::select! {
            dialing = dial(source, clock, servers, expected, state, dependencies, &scope) => dialing?,
            () = scope.draining() => return Ok(()),
        }
        drop(starting);
        scope.draining().await;
        Ok(())
    }
}

/// Begins to dial once the agent has a certificate. An enrolled agent renews it from then on.
async fn dial(
    source: CertificateSource,
    clock: Clock,
    servers: Vec<ConfiguredServer>,
    expected: ExpectedServers,
    state: StateDir,
    dependencies: Dependencies,
    scope: &Scope,
) -> Result<(), Failure> {
    let (identity, files, enrollment) = match source {
        CertificateSource::Files(identity, files) => (*identity, Some(files), None),
        CertificateSource::Enrolled(enrollment) => (enrollment.identity(scope).await, None, Some(enrollment)),
    };
    let Identity { agent, chain, key, server_roots } = identity;
    metrics::certificates("agent", &chain[..chain.len().min(1)]);
    let trust = ServerTrust::new((chain, key), &server_roots, expected, state, Arc::new(clock));
    let trust = trust.map_err(Failure::misconfigured)?;
    let is_outside_validity = trust.outside_validity(SystemTime::now()).is_some();
    metrics::certificates("server_ca", &trust.roots());
    if let Some(enrollment) = enrollment {
        enrollment.renew_expired(&trust, scope).await;
        scope.spawn_background(enrollment.keep_renewed(trust.clone(), scope.clone()));
    }
    if is_outside_validity {
        // The server decides by its own clock, so the agent dials all the same.
        scope.spawn_background(clock_warning::warn_until_valid(trust.clone()));
    }
    if let Some(files) = files {
        scope.spawn_background(files.follow(agent.clone(), trust.clone()));
    }
    Dialer::begin(servers, agent, trust, dependencies, scope.clone())?.run();
    Ok(())
}

/// The certificate that is configured, or the enrollment that leads to one.
fn certificate_source(
    config: &Config,
    state: &StateDir,
    api_server: &ApiServer,
    clock: &Clock,
    scope: &Scope,
) -> Result<CertificateSource, Failure> {
    match &config.credential {
        CredentialSource::Files(files) => {
            let files = IdentityFiles::new(files, &config.cluster, &config.trust_domain);
            let identity = files.load().map_err(Failure::misconfigured)?;
            // It was issued, so this is at least as late as its begin, even if this machine woke in 1970.
            clock.raise(identity.chain.first().and_then(trust::validity).map_or(0, |(begins, _)| begins));
            Ok(CertificateSource::Files(Box::new(identity), files))
        }
        CredentialSource::Enrolled(at) => {
            let issuer = match &at.host_cluster {
                Some(source) => ApiServer::new(source.clone(), Timeouts::default(), clock.clone(), scope)
                    .map_err(Failure::misconfigured)?,
                None => api_server.clone(),
            };
            let opened = Enrollment::open(config, at.clone(), state.clone(), issuer, clock.clone());
            opened.map(CertificateSource::Enrolled).map_err(Failure::could_not_go_on)
        }
    }
}

/// The servers, each with the name that its certificate must bear.
fn configured_servers(config: &Config) -> Vec<ConfiguredServer> {
    let servers = config.servers.iter().map(|address| ConfiguredServer {
        address: address.clone(),
        certificate_name: config.server_name.clone().unwrap_or_else(|| address.host.clone()),
        id: None,
    });
    servers.collect()
}

/// The keys of UDP endpoints: those of the last run, or new ones.
fn keys(state: &StateDir) -> Result<EndpointKeys, Failure> {
    let file = StateFile::EndpointKeys;
    match state.read_or_replace(file, EndpointKeys::BYTES as u64, EndpointKeys::from_bytes)? {
        Some(keys) => Ok(keys),
        None => {
            let keys = EndpointKeys::generate().map_err(Failure::could_not_go_on)?;
            state.write(file, &keys.to_bytes())?;
            Ok(keys)
        }
    }
}

fn boot_nonce() -> Result<BootNonce, Failure> {
    let mut nonce = [0; 16];
    aws_lc_rs::rand::fill(&mut nonce).map_err(Failure::could_not_go_on)?;
    Ok(BootNonce(nonce))
}
