//! Validates the raw configuration. All defaults are here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::config::{CommonDefaults, KeyError, RawCommon, RawLayout, bounded, host, host_and_port, seconds};
use policy::{Network, NotANetwork, NotATargetEntry, TargetEntry};
use proto::cluster::is_dns_label;
use proto::greeting::ENDPOINTS_MAX;
use proto::session::{SILENCE_LEAST, SILENCE_MOST};
use proto::spiffe::{self, TRUST_DOMAIN_DEFAULT};
use proto::{AllowList, ClusterId};

use super::carriers::{self, Environment};
use super::raw::{RawApiServer, RawConfig, RawEnrollment, RawImpersonation, RawInCluster, RawTls, RawTunnel};
use super::{
    API_SERVERS_MAX, ApiServerSource, ApiServers, Config, CredentialSource, EnrollmentConfig, Flags,
    IN_CLUSTER_DIRECTORY, SERVERS_MAX, SERVICE_NETWORKS_MAX, ServerAddress, TARGETS_MAX, TUNNELS_DEFAULT,
    TUNNELS_MAX, TlsFiles,
};

/// The agent's defaults for keys of every daemon. The layout is from docs/decisions/0001-runtime-layout.md.
pub(super) const COMMON_DEFAULTS: CommonDefaults = CommonDefaults {
    state_dir: "/var/lib/tombolo/agent",
    probes_listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9091),
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
    environment: Environment<'_>,
) -> Result<Config, KeyError> {
    let RawConfig {
        cluster,
        servers,
        server_name,
        server_ids,
        tunnels,
        carrier,
        proxy,
        tunnel,
        trust_domain,
        tls,
        enrollment,
        api_server,
        impersonation: raw_impersonation,
        pass_through,
        limits,
        advertise,
        targets,
        service_networks,
        tenants,
    } = raw;
    let common = common.resolve(&flags.shared, &COMMON_DEFAULTS, directory)?;
    let server_name = flags.server_name.clone().or(server_name);
    let server_name = server_name.map(|name| host("serverName", name)).transpose()?;
    let enrollment = self::enrollment(enrollment, flags, server_name.clone(), directory, environment)?;
    Ok(Config {
        cluster: self::cluster(flags.cluster.clone().or(cluster))?,
        servers: self::servers(&flags.servers, servers)?,
        server_name,
        server_ids: self::server_ids(server_ids.unwrap_or_default())?,
        tunnels: bounded("tunnels", tunnels.unwrap_or(TUNNELS_DEFAULT), 1..=TUNNELS_MAX)?,
        carrier: carriers::choice(flags.carrier.clone(), carrier)?,
        proxies: carriers::proxies(proxy, environment)?,
        outage_limit: outage_limit(tunnel.unwrap_or_default())?,
        trust_domain: self::trust_domain(trust_domain)?,
        credential: match (enrollment, tls) {
            (Some(_), Some(_)) => {
                return Err(KeyError::new("tls", "tls and enrollment together", "one of the two"));
            }
            (Some(at), None) => CredentialSource::Enrolled(at),
            (None, tls) => CredentialSource::Files(self::tls(tls.unwrap_or_default(), directory)?),
        },
        api_servers: api_servers(api_server.as_ref(), flags)?,
        api_server: self::api_server(api_server.unwrap_or_default(), flags, directory, environment)?,
        impersonation: impersonation(raw_impersonation.unwrap_or_default())?,
        pass_through: pass_through.unwrap_or(false),
        limits: super::limits::valid(limits.unwrap_or_default())?,
        advertise: self::advertise(advertise.unwrap_or_default())?,
        targets: self::targets(targets.unwrap_or_default())?,
        service_networks: self::service_networks(service_networks.unwrap_or_default())?,
        tenants: super::tenants::valid(tenants.unwrap_or_default())?,
        state_dir: common.state_dir,
        probes_listen: common.probes_listen,
        drain_grace: common.drain_grace,
        logs: common.logs,
        layout: common.layout,
    })
}

fn cluster(name: Option<String>) -> Result<ClusterId, KeyError> {
    let allowed = "the cluster's name as in its certificate: 1 to 63 lower-case letters, digits and '-'";
    let name = name.ok_or_else(|| KeyError::new("cluster", NOTHING, allowed))?;
    name.parse().map_err(|_| KeyError::new("cluster", name, allowed))
}

fn servers(flags: &[String], raw: Option<Vec<String>>) -> Result<Vec<ServerAddress>, KeyError> {
    let named = if flags.is_empty() { raw.unwrap_or_default() } else { flags.to_vec() };
    if named.is_empty() || named.len() > SERVERS_MAX {
        let allowed = format!("1 to {SERVERS_MAX} of the form host:port");
        return Err(KeyError::new("servers", format!("a list of {}", named.len()), allowed));
    }
    named.iter().map(|server| address("servers", server)).collect()
}

