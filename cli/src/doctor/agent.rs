//! Checks an agent's way to its servers and to its API server.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use daemon::Scope;
use proto::CloseCode;
use proto::spiffe::{AgentId, TRUST_DOMAIN_DEFAULT};
use proto::wire::{Hello, refused::Reason};
use rustls_pki_types::CertificateDer;
use transport::tls::{ExpectedServers, Material};
use transport::{DialError, DialTls, Endpoint, EndpointKeys, HANDSHAKE_MAX};
use x509_parser::extensions::GeneralName;

use super::access_review;
use super::certificate;
use super::configuration::{self, RawAgentConfig, RawInCluster};
use super::enrollment;
use super::https::{self, HttpsTarget};
use super::kubeconfig::{self, Destination};
use super::report::Report;
use crate::args::DoctorAgent;
use crate::pem;
use crate::tls::ClientIdentity;

/// The directory in which Kubernetes mounts a pod's credential.
const IN_CLUSTER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Spawns the carrier's drivers as background tasks, which end with the command.
struct BackgroundSpawner(Scope);

pub(super) async fn check_all(args: &DoctorAgent, scope: &Scope, report: &mut Report) {
    let Some((config, base)) = configuration::read::<RawAgentConfig>(report, &args.config, "AgentConfig")
    else {
        return;
    };
    match &config.enrollment {
        // The agent enrolls and renews its certificate by itself.
        Some(enrolling) => enrollment::check_all(&config, enrolling, base, report),
        None => check_issued(&config, base, scope, report).await,
    }
    check_api_server(&config, base, scope, report).await;
}

/// Checks a certificate that was issued by hand, and dials each server with it.
async fn check_issued(config: &RawAgentConfig, base: &Path, scope: &Scope, report: &mut Report) {
    let now = SystemTime::now();
    let tls = &config.tls;
    let identity =
        certificate::identity(report, &base.join(&tls.certificate_file), &base.join(&tls.key_file), now);
    let roots = certificate::roots(report, "servers' CA", &base.join(&tls.server_ca_file), now);
    if let (Some(identity), Some(roots)) = (identity, roots) {
        check_name(config, &identity, report);
        check_servers(config, identity, roots, scope, report).await;
    }
}

/// Checks that the certificate names an agent of the configured cluster.
fn check_name(config: &RawAgentConfig, identity: &ClientIdentity, report: &mut Report) {
    const CHECK: &str = "identity";
    let domain = config.trust_domain.as_deref().unwrap_or(TRUST_DOMAIN_DEFAULT);
    let advice = format!("have one issued: tombolo ca issue agent --cluster {}", config.cluster);
    match identity.chain.first().and_then(first_uri).map(|uri| (AgentId::parse(&uri, domain), uri)) {
        Some((Ok(agent), _)) if agent.cluster().as_str() == config.cluster => {
            report.ok(
                CHECK,
                format!("the certificate is of agent {} of cluster {}", agent.instance(), config.cluster),
            );
        }
        Some((Ok(agent), _)) => {
            let found = format!(
                "the certificate is for cluster {}, the file for {}",
                agent.cluster(),
                config.cluster
            );
            report.fail(CHECK, found, format!("correct `cluster`, or {advice}"));
        }
        Some((Err(error), uri)) => {
            let found = format!("{uri} in the certificate is no agent of trust domain {domain} ({error})");
            report.fail(CHECK, found, format!("correct `trustDomain`, or {advice}"));
        }
        None => report.fail(CHECK, "the certificate names no agent", advice),
    }
}

fn first_uri(leaf: &CertificateDer<'static>) -> Option<String> {
    let leaf = pem::parse_x509(leaf)?;
    let names = leaf.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::DNSName(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::IPAddress(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => None,
    })
}

async fn check_servers(
    config: &RawAgentConfig,
    identity: ClientIdentity,
    roots: Vec<CertificateDer<'static>>,
    scope: &Scope,
    report: &mut Report,
) {
    if config.servers.is_empty() {
        report.fail("servers", "none is named", "name at least one host:port in `servers`");
        return;
    }
    let ClientIdentity { chain, key } = identity;
    let domain = config.trust_domain.as_deref().unwrap_or(TRUST_DOMAIN_DEFAULT);
    let expected = ExpectedServers { trust_domain: domain.to_owned(), ids: config.server_ids.clone() };
    let tls = match DialTls::new(Material { chain, key, peer_roots: roots }, expected) {
        Ok(tls) => tls,
        Err(error) => {
            report.fail_by("QUIC", &error);
            return;
        }
    };
    for server in &config.servers {
        let split = server.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = split else {
            report.fail("servers", format!("{server:?} is no address"), "write host:port");
            continue;
        };
        let host = host.trim_matches(['[', ']']);
        let Some(addresses) = https::resolve(report, host, port).await else { continue };
        let name = config.server_name.as_deref().unwrap_or(host);
        if let Some(address) = addresses.first() {
            dial(*address, name, &tls, scope, report).await;
        }
    }
}

