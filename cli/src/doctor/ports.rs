//! Checks the ports of a server's listeners: each is free, or the running server's.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use proto::admin::GetServerInfoResponse;

use super::check::Check;
use super::configuration::{RawListener, RawServerConfig};
use super::report::Report;

/// The default address of the gateway and of the tunnel listener.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);

/// The default address of the probes.
const PROBES_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// The process that is expected to have a port.
#[derive(Clone, Copy)]
enum PortOwner {
    ThisServer,
    Nobody,
    /// The server runs and does not name this port, or its admin API is off.
    Unknown,
}

/// Checks the port of each listener of the configuration. Returns the address of the probes.
pub(super) fn check_all(
    config: &RawServerConfig,
    running: Option<&GetServerInfoResponse>,
    report: &mut Report,
) -> SocketAddr {
    let gateway = config.gateway.listen.unwrap_or(LISTEN_DEFAULT);
    let tunnel = config.tunnel.listen.unwrap_or(LISTEN_DEFAULT);
    let probes = config.probes.listen.unwrap_or(PROBES_DEFAULT);
    let bound = running.and_then(|info| info.addresses.clone()).unwrap_or_default();
    let is_off = config.admin.enabled == Some(false);
    let owner = |bound: &str, address: SocketAddr| match (running, is_off) {
        (Some(_), _) if bound == address.to_string() => PortOwner::ThisServer,
        (None, true) => PortOwner::Unknown,
        (Some(_) | None, _) => PortOwner::Nobody,
    };
    port(report, Check::GatewayPort, "gateway.listen", tcp(gateway), owner(&bound.gateway, gateway));
    let udp = ("UDP", tunnel, UdpSocket::bind(tunnel).err());
    port(report, Check::TunnelPort, "tunnel.listen", udp, owner(&bound.tunnel, tunnel));
    if tunnel != gateway {
        // Agents come by TCP to the same port.
        port(report, Check::TunnelPort, "tunnel.listen", tcp(tunnel), owner(&bound.tunnel, tunnel));
    }
    port(report, Check::ProbesPort, "probes.listen", tcp(probes), owner(&bound.probes, probes));
    // A running server does not say where these listeners are.
    let owner = if running.is_some() || is_off { PortOwner::Unknown } else { PortOwner::Nobody };
    for (check, key, listen) in further(config) {
        if let Some(listen) = listen {
            port(report, check, key, tcp(listen), owner);
        }
    }
    probes
}

/// The listeners that a server has only if they are configured, with their keys. All are TCP.
fn further(config: &RawServerConfig) -> Vec<(Check, &'static str, Option<SocketAddr>)> {
    let of = |listener: &Option<RawListener>| listener.as_ref().and_then(|listener| listener.listen);
    let RawServerConfig { enrollment, proxy, socks, passthrough, egress, admin, .. } = config;
    let mut listeners = vec![
        (Check::EnrollmentPort, "enrollment.listen", enrollment.as_ref().and_then(|found| found.listen)),
        (Check::ProxyPort, "proxy.listen", proxy.as_ref().and_then(|found| found.listen)),
        (Check::SocksPort, "socks.listen", of(socks)),
        (Check::PassthroughPort, "passthrough.listen", of(passthrough)),
        (Check::AdminPort, "admin.tcp.listen", admin.tcp.as_ref().and_then(|found| found.listen)),
    ];
    listeners.extend(egress.iter().map(|entry| (Check::EgressPort, "egress[].tcp.listen", of(&entry.tcp))));
    listeners
}

/// Tries to bind an address by TCP.
fn tcp(address: SocketAddr) -> (&'static str, SocketAddr, Option<std::io::Error>) {
    ("TCP", address, TcpListener::bind(address).err())
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Another process has all of these ports.
    #[test]
    fn each_configured_listener_has_a_line_with_its_key() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let listen = format!("listen: \"{address}\"");
        let text = format!(
            "kind: ServerConfig\nproxy: {{ {listen} }}\nsocks: {{ {listen} }}\npassthrough: {{ {listen} }}\n\
             enrollment: {{ {listen} }}\nadmin: {{ tcp: {{ {listen} }} }}\n\
             egress: [{{ name: a, tcp: {{ {listen} }} }}, {{ name: b, uds: {{ path: a.sock }} }}]\n\
             gateway: {{ listen: \"127.0.0.1:0\" }}\ntunnel: {{ listen: \"127.0.0.1:0\" }}\n\
             probes: {{ listen: \"127.0.0.1:0\" }}\n"
        );
        let config = daemon::config::parse_without_head(&text, Path::new("server.yaml")).unwrap();
        let mut report = Report::default();

        check_all(&config, None, &mut report);

        let lines = report.lines();
        for (check, key) in [
            (Check::ProxyPort, "proxy.listen"),
            (Check::SocksPort, "socks.listen"),
            (Check::PassthroughPort, "passthrough.listen"),
            (Check::EnrollmentPort, "enrollment.listen"),
            (Check::AdminPort, "admin.tcp.listen"),
            (Check::EgressPort, "egress[].tcp.listen"),
        ] {
            let words = [check.as_str(), key, "in use by another process"];
            let of_check = lines.iter().filter(|line| words.iter().all(|word| line.contains(word)));
            assert_eq!(of_check.count(), 1, "{key}: {lines:#?}");
        }
    }
}
