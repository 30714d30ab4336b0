//! Builds the agent from its configuration, and runs it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::metrics::links::Links;
use daemon::{BoundProbes, Failure, Metrics, NotReady, Probes, Product, Readiness, Scope, StateDir};
use proto::greeting::BootNonce;
use proto::spiffe::AgentId;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use transport::tls::MeantServers;
use transport::{Carrier, EndpointKeys};

use crate::apiserver::{ApiServer, Limits};
use crate::config::{ApiServers, Config, CredentialSource, Proxies};
use crate::dialer::{ControlPlane, Dialer, Equipment, Named};
use crate::discovery::Discovery;
use crate::enrollment::Enrollment;
use crate::forward::{Forwarder, Turns};
use crate::guard::Guard;
use crate::guard::targets::Targets;
use crate::identity::Identity;
use crate::metrics;
use crate::relay::Relay;
use crate::servers::Servers;
use crate::streams::Streams;

mod scrape;

/// What this program is called.
pub const PRODUCT: Product =
    Product { name: "tunnel-agent", metrics_prefix: "tombolo_agent", version: env!("CARGO_PKG_VERSION") };

/// The file in the state directory that holds the endpoint's keys.
const KEYS_FILE: &str = "endpoint.keys";

/// An agent that has read everything it needs, and bound its probes.
pub struct Bound {
    probes: BoundProbes,
    starting: NotReady,
    discovery: Discovery,
    source: Source,
    servers: Vec<Named>,
    meant: MeantServers,
    state: StateDir,
    parts: Parts,
}

/// Where the certificate comes from.
enum Source {
    /// It is there.
    Files(Box<Identity>),
    /// The agent sees to it itself, however long it takes.
    Enrolled(Enrollment),
}

/// What tunnels are made of, but for the certificate and whom to show it.
struct Parts {
    boot: BootNonce,
    keys: EndpointKeys,
    carriers: Vec<Carrier>,
    proxies: Proxies,
    outage_limit: Option<Duration>,
    streams: Streams,
    control_plane: ControlPlane,
    readiness: Readiness,
    links: Links,
}

impl Bound {
    /// Reads certificates, keys and the API server's credential, and binds the probes. Dials nothing yet.
    ///
    /// # Errors
    /// [`Failure`], whose cause names what is wrong and what to do.
    pub async fn bind(config: Config, metrics: Metrics, scope: &Scope) -> Result<Self, Failure> {
        metrics::describe();
        let readiness = Readiness::new();
        let starting = readiness.handle("agent");
        let state = StateDir::open(&config.state_dir)?;
        let api_server = ApiServer::new(config.api_server.clone(), Limits::default(), scope)
            .map_err(Failure::misconfigured)?;
        let source = source(&config, &state, &api_server)?;
        let keys = keys(&state)?;
        let probes = Probes::bind(config.probes_listen, readiness.clone(), metrics.clone()).await?;
        let links = metrics::links();
        let of_callers = config
            .pass_through
            .then(|| api_server.of_callers(config.api_server.clone(), Limits::default(), scope))
            .transpose()
            .map_err(Failure::misconfigured)?;
        let turns = Turns::new(config.limits);
        scrape::ask(&metrics, &links, [Some(&api_server), of_callers.as_ref()].into_iter().flatten());
        scrape::ask_for_turns(&metrics, &turns, config.limits);
        let Config { advertise, targets, tenants, api_servers, .. } = &config;
        if let ApiServers::Listed(addresses) = api_servers {
            api_server.balance(addresses);
        }
        let balances = *api_servers == ApiServers::Found;
        let discovery = Discovery::new(api_server.clone(), advertise.clone(), targets, tenants, balances);
        let guard = Guard::new(config.impersonation.clone(), config.pass_through);
        let targets = Targets::new(config.dialed(), vec![probes.address()])
            .with_service_networks(config.service_networks.clone());
        let relay = Relay::new(targets, api_server.clone(), discovery.subscribe(), discovery.services());
        let control_plane = ControlPlane::new(discovery.subscribe(), api_server.certificates());
        let forwarder = Forwarder::new(api_server, of_callers, turns, scope.clone());
        let streams = Streams::new(guard, forwarder, relay);
        let meant =
            MeantServers { trust_domain: config.trust_domain.clone(), ids: config.server_ids.clone() };
        let parts = Parts {
            boot: boot_nonce()?,
            keys,
            carriers: config.carrier.carriers(),
            proxies: config.proxies.clone(),
            outage_limit: config.outage_limit,
            streams,
            control_plane,
            readiness,
            links,
        };
        Ok(Self { probes, starting, discovery, source, servers: named(&config), meant, state, parts })
    }

