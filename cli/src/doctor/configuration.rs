//! The daemons' configuration files, as far as a check wants to know. The daemons themselves refuse what is unknown here.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use daemon::config::{self, parse_headless};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::report::Report;
use crate::files;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServerConfig {
    #[serde(default)]
    pub(super) tls: Tls,
    #[serde(default)]
    pub(super) gateway: Gateway,
    #[serde(default)]
    pub(super) tunnel: Tunnel,
    #[serde(default)]
    pub(super) policy: Policy,
    #[serde(default)]
    pub(super) vip: Vip,
    #[serde(default)]
    pub(super) admin: AdminKeys,
    #[serde(default)]
    pub(super) probes: Probes,
    pub(super) state_dir: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentConfig {
    #[serde(default)]
    pub(super) cluster: String,
    #[serde(default)]
    pub(super) servers: Vec<String>,
    pub(super) server_name: Option<String>,
    #[serde(default)]
    pub(super) server_ids: Vec<String>,
    pub(super) trust_domain: Option<String>,
    #[serde(default)]
    pub(super) tls: Tls,
    pub(super) enrollment: Option<Enrollment>,
    #[serde(default)]
    pub(super) api_server: ApiServer,
    #[serde(default)]
    pub(super) impersonation: Impersonation,
    #[serde(default)]
    pub(super) advertise: Vec<String>,
    #[serde(default)]
    pub(super) targets: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Enrollment {
    pub(super) service_account_token_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Impersonation {
    pub(super) users: Option<Vec<String>>,
    pub(super) groups: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Tls {
    pub(super) certificate_file: PathBuf,
    pub(super) key_file: PathBuf,
    #[serde(rename = "serverCAFile")]
    pub(super) server_ca_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Gateway {
    pub(super) listen: Option<SocketAddr>,
    pub(super) authentication: Authentication,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Authentication {
    pub(super) client_certificate: Option<ClientCertificate>,
    pub(super) token_file: Option<TokenFile>,
    pub(super) oidc: Vec<Oidc>,
    pub(super) token_review: Option<HostCluster>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Oidc {
    pub(super) ca_file: PathBuf,
}

/// An API server that the server asks.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HostCluster {
    pub(super) server: String,
    pub(super) ca_file: PathBuf,
    pub(super) token_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClientCertificate {
    pub(super) ca_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TokenFile {
    pub(super) path: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Tunnel {
    pub(super) listen: Option<SocketAddr>,
    #[serde(rename = "agentCAFile")]
    pub(super) agent_ca_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Policy {
    pub(super) file: PathBuf,
    pub(super) delegation: Option<HostCluster>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Vip {
    pub(super) publish: Option<Publish>,
}

/// Where clusters' addresses become Services.
#[derive(Debug, Deserialize)]
pub(super) struct Publish {
    #[serde(flatten)]
    pub(super) host: HostCluster,
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AdminKeys {
    pub(super) enabled: Option<bool>,
    pub(super) socket: Option<PathBuf>,
    pub(super) tcp: Option<AdminTcp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AdminTcp {
    #[serde(rename = "adminCAFile")]
    pub(super) admin_ca_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Probes {
    pub(super) listen: Option<SocketAddr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ApiServer {
    pub(super) in_cluster: Option<InCluster>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InCluster {
    pub(super) directory: Option<PathBuf>,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
}

/// What every file begins with.
#[derive(Debug, Deserialize)]
struct Head {
    kind: String,
}

/// Reads a file of this kind, with the folder from which its paths start.
pub(super) fn read<'a, T: DeserializeOwned>(
    report: &mut Report,
    path: &'a Path,
    kind: &str,
) -> Option<(T, &'a Path)> {
    const CHECK: &str = "configuration";
    let text = match files::read(path) {
        Ok(text) => text,
        Err(error) => {
            report.fail_by(CHECK, &error);
            return None;
        }
    };
    let shown = path.display();
    let head: Result<Head, _> = parse_headless(&text, path);
    if let Ok(head) = &head
        && head.kind != kind
    {
        report.fail(
            CHECK,
            format!("{shown} is of kind {}", config::shown(&head.kind)),
            format!("name one of kind {kind} with --config"),
        );
        return None;
    }
    match head.and_then(|_| parse_headless(&text, path)) {
        Ok(config) => {
            report.ok(CHECK, format!("{shown} is of kind {kind}"));
            Some((config, path.parent().unwrap_or_else(|| Path::new(""))))
        }
        Err(error) => {
            report.fail(
                CHECK,
                format!("{shown} is not of kind {kind} ({error})"),
                "correct it; the daemon's --help shows one",
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_that_we_ship_are_read_as_they_are_meant() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples");
        let mut report = Report::default();

        let path = folder.join("server.yaml");
        let (server, base) = read::<ServerConfig>(&mut report, &path, "ServerConfig").unwrap();
        assert_eq!(base, folder);
        assert_eq!(server.tls.certificate_file, Path::new("pki/server.crt"));
        assert_eq!(server.tls.key_file, Path::new("pki/server.key"));
        assert_eq!(server.gateway.listen, server.tunnel.listen);
        assert_eq!(server.tunnel.agent_ca_file, Path::new("pki/agent-ca.crt"));
        let callers = server.gateway.authentication.client_certificate.unwrap();
        assert_eq!(callers.ca_file, Path::new("pki/caller-ca.crt"));
        assert_eq!(server.admin.socket.as_deref(), Some(Path::new(proto::admin::SOCKET_DEFAULT)));

        let path = folder.join("agent.yaml");
        let (agent, _) = read::<AgentConfig>(&mut report, &path, "AgentConfig").unwrap();
        assert_eq!((agent.cluster.as_str(), agent.servers.len()), ("edge-a", 1));
        assert_eq!(agent.tls.server_ca_file, Path::new("pki/server-ca.crt"));
        assert_eq!(agent.api_server.kubeconfig.as_deref(), Some(Path::new("/etc/tombolo/kubeconfig")));
        assert!(!report.is_failed());

        assert!(read::<AgentConfig>(&mut report, &folder.join("server.yaml"), "AgentConfig").is_none());
        assert!(report.lines().last().unwrap().contains("is of kind ServerConfig"));
    }
}
