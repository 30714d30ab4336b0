//! Reads the keys of the daemons' configuration files that the checks need. The daemons themselves refuse unknown keys.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use daemon::config::{self, parse_without_head};
use proto::spiffe::TRUST_DOMAIN_DEFAULT;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::check::Check;
use super::report::Report;
use crate::files;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawServerConfig {
    #[serde(default)]
    pub(super) tls: RawTls,
    #[serde(default)]
    pub(super) gateway: RawGateway,
    #[serde(default)]
    pub(super) tunnel: RawTunnel,
    #[serde(default)]
    pub(super) policy: RawPolicy,
    #[serde(default)]
    pub(super) vip: RawVip,
    #[serde(default)]
    pub(super) admin: RawAdmin,
    #[serde(default)]
    pub(super) probes: RawProbes,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) server_id: Option<String>,
    pub(super) trust_domain: Option<String>,
    #[serde(default)]
    pub(super) trust: RawTrust,
    #[serde(default)]
    pub(super) directory: RawDirectory,
    pub(super) enrollment: Option<RawEnrollmentService>,
    pub(super) peering: Option<RawPeering>,
    pub(super) proxy: Option<RawProxyListener>,
    pub(super) socks: Option<RawListener>,
    pub(super) passthrough: Option<RawListener>,
    #[serde(default)]
    pub(super) egress: Vec<RawEgressEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawDirectory {
    pub(super) etcd: Option<RawEtcd>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawEtcd {
    #[serde(default)]
    pub(super) endpoints: Vec<String>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) certificate_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawAgentConfig {
    #[serde(default)]
    pub(super) cluster: String,
    #[serde(default)]
    pub(super) servers: Vec<String>,
    pub(super) server_name: Option<String>,
    #[serde(default)]
    pub(super) server_ids: Vec<String>,
    pub(super) trust_domain: Option<String>,
    pub(super) carrier: Option<String>,
    #[serde(default)]
    pub(super) proxy: RawProxy,
    pub(super) state_dir: Option<PathBuf>,
    #[serde(default)]
    pub(super) tls: RawTls,
    pub(super) enrollment: Option<RawEnrollment>,
    #[serde(default)]
    pub(super) api_server: RawApiServer,
    #[serde(default)]
    pub(super) impersonation: RawImpersonation,
    #[serde(default)]
    pub(super) advertise: Vec<String>,
    #[serde(default)]
    pub(super) targets: Vec<String>,
}

/// The configuration of a worker's load balancer.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawNodeLBConfig {
    pub(super) api_servers: Vec<String>,
    pub(super) ca_file: PathBuf,
    pub(super) client_certificate_file: Option<PathBuf>,
    pub(super) client_key_file: Option<PathBuf>,
    pub(super) server_name: Option<String>,
    pub(super) listen: Vec<String>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) probes: RawProbes,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawEnrollment {
    pub(super) server: String,
    pub(super) pin: String,
    pub(super) token_file: Option<PathBuf>,
    pub(super) service_account_token_file: Option<PathBuf>,
}

