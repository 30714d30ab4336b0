//! Builds the server from its configuration, and runs it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use audit::Log;
use daemon::listen::PROVING_MAX;
use daemon::{BindError, Failure, Metrics, NotReady, Product, Scope};
use policy::action::GatewayNames;
use tokio::sync::watch;
use tracing::info;
use transport::tls::{ServerMaterial, SharedCertificate, SharedRoots};
use transport::{Endpoint, EndpointError, EndpointKeys, ServerNumber};

use crate::admin::{self, Admin, Dependencies, EnrollmentInfo, Remote, ServerInfo};
use crate::agents::AgentListener;
use crate::authz::{Policy, PolicyFile};
use crate::clocks::Clocks;
use crate::config::{self, Config};
use crate::directory::Directory;
use crate::enrollment::{self, Enrollment, EnrollmentSettings};
use crate::exchanges;
use crate::gateway::{self, AccessControl, Gateway};
use crate::identity::oidc::pod::Verifier;
use crate::impersonation::ImpersonationRules;
use crate::listener::tls::CertificateWithRoots;
use crate::listener::{
    AcceptedConnection, Counters, Listener, ListenerLimits, ListenerTls, PeerStream, PerSourceLimits, tls,
};
use crate::metrics::{self, ReloadedFile};
use crate::proxy::{self, DialProxy, SocksListener};
use crate::registry::{OwnServer, Registry};
use crate::vip;

mod audit_log;
mod authentication;
mod certificates;
mod directory;
mod egress;
mod enrollment_signer;
mod entry_points;
mod foundation;
mod janitor;
mod membership;
mod own_identity;
mod peering;
mod registration;
mod reload;
mod scrape;
mod trusted_roots;

use entry_points::EntryPoints;
use foundation::Foundation;
use membership::Membership;
use trusted_roots::RootsFollower;

/// The name and version of this program, for metrics and logs.
pub const PRODUCT: Product =
    Product { name: "tunnel-server", metrics_prefix: "tombolo_server", version: env!("CARGO_PKG_VERSION") };

/// Connections of one certificate at once whose only request is answered by a refusal. Others are closed without an answer.
const REFUSED_OF_CERTIFICATE_MAX: usize = 64;

/// The changes that a server with this configuration would make to this host, as `ip` commands. Blocks.
///
/// # Errors
/// [`Failure`] if the server would not start, because a range has no address left for a cluster.
pub fn changes(config: Config) -> Result<String, Failure> {
    match config.vip {
        Some(vip) => vip::dry_run(vip, &config.state_dir),
        None => Ok("# nothing of this host is changed: the configuration has no vip\n".to_owned()),
    }
}

/// A server that has bound all its ports.
pub struct BoundServer {
    /// The address of the probes, which answer already.
    probes: SocketAddr,
    starting: NotReady,
    listener: Listener,
    /// The agents' TCP listener, unless it shares the callers' address.
    agents: Option<Listener>,
    endpoint: Endpoint,
    gateway: Gateway,
    agent_listener: AgentListener,
    registry: Registry,
    own_server: OwnServer,
    policy: (Policy, PolicyFile),
    log: Log,
    admin: Option<Admin>,
    /// The enrollment service and its listener, if configured.
    enrollment: Option<(Listener, Enrollment)>,
    entry_points: EntryPoints,
    /// The proxy for callers with dial tokens, if configured.
    proxy: Option<(Listener, DialProxy)>,
    /// The SOCKS5 listener of the same proxy, if configured.
    socks: Option<(SocksListener, DialProxy)>,
    membership: Membership,
}

/// The addresses that the server has bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The address for callers, TCP.
    pub gateway: SocketAddr,
    /// The address for agents, UDP and TCP.
    pub tunnel: SocketAddr,
    /// The address of `/livez`, `/readyz` and `/metrics`, TCP.
    pub probes: SocketAddr,
}