/// Dials as the agent does, and sends a Hello without a version. Every server refuses it before it reads the rest. Both sides have
/// then verified each other, no tunnel begins, and the tunnel of a running agent stays.
async fn dial(address: SocketAddr, name: &str, tls: &DialTls, scope: &Scope, report: &mut Report) {
    const CHECK: &str = "QUIC";
    let keys = match EndpointKeys::generate() {
        Ok(keys) => keys,
        Err(error) => {
            report.fail(CHECK, error.to_string(), "the system gives no random bytes");
            return;
        }
    };
    let endpoint = match Endpoint::dialing(address, &keys, Arc::new(BackgroundSpawner(scope.clone()))) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            report.fail_by(CHECK, &error);
            return;
        }
    };
    let hello = Hello {
        software: concat!("tombolo-doctor/", env!("CARGO_PKG_VERSION")).to_owned(),
        ..Hello::default()
    };
    let accepted = format!("{name} at UDP {address} answers, and accepts the agent's certificate");
    match endpoint.dial(address, name, tls, hello, HANDSHAKE_MAX).await {
        Err(DialError::Refused(refused)) if refused.reason() == Reason::Version => report.ok(CHECK, accepted),
        Ok(dialed) => {
            dialed.tunnel.close(CloseCode::Drained);
            report.ok(CHECK, accepted);
        }
        Err(error @ DialError::ServerUnavailable) => report.warn(CHECK, error.to_string(), "try again"),
        Err(error @ DialError::NoAnswer) => {
            report.fail(CHECK, format!("UDP {address}: {error}"), "firewalls often pass TCP only");
        }
        Err(error) => report.fail(
            CHECK,
            format!("{name} at UDP {address}: {}", daemon::error_chain(&error)),
            "see the server's log",
        ),
    }
    endpoint.close(CloseCode::Drained).await;
}

async fn check_api_server(config: &RawAgentConfig, base: &Path, scope: &Scope, report: &mut Report) {
    const WHOSE: &str = "the API server";
    let now = SystemTime::now();
    let destination = match &config.api_server.kubeconfig {
        Some(path) => {
            kubeconfig::check(report, &base.join(path), config.api_server.context.as_deref(), WHOSE, now)
        }
        None => in_cluster(config.api_server.in_cluster.as_ref(), base, WHOSE, report, now),
    };
    let Some(Destination { target, prefix }) = destination else { return };
    let Some(mut connection) = target.reach(report, scope).await else { return };
    access_review::check_all(config, &mut connection, &prefix, report).await;
}

fn in_cluster(
    raw: Option<&RawInCluster>,
    base: &Path,
    whose: &'static str,
    report: &mut Report,
    now: SystemTime,
) -> Option<Destination> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let host = raw.and_then(|raw| raw.host.clone()).or_else(|| variable("KUBERNETES_SERVICE_HOST"));
    let Some(host) = host else {
        let advice = "run this in the agent's pod, or name a kubeconfig in `apiServer`";
        report.fail("API server", "this is no pod: KUBERNETES_SERVICE_HOST is not set", advice);
        return None;
    };
    let port = raw.and_then(|raw| raw.port);
    let port = port.or_else(|| variable("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse().ok()));
    let directory = raw.and_then(|raw| raw.directory.as_ref());
    let directory = directory.map_or_else(|| PathBuf::from(IN_CLUSTER), |directory| base.join(directory));
    let roots = certificate::roots(report, "CA", &directory.join("ca.crt"), now)?;
    let token = kubeconfig::token(report, &directory.join("token"))?;
    let target = HttpsTarget {
        whose,
        host,
        port: port.unwrap_or(443),
        server_name: None,
        roots,
        identity: None,
        token: Some(token),
    };
    Some(Destination { target, prefix: String::new() })
}

impl transport::Spawn for BackgroundSpawner {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn_background(driver);
    }
}
