//! Builds the server from its configuration, and runs it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use audit::Log;
use aws_lc_rs::digest;
use daemon::{
    BindError, BoundProbes, Failure, Metrics, NotReady, Probes, Product, Readiness, Scope, StateDir,
};
use policy::action::Names;
use proto::greeting::{BootNonce, Host};
use tokio::sync::watch;
use tracing::info;
use transport::{Endpoint, EndpointError, EndpointKeys, ServerNumber};

use crate::admin::{self, Admin, Dependencies, EnrollmentInfo, Remote, ServerInfo};
use crate::assertion::Assertions;
use crate::config::{self, Config};
use crate::directory::Directory;
use crate::enrollment::{self, Enrollment, EnrollmentSettings};
use crate::exchanges;
use crate::gateway::{self, Admission, Gateway};
use crate::identity::oidc::pod::Verifier;
use crate::listener::{Accepted, Doors, Entered, Limits, Listener, SourceLimits, tls};
use crate::metrics;
use crate::permit::{Policy, PolicyFile};
use crate::proxy::{self, Proxy, Socks};
use crate::reception::Reception;
use crate::registry::Registry;
use crate::vip;

mod authentication;
mod egress;
mod files;
mod recording;
mod scrape;
mod ways_in;

use ways_in::WaysIn;

/// What this program is called.
pub const PRODUCT: Product =
    Product { name: "tunnel-server", metrics_prefix: "tombolo_server", version: env!("CARGO_PKG_VERSION") };

/// The file in the state directory that holds the endpoint's keys.
const KEYS_FILE: &str = "endpoint.keys";

/// What of this host is changed while a server runs with this configuration, as `ip` would do it. Blocks.
///
/// # Errors
/// [`Failure`]: it would not start, because a range has no address left for a cluster.
pub fn changes(config: Config) -> Result<String, Failure> {
    match config.vip {
        Some(vip) => vip::dry_run(vip, &config.state_dir),
        None => Ok("# nothing of this host is changed: the configuration has no vip\n".to_owned()),
    }
}

/// A server that has all its ports.
pub struct Bound {
    probes: BoundProbes,
    starting: NotReady,
    listener: Listener,
    /// The agents' TCP door, where it is not at the callers' address.
    agents: Option<Listener>,
    endpoint: Endpoint,
    gateway: Gateway,
    reception: Reception,
    registry: Registry,
    policy: (Policy, PolicyFile),
    log: Log,
    admin: Option<Admin>,
    /// Where agents enroll, if they do.
    enrollment: Option<(Listener, Enrollment)>,
    ways_in: WaysIn,
    /// Where callers with dial tokens come, if they may.
    proxy: Option<(Listener, Proxy)>,
    /// The same by SOCKS5.
    socks: Option<(Socks, Proxy)>,
}

/// The addresses that were bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Where callers come, TCP.
    pub gateway: SocketAddr,
    /// Where agents come, UDP and TCP.
    pub tunnel: SocketAddr,
    /// Where `/livez`, `/readyz` and `/metrics` answer, TCP.
    pub probes: SocketAddr,
}

