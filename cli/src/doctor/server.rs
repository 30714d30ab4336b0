//! Checks what a tunnel-server needs on its machine: files, ports, the admin API and readiness.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use daemon::Scope;
use proto::admin::{GetServerInfoResponse, SOCKET_DEFAULT};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::certificate;
use super::check::Check;
use super::configuration::{self, RawServerConfig};
use super::enrollment_signer;
use super::host_cluster;
use super::report::Report;
use crate::admin::{Admin, AdminError};
use crate::args::{AdminEndpoint, DoctorServer};
use crate::policies;
use crate::tls::ClientIdentity;

/// The default address of the gateway and of the tunnel listener.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);

/// The default address of the probes.
const PROBES_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// The default directory of the server's state.
const STATE_DEFAULT: &str = "/var/lib/tombolo/server";

/// Longest wait for the readiness probe.
const READYZ_MAX: Duration = Duration::from_secs(5);

/// Longest response of the readiness probe that is read.
const READYZ_BYTES_MAX: u64 = 16 * 1024;

pub(super) async fn check_all(args: &DoctorServer, scope: &Scope, report: &mut Report) {
    let Some((config, base)) = configuration::read::<RawServerConfig>(report, &args.config, "ServerConfig")
    else {
        return;
    };
    let agent_roots = files(&config, base, report);
    if let Some(raw) = &config.enrollment {
        enrollment_signer::check(&config, raw, base, agent_roots, report);
    }
    host_cluster::check_all(&config, base, scope, report).await;
    let running = admin(&config, base, scope, report).await;
    let gateway = config.gateway.listen.unwrap_or(LISTEN_DEFAULT);
    let tunnel = config.tunnel.listen.unwrap_or(LISTEN_DEFAULT);
    let probes = config.probes.listen.unwrap_or(PROBES_DEFAULT);
    let bound = running.as_ref().and_then(|info| info.addresses.clone()).unwrap_or_default();
    let is_off = config.admin.enabled == Some(false);
    let owner = |bound: &str, address: SocketAddr| match (&running, is_off) {
        (Some(_), _) if bound == address.to_string() => PortOwner::ThisServer,
        (None, true) => PortOwner::Unknown,
        (Some(_) | None, _) => PortOwner::Nobody,
    };
    let tcp = |address: SocketAddr| ("TCP", address, TcpListener::bind(address).err());
    port(report, Check::GatewayPort, "gateway.listen", tcp(gateway), owner(&bound.gateway, gateway));
    let udp = ("UDP", tunnel, UdpSocket::bind(tunnel).err());
    port(report, Check::TunnelPort, "tunnel.listen", udp, owner(&bound.tunnel, tunnel));
    if tunnel != gateway {
        // Agents come by TCP to the same port.
        port(report, Check::TunnelPort, "tunnel.listen", tcp(tunnel), owner(&bound.tunnel, tunnel));
    }
    port(report, Check::ProbesPort, "probes.listen", tcp(probes), owner(&bound.probes, probes));
    if let Some(listen) = config.enrollment.as_ref().and_then(|enrollment| enrollment.listen) {
        // A running server does not say where this listener is.
        let owner = if running.is_some() || is_off { PortOwner::Unknown } else { PortOwner::Nobody };
        port(report, Check::EnrollmentPort, "enrollment.listen", tcp(listen), owner);
    }
    if running.is_some() || is_off {
        readyz(report, probes).await;
    }
}

/// The process that is expected to have a port.
#[derive(Clone, Copy)]
enum PortOwner {
    ThisServer,
    Nobody,
    /// The server runs and does not name this port, or its admin API is off.
    Unknown,
}

/// Checks the files that the configuration names. Returns the roots of agents' certificates, if they can be read.
fn files(config: &RawServerConfig, base: &Path, report: &mut Report) -> Option<Vec<CertificateDer<'static>>> {
    let now = SystemTime::now();
    let tls = &config.tls;
    let path = base.join(&tls.certificate_file);
    if let Some(identity) = certificate::identity(report, &path, &base.join(&tls.key_file), now) {
        check_name(config, &path, &identity, report);
    }
    let agent_roots =
        certificate::roots(report, Check::AgentCa, &base.join(&config.tunnel.agent_ca_file), now);
    let authentication = &config.gateway.authentication;
    if let Some(callers) = &authentication.client_certificate {
        certificate::roots(report, Check::CallerCa, &base.join(&callers.ca_file), now);
    }
    if let Some(tcp) = &config.admin.tcp {
        certificate::roots(report, Check::AdminCa, &base.join(&tcp.admin_ca_file), now);
    }
    if let Some(tokens) = &authentication.token_file {
        certificate::private_file(report, Check::TokenFile, &base.join(&tokens.path));
    }
    policy(report, &base.join(&config.policy.file));
    let state = config.state_dir.as_ref().map_or_else(|| STATE_DEFAULT.into(), |state| base.join(state));
    folder(report, &state);
    agent_roots
}

