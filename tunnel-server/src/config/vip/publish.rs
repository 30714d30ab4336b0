//! The section `vip.publish`: the host cluster in which clusters' addresses become Services.

use std::path::{Path, PathBuf};

use daemon::config::KeyError;
use proto::cluster::is_dns_label;
use serde::Deserialize;

use super::entry_point::VipEntryPoint;
use crate::config::host_cluster::{HostCluster, RawHostCluster, host_cluster};
use crate::config::value::NOTHING;

/// Default namespace of the Services, which are then `NAME.tombolo.svc`.
const NAMESPACE_DEFAULT: &str = "tombolo";

/// The host cluster in which clusters with an address of a range become Services.
#[derive(Debug)]
pub struct VipPublish {
    /// The host cluster's API server.
    pub host: HostCluster,
    /// The namespace of the Services, a DNS label.
    pub namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawPublish {
    /// URL of the API server, `https://HOST[:PORT]` without a path.
    #[cfg_attr(test, schemars(required))]
    server: Option<String>,
    /// PEM file with the CA certificates of that API server.
    #[cfg_attr(test, schemars(required))]
    ca_file: Option<PathBuf>,
    /// File with the bearer token that this server sends there. It is read for each request.
    #[cfg_attr(test, schemars(required))]
    token_file: Option<PathBuf>,
    /// Namespace of the Services in the host cluster.
    #[cfg_attr(test, schemars(extend("default" = NAMESPACE_DEFAULT)))]
    namespace: Option<String>,
}

pub(super) fn publish(
    raw: RawPublish,
    entry_points: &[VipEntryPoint],
    directory: &Path,
) -> Result<VipPublish, KeyError> {
    let RawPublish { server, ca_file, token_file, namespace } = raw;
    let host = RawHostCluster { server, ca_file, token_file };
    let host = host_cluster("vip.publish", host, directory)?;
    let namespace = namespace.unwrap_or_else(|| NAMESPACE_DEFAULT.to_owned());
    if !is_dns_label(&namespace) {
        let allowed = "the name of a namespace: 1 to 63 lower-case letters, digits and '-'";
        return Err(KeyError::new("vip.publish.namespace", format_args!("{namespace:?}"), allowed));
    }
    let ranges = entry_points.iter().filter_map(|entry_point| entry_point.range.as_ref());
    let mut published = ranges.flat_map(|range| range.clusters.keys()).peekable();
    if published.peek().is_none() {
        let allowed =
            "a range in one of vip.entryPoints: addresses that are written out do not become Services";
        return Err(KeyError::new("vip.publish", NOTHING, allowed));
    }
    // Kubernetes requires names of Services to follow RFC 1035; names of clusters need not.
    if let Some(cluster) =
        published.find(|cluster| !cluster.as_str().starts_with(|first: char| first.is_ascii_lowercase()))
    {
        let allowed = "clusters whose names begin with a letter in every range, as names of Services do";
        return Err(KeyError::new("vip.publish", cluster, allowed));
    }
    Ok(VipPublish { host, namespace })
}
