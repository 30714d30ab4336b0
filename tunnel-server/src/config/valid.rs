//! From what was written to what is valid; the only place where defaults stand.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use daemon::config::{
    EveryDefault, EveryKeys, KeyError, LayoutKey, bounded, readable_file, seconds, socket_address,
};
use http::Uri;
use proto::cluster::is_dns_label;
use proto::session::{SILENCE_LEAST, SILENCE_MAX, SILENCE_MOST};
use proto::spiffe::{self, TRUST_DOMAIN_DEFAULT};
use rustls_pki_types::CertificateDer;
use trust::Role;
use trust::bundle::{Anchors, BUNDLE_BYTES_MAX, TrustBundle};

use super::audit_log;
use super::authentication::authentication;
use super::clusters::clusters;
use super::issuers::host_cluster;
use super::value::{NOTHING, file, is_dns_name};
use super::written::{self, Written};
use super::{
    Admin, CertifiedPair, Config, CopiedKey, Egress, Flags, Gateway, NAMES_MAX, PARK_LIMIT_SECONDS_MAX,
    PARKED_MAX, Parking, SESSION_AGE_SECONDS_MAX, Tunnel, WATCH_EVENT_BYTES_MAX, WATCH_EVENT_BYTES_MIN,
    WATCH_LIMIT_SECONDS_MAX, WATCHES_PARKED_MAX, Watches, pem,
};

const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);

/// What a server takes where nothing was said. The layout: docs/decisions/0001-runtime-layout.md.
const EVERY_DEFAULT: EveryDefault = EveryDefault {
    state_dir: "/var/lib/tombolo/server",
    probes_listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090),
    layout: LayoutKey::PerCore,
    threads: None,
};

/// How long a request waits for a cluster that is away: most drops of a link are shorter, and a person still waits.
const PARK_LIMIT_DEFAULT_SECONDS: u64 = 15;

/// How many requests wait for one cluster: what the programs of a busy site ask within the limit.
const PARKED_PER_CLUSTER_DEFAULT: usize = 256;

/// For how long a request may run: a working day, so that a shell that somebody has forgotten ends with it.
const SESSION_AGE_DEFAULT_SECONDS: u64 = 8 * 3_600;

/// How long a watch waits for its cluster: longer than an agent, a node or a modem needs to start anew.
const WATCH_LIMIT_DEFAULT_SECONDS: u64 = 600;

/// How many watches wait for one cluster: those of a few programs that watch every kind of object.
const WATCHES_PER_CLUSTER_DEFAULT: usize = 1_000;

/// Largest event that is held: the largest object that etcd takes, with room for what JSON adds.
const WATCH_EVENT_DEFAULT_BYTES: usize = 2 * 1024 * 1024;

const BUNDLE_FILE: &str = "trust.bundleFile";

pub(super) fn config(
    written: Written,
    flags: &Flags,
    path: &Path,
    directory: &Path,
) -> Result<Config, KeyError> {
    let Written {
        server_id,
        trust_domain,
        tls,
        trust,
        gateway,
        tunnel,
        enrollment,
        egress,
        passthrough,
        vip,
        proxy,
        socks,
        policy,
        clusters,
        parking,
        watches,
        limits,
        audit,
        admin,
        state_dir,
        probes,
        drain_grace_seconds,
        log,
        runtime,
    } = written;
    let every = EveryKeys { state_dir, probes, drain_grace_seconds, log, runtime };
    let every = every.settle(&flags.shared, &EVERY_DEFAULT, directory)?;
    let trust_domain = self::trust_domain(trust_domain)?;
    let certificate = certificate(tls.unwrap_or_default(), directory)?;
    let gateway = self::gateway(gateway.unwrap_or_default(), flags, directory)?;
    let tunnel = self::tunnel(tunnel.unwrap_or_default(), flags, directory)?;
    let admin = super::admin::valid(admin.unwrap_or_default(), flags, directory)?;
    let egress = super::egress::valid(egress.unwrap_or_default(), directory)?;
    roots_differ(&gateway, &tunnel, &admin, &egress)?;
    let passthrough = super::passthrough::valid(passthrough, &gateway, &certificate, &egress)?;
    let (trust_bundle_file, trust_bundle) = bundle_file(trust.unwrap_or_default(), &trust_domain, directory)?;
    let enrollment = super::enrollment::enrollment(enrollment, &trust_domain, &trust_bundle, directory)?;
    let written::Policy { file: policy_file, delegation } = policy.unwrap_or_default();
    let server_id = self::server_id(flags.server_id.clone().or(server_id), &certificate, &trust_domain)?;
    Ok(Config {
        file: path.to_owned(),
        audit: audit_log::valid(audit.unwrap_or_default(), &server_id, &every.state_dir, directory)?,
        server_id,
        trust_bundle_file,
        trust_bundle,
        trust_domain,
        certificate,
        gateway,
        tunnel,
        enrollment,
        vip: super::vip::valid(vip, &egress, passthrough.as_ref(), directory)?,
        egress,
        passthrough,
        proxy: super::proxy::proxy(proxy, directory)?,
        socks: super::proxy::socks(socks)?,
        policy_file: file("policy.file", policy_file, directory)?,
        delegation: delegation.map(|host| host_cluster("policy.delegation", host, directory)).transpose()?,
        clusters: self::clusters(clusters.unwrap_or_default())?,
        parking: self::parking(parking.unwrap_or_default())?,
        watches: self::watches(watches.unwrap_or_default())?,
        limits: super::limits::valid(limits.unwrap_or_default())?,
        admin,
        state_dir: every.state_dir,
        probes_listen: every.probes_listen,
        drain_grace: every.drain_grace,
        logs: every.logs,
        layout: every.layout,
    })
}

