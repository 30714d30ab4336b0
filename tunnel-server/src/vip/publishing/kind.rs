//! The kinds of objects in the host cluster.

/// The kind of an object in the host cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ObjectKind {
    Service,
    Slice,
}

impl ObjectKind {
    /// The Kubernetes kind, for the log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::Slice => "EndpointSlice",
        }
    }

    /// The API path of all objects of this kind in a namespace.
    pub(super) fn path(self, namespace: &str) -> String {
        match self {
            Self::Service => format!("/api/v1/namespaces/{namespace}/services"),
            Self::Slice => format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"),
        }
    }
}