impl BoundServer {
    /// Opens the state directory and binds every port, but serves nobody yet.
    ///
    /// # Errors
    /// [`Failure`], whose cause names what is wrong and what to do.
    pub async fn bind(mut config: Config, metrics: Metrics, scope: &Scope) -> Result<Self, Failure> {
        metrics::describe();
        let (policy, policy_file) = first_policy(&config)?;
        let foundation = Foundation::lay(&mut config, &metrics, scope).await?;
        let Foundation { readiness, starting, keys, log, probes, roots, directory, registry } = foundation;
        let spawn: Arc<dyn transport::Spawn> = Arc::new(BackgroundSpawner(scope.clone()));
        let material = server_material(&config, &roots, scope)?;
        let ServerMaterial { certificate, client_roots: agent_roots } = material.clone();
        let number = own_identity::number(&directory, &config.server_id).await?;
        let endpoint = endpoint(&config, &material, (&keys, number), &spawn)?;
        let (listener, agents) = listeners(&config, &endpoint, material, &roots)?;
        let admission = admission(&mut config, &policy, &directory, &roots, scope)?;
        let admin = admin_listeners(&mut config, &certificate, &roots, scope)?;
        let entry_points = EntryPoints::bind(&mut config, &certificate, &directory, &roots, scope).await?;
        let proxy = config.proxy.take().map(|proxy| proxy_listener(proxy, scope)).transpose()?;
        let socks = config.socks.map(SocksListener::bind).transpose()?;
        let trust_bundle = follow_bundle(&config, scope);
        let peers_see = Arc::clone(&certificate);
        let shown = CertificateWithRoots::new(certificate, trust_bundle.clone());
        let clocks = scrape::register_clocks(&metrics, Clocks::new(config.server_id.clone()));
        let opened = (&directory, &log, &clocks, trust_bundle.clone());
        let enrollment = bind_enrollment(&mut config, opened, (shown, agent_roots), scope)?;
        let (enrollment, site) = enrollment.map(|bound| (bound.service, bound.site)).unzip();
        let Config { parking, watches, drain_grace, limits, .. } = config;
        let settings = gateway::GatewaySettings { parking, watches, drain_grace, limits };
        let gateway = Gateway::new(admission, registry.clone(), settings, log.clone(), scope.clone());
        let dial_proxy = DialProxy::new(directory.clone(), gateway.dials(), scope.clone());
        let socks = socks.map(|listener| (listener, dial_proxy.clone()));
        let proxy = proxy.map(|listener| (listener, dial_proxy));
        let (links, host) = (metrics::links(), own_identity::host(config.server_id, &keys)?);
        let (named, files) = ((&host, &*config.trust_domain), (policy_file.digest(), trust_bundle.clone()));
        let own_server = peering::own_server(named, config.peering.as_ref(), files, (&readiness, &registry));
        let seen = (peers_see, own_server.clone());
        let own = peering::OwnProcess::new(&host, &config.trust_domain, seen, (&keys, number));
        let shared = (registry.clone(), gateway.limiter(), clocks, log.clone());
        let within = (&roots, &readiness, scope);
        let addresses = &config.tunnel.addresses;
        let membership =
            membership::join(config.peering, addresses, own, within, shared, Arc::clone(&spawn)).await?;
        entry_points.claim_ranges(registry.directory(), own_server.id()).await?;
        let (host, domain, totals) = ((host, trust_bundle), config.trust_domain, config.limits.listeners);
        let (own_endpoint, clusters, link_metrics) = (endpoint.clone(), registry.clone(), links.clone());
        let agent_listener =
            AgentListener::new(own_endpoint, clusters, link_metrics, domain, host, totals.agents, spawn);
        let mut bound = Self {
            probes,
            starting,
            listener,
            agents,
            endpoint,
            gateway,
            agent_listener,
            registry,
            own_server,
            policy: (policy, policy_file),
            log,
            admin: None,
            enrollment,
            entry_points,
            proxy,
            socks,
            membership,
        };
        scrape::register(&metrics, &bound, limits, links);
        scrape::register_admin(&metrics, admin.remote.as_ref().map(Remote::counts));
        scrape::register_listeners(&metrics, bound.listener_counters());
        bound.admin = bound.admin(admin, site).await?;
        Ok(bound)
    }

    /// The counters of the listeners beside the gateway's, of those that are configured.
    fn listener_counters(&self) -> Vec<(&'static str, Option<Arc<Counters>>)> {
        vec![
            ("enrollment", self.enrollment.as_ref().map(|(listener, _)| listener.counters())),
            ("proxy", self.proxy.as_ref().map(|(listener, _)| listener.counters())),
            ("socks", self.socks.as_ref().map(|(listener, _)| listener.counters())),
        ]
    }