    /// Where `/livez`, `/readyz` and `/metrics` answer.
    #[must_use]
    pub fn probes_address(&self) -> SocketAddr {
        self.probes.address()
    }

    /// Runs until the drain has begun; what is open then is the scope's.
    ///
    /// # Errors
    /// Where the certificate, or what the state directory has of servers, cannot be used.
    pub async fn run(self, scope: Scope) -> Result<(), Failure> {
        let Self { probes, starting, discovery, source, servers, meant, state, parts } = self;
        probes.run(&scope);
        scope.attend(discovery.run(scope.clone()));
        // Both arms are cancel-safe: what was received is written down before it is used.
        tokio::select! {
            dialing = dial(source, servers, meant, state, parts, &scope) => dialing?,
            () = scope.draining() => return Ok(()),
        }
        drop(starting);
        scope.draining().await;
        Ok(())
    }
}

/// Begins to dial, once there is a certificate that holds; it is kept so from then on.
async fn dial(
    source: Source,
    servers: Vec<Named>,
    meant: MeantServers,
    state: StateDir,
    parts: Parts,
    scope: &Scope,
) -> Result<(), Failure> {
    let (identity, enrollment) = match source {
        Source::Files(identity) => (*identity, None),
        Source::Enrolled(enrollment) => (enrollment.identity(scope).await, Some(enrollment)),
    };
    let clock: Arc<dyn TimeProvider> = match &enrollment {
        Some(enrollment) => Arc::new(enrollment.clock()),
        None => Arc::new(DefaultTimeProvider),
    };
    let Identity { agent, chain, key, server_roots } = identity;
    metrics::certificates("agent", &chain[..chain.len().min(1)]);
    let trusted = Servers::new((chain, key), &server_roots, meant, state, clock);
    let trusted = trusted.map_err(Failure::misconfigured)?;
    metrics::certificates("server_ca", &trusted.roots());
    if let Some(enrollment) = enrollment {
        enrollment.renew_expired(&trusted, scope).await;
        scope.attend(enrollment.keep(trusted.clone(), scope.clone()));
    }
    Dialer::new(servers, parts.with(agent, trusted), scope.clone()).run();
    Ok(())
}

impl Parts {
    fn with(self, agent: AgentId, trusted: Servers) -> Equipment {
        let Self { boot, keys, carriers, proxies, outage_limit, streams, control_plane, readiness, links } =
            self;
        Equipment {
            agent,
            boot,
            keys,
            trusted,
            carriers,
            proxies,
            outage_limit,
            streams,
            control_plane,
            readiness,
            links,
        }
    }
}

/// The certificate that is configured, or the way to one.
fn source(config: &Config, state: &StateDir, api_server: &ApiServer) -> Result<Source, Failure> {
    match &config.credential {
        CredentialSource::Files(files) => {
            let identity = Identity::load(files, &config.cluster, &config.trust_domain);
            identity.map(|identity| Source::Files(Box::new(identity))).map_err(Failure::misconfigured)
        }
        CredentialSource::Enrolled(at) => {
            let opened = Enrollment::open(config, at.clone(), state.clone(), api_server.clone());
            opened.map(Source::Enrolled).map_err(Failure::could_not_go_on)
        }
    }
}

/// The servers, each with the name that its certificate must bear.
fn named(config: &Config) -> Vec<Named> {
    let named = config.servers.iter().map(|address| Named {
        address: address.clone(),
        certificate_name: config.server_name.clone().unwrap_or_else(|| address.host.clone()),
    });
    named.collect()
}

/// The endpoint's keys: those of the last run, or new ones.
fn keys(state: &StateDir) -> Result<EndpointKeys, Failure> {
    match state.read(KEYS_FILE, EndpointKeys::BYTES as u64)? {
        Some(bytes) => EndpointKeys::from_bytes(&bytes).map_err(Failure::misconfigured),
        None => {
            let keys = EndpointKeys::generate().map_err(Failure::could_not_go_on)?;
            state.write(KEYS_FILE, &keys.to_bytes())?;
            Ok(keys)
        }
    }
}

fn boot_nonce() -> Result<BootNonce, Failure> {
    let mut nonce = [0; 16];
    aws_lc_rs::rand::fill(&mut nonce).map_err(Failure::could_not_go_on)?;
    Ok(BootNonce(nonce))
}