impl Bound {
    /// Opens the state directory and binds every port. Serves nobody yet.
    ///
    /// # Errors
    /// [`Failure`], whose cause names what is wrong and what to do.
    pub async fn bind(mut config: Config, metrics: Metrics, scope: &Scope) -> Result<Self, Failure> {
        metrics::describe();
        let (policy, policy_file) = first_policy(&config)?;
        let readiness = Readiness::new();
        let starting = readiness.handle("server");
        let state = StateDir::open(&config.state_dir)?;
        let keys = keys(&state)?;
        let log = recording::open(config.audit.as_ref(), &state, &readiness, scope)?;
        let directory = Directory::open(&state)?;
        let registry = Registry::new(directory.clone(), config.tunnel.copied_key);
        let probes = Probes::bind(config.probes_listen, readiness, metrics.clone()).await?;
        note_certificates(&config);
        let spawn: Arc<dyn transport::Spawn> = Arc::new(Attendants(scope.clone()));
        let (listen, number) = (config.tunnel.listen, number(&config.server_id));
        let endpoint = Endpoint::serve(listen, config.tunnel_material(), &keys, number, Arc::clone(&spawn))
            .map_err(not_bound)?
            .bearing(config.tunnel.outage_limit);
        let (listener, agents) = listeners(&config, &endpoint)?;
        let admission = admission(&mut config, &policy, &directory, scope)?;
        let doors = admin_doors(&mut config, scope)?;
        let enrollment = config.enrollment.take();
        let ways_in = WaysIn::bind(&mut config, &directory).await?;
        let proxy = config.proxy.take().map(proxy_listener).transpose()?;
        let socks = match config.socks {
            Some(address) => Some(Socks::bind(address).await?),
            None => None,
        };
        let trust_bundle = follow_bundle(&config, scope);
        let (enrollment, site) = enrollment
            .map(|door| bind_enrollment(door, &config, (&directory, &log), trust_bundle.clone()))
            .transpose()?
            .unzip();
        let Config { parking, watches, limits, .. } = config;
        let terms = gateway::Terms { parking, watches, limits };
        let gateway = Gateway::new(admission, registry.clone(), terms, log.clone(), scope.clone());
        let door = Proxy::new(directory.clone(), gateway.dials(), scope.clone());
        let socks = socks.map(|listener| (listener, door.clone()));
        let proxy = proxy.map(|listener| (listener, door));
        let (domain, server_id) = (config.trust_domain, config.server_id);
        let links = metrics::links();
        let host = (host(server_id.clone(), &keys)?, trust_bundle);
        let at_doors = config.limits.listeners;
        let limits = at_doors.agents;
        let reception =
            Reception::new(endpoint.clone(), registry.clone(), links.clone(), domain, host, limits, spawn);
        let mut bound = Self {
            probes,
            starting,
            listener,
            agents,
            endpoint,
            gateway,
            reception,
            registry,
            policy: (policy, policy_file),
            log,
            admin: None,
            enrollment,
            ways_in,
            proxy,
            socks,
        };
        scrape::ask(&metrics, &bound, at_doors, links);
        scrape::ask_admins(&metrics, doors.remote.as_ref().map(Remote::counts));
        if doors.socket.is_some() || doors.remote.is_some() {
            bound.admin = Some(bound.admin(doors, server_id, directory, site).await?);
        }
        Ok(bound)
    }

    /// Last of all ports: it tells of the others.
    async fn admin(
        &self,
        doors: admin::AdminEndpoints,
        server_id: String,
        directory: Directory,
        site: Option<EnrollmentInfo>,
    ) -> Result<Admin, Failure> {
        let Addresses { gateway, tunnel, probes } = self.addresses().map_err(Failure::could_not_go_on)?;
        let about = ServerInfo { server_id, gateway, tunnel, probes, enrollment: site };
        let (registry, log) = (self.registry.clone(), self.log.clone());
        Ok(Admin::bind(doors, Dependencies { server: about, registry, directory, log }).await?)
    }

    /// The addresses that were bound.
    ///
    /// # Errors
    /// Where the system does not tell.
    pub fn addresses(&self) -> std::io::Result<Addresses> {
        Ok(Addresses {
            gateway: self.listener.address(),
            tunnel: self.endpoint.address()?,
            probes: self.probes.address(),
        })
    }

    /// Serves until the drain has begun; what is open then is the scope's.
    ///
    /// # Errors
    /// Where the directory of clusters cannot be kept.
    pub async fn run(self, scope: Scope) -> Result<(), Failure> {
        let addresses = self.addresses().map_err(Failure::could_not_go_on)?;
        let Addresses { gateway: callers, tunnel: agents, probes } = addresses;
        info!(%callers, %agents, %probes, "serving");
        self.probes.run(&scope);
        let (policy, file) = self.policy;
        // To the end of a drain: what runs may come to be forbidden.
        scope.attend(file.follow(policy));
        scope.spawn(self.reception.clone().run(scope.clone()));
        let health = match self.admin {
            Some(admin) => Some(admin.run(&scope)?),
            None => None,
        };
        self.ways_in.run(&self.gateway, &self.log, &scope);
        let hosts = Hosts { gateway: self.gateway, reception: self.reception, scope: scope.clone() };
        for listener in [Some(self.listener), self.agents].into_iter().flatten() {
            let hosts = hosts.clone();
            scope.spawn(listener.run(scope.clone(), move |accepted| hosts.clone().serve(accepted)));
        }
        if let Some((listener, door)) = self.proxy {
            info!(callers = %listener.address(), "callers with dial tokens may be connected to targets");
            scope.spawn(listener.run(scope.clone(), move |accepted| door.clone().serve_connection(accepted)));
        }
        if let Some((listener, door)) = self.socks {
            info!(callers = %listener.address(), "callers with dial tokens may come by SOCKS5");
            scope.spawn(listener.run(door, scope.clone()));
        }
        if let Some((listener, door)) = self.enrollment {
            info!(agents = %listener.address(), "agents may enroll");
            let within = scope.clone();
            let serve = move |accepted| door.clone().serve(accepted, within.clone());
            scope.attend(listener.run(scope.clone(), serve));
        }
        drop(self.starting);
        if let Some(health) = health {
            health.serving();
        }
        scope.draining().await;
        self.registry.save().await.map_err(Failure::could_not_go_on)
    }
}