    /// Binds the admin API if it is configured, after all other ports, because it reports their addresses.
    async fn admin(
        &self,
        listeners: admin::AdminEndpoints,
        site: Option<EnrollmentInfo>,
    ) -> Result<Option<Admin>, Failure> {
        if listeners.socket.is_none() && listeners.remote.is_none() {
            return Ok(None);
        }
        let Addresses { gateway, tunnel, probes } = self.addresses().map_err(Failure::could_not_go_on)?;
        let (own, registry) = (self.own_server.clone(), self.registry.clone());
        let (server_id, trust_domain) = (own.id().to_owned(), own.trust_domain().to_owned());
        let server = ServerInfo { server_id, trust_domain, gateway, tunnel, probes, enrollment: site };
        let (directory, log) = (registry.directory().clone(), self.log.clone());
        Ok(Some(Admin::bind(listeners, Dependencies { server, own, registry, directory, log }).await?))
    }

    /// The addresses that the server has bound.
    ///
    /// # Errors
    /// An I/O error if the system does not report them.
    pub fn addresses(&self) -> std::io::Result<Addresses> {
        Ok(Addresses {
            gateway: self.listener.address(),
            tunnel: self.endpoint.address()?,
            probes: self.probes,
        })
    }

    /// Serves until the drain begins. The scope owns what is still open then.
    ///
    /// # Errors
    /// [`Failure`] if the directory of clusters cannot be saved.
    pub async fn run(self, scope: Scope) -> Result<(), Failure> {
        let addresses = self.addresses().map_err(Failure::could_not_go_on)?;
        let Addresses { gateway: callers, tunnel: agents, probes } = addresses;
        info!(%callers, %agents, %probes, "serving");
        let (policy, file) = self.policy;
        // Until the end of a drain, because a new policy may forbid what is still running.
        scope.spawn_background(file.follow(policy));
        self.membership.run(self.own_server, &scope);
        scope.spawn(self.agent_listener.clone().run(scope.clone()));
        let health = match self.admin {
            Some(admin) => Some(admin.run(&scope)?),
            None => None,
        };
        self.entry_points.run(&self.gateway, &self.log, &scope);
        let handlers = ConnectionHandlers {
            gateway: self.gateway,
            agent_listener: self.agent_listener,
            scope: scope.clone(),
        };
        for listener in [Some(self.listener), self.agents].into_iter().flatten() {
            let handlers = handlers.clone();
            scope.spawn(listener.run(scope.clone(), move |accepted| handlers.clone().serve(accepted)));
        }
        if let Some((listener, proxy)) = self.proxy {
            info!(callers = %listener.address(), "serving callers with dial tokens over HTTP CONNECT");
            scope
                .spawn(listener.run(scope.clone(), move |accepted| proxy.clone().serve_connection(accepted)));
        }
        if let Some((listener, proxy)) = self.socks {
            info!(callers = %listener.address(), "serving callers with dial tokens over SOCKS5");
            scope.spawn(listener.run(proxy, scope.clone()));
        }
        if let Some((listener, enrollment)) = self.enrollment {
            info!(agents = %listener.address(), "serving enrollment");
            let within = scope.clone();
            let serve = move |accepted| enrollment.clone().serve(accepted, within.clone());
            scope.spawn_background(listener.run(scope.clone(), serve));
        }
        drop(self.starting);
        if let Some(health) = health {
            health.serving();
        }
        scope.draining().await;
        self.registry.save().await.map_err(Failure::could_not_go_on)
    }
}

/// The enrollment service with its listener, and its description for administrators.
struct BoundEnrollment {
    service: (Listener, Enrollment),
    site: EnrollmentInfo,
}

/// Serves the TCP connections of callers and of agents.
#[derive(Clone)]
struct ConnectionHandlers {
    gateway: Gateway,
    agent_listener: AgentListener,
    scope: Scope,
}

impl ConnectionHandlers {
    async fn serve(self, accepted: AcceptedConnection) {
        let (stream, home, permit) = accepted.into_peer_stream();
        match stream {
            PeerStream::Agent(stream) => {
                // The registry limits tunnels by itself; this permit is for callers.
                drop(permit);
                self.agent_listener.receive(stream, home, &self.scope).await;
            }
            PeerStream::Caller(stream) => {
                self.gateway.serve_connection(stream).await;
                // The connection counts until it ends.
                drop(permit);
            }
        }
    }
}