fn server_ids(raw: Vec<String>) -> Result<Vec<String>, KeyError> {
    bounded("serverIds", raw.len(), 0..=SERVERS_MAX)?;
    match raw.iter().find(|id| !is_dns_label(id)) {
        Some(id) => {
            let allowed = "ids as they follow /server/ in servers' certificates: DNS labels";
            Err(KeyError::new("serverIds", id, allowed))
        }
        None => Ok(raw),
    }
}

fn trust_domain(raw: Option<String>) -> Result<String, KeyError> {
    let domain = raw.unwrap_or_else(|| TRUST_DOMAIN_DEFAULT.to_owned());
    if !spiffe::is_trust_domain(&domain) {
        let allowed = "1 to 255 lower-case letters, digits, '.', '-' and '_'";
        return Err(KeyError::new("trustDomain", domain, allowed));
    }
    Ok(domain)
}

fn outage_limit(raw: RawTunnel) -> Result<Option<Duration>, KeyError> {
    let RawTunnel { outage_limit_seconds } = raw;
    let range = SILENCE_LEAST.as_secs()..=SILENCE_MOST.as_secs();
    outage_limit_seconds.map(|value| seconds("tunnel.outageLimitSeconds", value, range)).transpose()
}

fn tls(raw: RawTls, directory: &Path) -> Result<TlsFiles, KeyError> {
    let RawTls { certificate_file, key_file, server_ca_file } = raw;
    let file = |key: &str, path: Option<PathBuf>| match path {
        Some(path) if !path.as_os_str().is_empty() => Ok(directory.join(path)),
        Some(_) | None => Err(KeyError::new(key, NOTHING, "the path of a PEM file")),
    };
    Ok(TlsFiles {
        certificate: file("tls.certificateFile", certificate_file)?,
        key: file("tls.keyFile", key_file)?,
        server_ca: file("tls.serverCAFile", server_ca_file)?,
    })
}

fn enrollment(
    raw: Option<RawEnrollment>,
    flags: &Flags,
    server_name: Option<String>,
    directory: &Path,
    environment: Environment<'_>,
) -> Result<Option<EnrollmentConfig>, KeyError> {
    if raw.is_none() && flags.enrollment_server.is_none() {
        return Ok(None);
    }
    let RawEnrollment { server, pin, token_file, service_account_token_file, host_cluster } =
        raw.unwrap_or_default();
    let required = |key: &str, flag: Option<String>, raw: Option<String>, allowed: &str| {
        flag.or(raw).ok_or_else(|| KeyError::new(key, NOTHING, allowed))
    };
    let server = required("enrollment.server", flags.enrollment_server.clone(), server, "host:port")?;
    let allowed = "the pin that `tombolo token create` prints: sha256: and 64 digits";
    let pin = required("enrollment.pin", flags.enrollment_pin.clone(), pin, allowed)?;
    let beside = |path: PathBuf| if path == Path::new("-") { path } else { directory.join(path) };
    let token_file = flags.enrollment_token_file.clone().or_else(|| token_file.map(beside));
    let service_account_token_file = flags
        .enrollment_service_account_token_file
        .clone()
        .or_else(|| service_account_token_file.map(|path| directory.join(path)));
    if token_file.is_none() && service_account_token_file.is_none() {
        let allowed = "the path of a file, or - for standard input; or, in a pod of a cluster that has an enrolled \
                       agent already, enrollment.serviceAccountTokenFile";
        return Err(KeyError::new("enrollment.tokenFile", NOTHING, allowed));
    }
    if host_cluster.is_some() && service_account_token_file.is_none() {
        let allowed = "the token of the pod's ServiceAccount, which the host cluster has issued";
        return Err(KeyError::new("enrollment.serviceAccountTokenFile", NOTHING, allowed));
    }
    let host_cluster =
        host_cluster.map(|raw| in_cluster("enrollment.hostCluster", raw, directory, environment));
    Ok(Some(EnrollmentConfig {
        server: address("enrollment.server", &server)?,
        server_name,
        pin: pin.parse().map_err(|_| KeyError::new("enrollment.pin", pin, allowed))?,
        token_file,
        service_account_token_file,
        host_cluster: host_cluster.transpose()?,
    }))
}