fn trust_domain(written: Option<String>) -> Result<String, KeyError> {
    let domain = written.unwrap_or_else(|| TRUST_DOMAIN_DEFAULT.to_owned());
    if !spiffe::is_trust_domain(&domain) {
        let allowed = "1 to 255 lower-case letters, digits, '.', '-' and '_'";
        return Err(KeyError::new("trustDomain", domain, allowed));
    }
    Ok(domain)
}

fn certificate(written: written::Tls, directory: &Path) -> Result<CertifiedPair, KeyError> {
    let written::Tls { certificate_file, key_file } = written;
    let certificate = file("tls.certificateFile", certificate_file, directory)?;
    let key = file("tls.keyFile", key_file, directory)?;
    let pair = pem::pair(("tls.certificateFile", &certificate), ("tls.keyFile", &key))?;
    pem::in_time("tls.certificateFile", &certificate, &pair.chain, SystemTime::now())?;
    Ok(pair)
}

/// Where the bundle file is, and its bytes.
fn bundle_file(
    written: written::Trust,
    domain: &str,
    directory: &Path,
) -> Result<(Option<PathBuf>, Vec<u8>), KeyError> {
    let written::Trust { bundle_file } = written;
    let Some(path) = bundle_file else { return Ok((None, Vec::new())) };
    let path = file(BUNDLE_FILE, Some(path), directory)?;
    let bytes = trust_bundle(&path, domain)?;
    Ok((Some(path), bytes))
}

/// The bytes of the bundle file at `path`, for this trust domain. Agents judge them by what they trust; here they are judged by
/// what they say themselves, so that a mistake shows at once and not at every site. Blocks.
///
/// # Errors
///
/// [`KeyError`], which says what is wrong with the file.
pub fn trust_bundle(path: &Path, domain: &str) -> Result<Vec<u8>, KeyError> {
    let bytes = readable_file(BUNDLE_FILE, path, BUNDLE_BYTES_MAX as u64)?;
    let refused = |reason: &dyn std::fmt::Display| {
        let allowed = format!("a trust bundle of this trust domain, as `tombolo ca` writes it ({reason})");
        KeyError::new(BUNDLE_FILE, path.display(), allowed)
    };
    let domain = domain.parse().map_err(|error| refused(&error))?;
    let roots = TrustBundle::look(&bytes).map_err(|error| refused(&error))?.roots(Role::Server).to_vec();
    Anchors::new(domain).and_roots(&roots).accept(&bytes, None).map_err(|error| refused(&error))?;
    Ok(bytes)
}

fn server_id(
    said: Option<String>,
    certificate: &CertifiedPair,
    trust_domain: &str,
) -> Result<String, KeyError> {
    let from_certificate = || {
        let leaf = certificate.chain.first()?;
        trust::peer::server(leaf, trust_domain).ok().map(|id| id.to_string())
    };
    let allowed = "1 to 63 lower-case letters, digits and '-'";
    match said {
        Some(id) if is_dns_label(&id) => Ok(id),
        Some(id) => Err(KeyError::new("serverId", id, allowed)),
        None => from_certificate().ok_or_else(|| {
            let allowed = format!(
                "{allowed}; it may be left out only where the certificate holds spiffe://{trust_domain}/server/ID"
            );
            KeyError::new("serverId", NOTHING, allowed)
        }),
    }
}