/// Binds the TCP listeners of callers and of agents. They share one socket if their addresses are the same.
/// Agents use the same port over TCP as over UDP.
fn listeners(
    config: &Config,
    endpoint: &Endpoint,
    material: ServerMaterial,
    roots: &RootsFollower,
) -> Result<(Listener, Option<Listener>), Failure> {
    let tunnel = endpoint.address().map_err(Failure::could_not_go_on)?;
    let method = config.gateway.authentication.client_certificate.as_ref();
    let callers = roots.callers(&material.certificate, method.map(|method| &method.roots))?;
    let agents = transport::tls::tcp_server_config(material).map_err(Failure::misconfigured)?;
    let config::SourceLimitsConfig { connections, new: rate, .. } = config.limits.source;
    let source = PerSourceLimits { connections, rate, proving: PROVING_MAX };
    let config::GatewayLimits { connections, handshakes } = config.limits.listeners.gateway;
    let limits = ListenerLimits {
        connections_max: connections,
        handshakes_max: handshakes,
        source,
        // More than its caller may have, so that those beyond get an answer that says so.
        of_certificate: config.limits.caller.connections.saturating_add(REFUSED_OF_CERTIFICATE_MAX),
        ..ListenerLimits::DEFAULT
    };
    if config.gateway.listen == tunnel {
        let both = ListenerTls { agents: Some(agents), ..callers };
        return Ok((Listener::bind("gateway.listen", tunnel, both, limits)?, None));
    }
    let callers = Listener::bind("gateway.listen", config.gateway.listen, callers, limits)?;
    let agents = ListenerTls { agents: Some(agents), ..ListenerTls::default() };
    Ok((callers, Some(Listener::bind("tunnel.listen", tunnel, agents, limits)?)))
}

/// Prepares the listeners of the admin API. The port is bound here, the socket after everything else.
fn admin_listeners(
    config: &mut Config,
    certificate: &Arc<SharedCertificate>,
    follower: &RootsFollower,
    scope: &Scope,
) -> Result<admin::AdminEndpoints, Failure> {
    let remote = config.admin.tcp.take().map(|config::AdminTcp { listen, roots, rules }| {
        let tls = follower.admins(certificate, &roots)?;
        let (given, rules) = watch::channel(Arc::new(rules));
        scope.spawn_background(reload::follow_admins(config.file.clone(), given));
        Remote::bind(listen, tls, rules, &config.trust_domain)
    });
    Ok(admin::AdminEndpoints { socket: config.admin.socket.take(), remote: remote.transpose()? })
}

/// Binds the enrollment service, if there is one. Its certificate chain includes the root, because a new agent knows only the
/// root's pin.
fn bind_enrollment(
    config: &mut Config,
    (directory, log, clocks, trust_bundle): (&Directory, &Log, &Clocks, watch::Receiver<Arc<[u8]>>),
    (shown, agent_roots): (Arc<CertificateWithRoots>, Arc<SharedRoots>),
    scope: &Scope,
) -> Result<Option<BoundEnrollment>, Failure> {
    let Some(enrollment) = config.enrollment.take() else { return Ok(None) };
    let config::EnrollmentConfig { listen, address, signer, signer_files, lifetime, grace } = enrollment;
    let signer = enrollment_signer::follow(signer, signer_files, Arc::clone(&agent_roots), scope);
    let certificate: Arc<CertificateWithRoots> = Arc::clone(&shown);
    let tls = tls::for_enrollment(certificate, Arc::clone(&agent_roots)).map_err(Failure::misconfigured)?;
    let tls = ListenerTls { optional: Some(agent_roots), ..ListenerTls::callers_only(tls) };
    let listener = Listener::bind("enrollment.listen", listen, tls, enrollment::LIMITS)?;
    let settings =
        EnrollmentSettings { trust_domain: config.trust_domain.clone(), lifetime, grace, trust_bundle };
    let verifier = Verifier::new().map_err(Failure::could_not_go_on)?;
    let site = EnrollmentInfo { address, servers: config.tunnel.addresses.clone(), shown };
    let enrollment =
        Enrollment::new(directory.clone(), signer, settings, verifier, clocks.clone(), log.clone());
    Ok(Some(BoundEnrollment { service: (listener, enrollment), site }))
}

