//! Validates the raw configuration. All defaults are here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};

use daemon::config::{
    CommonDefaults, KeyError, RawCommon, RawLayout, bounded, dns_label, host_and_port, socket_address,
};
use rustls_pki_types::ServerName;

use super::raw::{RawConfig, RawHostCluster, RawPods};
use super::{
    Config, Flags, HostCluster, LISTEN_DEFAULT, LISTENERS_MAX, POD_ADDRESS_DEFAULT, POD_NETWORKS_MAX,
    SEEDS_MAX, SERVER_NAME_DEFAULT, Seed, TlsFiles,
};
use crate::pods::PodAccess;

/// The defaults for keys of every daemon. One thread relays more than a worker's programs ask for.
pub(super) const COMMON_DEFAULTS: CommonDefaults = CommonDefaults {
    state_dir: "/var/lib/tombolo/node-lb",
    probes_listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9092),
    layout: RawLayout::PerCore,
    threads: Some(1),
};

/// The value of a missing key in an error.
const NOTHING: &str = "nothing";

pub(super) fn config(
    common: RawCommon,
    raw: RawConfig,
    flags: &Flags,
    directory: &Path,
) -> Result<Config, KeyError> {
    let RawConfig {
        api_servers,
        ca_file,
        client_certificate_file,
        client_key_file,
        server_name,
        listen,
        host_cluster,
        pods,
    } = raw;
    let common = common.resolve(&flags.shared, &COMMON_DEFAULTS, directory)?;
    Ok(Config {
        seeds: seeds(&flags.api_servers, api_servers)?,
        listens_as_configured: listen.is_some(),
        listen: self::listen(listen)?,
        host_cluster: host_cluster.map(|raw| self::host_cluster(raw, directory)).transpose()?,
        pods: pods.map(self::pods).transpose()?,
        tls: tls(ca_file, client_certificate_file, client_key_file, server_name, directory)?,
        state_dir: common.state_dir,
        probes_listen: common.probes_listen,
        drain_grace: common.drain_grace,
        logs: common.logs,
        layout: common.layout,
    })
}

fn seeds(flags: &[String], raw: Option<Vec<String>>) -> Result<Vec<Seed>, KeyError> {
    let named = if flags.is_empty() { raw.unwrap_or_default() } else { flags.to_vec() };
    if named.is_empty() || named.len() > SEEDS_MAX {
        let allowed = format!("1 to {SEEDS_MAX} of the form host:port");
        return Err(KeyError::new("apiServers", format!("a list of {}", named.len()), allowed));
    }
    named.iter().map(|seed| parse_seed(seed)).collect()
}

fn parse_seed(text: &str) -> Result<Seed, KeyError> {
    let refused = || KeyError::new("apiServers", text, "host:port, an IPv6 address in brackets");
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() > 0 { Ok(Seed::Address(address)) } else { Err(refused()) };
    }
    let (host, port) = host_and_port("apiServers", text).map_err(|_| refused())?;
    Ok(Seed::Name(host, port))
}

fn listen(raw: Option<Vec<String>>) -> Result<Vec<SocketAddr>, KeyError> {
    let raw = raw.unwrap_or_else(|| LISTEN_DEFAULT.map(str::to_owned).to_vec());
    bounded("listen", raw.len(), 1..=LISTENERS_MAX)?;
    let address = |text: &String| {
        let address = socket_address("listen", text)?;
        if address.ip().is_loopback() {
            return Ok(address);
        }
        let allowed =
            "an address of loopback: other hosts are not to use this worker's way to its API servers";
        Err(KeyError::new("listen", text, allowed))
    };
    raw.iter().map(address).collect()
}

fn host_cluster(raw: RawHostCluster, directory: &Path) -> Result<HostCluster, KeyError> {
    const API_SERVER: &str = "hostCluster.apiServer";
    let RawHostCluster { api_server, ca_file, token_file, namespace, service } = raw;
    let (host, port) = host_and_port(API_SERVER, &api_server.unwrap_or_default())?;
    let file = |key: &str, path: Option<PathBuf>| {
        let path = path.filter(|path| !path.as_os_str().is_empty());
        path.map(|path| directory.join(path)).ok_or_else(|| KeyError::new(key, NOTHING, "the path of a file"))
    };
    let tls = TlsFiles {
        ca: file("hostCluster.caFile", ca_file)?,
        certificate: None,
        key: None,
        server_name: server_name(API_SERVER, &host)?,
    };
    Ok(HostCluster {
        address: (host, port),
        tls,
        token: file("hostCluster.tokenFile", token_file)?,
        namespace: dns_label("hostCluster.namespace", namespace.unwrap_or_default())?,
        service: dns_label("hostCluster.service", service.unwrap_or_default())?,
    })
}

fn pods(raw: RawPods) -> Result<PodAccess, KeyError> {
    const ADDRESS: &str = "pods.address";
    const NETWORKS: &str = "pods.networks";
    let RawPods { address, networks, kubernetes_service } = raw;
    let address = address.unwrap_or_else(|| POD_ADDRESS_DEFAULT.to_owned());
    let link_local = ipv4_address(ADDRESS, &address)?;
    if !link_local.ip().is_link_local() {
        let allowed = "an address of 169.254.0.0/16, which no other host can reach by a router";
        return Err(KeyError::new(ADDRESS, &address, allowed));
    }
    let networks = networks.unwrap_or_default();
    bounded(NETWORKS, networks.len(), 1..=POD_NETWORKS_MAX)?;
    let parsed = networks.iter().map(|text| {
        text.parse().map_err(|_| KeyError::new(NETWORKS, text, "networks of pods, such as 10.244.0.0/16"))
    });
    Ok(PodAccess {
        address: link_local,
        networks: parsed.collect::<Result<_, _>>()?,
        service: kubernetes_service.map(|text| ipv4_address("pods.kubernetesService", &text)).transpose()?,
    })
}

/// An IPv4 address and a port that is not 0.
fn ipv4_address(key: &str, text: &str) -> Result<SocketAddrV4, KeyError> {
    let address = text.parse::<SocketAddrV4>().ok().filter(|address| address.port() > 0);
    address.ok_or_else(|| KeyError::new(key, text, "an IPv4 address and a port, such as 10.96.0.1:443"))
}

fn tls(
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
    directory: &Path,
) -> Result<TlsFiles, KeyError> {
    let ca = ca.filter(|path| !path.as_os_str().is_empty());
    let ca =
        ca.ok_or_else(|| KeyError::new("caFile", NOTHING, "the path of a PEM file with the cluster's CA"))?;
    if certificate.is_none() && key.is_some() {
        let allowed = "a key together with clientCertificateFile";
        return Err(KeyError::new("clientKeyFile", "a key without its certificate", allowed));
    }
    let name = server_name.unwrap_or_else(|| SERVER_NAME_DEFAULT.to_owned());
    let server_name = self::server_name("serverName", &name)?;
    let certificate = certificate.map(|path| directory.join(path));
    Ok(TlsFiles {
        ca: directory.join(ca),
        key: key.map(|path| directory.join(path)).or_else(|| certificate.clone()),
        certificate,
        server_name,
    })
}

fn server_name(key: &str, text: &str) -> Result<ServerName<'static>, KeyError> {
    let name = ServerName::try_from(text.to_owned());
    name.map_err(|_| KeyError::new(key, text, "a DNS name or an IP address"))
}