fn api_server(
    raw: RawApiServer,
    flags: &Flags,
    directory: &Path,
    environment: Environment<'_>,
) -> Result<ApiServerSource, KeyError> {
    let RawApiServer { in_cluster, kubeconfig, context, .. } = raw;
    if let Some(path) = flags.kubeconfig.clone() {
        return Ok(ApiServerSource::Kubeconfig { path, context: flags.context.clone() });
    }
    match (in_cluster, kubeconfig) {
        (Some(_), Some(_)) => {
            Err(KeyError::new("apiServer", "inCluster and kubeconfig together", "one of the two"))
        }
        (None, Some(path)) => Ok(ApiServerSource::Kubeconfig { path: directory.join(path), context }),
        (_, None) if context.is_some() => {
            Err(KeyError::new("apiServer.context", "a context without kubeconfig", "both or neither"))
        }
        (in_cluster, None) => {
            self::in_cluster("apiServer.inCluster", in_cluster.unwrap_or_default(), directory, environment)
        }
    }
}

/// By default API servers are found in a pod, and not with a kubeconfig, which names one itself.
fn api_servers(raw: Option<&RawApiServer>, flags: &Flags) -> Result<ApiServers, KeyError> {
    let has_kubeconfig = flags.kubeconfig.is_some() || raw.is_some_and(|raw| raw.kubeconfig.is_some());
    let found = raw.and_then(|raw| raw.discover_endpoints);
    match raw.and_then(|raw| raw.endpoints.as_ref()) {
        Some(_) if found == Some(true) => {
            Err(KeyError::new("apiServer", "endpoints and discoverEndpoints together", "one of the two"))
        }
        Some(endpoints) => {
            bounded("apiServer.endpoints", endpoints.len(), 2..=API_SERVERS_MAX)?;
            let allowed = "ADDRESS:PORT, an IPv6 address in brackets";
            let address =
                |text: &String| text.parse().map_err(|_| KeyError::new("apiServer.endpoints", text, allowed));
            Ok(ApiServers::Listed(endpoints.iter().map(address).collect::<Result<_, _>>()?))
        }
        None if found.unwrap_or(!has_kubeconfig) => Ok(ApiServers::Found),
        None => Ok(ApiServers::One),
    }
}

/// The API server of a pod's own cluster, from the object at `key`.
fn in_cluster(
    key: &str,
    raw: RawInCluster,
    base: &Path,
    environment: Environment<'_>,
) -> Result<ApiServerSource, KeyError> {
    let RawInCluster { directory, host: raw_host, port } = raw;
    let found = raw_host.or_else(|| environment("KUBERNETES_SERVICE_HOST"));
    let no_host = || {
        let allowed = "the API server's host; only a pod knows it by itself (KUBERNETES_SERVICE_HOST), \
                       elsewhere set it, or apiServer.kubeconfig";
        KeyError::new(format!("{key}.host"), NOTHING, allowed)
    };
    let found = host(&format!("{key}.host"), found.ok_or_else(no_host)?)?;
    let port = match (port, environment("KUBERNETES_SERVICE_PORT")) {
        (Some(port), _) => port,
        (None, None) => 443,
        (None, Some(port)) => {
            let allowed = "1 to 65535 in KUBERNETES_SERVICE_PORT";
            port.parse().map_err(|_| KeyError::new(format!("{key}.port"), port, allowed))?
        }
    };
    Ok(ApiServerSource::InCluster {
        directory: directory.map_or_else(|| IN_CLUSTER_DIRECTORY.into(), |directory| base.join(directory)),
        host: found,
        port: bounded(&format!("{key}.port"), port, 1..=u16::MAX)?,
    })
}

fn impersonation(raw: RawImpersonation) -> Result<AllowList, KeyError> {
    let RawImpersonation { users, groups, system_names } = raw;
    AllowList::new(users, groups, system_names)
        .map_err(|fault| KeyError::new(format!("impersonation.{}", fault.list), fault.entry, fault.allowed))
}

fn advertise(raw: Vec<String>) -> Result<Vec<String>, KeyError> {
    bounded("advertise", raw.len(), 0..=ENDPOINTS_MAX)?;
    raw.iter().map(|endpoint| address("advertise", endpoint).map(|endpoint| endpoint.to_string())).collect()
}

fn targets(raw: Vec<String>) -> Result<Vec<TargetEntry>, KeyError> {
    bounded("targets", raw.len(), 0..=TARGETS_MAX)?;
    let entry = |text: &String| {
        text.parse().map_err(|fault: NotATargetEntry| KeyError::new("targets", text, fault.to_string()))
    };
    raw.iter().map(entry).collect()
}

fn service_networks(raw: Vec<String>) -> Result<Vec<Network>, KeyError> {
    bounded("serviceNetworks", raw.len(), 0..=SERVICE_NETWORKS_MAX)?;
    let network = |text: &String| {
        text.parse().map_err(|fault: NotANetwork| KeyError::new("serviceNetworks", text, fault.to_string()))
    };
    raw.iter().map(network).collect()
}

/// Parses `host:port`, with an IPv6 address in brackets.
pub(super) fn address(key: &str, text: &str) -> Result<ServerAddress, KeyError> {
    host_and_port(key, text).map(|(host, port)| ServerAddress { host, port })
}
