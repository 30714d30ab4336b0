//! Builds the agent from its configuration, and runs it.

use std::net::SocketAddr;

use daemon::{BoundProbes, Failure, Metrics, NotReady, Probes, Product, Readiness, Scope, StateDir};
use proto::greeting::BootNonce;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use transport::EndpointKeys;
use transport::tls::MeantServers;

use crate::apiserver::{ApiServer, Limits};
use crate::config::Config;
use crate::dialer::{Dialer, Equipment, Named};
use crate::discovery::Discovery;
use crate::forward::Forwarder;
use crate::guard::Guard;
use crate::identity::Identity;
use crate::metrics;
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
    dialer: Dialer,
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
        let identity = Identity::load(&config).map_err(Failure::misconfigured)?;
        let api_server = ApiServer::new(config.api_server.clone(), Limits::default(), scope)
            .map_err(Failure::misconfigured)?;
        let state = StateDir::open(&config.state_dir)?;
        let keys = keys(&state)?;
        let probes = Probes::bind(config.probes_listen, readiness.clone(), metrics.clone()).await?;
        metrics::certificates("agent", &identity.chain[..identity.chain.len().min(1)]);
        let links = metrics::links();
        scrape::ask(&metrics, &links, &api_server);
        let discovery = Discovery::new(api_server.clone(), config.advertise.clone());
        let streams =
            Streams::new(Guard::new(config.impersonation.clone()), Forwarder::new(api_server, scope.clone()));
        let trusted = trusted(&config, (identity.chain, identity.key), &identity.server_roots, state)?;
        let equipment = Equipment {
            agent: identity.agent,
            boot: boot_nonce()?,
            keys,
            trusted,
            carriers: config.carrier.carriers(),
            proxies: config.proxies.clone(),
            outage_limit: config.outage_limit,
            streams,
            endpoints: discovery.subscribe(),
            readiness,
            links,
        };
        let dialer = Dialer::new(named(&config), equipment, scope.clone());
        Ok(Self { probes, starting, discovery, dialer })
    }

    /// Where `/livez`, `/readyz` and `/metrics` answer.
    #[must_use]
    pub fn probes_address(&self) -> SocketAddr {
        self.probes.address()
    }

    /// Runs until the drain has begun; what is open then is the scope's.
    ///
    /// # Errors
    /// None today; a later one would be a reason to end.
    pub async fn run(self, scope: Scope) -> Result<(), Failure> {
        self.probes.run(&scope);
        scope.attend(self.discovery.run(scope.clone()));
        self.dialer.run();
        drop(self.starting);
        scope.draining().await;
        Ok(())
    }
}

/// Whom the agent takes for its servers, and shows its own certificate.
fn trusted(
    config: &Config,
    own: (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
    roots: &[CertificateDer<'static>],
    state: StateDir,
) -> Result<Servers, Failure> {
    let meant = MeantServers { trust_domain: config.trust_domain.clone(), ids: config.server_ids.clone() };
    let servers = Servers::new(own, roots, meant, state).map_err(Failure::misconfigured)?;
    metrics::certificates("server_ca", &servers.roots());
    Ok(servers)
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