/// Who serves what comes by TCP.
#[derive(Clone)]
struct Hosts {
    gateway: Gateway,
    reception: Reception,
    scope: Scope,
}

impl Hosts {
    async fn serve(self, accepted: Accepted) {
        let (entered, home, place) = accepted.entered();
        match entered {
            Entered::Agent(stream) => {
                // The registry has places for tunnels; these are the callers'.
                drop(place);
                self.reception.receive(stream, home, &self.scope).await;
            }
            Entered::Caller(stream) => {
                self.gateway.serve_connection(stream).await;
                // Held among all to the connection's end.
                drop(place);
            }
        }
    }
}

/// The callers' TCP door and the agents': one socket where they have one address, else two. Agents come by TCP to the port
/// to which they come by UDP.
fn listeners(config: &Config, endpoint: &Endpoint) -> Result<(Listener, Option<Listener>), Failure> {
    let tunnel = endpoint.address().map_err(Failure::could_not_go_on)?;
    let agents = transport::tls::over_tcp(config.tunnel_material()).map_err(Failure::misconfigured)?;
    let roots = config.gateway.authentication.client_certificate.as_ref().map(|method| method.roots.clone());
    let pair = &config.certificate;
    let tls = tls::server_config(pair.chain.clone(), pair.key.clone_key(), roots)
        .map_err(Failure::misconfigured)?;
    let config::SourceLimitsConfig { connections, new: rate, .. } = config.limits.source;
    let source = Some(SourceLimits { connections, rate });
    let config::GatewayLimits { connections, handshakes } = config.limits.listeners.gateway;
    let limits =
        Limits { connections_max: connections, handshakes_max: handshakes, source, ..Limits::default() };
    if config.gateway.listen == tunnel {
        let doors = Doors { agents: Some(agents), ..Doors::callers(tls) };
        return Ok((Listener::bind("gateway.listen", tunnel, doors, limits)?, None));
    }
    let callers = Listener::bind("gateway.listen", config.gateway.listen, Doors::callers(tls), limits)?;
    let agents = Doors { callers: None, agents: Some(agents) };
    Ok((callers, Some(Listener::bind("tunnel.listen", tunnel, agents, limits)?)))
}

/// Where the admin API is to be asked: the port is taken here, the socket last of all.
fn admin_doors(config: &mut Config, scope: &Scope) -> Result<admin::AdminEndpoints, Failure> {
    let remote = config.admin.tcp.take().map(|tcp| {
        let (given, rules) = watch::channel(Arc::new(tcp.rules.clone()));
        scope.attend(files::follow_admins(config.file.clone(), given));
        Remote::bind(tcp, rules, &config.certificate, &config.trust_domain)
    });
    Ok(admin::AdminEndpoints { socket: config.admin.socket.take(), remote: remote.transpose()? })
}

/// The door at which agents enroll, which shows the root as well: all that a newcomer knows of it is its pin.
fn bind_enrollment(
    door: config::EnrollmentConfig,
    config: &Config,
    (directory, log): (&Directory, &Log),
    trust_bundle: watch::Receiver<Arc<[u8]>>,
) -> Result<((Listener, Enrollment), EnrollmentInfo), Failure> {
    let config::EnrollmentConfig { listen, address, signer, server_roots, lifetime, grace } = door;
    let pair = &config.certificate;
    let chain = pair.chain.iter().chain(&server_roots).cloned().collect();
    let tls = tls::for_enrollment(chain, pair.key.clone_key()).map_err(Failure::misconfigured)?;
    let listener = Listener::bind("enrollment.listen", listen, Doors::callers(tls), enrollment::LIMITS)?;
    let pins = server_roots.iter().filter_map(enrollment::pin).map(|pin| pin.to_string()).collect();
    let terms =
        EnrollmentSettings { trust_domain: config.trust_domain.clone(), lifetime, grace, trust_bundle };
    let verifier = Verifier::new().map_err(Failure::could_not_go_on)?;
    let site = EnrollmentInfo { address, pins };
    Ok(((listener, Enrollment::new(directory.clone(), signer, terms, verifier, log.clone())), site))
}

