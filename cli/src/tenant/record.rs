//! The record of a tenant: the annotations of its namespace, by which other tenants see what is taken.

use policy::Network;
use serde_json::Value;

use super::host::{Host, HostError};
use crate::names::PortBlock;

/// The label of everything that a tenant has in the host cluster, with its name.
pub(super) const TENANT: &str = "tombolo.dev/tenant";

pub(super) const PORT_BASE: &str = "tombolo.dev/port-base";
pub(super) const SERVICE_NETWORK: &str = "tombolo.dev/service-network";
pub(super) const POD_NETWORK: &str = "tombolo.dev/pod-network";
pub(super) const MEMBERS: &str = "tombolo.dev/members";

/// A tenant as it was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TenantRecord {
    pub(super) name: String,
    pub(super) ports: PortBlock,
    pub(super) service_network: Network,
    pub(super) pod_network: Network,
    /// The members of each etcd.
    pub(super) members: u16,
}

/// A namespace is not that of a tenant.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("there is no tenant {0}; see `tombolo tenant list`")]
    NoTenant(String),
    #[error(
        "the namespace {0} has the label {TENANT}, but not the annotations of a tenant; add them again from its Helm values"
    )]
    Broken(String),
}

impl TenantRecord {
    /// Reads a namespace. `None` if it has not the label and all annotations.
    pub(super) fn parse(namespace: &Value) -> Option<Self> {
        let metadata = &namespace["metadata"];
        let name = metadata["name"].as_str()?;
        let annotation = |key: &str| metadata["annotations"][key].as_str();
        if metadata["labels"][TENANT].as_str() != Some(name) {
            return None;
        }
        Some(Self {
            name: name.to_owned(),
            ports: annotation(PORT_BASE)?.parse().ok()?,
            service_network: annotation(SERVICE_NETWORK)?.parse().ok()?,
            pod_network: annotation(POD_NETWORK)?.parse().ok()?,
            members: annotation(MEMBERS)?.parse().ok()?,
        })
    }

    /// Reads that of a tenant.
    ///
    /// # Errors
    /// [`RecordError`]
    pub(super) fn read(host: &Host, name: &str) -> Result<Self, RecordError> {
        let namespace = host.get(&["namespace", name])?;
        if namespace["metadata"]["labels"][TENANT].is_null() {
            return Err(RecordError::NoTenant(name.to_owned()));
        }
        Self::parse(&namespace).ok_or_else(|| RecordError::Broken(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tenant::objects;

    #[test]
    fn the_namespace_of_a_tenant_has_its_whole_record() {
        let record = TenantRecord {
            name: "acme".to_owned(),
            ports: "16450".parse().unwrap(),
            service_network: "10.98.0.0/16".parse().unwrap(),
            pod_network: "10.244.0.0/16".parse().unwrap(),
            members: 3,
        };
        let namespace = objects::namespace(&record);

        assert_eq!(TenantRecord::parse(&namespace), Some(record));
        for key in [PORT_BASE, SERVICE_NETWORK, POD_NETWORK, MEMBERS] {
            let mut without = namespace.clone();
            without["metadata"]["annotations"][key] = Value::Null;
            assert_eq!(TenantRecord::parse(&without), None, "{key}");
        }
        let mut copied = namespace;
        copied["metadata"]["name"] = json!("other");
        assert_eq!(TenantRecord::parse(&copied), None);
    }
}
