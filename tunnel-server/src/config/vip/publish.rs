//! The host cluster in which clusters' addresses become Services, as it was written and as it is valid.

use std::path::{Path, PathBuf};

use daemon::config::KeyError;
use proto::cluster::is_dns_label;
use serde::Deserialize;

use super::VipWay;
use crate::config::issuers::host_cluster;
use crate::config::value::NOTHING;
use crate::config::{HostCluster, written};

/// Where Services are unless something else is said: `NAME.tombolo.svc`.
const NAMESPACE_DEFAULT: &str = "tombolo";

/// Where clusters that were given an address become Services.
#[derive(Debug)]
pub struct VipPublish {
    /// Whose API server is asked.
    pub host: HostCluster,
    /// A DNS label.
    pub namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    server: Option<String>,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    namespace: Option<String>,
}

pub(super) fn valid(written: Written, ways: &[VipWay], directory: &Path) -> Result<VipPublish, KeyError> {
    let Written { server, ca_file, token_file, namespace } = written;
    let host = written::HostCluster { server, ca_file, token_file };
    let host = host_cluster("vip.publish", host, directory)?;
    let namespace = namespace.unwrap_or_else(|| NAMESPACE_DEFAULT.to_owned());
    if !is_dns_label(&namespace) {
        let allowed = "the name of a namespace: 1 to 63 lower-case letters, digits and '-'";
        return Err(KeyError::new("vip.publish.namespace", format_args!("{namespace:?}"), allowed));
    }
    let mut named =
        ways.iter().filter_map(|way| way.range.as_ref()).flat_map(|range| range.clusters.keys()).peekable();
    if named.peek().is_none() {
        let allowed = "a range in one of vip.ways: addresses that are written out do not become Services";
        return Err(KeyError::new("vip.publish", NOTHING, allowed));
    }
    // RFC 1035, which Kubernetes holds the names of Services to, and not those of clusters.
    if let Some(cluster) =
        named.find(|cluster| !cluster.as_str().starts_with(|first: char| first.is_ascii_lowercase()))
    {
        let allowed = "clusters whose names begin with a letter in every range, as names of Services do";
        return Err(KeyError::new("vip.publish", cluster, allowed));
    }
    Ok(VipPublish { host, namespace })
}
