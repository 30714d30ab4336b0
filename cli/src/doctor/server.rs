//! Checks what a tunnel-server needs on its machine: files, the admin API and readiness.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use daemon::Scope;
use proto::admin::{GetServerInfoResponse, SOCKET_DEFAULT};
use rustls_pki_types::CertificateDer;

use super::certificate;
use super::check::Check;
use super::configuration::{self, RawPeering, RawServerConfig};
use super::enrollment_signer;
use super::etcd;
use super::host_cluster;
use super::local;
use super::peers;
use super::ports;
use super::report::Report;
use crate::admin::{Admin, AdminError};
use crate::args::{AdminEndpoint, DoctorServer};
use crate::policies;
use crate::tls::ClientIdentity;

/// The default directory of the server's state.
const STATE_DEFAULT: &str = "/var/lib/tombolo/server";

pub(super) async fn check_all(args: &DoctorServer, scope: &Scope, report: &mut Report) {
    let id = args.server_id.as_deref();
    let read = configuration::read::<RawServerConfig>(report, &args.config, "ServerConfig", id);
    let Some((mut config, base)) = read else { return };
    config.server_id = id.map(str::to_owned).or(config.server_id);
    let agent_roots = files(&config, base, report);
    if let Some(raw) = &config.enrollment {
        enrollment_signer::check(&config, raw, base, agent_roots, report);
    }
    if let Some(raw) = &config.directory.etcd {
        etcd::check_all(raw, base, scope, report).await;
    }
    host_cluster::check_all(&config, base, scope, report).await;
    let running = admin(&config, base, scope, report).await;
    let is_off = config.admin.enabled == Some(false);
    let probes = ports::check_all(&config, running.as_ref(), report);
    if running.is_some() && config.directory.etcd.is_some() {
        peers::check_all(admin_socket(&config, base), scope, report).await;
    }
    if running.is_some() || is_off {
        local::readiness(report, probes, "the server").await;
    }
}

/// Checks the files that the configuration names. Returns the roots of agents' certificates, if they can be read.
fn files(config: &RawServerConfig, base: &Path, report: &mut Report) -> Option<Vec<CertificateDer<'static>>> {
    let now = SystemTime::now();
    let tls = &config.tls;
    let path = base.join(&tls.certificate_file);
    let identity = certificate::identity(report, &path, &base.join(&tls.key_file), now);
    let id = identity.and_then(|identity| check_name(config, &path, &identity, report));
    let agent_roots =
        certificate::roots(report, Check::AgentCa, &base.join(&config.tunnel.agent_ca_file), now);
    let authentication = &config.gateway.authentication;
    if let Some(callers) = &authentication.client_certificate {
        certificate::roots(report, Check::CallerCa, &base.join(&callers.ca_file), now);
    }
    if let Some(tcp) = &config.admin.tcp {
        certificate::roots(report, Check::AdminCa, &base.join(&tcp.admin_ca_file), now);
    }
    if let Some(proxy) = &config.proxy {
        let (certificate, key) = (base.join(&proxy.certificate_file), base.join(&proxy.key_file));
        certificate::identity(report, &certificate, &key, now);
    }
    if let Some(peering) = &config.peering {
        check_peering(config, peering, base, config.server_id.clone().or(id), report);
    }
    if let Some(tokens) = &authentication.token_file {
        certificate::private_file(report, Check::TokenFile, &base.join(&tokens.path));
    }
    policy(report, &base.join(&config.policy.file));
    let state = config.state_dir.as_ref().map_or_else(|| STATE_DEFAULT.into(), |state| base.join(state));
    local::folder(report, Check::StateDir, &state, "stateDir", "the server");
    agent_roots
}

/// Checks that the certificate is a server's, because agents accept no other one. Returns the server's id.
fn check_name(
    config: &RawServerConfig,
    path: &Path,
    identity: &ClientIdentity,
    report: &mut Report,
) -> Option<String> {
    const CHECK: Check = Check::Identity;
    let domain = config.trust_domain();
    match trust::identity::server(identity.chain.first()?, domain) {
        Ok(id) => {
            report.ok(CHECK, format!("the certificate is of server {id}"));
            Some(id.to_string())
        }
        Err(error) => {
            let advice = "have one issued (tombolo ca issue server), or correct `trustDomain`: agents accept no other one";
            let found = format!("{} is no certificate of a server of {domain} ({error})", path.display());
            report.fail(CHECK, found, advice);
            None
        }
    }
}

/// Checks the files of `peering`. The certificate must name this server, whose id is `own`, and have the role peer.
fn check_peering(
    config: &RawServerConfig,
    peering: &RawPeering,
    base: &Path,
    own: Option<String>,
    report: &mut Report,
) {
    const CHECK: Check = Check::Identity;
    let (now, domain) = (SystemTime::now(), config.trust_domain());
    certificate::roots(report, Check::PeerCa, &base.join(&peering.peer_ca_file), now);
    let path = base.join(&peering.certificate_file);
    let identity = certificate::identity(report, &path, &base.join(&peering.key_file), now);
    let Some(leaf) = identity.as_ref().and_then(|identity| identity.chain.first()) else { return };
    let found = match trust::identity::peer(leaf, domain) {
        Ok(id) if own.as_ref().is_none_or(|own| own == id.as_str()) => {
            report.ok(CHECK, format!("the certificate of `peering` is of server {id}"));
            return;
        }
        Ok(id) => format!("{} names the server {id}", path.display()),
        Err(error) => format!("{} is no certificate of a peer of {domain} ({error})", path.display()),
    };
    let own = own.unwrap_or_else(|| "SERVER-ID".to_owned());
    report.fail(CHECK, found, format!("have one issued for this server: tombolo ca issue peer --id {own}"));
}

