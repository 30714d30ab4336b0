//! Parses a path into a resource or a non-resource path.
//!
//! The rules are those of the API server's `RequestInfoFactory`:
//! <https://github.com/kubernetes/apiserver/blob/v0.36.3/pkg/endpoints/request/requestinfo.go>

use std::borrow::Cow;
use std::fmt;

/// The object of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A resource of Kubernetes, or a collection of them.
    Resource(Resource),
    /// Any other path, decoded once, as the API server compares it: `/version`, `/healthz/`.
    Path(String),
}

/// A resource, or a collection of them, as `RequestInfo` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
    /// The API group, such as `apps`; empty for the core group.
    pub group: String,
    /// The resource, in the plural: `pods`.
    pub resource: String,
    /// The subresource, such as `log`.
    pub subresource: Option<String>,
    /// `None` for cluster-scoped resources, and for all namespaces together.
    pub namespace: Option<String>,
    /// `None` for a collection. A name in a field selector does not count.
    pub name: Option<String>,
}

/// A deprecated prefix that the API server still accepts: a verb before the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LegacyPrefix {
    /// The deprecated watch prefix: `/api/v1/watch/pods`.
    Watch,
    /// The deprecated proxy prefix: `/api/v1/proxy/nodes/n`.
    Proxy,
}

/// Kubernetes' own resources that are in no namespace and can be listed, with their groups. Namespaces are not among
/// them, because a list of all namespaces has each namespace in it.
const CLUSTER_SCOPED: [(&str, &str); 33] = [
    ("", "componentstatuses"),
    ("", "nodes"),
    ("", "persistentvolumes"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("certificates.k8s.io", "clustertrustbundles"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("internal.apiserver.k8s.io", "storageversions"),
    ("metrics.k8s.io", "nodes"),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "ipaddresses"),
    ("networking.k8s.io", "servicecidrs"),
    ("node.k8s.io", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "devicetaintrules"),
    ("resource.k8s.io", "resourceslices"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattributesclasses"),
    ("storagemigration.k8s.io", "storageversionmigrations"),
];

/// The subresources of a namespace itself. Any other segment after its name is a resource in it.
const OF_NAMESPACES: [&str; 2] = ["status", "finalize"];

impl Object {
    /// Parses the decoded `segments` of a path; `slash` says that the path ends with a slash.
    pub(super) fn from_segments(segments: &[Cow<'_, str>], slash: bool) -> (Self, Option<LegacyPrefix>) {
        let read: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        match read.as_slice() {
            ["api", _, rest @ ..] if !rest.is_empty() => Self::of_resource("", rest),
            ["apis", group, _, rest @ ..] if !rest.is_empty() => Self::of_resource(group, rest),
            [] => (Self::Path("/".to_owned()), None),
            segments => {
                let end = if slash { "/" } else { "" };
                (Self::Path(format!("/{}{end}", segments.join("/"))), None)
            }
        }
    }

    /// The resource, if it is one.
    #[must_use]
    pub fn resource(&self) -> Option<&Resource> {
        match self {
            Self::Resource(resource) => Some(resource),
            Self::Path(_) => None,
        }
    }

    /// Returns true if the request goes on to an application, to which its query belongs. The API server asks nothing of
    /// that query before it authorizes the request.
    pub(super) fn is_proxied(&self) -> bool {
        self.resource().is_some_and(|resource| resource.subresource.as_deref() == Some("proxy"))
    }

    fn of_resource(group: &str, rest: &[&str]) -> (Self, Option<LegacyPrefix>) {
        let (legacy, rest) = match rest {
            ["watch", rest @ ..] => (Some(LegacyPrefix::Watch), rest),
            ["proxy", rest @ ..] => (Some(LegacyPrefix::Proxy), rest),
            rest => (None, rest),
        };
        let (namespace, parts) = match rest {
            ["namespaces", namespace, part, ..] if !OF_NAMESPACES.contains(part) => {
                (Some(*namespace), &rest[2..])
            }
            ["namespaces", namespace, ..] => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let subresource = match legacy {
            // The rest belongs to the application. Kubernetes calls this a verb; here it is a subresource.
            Some(LegacyPrefix::Proxy) => Some("proxy"),
            Some(LegacyPrefix::Watch) | None => parts.get(2).copied(),
        };
        let resource = Resource {
            group: group.to_owned(),
            resource: parts.first().copied().unwrap_or_default().to_owned(),
            subresource: subresource.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            name: parts.get(1).map(|&name| name.to_owned()),
        };
        (Self::Resource(resource), legacy)
    }
}

impl Resource {
    /// Returns true if the request reaches into a workload, by any method.
    #[must_use]
    pub fn connects(&self) -> bool {
        self.subresource.as_deref().is_some_and(connects)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(resource) => resource.fmt(f),
            Self::Path(path) => f.write_str(path),
        }
    }
}

/// `deployments.apps/scale in the namespace shop`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, resource, subresource, namespace, name: _ } = self;
        f.write_str(resource)?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        if let Some(subresource) = subresource {
            write!(f, "/{subresource}")?;
        }
        match namespace {
            Some(namespace) => write!(f, " in the namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// Returns true if objects of this resource are in no namespace, as far as Kubernetes itself defines it. Of a custom
/// resource nobody here knows.
pub(crate) fn is_cluster_scoped(resource: &Resource) -> bool {
    CLUSTER_SCOPED.contains(&(resource.group.as_str(), resource.resource.as_str()))
}

/// Returns true if a subresource reaches into a workload.
pub(crate) fn connects(subresource: &str) -> bool {
    ["exec", "attach", "portforward", "proxy", "ephemeralcontainers"].contains(&subresource)
}
