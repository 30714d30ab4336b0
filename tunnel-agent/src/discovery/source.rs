//! The sources of endpoints in the cluster: paths to request, and parsing of the answers.

use std::collections::BTreeMap;

use api_servers::list::{KUBERNETES_SLICES, percent_encoded, watch_path};
use api_servers::slices;
use policy::ServiceName;

use super::error::DiscoveryError;
use super::{kubeadm, tenants};
use crate::config::{TenantKind, Tenants};
use crate::guard::services::Backends;

/// The ConfigMap that kubeadm shows to every node that joins.
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// The ConfigMap with the configuration by which kubeadm made the cluster.
const KUBEADM_CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config";

/// A source of endpoints, requested by its path.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The EndpointSlice of the cluster's API servers.
    Slices,
    /// The endpoint in an admin.conf, if kubeadm made the cluster.
    ClusterInfo,
    /// The same, from kubeadm's own configuration.
    KubeadmConfig,
    /// API servers of tenants in this cluster.
    Tenants(Tenants),
}

impl Source {
    /// The path to request, with its query.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Slices => KUBERNETES_SLICES.to_owned(),
            Self::ClusterInfo => CLUSTER_INFO.to_owned(),
            Self::KubeadmConfig => KUBEADM_CONFIG.to_owned(),
            Self::Tenants(Tenants { kind, namespace, label_selector, port: _ }) => {
                let kind = match kind {
                    TenantKind::Pod => "pods",
                    TenantKind::Service => "services",
                };
                let within =
                    namespace.as_ref().map_or_else(String::new, |name| format!("namespaces/{name}/"));
                let selector = label_selector.as_deref().unwrap_or_default();
                format!("/api/v1/{within}{kind}?labelSelector={}", percent_encoded(selector))
            }
        }
    }

    /// The path of a watch from this version on, for so many seconds. `None` for a source that is not
    /// watched.
    pub(super) fn watch(&self, version: &str, seconds: u64) -> Option<String> {
        match self {
            Self::Slices | Self::Tenants(_) => Some(watch_path(&self.path(), version, seconds)),
            Self::ClusterInfo | Self::KubeadmConfig => None,
        }
    }

    /// Returns true if many clusters do not have the source, or do not let it be read.
    pub(super) fn is_optional(&self) -> bool {
        match self {
            Self::ClusterInfo | Self::KubeadmConfig => true,
            Self::Slices | Self::Tenants(_) => false,
        }
    }

    /// Advice for an agent that may not read it.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::Slices => {
                "let the agent list the endpointslice kubernetes in the namespace default, or set advertise"
            }
            Self::ClusterInfo => "let the agent get the configmap cluster-info in the namespace kube-public",
            Self::KubeadmConfig => {
                "let the agent get the configmap kubeadm-config in the namespace kube-system"
            }
            Self::Tenants(_) => {
                "let the agent list and watch the pods or services that tenants in its configuration selects"
            }
        }
    }

    /// `host:port` of every endpoint in an answer.
    pub(super) fn read(&self, answer: &[u8]) -> Result<Vec<String>, DiscoveryError> {
        let read = match self {
            Self::Slices => slices::endpoints(answer),
            Self::ClusterInfo => kubeadm::servers(answer),
            Self::KubeadmConfig => kubeadm::control_plane_endpoint(answer),
            Self::Tenants(Tenants { kind: TenantKind::Pod, port, .. }) => {
                tenants::pod_endpoints(answer, *port)
            }
            Self::Tenants(Tenants { kind: TenantKind::Service, port, .. }) => {
                tenants::service_endpoints(answer, *port)
            }
        };
        read.map_err(DiscoveryError::Unreadable)
    }

    /// The backends of the Services in an answer, by their own addresses. `None` for a source without
    /// Services.
    pub(super) fn services(
        &self,
        answer: &[u8],
    ) -> Result<Option<BTreeMap<ServiceName, Backends>>, DiscoveryError> {
        let Self::Tenants(Tenants { kind: TenantKind::Service, port, .. }) = self else {
            return Ok(None);
        };
        tenants::backends(answer, *port).map(Some).map_err(DiscoveryError::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_stands_in_its_path_and_reaches_no_further() {
        let tenants = Tenants {
            kind: TenantKind::Pod,
            namespace: Some("tenant-a".to_owned()),
            label_selector: Some("app in (a,b)&watch=true".to_owned()),
            port: 6443,
        };

        let source = Source::Tenants(tenants);

        let expected = "/api/v1/namespaces/tenant-a/pods?labelSelector=app%20in%20%28a%2Cb%29%26watch%3Dtrue";
        assert_eq!(source.path(), expected);
        let watch = format!("{expected}&watch=true&resourceVersion=7&timeoutSeconds=60");
        assert_eq!(source.watch("7", 60), Some(watch));
        assert!(source.path().parse::<http::Uri>().is_ok());
    }
}
