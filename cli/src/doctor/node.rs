//! Checks what node-lb needs on its worker: files, the way to each API server, its list of them, and node-lb itself.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::SystemTime;

use api_servers::is_ready;
use api_servers::list::KUBERNETES_SLICES;
use api_servers::readiness::READYZ;
use daemon::Scope;
use daemon::config::host_and_port;
use http::{Method, StatusCode};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::certificate;
use super::check::Check;
use super::clock;
use super::configuration::{self, RawNodeLBConfig};
use super::https::HttpsTarget;
use super::local;
use super::report::Report;
use crate::args::DoctorNode;
use crate::https::HttpsConnection;
use crate::tls::ClientIdentity;

/// The default directory of node-lb's state.
const STATE_DEFAULT: &str = "/var/lib/tombolo/node-lb";

/// The default address of the probes.
const PROBES_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9092);

/// The default address for callers.
const LISTEN_DEFAULT: &str = "127.0.0.1:7443";

/// The name that API servers' certificates must bear by default, because callers come by it.
const SERVER_NAME_DEFAULT: &str = "127.0.0.1";

const WHOSE: &str = "the API server";

/// The credential with which API servers are asked, as node-lb has it.
struct WorkerCredential {
    server_name: String,
    roots: Vec<CertificateDer<'static>>,
    identity: Option<ClientIdentity>,
}

pub(super) async fn check_all(args: &DoctorNode, scope: &Scope, report: &mut Report) {
    let read = configuration::read::<RawNodeLBConfig>(report, &args.config, "NodeLBConfig", None);
    let Some((config, base)) = read else { return };
    let now = SystemTime::now();
    let roots = certificate::roots(report, Check::Ca, &base.join(&config.ca_file), now);
    let identity = kubelet_identity(&config, base, now, report);
    let state = config.state_dir.as_ref().map_or_else(|| STATE_DEFAULT.into(), |state| base.join(state));
    local::folder(report, Check::StateDir, &state, "stateDir", "node-lb");
    if let Some(roots) = roots {
        let server_name = config.server_name.clone().unwrap_or_else(|| SERVER_NAME_DEFAULT.to_owned());
        let credential = WorkerCredential { server_name, roots, identity };
        let first = credential.check_api_servers(&config.api_servers, scope, report).await;
        if let Some(connection) = first
            && credential.identity.is_some()
        {
            check_list(connection, report).await;
        }
        let listen = config.listen.first().map_or(LISTEN_DEFAULT, String::as_str);
        credential.check_load_balancer(listen, scope, report).await;
    }
    local::readiness(report, config.probes.listen.unwrap_or(PROBES_DEFAULT), "node-lb").await;
}

/// The client certificate of the kubelet. A new kubelet gets its first one through node-lb, so it may be absent.
fn kubelet_identity(
    config: &RawNodeLBConfig,
    base: &Path,
    now: SystemTime,
    report: &mut Report,
) -> Option<ClientIdentity> {
    const CHECK: Check = Check::Certificate;
    let advice = "set clientCertificateFile, such as /var/lib/kubelet/pki/kubelet-client-current.pem";
    let Some(named) = &config.client_certificate_file else {
        let found = "no client certificate is configured, so only apiServers of the file are tried";
        report.warn(CHECK, found, advice);
        return None;
    };
    let path = base.join(named);
    // kubelet keeps its certificate and its key in one file.
    let chain: Result<Vec<_>, _> = match CertificateDer::pem_file_iter(&path) {
        Ok(certificates) => certificates.collect(),
        Err(error) => Err(error),
    };
    let chain = match chain {
        Ok(chain) if !chain.is_empty() => chain,
        Err(rustls_pki_types::pem::Error::Io(error)) if error.kind() == ErrorKind::NotFound => {
            let found = format!("{} does not exist yet, so the cluster's list is not read", path.display());
            report.warn(CHECK, found, "kubelet writes it once the cluster has accepted this node");
            return None;
        }
        Ok(_) | Err(_) => {
            let advice = "name the file with kubelet's client certificate, and run this as root";
            report.fail(CHECK, format!("{} has no certificate that can be read", path.display()), advice);
            return None;
        }
    };
    certificate::dates(report, CHECK, &path.display().to_string(), &chain, now);
    let key = base.join(config.client_key_file.as_ref().unwrap_or(named));
    match PrivateKeyDer::from_pem_file(&key) {
        Ok(key) => Some(ClientIdentity { chain, key }),
        Err(_) => {
            let advice = "name the file with the key of the client certificate as clientKeyFile";
            report.fail(Check::Key, format!("{} has no key that can be read", key.display()), advice);
            None
        }
    }
}