fn gateway(written: written::Gateway, flags: &Flags, directory: &Path) -> Result<Gateway, KeyError> {
    let written::Gateway {
        listen,
        host_suffix,
        hosts,
        authentication: written_authentication,
        browser_origins,
        max_session_age_seconds,
    } = written;
    let host_suffix = host_suffix.map(|suffix| self::host_suffix(&suffix)).transpose()?;
    let hosts = hosts.unwrap_or_default();
    bounded("gateway.hosts", hosts.len(), 0..=NAMES_MAX)?;
    let browser_origins = browser_origins.unwrap_or_default();
    bounded("gateway.browserOrigins", browser_origins.len(), 0..=NAMES_MAX)?;
    Ok(Gateway {
        listen: self::listen("gateway.listen", flags.gateway_listen, listen, LISTEN_DEFAULT)?,
        hosts: hosts.iter().map(|name| host(name, host_suffix.as_deref())).collect::<Result<_, _>>()?,
        host_suffix,
        authentication: authentication(written_authentication.unwrap_or_default(), directory)?,
        browser_origins: browser_origins.into_iter().map(origin).collect::<Result<_, _>>()?,
        session_age_max: seconds(
            "gateway.maxSessionAgeSeconds",
            max_session_age_seconds.unwrap_or(SESSION_AGE_DEFAULT_SECONDS),
            1..=SESSION_AGE_SECONDS_MAX,
        )?,
    })
}

/// An origin exactly as browsers write it (RFC 6454, section 6.2), because it is compared by its bytes.
fn origin(origin: String) -> Result<String, KeyError> {
    let is_written_so = |uri: Uri| {
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
        let port_default = if scheme == "https" { 443 } else { 80 };
        let is_bare = authority.port_u16() != Some(port_default) && !authority.as_str().contains('@');
        let again = format!("{scheme}://{}", authority.as_str().to_ascii_lowercase());
        Some(["https", "http"].contains(&scheme) && is_bare && again == origin)
    };
    if origin.parse().ok().and_then(is_written_so) == Some(true) {
        return Ok(origin);
    }
    let allowed =
        "https://HOST or https://HOST:PORT in lower case, without a path, as a browser's address bar begins";
    Err(KeyError::new("gateway.browserOrigins", format_args!("{origin:?}"), allowed))
}

fn host_suffix(suffix: &str) -> Result<String, KeyError> {
    if is_dns_name(suffix) && suffix.parse::<IpAddr>().is_err() {
        return Ok(suffix.to_ascii_lowercase());
    }
    let allowed = "a DNS name without a dot at an end, such as clusters.example";
    Err(KeyError::new("gateway.hostSuffix", suffix, allowed))
}

fn host(name: &str, suffix: Option<&str>) -> Result<String, KeyError> {
    let refused = |allowed: &str| KeyError::new("gateway.hosts", name, allowed);
    if !is_dns_name(name) && name.parse::<IpAddr>().is_err() {
        return Err(refused("DNS names without a dot at an end, and IP addresses without brackets or port"));
    }
    let name = name.to_ascii_lowercase();
    let below = |suffix: &str| name.strip_suffix(suffix).is_some_and(|label| label.ends_with('.'));
    if suffix.is_some_and(below) {
        return Err(refused("names that are not below gateway.hostSuffix, where every name is a cluster's"));
    }
    Ok(name)
}

fn tunnel(written: written::Tunnel, flags: &Flags, directory: &Path) -> Result<Tunnel, KeyError> {
    let written::Tunnel { listen, agent_ca_file, outage_limit_seconds, copied_key } = written;
    let agent_ca_file = file("tunnel.agentCAFile", agent_ca_file, directory)?;
    Ok(Tunnel {
        listen: self::listen("tunnel.listen", flags.tunnel_listen, listen, LISTEN_DEFAULT)?,
        agent_roots: pem::roots("tunnel.agentCAFile", &agent_ca_file)?,
        outage_limit: seconds(
            "tunnel.outageLimitSeconds",
            outage_limit_seconds.unwrap_or(SILENCE_MAX.as_secs()),
            SILENCE_LEAST.as_secs()..=SILENCE_MOST.as_secs(),
        )?,
        copied_key: self::copied_key(copied_key)?,
    })
}