/// Binds the TLS listener for callers with dial tokens.
fn proxy_listener(proxy: config::ProxyConfig, scope: &Scope) -> Result<Listener, Failure> {
    let config::ProxyConfig { listen, certificate } = proxy;
    let certificate = certificates::follow(ReloadedFile::ProxyCertificate, "proxy", certificate, scope)?;
    let tls = tls::for_proxy(certificate).map_err(Failure::misconfigured)?;
    Ok(Listener::bind("proxy.listen", listen, ListenerTls::callers_only(tls), proxy::LIMITS)?)
}

/// The policy that is in force first, and its file.
fn first_policy(config: &Config) -> Result<(Policy, PolicyFile), Failure> {
    let (file, rules) = PolicyFile::open(config.policy_file.clone())?;
    let policy = Policy::new(rules);
    metrics::policy_in_force(policy.snapshot().generation(), SystemTime::now());
    Ok((policy, file))
}

/// Builds the access control of callers' requests. It takes the clusters' rules out of the configuration.
fn admission(
    config: &mut Config,
    policy: &Policy,
    directory: &Directory,
    roots: &RootsFollower,
    scope: &Scope,
) -> Result<AccessControl, Failure> {
    let delegation = authentication::delegation(config, roots, scope)?;
    let config::GatewayConfig {
        host_suffix, hosts, authentication, session_age_max, browser_origins, ..
    } = &config.gateway;
    let domain = config.trust_domain.clone();
    let authenticator = authentication::authenticator(domain, authentication, roots, scope)?;
    let exchanges = exchanges::ExchangeTable::new(
        directory.clone(),
        policy.clone(),
        delegation.clone(),
        authenticator.clone(),
        *session_age_max,
    );
    Ok(AccessControl {
        authenticator,
        names: GatewayNames::new(host_suffix.as_deref(), hosts),
        policy: policy.clone(),
        delegation,
        impersonation_rules: ImpersonationRules::new(std::mem::take(&mut config.clusters)),
        exchanges,
        browser_origins: browser_origins.clone(),
        cluster_sets: reload::cluster_sets(config, scope),
    })
}

/// The trust bundle for agents, now and after each change of its file.
fn follow_bundle(config: &Config, scope: &Scope) -> watch::Receiver<Arc<[u8]>> {
    let (given, taken) = watch::channel(Arc::from(config.trust_bundle.as_slice()));
    if let Some(path) = config.trust_bundle_file.clone() {
        let (domain, contents) = (config.trust_domain.clone(), config.trust_bundle.clone());
        scope.spawn_background(reload::follow_bundle(path, domain, contents, given));
    }
    taken
}

/// The server's certificate and the roots of agents, both taken up again whenever their files change.
fn server_material(config: &Config, roots: &RootsFollower, scope: &Scope) -> Result<ServerMaterial, Failure> {
    let (file, files) = (ReloadedFile::ServerCertificate, config.certificate.clone());
    let certificate = certificates::follow(file, "server", files, scope)?;
    Ok(ServerMaterial { certificate, client_roots: roots.agents(&config.tunnel.agent_roots)? })
}

/// The QUIC endpoint for agents, bound.
fn endpoint(
    config: &Config,
    material: &ServerMaterial,
    (keys, number): (&EndpointKeys, ServerNumber),
    spawn: &Arc<dyn transport::Spawn>,
) -> Result<Endpoint, Failure> {
    let endpoint =
        Endpoint::serve_shared(config.tunnel.listen, material.clone(), keys, number, Arc::clone(spawn));
    Ok(endpoint.map_err(not_bound)?.with_silence_max(config.tunnel.outage_limit))
}

fn not_bound(error: EndpointError) -> Failure {
    match error {
        EndpointError::Bind { address, source } => BindError::new("tunnel.listen", address, source).into(),
        error @ EndpointError::Tls(_) => Failure::misconfigured(error),
    }
}

/// Spawns carriers' drivers as background tasks. A drain does not wait for them, because they only serve
/// other work.
struct BackgroundSpawner(Scope);

impl transport::Spawn for BackgroundSpawner {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn_background(driver);
    }
}