/// A proxy, whose URL may contain a password.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawProxy {
    pub(super) url: Option<String>,
    pub(super) no_proxy: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawImpersonation {
    pub(super) users: Option<Vec<String>>,
    pub(super) groups: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawTls {
    pub(super) certificate_file: PathBuf,
    pub(super) key_file: PathBuf,
    #[serde(rename = "serverCAFile")]
    pub(super) server_ca_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawGateway {
    pub(super) listen: Option<SocketAddr>,
    pub(super) authentication: RawAuthentication,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawAuthentication {
    pub(super) client_certificate: Option<RawClientCertificate>,
    pub(super) token_file: Option<RawTokenFile>,
    pub(super) oidc: Vec<RawOidc>,
    pub(super) token_review: Option<RawHostCluster>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawOidc {
    pub(super) ca_file: PathBuf,
}

/// An API server that the tunnel-server asks or writes to.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawHostCluster {
    pub(super) server: String,
    pub(super) ca_file: PathBuf,
    pub(super) token_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawClientCertificate {
    pub(super) ca_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawTokenFile {
    pub(super) path: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawTunnel {
    pub(super) listen: Option<SocketAddr>,
    #[serde(rename = "agentCAFile")]
    pub(super) agent_ca_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawPolicy {
    pub(super) file: PathBuf,
    pub(super) delegation: Option<RawHostCluster>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawVip {
    pub(super) publish: Option<RawPublish>,
}

/// The files by which agents verify servers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawTrust {
    pub(super) bundle_file: Option<PathBuf>,
}

/// The listener at which agents enroll, and the signer of their certificates.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawEnrollmentService {
    pub(super) listen: Option<SocketAddr>,
    pub(super) signer_file: PathBuf,
    pub(super) sealing_key_file: PathBuf,
}

/// The cluster in which clusters' virtual addresses are published as Services.
#[derive(Debug, Deserialize)]
pub(super) struct RawPublish {
    #[serde(flatten)]
    pub(super) host: RawHostCluster,
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawAdmin {
    pub(super) enabled: Option<bool>,
    pub(super) socket: Option<PathBuf>,
    pub(super) tcp: Option<RawAdminTcp>,
}

/// A listener of which only the address is checked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawListener {
    pub(super) listen: Option<SocketAddr>,
}

/// The listener for callers with a dial token, which has a certificate of its own.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawProxyListener {
    pub(super) listen: Option<SocketAddr>,
    pub(super) certificate_file: PathBuf,
    pub(super) key_file: PathBuf,
}

/// The listener for other servers, and the certificate that is shown to theirs.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawPeering {
    pub(super) certificate_file: PathBuf,
    pub(super) key_file: PathBuf,
    #[serde(rename = "peerCAFile")]
    pub(super) peer_ca_file: PathBuf,
}

/// A listener for an API server's egress: at a TCP port, or at a Unix socket.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawEgressEntry {
    pub(super) tcp: Option<RawListener>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawAdminTcp {
    pub(super) listen: Option<SocketAddr>,
    #[serde(rename = "adminCAFile")]
    pub(super) admin_ca_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawProbes {
    pub(super) listen: Option<SocketAddr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawApiServer {
    pub(super) in_cluster: Option<RawInCluster>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawInCluster {
    pub(super) directory: Option<PathBuf>,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
}

/// The key that tells the kind of a configuration file.
#[derive(Debug, Deserialize)]
struct Head {
    kind: String,
}

impl RawAgentConfig {
    /// The configured trust domain, or the default one.
    pub(super) fn trust_domain(&self) -> &str {
        self.trust_domain.as_deref().unwrap_or(TRUST_DOMAIN_DEFAULT)
    }
}

impl RawServerConfig {
    /// The configured trust domain, or the default one.
    pub(super) fn trust_domain(&self) -> &str {
        self.trust_domain.as_deref().unwrap_or(TRUST_DOMAIN_DEFAULT)
    }
}

/// The form of an address that [`split_address`] takes, for messages.
pub(super) const ADDRESS: &str = "host:port, an IPv6 address in brackets";

/// Splits `HOST:PORT`; an IPv6 address comes without its brackets. `None` if the text has another form.
pub(super) fn split_address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    (!host.is_empty()).then_some((host, port.parse().ok().filter(|port| *port > 0)?))
}

/// Reads a configuration of this kind, and returns it with the directory at which its relative paths start. `server_id` is a
/// server's ID that did not come from the file.
pub(super) fn read<'a, T: DeserializeOwned>(
    report: &mut Report,
    path: &'a Path,
    kind: &str,
    server_id: Option<&str>,
) -> Option<(T, &'a Path)> {
    const CHECK: Check = Check::Configuration;
    let text = match files::read(path) {
        Ok(text) => text,
        Err(error) => {
            let found = daemon::error_chain(&error).to_string();
            report.unusable(CHECK, found, "name the daemon's own file with --config");
            return None;
        }
    };
    let shown = path.display();
    let head: Result<Head, _> = parse_without_head(&text, path);
    if let Ok(head) = &head
        && head.kind != kind
    {
        report.unusable(
            CHECK,
            format!("{shown} is of kind {}", config::redact(&head.kind)),
            format!("name one of kind {kind} with --config"),
        );
        return None;
    }
    let text = head.and_then(|_| config::with_server_id(text, server_id, path));
    match text.and_then(|text| parse_without_head(&text, path)) {
        Ok(config) => {
            report.ok(CHECK, format!("{shown} is of kind {kind}"));
            Some((config, path.parent().unwrap_or_else(|| Path::new(""))))
        }
        Err(error) => {
            report.unusable(
                CHECK,
                format!("{shown} is not of kind {kind} ({error})"),
                "correct it; the daemon's --help shows an example",
            );
            None
        }
    }
}

impl std::fmt::Debug for RawProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawProxy").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_examples_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples");
        let mut report = Report::default();

        let path = folder.join("server.yaml");
        let (server, base) = read::<RawServerConfig>(&mut report, &path, "ServerConfig", None).unwrap();
        assert_eq!(base, folder);
        assert_eq!(server.tls.certificate_file, Path::new("pki/server.crt"));
        assert_eq!(server.tls.key_file, Path::new("pki/server.key"));
        assert_eq!(server.gateway.listen, server.tunnel.listen);
        assert_eq!(server.tunnel.agent_ca_file, Path::new("pki/agent-ca.crt"));
        let callers = server.gateway.authentication.client_certificate.unwrap();
        assert_eq!(callers.ca_file, Path::new("pki/caller-ca.crt"));
        assert_eq!(server.admin.socket.as_deref(), Some(Path::new(proto::admin::SOCKET_DEFAULT)));

        let path = folder.join("agent.yaml");
        let (agent, _) = read::<RawAgentConfig>(&mut report, &path, "AgentConfig", None).unwrap();
        assert_eq!((agent.cluster.as_str(), agent.servers.len()), ("edge-a", 1));
        assert_eq!(agent.tls.server_ca_file, Path::new("pki/server-ca.crt"));
        assert_eq!(agent.api_server.kubeconfig.as_deref(), Some(Path::new("kubeconfig")));
        assert_eq!(report.exit_code(), 0);

        assert!(
            read::<RawAgentConfig>(&mut report, &folder.join("server.yaml"), "AgentConfig", None).is_none()
        );
        assert!(report.lines().iter().any(|line| line.contains("is of kind ServerConfig")));
    }
}