/// Checks that the certificate is a server's, because agents accept no other one.
fn check_name(config: &RawServerConfig, path: &Path, identity: &ClientIdentity, report: &mut Report) {
    const CHECK: Check = Check::Identity;
    let domain = config.trust_domain();
    let Some(leaf) = identity.chain.first() else { return };
    match trust::peer::server(leaf, domain) {
        Ok(id) => report.ok(CHECK, format!("the certificate is of server {id}")),
        Err(error) => {
            let advice = "have one issued (tombolo ca issue server), or correct `trustDomain`: agents accept no other one";
            let found = format!("{} is no certificate of a server of {domain} ({error})", path.display());
            report.fail(CHECK, found, advice);
        }
    }
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

fn folder(report: &mut Report, path: &Path) {
    const CHECK: Check = Check::StateDir;
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => {
            report.fail(CHECK, format!("{shown} is not a directory"), "name another one as stateDir");
        }
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            report.fail(CHECK, format!("others may enter {shown}"), format!("run: chmod 700 {shown}"));
        }
        Ok(_) => report.ok(CHECK, format!("only its owner may enter {shown}")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            report.ok(CHECK, format!("{shown} does not exist yet; the server creates it"));
        }
        Err(error) => {
            report.fail(CHECK, format!("{shown}: {error}"), "run this as root or as the server's user")
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
    let socket = base.join(config.admin.socket.clone().unwrap_or_else(|| PathBuf::from(SOCKET_DEFAULT)));
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
        Err(error @ (AdminError::NoSocket(_) | AdminError::NotListening(_))) => {
            let advice = "start it: tunnel-server --config FILE";
            report.warn(CHECK, format!("no server runs here ({error})"), advice);
            None
        }
        Err(error) => {
            report.fail_by(CHECK, &error);
            None
        }
    }
}

fn port(
    report: &mut Report,
    check: Check,
    key: &str,
    (protocol, address, refused): (&str, SocketAddr, Option<std::io::Error>),
    owner: PortOwner,
) {
    let shown = format!("{protocol} {address}");
    match (refused, owner) {
        (Some(error), PortOwner::ThisServer) if error.kind() == ErrorKind::AddrInUse => {
            report.ok(check, format!("{shown} is the running server's"));
        }
        (None, PortOwner::ThisServer) => {
            let advice = "the server runs with other settings than this file; restart it";
            report.fail(
                check,
                format!("{shown} is free, although the server says that it listens there"),
                advice,
            );
        }
        (None, PortOwner::Nobody | PortOwner::Unknown) => report.ok(check, format!("{shown} is free")),
        (Some(error), PortOwner::Unknown) if error.kind() == ErrorKind::AddrInUse => {
            report.ok(check, format!("{shown} is in use, maybe by the running server"));
        }
        (Some(error), _) if error.kind() == ErrorKind::AddrInUse => {
            let advice = format!("stop the process that has it (ss -lpn), or set {key} to another port");
            report.fail(check, format!("{shown} is in use by another process"), advice);
        }
        (Some(error), _) if error.kind() == ErrorKind::PermissionDenied => {
            let advice = "run this as the server's user; a port below 1024 needs CAP_NET_BIND_SERVICE";
            report.warn(check, format!("{shown} may not be bound by you"), advice);
        }
        (Some(error), _) => {
            report.fail(
                check,
                format!("{shown} cannot be bound ({error})"),
                "name an address of this machine",
            );
        }
    }
}

async fn readyz(report: &mut Report, probes: SocketAddr) {
    const CHECK: Check = Check::Readiness;
    let reached = match probes.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, probes.port())),
        IpAddr::V4(_) | IpAddr::V6(_) => probes,
    };
    let request = async {
        let mut stream = TcpStream::connect(reached).await?;
        stream.write_all(format!("GET /readyz HTTP/1.0\r\nHost: {reached}\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.take(READYZ_BYTES_MAX).read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match timeout(READYZ_MAX, request).await {
        Ok(Ok(answer)) if answer.split(' ').nth(1) == Some("200") => report.ok(CHECK, "the server is ready"),
        Ok(Ok(answer)) => {
            let missing: Vec<&str> = answer.lines().filter(|line| line.starts_with("[-]")).collect();
            report.fail(CHECK, format!("the server is not ready: {}", missing.join(", ")), "see its log");
        }
        Ok(Err(error)) => {
            report.fail(CHECK, format!("no answer at {reached} ({error})"), "see the server's log");
        }
        Err(_) => report.fail(CHECK, format!("no answer at {reached} in time"), "see the server's log"),
    }
}