fn policy(report: &mut Report, path: &Path) {
    const CHECK: Check = Check::PolicyFile;
    match policies::read(path) {
        Ok(rules) => report.ok(CHECK, format!("{} has {} rules", path.display(), rules.count())),
        Err(error) => {
            let advice = "correct it, and check it again with `tombolo policy check`";
            report.fail(CHECK, daemon::error_chain(&error).to_string(), advice);
        }
    }
}

async fn admin(
    config: &RawServerConfig,
    base: &Path,
    scope: &Scope,
    report: &mut Report,
) -> Option<GetServerInfoResponse> {
    const CHECK: Check = Check::AdminApi;
    if config.admin.enabled == Some(false) {
        let advice = "set admin.enabled to true for `tombolo cluster list` and for more checks";
        report.warn(CHECK, "is switched off", advice);
        return None;
    }
    let socket = admin_socket(config, base);
    if let Some(parent) = socket.parent() {
        local::folder(report, Check::AdminSocket, parent, "the folder of admin.socket", "the server");
    }
    let request = async {
        let mut admin = Admin::connect(AdminEndpoint::Socket(socket), scope).await?;
        admin.server_info().await
    };
    match request.await {
        Ok(info) => {
            let counts = info.counts.unwrap_or_default();
            let found = format!(
                "{} {} answers: {} of {} clusters connected, {} tunnels{}",
                info.software,
                info.server_id,
                counts.clusters_connected,
                counts.clusters,
                counts.tunnels,
                if info.draining { ", stopping" } else { "" }
            );
            report.ok(CHECK, found);
            Some(info)
        }
        Err(AdminError::NoSocket(path)) => {
            not_running(report, &format!("there is no socket {}", path.display()))
        }
        Err(AdminError::NotListening(path)) => {
            not_running(report, &format!("nobody answers at {}", path.display()))
        }
        Err(error) => {
            report.fail_by(CHECK, &error);
            None
        }
    }
}

/// The path of the admin socket.
fn admin_socket(config: &RawServerConfig, base: &Path) -> PathBuf {
    base.join(config.admin.socket.clone().unwrap_or_else(|| PathBuf::from(SOCKET_DEFAULT)))
}

/// The server may be stopped while it is checked. The message has none of the advice that the error has for other commands.
fn not_running(report: &mut Report, found: &str) -> Option<GetServerInfoResponse> {
    let advice = "start it: tunnel-server --config FILE";
    report.warn(Check::AdminApi, format!("no server runs here ({found})"), advice);
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use rcgen::KeyPair;
    use trust::{Order, ProvenKey, Root, Subject};

    use super::*;
    use crate::pem;

    #[test]
    fn a_certificate_for_peers_must_have_the_role_and_name_this_server() {
        let directory = tempfile::tempdir().unwrap();
        let id = |text: &str| text.parse::<trust::names::Label>().unwrap();
        let names = vec!["west.example".parse().unwrap()];
        for (subject, own, word) in [
            (Subject::Peer { id: id("west") }, Some("west"), "is of server west"),
            (Subject::Peer { id: id("west") }, None, "is of server west"),
            (Subject::Peer { id: id("east") }, Some("west"), "names the server east"),
            (Subject::Server { id: id("west"), names }, Some("west"), "is no certificate of a peer"),
        ] {
            let now = SystemTime::now();
            let root = Root::generate(subject.role(), "tombolo".parse().unwrap(), now).unwrap();
            let pair = KeyPair::generate().unwrap();
            let key = ProvenKey::of_pair(&pair).unwrap();
            let order = Order { subject, key, now, lasting: Duration::from_secs(30 * 24 * 60 * 60) };
            let leaf = root.intermediate(now).unwrap().sign(&order).unwrap().chain.remove(0);
            let write = |name: &str, text: String| fs::write(directory.path().join(name), text).unwrap();
            write("peer.crt", pem::encode_certificate(&leaf));
            write("peer.key", pair.serialize_pem());
            write("peer-ca.crt", pem::encode_certificate(root.certificate()));
            let text = "peering: { certificateFile: peer.crt, keyFile: peer.key, peerCAFile: peer-ca.crt }";
            let config: RawServerConfig =
                daemon::config::parse_without_head(text, Path::new("server.yaml")).unwrap();
            let mut report = Report::default();

            let peering = config.peering.as_ref().unwrap();
            check_peering(&config, peering, directory.path(), own.map(str::to_owned), &mut report);

            let lines = report.lines().join("\n");
            assert!(lines.contains(word), "{lines}");
            let is_good = word.starts_with("is of");
            assert_eq!(lines.contains("tombolo ca issue peer --id west"), !is_good, "{lines}");
        }
    }
}
