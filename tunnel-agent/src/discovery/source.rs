//! The questions that an agent asks its cluster, and how to read the answers.

use std::collections::BTreeMap;

use policy::ServiceName;
use serde::Deserialize;

use super::{DiscoveryError, kubeadm, slices, tenants};
use crate::config::{TenantKind, Tenants};
use crate::guard::services::Backends;

/// The EndpointSlice of the Service `kubernetes`, which every apiserver keeps itself, alone, so that RBAC can name it.
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                      ?fieldSelector=metadata.name%3Dkubernetes";

/// What kubeadm tells everybody who joins.
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// How kubeadm made the cluster.
const KUBEADM_CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config";

/// A question.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// Where each API server is.
    Slices,
    /// What stands in an admin.conf, if kubeadm made the cluster.
    ClusterInfo,
    /// The same.
    KubeadmConfig,
    /// Where those of tenants are.
    Tenants(Tenants),
}

#[derive(Deserialize)]
struct Versioned {
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Option<String>,
}

impl Source {
    /// The path that is asked for, with its query.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Slices => SLICES.to_owned(),
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
                format!("/api/v1/{within}{kind}?labelSelector={}", escaped(selector))
            }
        }
    }

    /// The path of a watch of the same, from this version on and for so many seconds; `None` for what is asked again instead.
    pub(super) fn watch(&self, version: &str, seconds: u64) -> Option<String> {
        match self {
            Self::Slices | Self::Tenants(_) => Some(watched(&self.path(), version, seconds)),
            Self::ClusterInfo | Self::KubeadmConfig => None,
        }
    }

    /// Whether many clusters have nothing there, or let nobody read it.
    pub(super) fn is_optional(&self) -> bool {
        match self {
            Self::ClusterInfo | Self::KubeadmConfig => true,
            Self::Slices | Self::Tenants(_) => false,
        }
    }

    /// What an agent does about it where it may not ask.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::Slices => {
                "let the agent list the endpointslice kubernetes in the namespace default, or set advertise"
            }
            Self::ClusterInfo => "let the agent get the configmap cluster-info in the namespace kube-public",
            Self::KubeadmConfig => {
                "let the agent get the configmap kubeadm-config in the namespace kube-system"
            }
            Self::Tenants(_) => "let the agent list and watch what tenants in its configuration says",
        }
    }

    /// `host:port` of everything that an answer names.
    pub(super) fn read(&self, answer: &[u8]) -> Result<Vec<String>, DiscoveryError> {
        let read = match self {
            Self::Slices => slices::endpoints(answer),
            Self::ClusterInfo => kubeadm::servers(answer),
            Self::KubeadmConfig => kubeadm::control_plane_endpoint(answer),
            Self::Tenants(Tenants { kind: TenantKind::Pod, port, .. }) => tenants::of_pods(answer, *port),
            Self::Tenants(Tenants { kind: TenantKind::Service, port, .. }) => {
                tenants::of_services(answer, *port)
            }
        };
        read.map_err(DiscoveryError::Unreadable)
    }

    /// Where the Services lead that an answer names, by their own addresses; `None` for what names no Services.
    pub(super) fn services(
        &self,
        answer: &[u8],
    ) -> Result<Option<BTreeMap<ServiceName, Backends>>, DiscoveryError> {
        let Self::Tenants(Tenants { kind: TenantKind::Service, port, .. }) = self else {
            return Ok(None);
        };
        tenants::led(answer, *port).map(Some).map_err(DiscoveryError::Unreadable)
    }
}

/// The path of a watch of what is listed at `path`, which has a query.
pub(super) fn watched(path: &str, version: &str, seconds: u64) -> String {
    let version = escaped(version);
    format!("{path}&watch=true&resourceVersion={version}&timeoutSeconds={seconds}")
}

/// The version of a list; empty, which is any, if it says none.
pub(super) fn versioned(answer: &[u8]) -> String {
    let versioned: Option<Versioned> = serde_json::from_slice(answer).ok();
    versioned.and_then(|versioned| versioned.metadata?.resource_version).unwrap_or_default()
}

/// A text as it stands in a query: all but what needs no escape there (RFC 3986, section 2.3).
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
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

    #[test]
    fn a_list_says_its_version() {
        assert_eq!(versioned(br#"{"metadata":{"resourceVersion":"17"},"items":[]}"#), "17");
        assert_eq!(versioned(b"{}"), "");
    }
}