/// The door for callers with dial tokens.
fn proxy_listener(door: config::ProxyConfig) -> Result<Listener, Failure> {
    let config::ProxyConfig { listen, certificate } = door;
    metrics::certificates("proxy", &certificate.chain[..certificate.chain.len().min(1)]);
    let tls = tls::for_proxy(certificate.chain, certificate.key).map_err(Failure::misconfigured)?;
    Ok(Listener::bind("proxy.listen", listen, Doors::callers(tls), proxy::LIMITS)?)
}

/// The policy that is in force first, and its file.
fn first_policy(config: &Config) -> Result<(Policy, PolicyFile), Failure> {
    let (file, rules) = PolicyFile::open(config.policy_file.clone())?;
    let policy = Policy::new(rules);
    metrics::policy_in_force(policy.edition().generation(), SystemTime::now());
    Ok((policy, file))
}

/// Who decides about callers' requests; takes what holds for some clusters out of the configuration.
fn admission(
    config: &mut Config,
    policy: &Policy,
    directory: &Directory,
    scope: &Scope,
) -> Result<Admission, Failure> {
    let delegation = authentication::delegation(config, scope)?;
    let config::GatewayConfig {
        host_suffix, hosts, authentication, session_age_max, browser_origins, ..
    } = &config.gateway;
    let authenticator = authentication::authenticator(config.trust_domain.clone(), authentication, scope)?;
    let exchanges = exchanges::Table::new(
        directory.clone(),
        policy.clone(),
        delegation.clone(),
        authenticator.clone(),
        *session_age_max,
    );
    Ok(Admission {
        authenticator,
        names: Names::new(host_suffix.as_deref(), hosts),
        policy: policy.clone(),
        delegation,
        assertions: Assertions::new(std::mem::take(&mut config.clusters)),
        exchanges,
        browser_origins: browser_origins.clone(),
    })
}

/// Notes when each certificate ends; they are read once, at the start.
fn note_certificates(config: &Config) {
    metrics::certificates("server", &config.certificate.chain[..config.certificate.chain.len().min(1)]);
    metrics::certificates("agent_ca", &config.tunnel.agent_roots);
    if let Some(callers) = &config.gateway.authentication.client_certificate {
        metrics::certificates("caller_ca", &callers.roots);
    }
    if let Some(admins) = &config.admin.tcp {
        metrics::certificates("admin_ca", &admins.roots);
    }
}

/// The endpoint's keys: those of the last run, so that agents notice a restart at once, or new ones.
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

/// The trust bundle that agents are given, now and whenever its file has changed.
fn follow_bundle(config: &Config, scope: &Scope) -> watch::Receiver<Arc<[u8]>> {
    let (given, taken) = watch::channel(Arc::from(config.trust_bundle.as_slice()));
    if let Some(path) = config.trust_bundle_file.clone() {
        let (domain, contents) = (config.trust_domain.clone(), config.trust_bundle.clone());
        scope.attend(files::follow_bundle(path, domain, contents, given));
    }
    taken
}

/// What this process says of itself to agents, but for the trust bundle, which may be another by then.
fn host(server_id: String, keys: &EndpointKeys) -> Result<Host, Failure> {
    let mut boot = [0; 16];
    aws_lc_rs::rand::fill(&mut boot).map_err(Failure::could_not_go_on)?;
    let software = concat!("tunnel-server/", env!("CARGO_PKG_VERSION")).to_owned();
    Ok(Host { server_id, software, boot: BootNonce(boot), keys_mark: keys.mark(), trust_bundle: Vec::new() })
}

/// A server's number in connection IDs, drawn from its name, so that nobody has to hand numbers out.
fn number(server_id: &str) -> ServerNumber {
    let digest = digest::digest(&digest::SHA256, server_id.as_bytes());
    ServerNumber(u16::from_be_bytes([digest.as_ref()[0], digest.as_ref()[1]]))
}

fn not_bound(error: EndpointError) -> Failure {
    match error {
        EndpointError::Bind { address, source } => BindError::new("tunnel.listen", address, source).into(),
        error @ EndpointError::Tls(_) => Failure::misconfigured(error),
    }
}

/// Drivers of a carrier serve the work and are none: a drain does not wait for them.
struct Attendants(Scope);

impl transport::Spawn for Attendants {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.attend(driver);
    }
}
