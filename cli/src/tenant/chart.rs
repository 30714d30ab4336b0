//! The folder of a chart for helm, and the values of tenant-control-plane.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use super::embedded::{CONTROL_PLANE, EmbeddedChart};
use super::host::{Host, HostError};
use super::objects::{API_SERVERS, ETCDS, members};
use super::pki::{Addresses, Files, Secrets};
use super::record::{TENANT, TenantRecord};
use crate::files::{self, ReadError, WriteError};
use crate::names::KubernetesVersion;
use crate::yaml;

/// The images whose tag is the release of Kubernetes.
const IMAGES: [&str; 3] = ["apiserver", "controllerManager", "scheduler"];

/// The chart or its values cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChartError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("the values {0} are not YAML with keys and values")]
    NotValues(PathBuf),
    #[error("the values could not be written as YAML")]
    Yaml(#[from] serde_saphyr::SerializeError),
    #[error("no folder for the chart and its values can be made")]
    Folder(#[source] std::io::Error),
    #[error("the Service {0} has no address in the host cluster")]
    NoAddress(String),
}

/// A chart in a folder, and values for it. A folder of its own is removed with it.
#[derive(Debug)]
pub(super) struct ChartFolder {
    folder: tempfile::TempDir,
    chart: PathBuf,
}

impl ChartFolder {
    /// The chart of control planes in this folder, or else the one of this program.
    ///
    /// # Errors
    /// [`ChartError`]
    pub(super) fn new(chart: Option<&Path>) -> Result<Self, ChartError> {
        Self::of(&CONTROL_PLANE, chart)
    }

    /// The chart in this folder, or else one of this program.
    ///
    /// # Errors
    /// [`ChartError`]
    pub(super) fn of(embedded: &EmbeddedChart, chart: Option<&Path>) -> Result<Self, ChartError> {
        let folder = tempfile::Builder::new().prefix("tombolo-tenant-").tempdir();
        let folder = folder.map_err(ChartError::Folder)?;
        let chart = match chart {
            Some(chart) => chart.to_owned(),
            None => embedded.write(folder.path())?,
        };
        Ok(Self { folder, chart })
    }

    /// The folder of the chart.
    pub(super) fn chart(&self) -> &Path {
        &self.chart
    }

    /// Writes values to a file that helm reads.
    ///
    /// # Errors
    /// [`ChartError`]
    pub(super) fn values(&self, values: &Value) -> Result<PathBuf, ChartError> {
        let file = self.folder.path().join("values.yaml");
        files::write_private(&file, &text(values)?, true)?;
        Ok(file)
    }
}

/// The values that this program sets. They go before those of people.
pub(super) fn own_values(
    tenant: &TenantRecord,
    services: &ServiceAddresses,
    secrets: &Secrets,
    version: Option<KubernetesVersion>,
    storage_class: Option<&str>,
) -> Value {
    let mut values = json!({
        "tenant": tenant.name,
        "portBase": tenant.ports.first(),
        "services": {
            "apiserver": services.api_servers,
            "etcdData": services.etcds[0],
            "etcdEvent": services.etcds[1],
        },
        "serviceNetwork": tenant.service_network.to_string(),
        "podNetwork": tenant.pod_network.to_string(),
        "secretsChecksum": checksum(secrets),
    });
    if let Some(version) = version {
        values["images"] = tags(version);
    }
    if let Some(class) = storage_class {
        let class = json!({ "storageClassName": class });
        values["etcd"] = json!({ "data": class, "event": class });
    }
    values
}

/// The tags of images for a release of Kubernetes.
pub(super) fn tags(version: KubernetesVersion) -> Value {
    let tag = json!({ "tag": version.to_string() });
    IMAGES.iter().map(|image| ((*image).to_owned(), tag.clone())).collect::<Map<String, Value>>().into()
}

/// The values in these files, in which a later one goes before an earlier one.
///
/// # Errors
/// [`ChartError`]
pub(super) fn read_values(paths: &[PathBuf]) -> Result<Value, ChartError> {
    let mut all = json!({});
    for path in paths {
        let values: Option<Value> = serde_saphyr::from_str(&files::read(path)?).ok();
        let values = values.filter(Value::is_object).ok_or_else(|| ChartError::NotValues(path.clone()))?;
        merge(&mut all, &values);
    }
    Ok(all)
}

/// Puts values over others, as helm does: maps are merged, and everything else is replaced.
pub(super) fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// The text of values, as YAML.
///
/// # Errors
/// [`ChartError::Yaml`]
pub(super) fn text(values: &Value) -> Result<String, ChartError> {
    Ok(yaml::document(values)? + "\n")
}

/// The addresses of a tenant's Services in the host cluster.
#[derive(Debug)]
pub(super) struct ServiceAddresses {
    pub(super) api_servers: IpAddr,
    /// The members of etcd-data, and those of etcd-event.
    pub(super) etcds: [Vec<IpAddr>; 2],
}

impl ServiceAddresses {
    /// Reads the addresses that the host cluster has given to the Services.
    ///
    /// # Errors
    /// [`ChartError::NoAddress`]
    pub(super) fn read(host: &Host, tenant: &TenantRecord) -> Result<Self, ChartError> {
        let services = host.list(&["services", "--selector", TENANT])?;
        let addresses: BTreeMap<&str, IpAddr> = services
            .iter()
            .filter_map(|service| {
                let address = service["spec"]["clusterIP"].as_str()?.parse().ok()?;
                Some((service["metadata"]["name"].as_str()?, address))
            })
            .collect();
        let address =
            |name: &str| addresses.get(name).copied().ok_or_else(|| ChartError::NoAddress(name.to_owned()));
        let of_etcd = |etcd: &str| {
            members(etcd, tenant.members).map(|name| address(&name)).collect::<Result<Vec<_>, _>>()
        };
        let [data, event] = ETCDS.map(|(etcd, _)| of_etcd(etcd));
        Ok(Self { api_servers: address(API_SERVERS)?, etcds: [data?, event?] })
    }

    /// The addresses in certificates, with those of the nodes that carry API servers.
    pub(super) fn in_certificates(&self, tenant: &TenantRecord, nodes: Vec<IpAddr>) -> Addresses {
        let [etcd_data, etcd_event] = self.etcds.clone();
        Addresses {
            service: self.api_servers,
            nodes,
            // A network of Services has some addresses at least.
            kubernetes: tenant.service_network.hosts().next().unwrap_or(self.api_servers),
            etcd_data,
            etcd_event,
        }
    }

    /// The URL by which the parts of the control plane reach the API servers.
    pub(super) fn url(&self, tenant: &TenantRecord) -> String {
        format!("https://{}", std::net::SocketAddr::new(self.api_servers, tenant.ports.first()))
    }
}

/// A text that changes with the contents of the Secrets.
pub(super) fn checksum(secrets: &Secrets) -> String {
    let mut all = Vec::new();
    for (secret, files) in secrets {
        let files: &Files = files;
        for part in files.iter().flat_map(|(name, text)| [*secret, name, text.as_str()]) {
            all.extend_from_slice(part.as_bytes());
            all.push(0);
        }
    }
    digest(&SHA256, &all).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn values_are_merged_as_helm_merges_them() {
        let mut values = json!({ "images": { "etcd": { "tag": "1", "digest": "d" } }, "list": [1, 2] });
        merge(&mut values, &json!({ "images": { "etcd": { "tag": "2" } }, "list": [3], "new": true }));
        assert_eq!(
            values,
            json!({ "images": { "etcd": { "tag": "2", "digest": "d" } }, "list": [3], "new": true })
        );
    }

    #[test]
    fn the_checksum_changes_with_every_part_of_a_secret() {
        let of = |secret, file, text: &str| {
            checksum(&Secrets::from([(secret, Files::from([(file, text.to_owned())]))]))
        };
        let all = [of("a", "b", "c"), of("ab", "", "c"), of("a", "b", "d"), of("a", "bc", "")];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 4);
        assert!(all.iter().all(|text| text.len() == 64));
    }
}
