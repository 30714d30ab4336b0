//! What stands between an agent and its servers, and between it and its API server.

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
use transport::tls::{Material, MeantServers};
use transport::{DialError, DialTls, Endpoint, EndpointKeys, HANDSHAKE_MAX};
use x509_parser::extensions::GeneralName;

use super::certificate;
use super::configuration::{self, AgentConfig, InCluster};
use super::kubeconfig::{self, Destination};
use super::reach::{self, Target};
use super::report::Report;
use super::rights;
use super::workload;
use crate::args::DoctorAgent;
use crate::pem;
use crate::tls::Identity;

/// Where Kubernetes mounts a pod's credential.
const IN_CLUSTER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The carrier's drivers, until the doctor is done.
struct Attendants(Scope);

pub(super) async fn examine(order: &DoctorAgent, scope: &Scope, report: &mut Report) {
    let Some((config, base)) = configuration::read::<AgentConfig>(report, &order.config, "AgentConfig")
    else {
        return;
    };
    match &config.enrollment {
        // Its certificate is the agent's own affair.
        Some(at) => workload::examine(&config, at, base, report),
        None => issued(&config, base, scope, report).await,
    }
    api_server(&config, base, scope, report).await;
}

/// The certificate that somebody has issued, and who answers to it.
async fn issued(config: &AgentConfig, base: &Path, scope: &Scope, report: &mut Report) {
    let now = SystemTime::now();
    let tls = &config.tls;
    let identity =
        certificate::identity(report, &base.join(&tls.certificate_file), &base.join(&tls.key_file), now);
    let roots = certificate::roots(report, "servers' CA", &base.join(&tls.server_ca_file), now);
    if let (Some(identity), Some(roots)) = (identity, roots) {
        name(config, &identity, report);
        servers(config, identity, roots, scope, report).await;
    }
}

/// Whom the certificate names.
fn name(config: &AgentConfig, identity: &Identity, report: &mut Report) {
    const CHECK: &str = "identity";
    let domain = config.trust_domain.as_deref().unwrap_or(TRUST_DOMAIN_DEFAULT);
    let advice = format!("have one issued: tombolo ca issue agent --cluster {}", config.cluster);
    match identity.chain.first().and_then(uri).map(|uri| (AgentId::parse(&uri, domain), uri)) {
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

fn uri(leaf: &CertificateDer<'static>) -> Option<String> {
    let leaf = pem::parse(leaf)?;
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

async fn servers(
    config: &AgentConfig,
    identity: Identity,
    roots: Vec<CertificateDer<'static>>,
    scope: &Scope,
    report: &mut Report,
) {
    if config.servers.is_empty() {
        report.fail("servers", "none is named", "name at least one host:port in `servers`");
        return;
    }
    let Identity { chain, key } = identity;
    let domain = config.trust_domain.as_deref().unwrap_or(TRUST_DOMAIN_DEFAULT);
    let meant = MeantServers { trust_domain: domain.to_owned(), ids: config.server_ids.clone() };
    let tls = match DialTls::new(Material { chain, key, peer_roots: roots }, meant) {
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
        let Some(addresses) = reach::resolve(report, host, port).await else { continue };
        let name = config.server_name.as_deref().unwrap_or(host);
        if let Some(address) = addresses.first() {
            knock(*address, name, &tls, scope, report).await;
        }
    }
}

/// Dials as the agent does, up to a greeting that offers no version. Every server refuses that one before it looks at
/// anything else of it: the handshake is proven from both sides, no tunnel begins, and the running agent's stays.
async fn knock(address: SocketAddr, name: &str, tls: &DialTls, scope: &Scope, report: &mut Report) {
    const CHECK: &str = "QUIC";
    let keys = match EndpointKeys::generate() {
        Ok(keys) => keys,
        Err(error) => {
            report.fail(CHECK, error.to_string(), "the system gives no random bytes");
            return;
        }
    };
    let endpoint = match Endpoint::dialing(address, &keys, Arc::new(Attendants(scope.clone()))) {
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
        Err(error @ DialError::NotNow) => report.warn(CHECK, error.to_string(), "try again"),
        Err(error @ DialError::NoAnswer) => {
            report.fail(CHECK, format!("UDP {address}: {error}"), "firewalls often pass TCP only");
        }
        Err(error) => report.fail(
            CHECK,
            format!("{name} at UDP {address}: {}", daemon::chain(&error)),
            "see the server's log",
        ),
    }
    endpoint.close(CloseCode::Drained).await;
}

async fn api_server(config: &AgentConfig, base: &Path, scope: &Scope, report: &mut Report) {
    const WHOSE: &str = "the API server";
    let now = SystemTime::now();
    let destination = match &config.api_server.kubeconfig {
        Some(path) => {
            kubeconfig::read(report, &base.join(path), config.api_server.context.as_deref(), WHOSE, now)
        }
        None => in_cluster(config.api_server.in_cluster.as_ref(), base, WHOSE, report, now),
    };
    let Some(Destination { target, prefix }) = destination else { return };
    let Some(mut reached) = target.reach(report, scope).await else { return };
    rights::examine(config, &mut reached, &prefix, report).await;
}

fn in_cluster(
    written: Option<&InCluster>,
    base: &Path,
    whose: &'static str,
    report: &mut Report,
    now: SystemTime,
) -> Option<Destination> {
    let said = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let host = written.and_then(|written| written.host.clone()).or_else(|| said("KUBERNETES_SERVICE_HOST"));
    let Some(host) = host else {
        let advice = "run this in the agent's pod, or name a kubeconfig in `apiServer`";
        report.fail("API server", "no pod here: KUBERNETES_SERVICE_HOST is not set", advice);
        return None;
    };
    let port = written.and_then(|written| written.port);
    let port = port.or_else(|| said("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse().ok()));
    let directory = written.and_then(|written| written.directory.as_ref());
    let directory = directory.map_or_else(|| PathBuf::from(IN_CLUSTER), |directory| base.join(directory));
    let roots = certificate::roots(report, "CA", &directory.join("ca.crt"), now)?;
    let token = kubeconfig::token(report, &directory.join("token"))?;
    let target = Target {
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

impl transport::Spawn for Attendants {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.attend(driver);
    }
}