impl WorkerCredential {
    /// Checks each API server of the configuration. Returns a connection to the first that answers.
    async fn check_api_servers(
        &self,
        api_servers: &[String],
        scope: &Scope,
        report: &mut Report,
    ) -> Option<HttpsConnection> {
        const CHECK: Check = Check::ApiServer;
        let mut first = None;
        for named in api_servers {
            let Some(mut connection) = self.reach(named, WHOSE, scope, report).await else { continue };
            match connection.send(Method::GET, READYZ, None).await {
                Ok(answer) => {
                    if StatusCode::from_u16(answer.status).is_ok_and(is_ready) {
                        report.ok(CHECK, format!("{named} is ready"));
                    } else {
                        let advice = "see its log; node-lb uses it only while no other one is ready";
                        report.warn(CHECK, format!("{named} says that it is not ready"), advice);
                    }
                    if first.is_none() {
                        clock::compare(report, WHOSE, answer.date, SystemTime::now());
                        first = Some(connection);
                    }
                }
                Err(error) => report.fail_by(CHECK, &error),
            }
        }
        first
    }

    /// Checks that node-lb relays to an API server, as kubelet asks for it.
    async fn check_load_balancer(&self, listen: &str, scope: &Scope, report: &mut Report) {
        const CHECK: Check = Check::LoadBalancer;
        let Some(mut connection) = self.reach(listen, "node-lb", scope, report).await else { return };
        match connection.send(Method::GET, READYZ, None).await {
            Ok(answer) => report.ok(CHECK, format!("an API server answers at {listen} ({})", answer.status)),
            Err(error) => report.fail_by(CHECK, &error),
        }
    }

    async fn reach(
        &self,
        named: &str,
        whose: &'static str,
        scope: &Scope,
        report: &mut Report,
    ) -> Option<HttpsConnection> {
        let (host, port) = match host_and_port("apiServers", named) {
            Ok(parts) => parts,
            Err(error) => {
                report.fail_by(Check::Configuration, &error);
                return None;
            }
        };
        let identity = self
            .identity
            .as_ref()
            .map(|identity| ClientIdentity { chain: identity.chain.clone(), key: identity.key.clone_key() });
        let (roots, server_name) = (self.roots.clone(), Some(self.server_name.clone()));
        let host = host.trim_matches(['[', ']']).to_owned();
        let target = HttpsTarget { whose, host, port, server_name, roots, identity, token: None };
        target.reach(report, scope).await
    }
}

/// Checks that kubelet's certificate may read the list of API servers.
async fn check_list(mut connection: HttpsConnection, report: &mut Report) {
    const CHECK: Check = Check::Rights;
    match connection.send(Method::GET, KUBERNETES_SLICES, None).await {
        Ok(answer) if answer.status == 200 => {
            report.ok(CHECK, "kubelet's certificate may read the cluster's list of API servers");
        }
        Ok(answer) => {
            let found = format!("the cluster's list of API servers cannot be read (HTTP {})", answer.status);
            report.fail(CHECK, found, "kubectl apply -f deploy/node-lb/rbac.yaml");
        }
        Err(error) => report.fail_by(CHECK, &error),
    }
}
