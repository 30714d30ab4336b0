//! The section `directory`: the etcd in which many servers share their records.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::config::{KeyError, bounded, seconds};
use etcd::{ENDPOINTS_MAX, Endpoint};
use records::layout::{PREFIX_BYTES_MAX, PREFIX_DEFAULT, keys_below};
use serde::Deserialize;

use super::host_cluster::https_roots;
use super::pem::{self, CertifiedPair};
use super::roots::TrustedRoots;
use super::value::{NOTHING, file};

const ENDPOINTS: &str = "directory.etcd.endpoints";
const CA: &str = "directory.etcd.caFile";
const CERTIFICATE: &str = "directory.etcd.certificateFile";
const KEY: &str = "directory.etcd.keyFile";
const PREFIX: &str = "directory.etcd.prefix";
const STALE_LIMIT: &str = "directory.etcd.staleLimitSeconds";

/// The range of `staleLimitSeconds`, and its default.
pub const STALE_LIMIT_SECONDS_MIN: u64 = 10;
/// The upper end of the range: 24 h.
pub const STALE_LIMIT_SECONDS_MAX: u64 = 24 * 60 * 60;
const STALE_LIMIT_SECONDS_DEFAULT: u64 = 300;

/// The etcd in which many servers share their records.
#[derive(Debug)]
pub struct EtcdConfig {
    /// The members; at least one and at most [`ENDPOINTS_MAX`]. All of them have TLS, or all are loopback addresses.
    pub endpoints: Vec<Endpoint>,
    /// The roots of the members and the certificate of this server as their client; `None` for members without TLS.
    pub tls: Option<EtcdTls>,
    /// The beginning of all keys: `PREFIX/TRUST-DOMAIN/`.
    pub prefix: String,
    /// The time without news from etcd after which this server serves nothing new; 10 s to 24 h.
    pub stale_limit: Duration,
}

/// The files for TLS in both directions.
#[derive(Debug)]
pub struct EtcdTls {
    /// The roots that the members' certificates must chain to; at least one.
    pub roots: TrustedRoots,
    /// The certificate that this server shows to the members.
    pub certificate: CertifiedPair,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawDirectory {
    /// The etcd in which servers of one trust domain share clusters, tokens, agents and revocations.
    #[cfg_attr(test, schemars(required))]
    etcd: Option<RawEtcd>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawEtcd {
    /// URLs of etcd's members, `https://HOST:2379`. Members without TLS (`http://`) must have loopback addresses.
    #[cfg_attr(test, schemars(required, length(min = 1, max = ENDPOINTS_MAX)))]
    endpoints: Option<Vec<String>>,
    /// PEM file with the CA certificates of etcd's members.
    ca_file: Option<PathBuf>,
    /// PEM file with the certificate that this server shows to etcd.
    certificate_file: Option<PathBuf>,
    /// PEM file with its private key.
    key_file: Option<PathBuf>,
    /// The beginning of all keys in etcd. The trust domain follows it, so domains do not meet.
    #[cfg_attr(test, schemars(extend("default" = PREFIX_DEFAULT)))]
    prefix: Option<String>,
    /// Time without news from etcd, in seconds, after which this server serves nothing new. It cannot know of revocations then.
    #[cfg_attr(test, schemars(range(min = STALE_LIMIT_SECONDS_MIN, max = STALE_LIMIT_SECONDS_MAX), extend("default" = STALE_LIMIT_SECONDS_DEFAULT)))]
    stale_limit_seconds: Option<u64>,
}

/// The etcd of the section, if there is one.
pub(super) fn etcd(
    raw: Option<RawDirectory>,
    trust_domain: &str,
    directory: &Path,
) -> Result<Option<EtcdConfig>, KeyError> {
    let Some(RawDirectory { etcd }) = raw else { return Ok(None) };
    let allowed = "a section; without the key `directory` this server has its records in its state directory";
    let raw = etcd.ok_or_else(|| KeyError::new("directory.etcd", NOTHING, allowed))?;
    let RawEtcd { endpoints, ca_file, certificate_file, key_file, prefix, stale_limit_seconds } = raw;
    let endpoints = endpoints_of(endpoints.unwrap_or_default())?;
    let tls = if endpoints.iter().all(|endpoint| endpoint.tls_name().is_some()) {
        let (certificate, key) =
            (file(CERTIFICATE, certificate_file, directory)?, file(KEY, key_file, directory)?);
        Some(EtcdTls {
            roots: https_roots(CA, ca_file, directory)?,
            certificate: pem::valid_client_pair((CERTIFICATE, &certificate), (KEY, &key))?,
        })
    } else {
        for (key, path) in [(CA, ca_file), (CERTIFICATE, certificate_file), (KEY, key_file)] {
            if let Some(path) = path {
                let allowed = "nothing, because the endpoints are http:// and use no TLS";
                return Err(KeyError::new(key, path.display(), allowed));
            }
        }
        None
    };
    let limit = seconds(
        STALE_LIMIT,
        stale_limit_seconds.unwrap_or(STALE_LIMIT_SECONDS_DEFAULT),
        STALE_LIMIT_SECONDS_MIN..=STALE_LIMIT_SECONDS_MAX,
    )?;
    let prefix = prefix.unwrap_or_else(|| PREFIX_DEFAULT.to_owned());
    Ok(Some(EtcdConfig { endpoints, tls, prefix: prefix_of(&prefix, trust_domain)?, stale_limit: limit }))
}

fn endpoints_of(raw: Vec<String>) -> Result<Vec<Endpoint>, KeyError> {
    bounded(ENDPOINTS, raw.len(), 1..=ENDPOINTS_MAX)?;
    let mut endpoints: Vec<Endpoint> = Vec::with_capacity(raw.len());
    for text in raw {
        let allowed = "https://HOST:2379, or http:// and a loopback address";
        let endpoint: Endpoint =
            text.parse().map_err(|_| KeyError::new(ENDPOINTS, format_args!("{text:?}"), allowed))?;
        let is_loopback = || endpoint.host().parse::<IpAddr>().is_ok_and(|host| host.is_loopback());
        if endpoint.tls_name().is_none() && !is_loopback() {
            let allowed = "https://, because a person who changes the traffic could enroll agents; http:// is for loopback addresses";
            return Err(KeyError::new(ENDPOINTS, format_args!("{text:?}"), allowed));
        }
        if endpoints.contains(&endpoint) {
            return Err(KeyError::new(ENDPOINTS, format_args!("{text:?}"), "each member once"));
        }
        endpoints.push(endpoint);
    }
    let with_tls = endpoints.iter().filter(|endpoint| endpoint.tls_name().is_some()).count();
    if with_tls != 0 && with_tls != endpoints.len() {
        return Err(KeyError::new(ENDPOINTS, "both https:// and http://", "one of them for all members"));
    }
    Ok(endpoints)
}

fn prefix_of(prefix: &str, trust_domain: &str) -> Result<String, KeyError> {
    keys_below(prefix, trust_domain).ok_or_else(|| {
        let allowed = format!(
            "a path such as {PREFIX_DEFAULT}, of at most {PREFIX_BYTES_MAX} visible ASCII characters, without a '/' at its end"
        );
        KeyError::new(PREFIX, format_args!("{prefix:?}"), allowed)
    })
}