fn copied_key(written: Option<String>) -> Result<CopiedKey, KeyError> {
    match written.as_deref() {
        None => Ok(CopiedKey::default()),
        Some("refuse-newcomer") => Ok(CopiedKey::RefuseNewcomer),
        Some("prefer-newcomer") => Ok(CopiedKey::PreferNewcomer),
        Some(other) => Err(KeyError::new("tunnel.copiedKey", other, "refuse-newcomer or prefer-newcomer")),
    }
}

/// A root of two roles would open the door of each to the other.
fn roots_differ(
    gateway: &Gateway,
    tunnel: &Tunnel,
    admin: &Admin,
    egress: &[Egress],
) -> Result<(), KeyError> {
    let callers = gateway.authentication.client_certificate.as_ref().map(|method| &method.roots);
    // One authority may be for several API servers: the name in a certificate says which.
    let egress: Vec<CertificateDer<'static>> =
        egress.iter().filter_map(Egress::tcp).flat_map(|tcp| tcp.roots.clone()).collect();
    let doors = [
        ("tunnel.agentCAFile", Some(&tunnel.agent_roots)),
        ("gateway.authentication.clientCertificate.caFile", callers),
        ("admin.tcp.adminCAFile", admin.tcp.as_ref().map(|tcp| &tcp.roots)),
        ("egress.tcp.clientCAFile", Some(&egress)),
    ];
    for (index, (key, roots)) in doors.iter().enumerate() {
        for (other, others) in &doors[..index] {
            let others = others.map(Vec::as_slice).unwrap_or_default();
            let mut numbered = roots.iter().flat_map(|roots| roots.iter()).zip(1..);
            if let Some((_, number)) = numbered.find(|(root, _)| others.contains(root)) {
                let found = format_args!("certificate {number}, which is in {other} too,");
                let allowed = "a CA of its own, else whoever has a certificate for one could use the other";
                return Err(KeyError::new(*key, found, allowed));
            }
        }
    }
    Ok(())
}

fn parking(written: written::Parking) -> Result<Parking, KeyError> {
    let written::Parking { limit_seconds, caller_limit_seconds, per_cluster } = written;
    let limit_seconds = limit_seconds.unwrap_or(PARK_LIMIT_DEFAULT_SECONDS);
    // Nobody may wait for longer than all do unless somebody has said so.
    let caller_limit_seconds = caller_limit_seconds.unwrap_or(limit_seconds);
    let caller_limits = limit_seconds..=PARK_LIMIT_SECONDS_MAX;
    let per_cluster = per_cluster.unwrap_or(PARKED_PER_CLUSTER_DEFAULT);
    Ok(Parking {
        limit: seconds("parking.limitSeconds", limit_seconds, 0..=PARK_LIMIT_SECONDS_MAX)?,
        caller_limit: seconds("parking.callerLimitSeconds", caller_limit_seconds, caller_limits)?,
        per_cluster: bounded("parking.perCluster", per_cluster, 1..=PARKED_MAX)?,
    })
}

fn watches(written: written::Watches) -> Result<Watches, KeyError> {
    let written::Watches { resume, limit_seconds, per_cluster, event_bytes_max } = written;
    let limit_seconds = limit_seconds.unwrap_or(WATCH_LIMIT_DEFAULT_SECONDS);
    let per_cluster = per_cluster.unwrap_or(WATCHES_PER_CLUSTER_DEFAULT);
    let event_bytes_max = event_bytes_max.unwrap_or(WATCH_EVENT_DEFAULT_BYTES);
    let event_bytes = WATCH_EVENT_BYTES_MIN..=WATCH_EVENT_BYTES_MAX;
    Ok(Watches {
        resume: resume.unwrap_or(true),
        limit: seconds("watches.limitSeconds", limit_seconds, 0..=WATCH_LIMIT_SECONDS_MAX)?,
        per_cluster: bounded("watches.perCluster", per_cluster, 1..=WATCHES_PARKED_MAX)?,
        event_bytes_max: bounded("watches.eventBytesMax", event_bytes_max, event_bytes)?,
    })
}

fn listen(
    key: &str,
    flag: Option<SocketAddr>,
    written: Option<String>,
    default: SocketAddr,
) -> Result<SocketAddr, KeyError> {
    match (flag, written) {
        (Some(address), _) => Ok(address),
        (None, Some(written)) => socket_address(key, &written),
        (None, None) => Ok(default),
    }
}
