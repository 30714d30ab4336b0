//! Derives the Kubernetes verb of a request.
//!
//! The rules are those of the API server's `RequestInfoFactory`:
//! <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/request/requestinfo.go>

use http::Method;
use proto::text_enum;
use proto::upgrade_protocol::UpgradeProtocol;

use super::query::Query;
use super::resource::{LegacyPrefix, Object, Resource};

text_enum! {
    /// The verb of a request, in lower case as in Kubernetes' RBAC. A resource has Kubernetes' verb, any other path the HTTP
    /// method. The set is small enough for a metric's label.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Verb {
        /// `GET` or `HEAD` of one object, or `GET` of a non-resource path.
        Get = "get",
        /// `GET` or `HEAD` of a collection.
        List = "list",
        /// Changes of a collection or an object, by any protocol.
        Watch = "watch",
        /// `POST` to a resource or collection.
        Create = "create",
        /// `PUT` to a resource or collection.
        Update = "update",
        /// `PATCH` of a resource or another path.
        Patch = "patch",
        /// `DELETE` of one object, or of a non-resource path.
        Delete = "delete",
        /// `DELETE` of a whole collection.
        DeleteCollection = "deletecollection",
        /// exec, attach, portforward, proxy and ephemeralcontainers by any method: they reach into a workload.
        Connect = "connect",
        /// `HEAD` of a non-resource path.
        Head = "head",
        /// `OPTIONS` of a resource or another path.
        Options = "options",
        /// `POST` to a non-resource path.
        Post = "post",
        /// `PUT` to a non-resource path.
        Put = "put",
    }
}

/// The text is no verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a verb, use one of {}", Verb::ALL.map(Verb::as_str).join(", "))]
pub struct NotAVerb;

/// Subresources that upgrade to a connection into a workload.
const UPGRADED: [&str; 4] = ["exec", "attach", "portforward", "proxy"];

impl Verb {
    /// The verb of a request for this object, with this `query`.
    pub(super) fn from_request(
        method: &Method,
        object: &Object,
        legacy: Option<LegacyPrefix>,
        query: &Query,
    ) -> Self {
        let Some(resource) = object.resource() else {
            return Self::of_path(method);
        };
        if resource.connects() {
            return Self::Connect;
        }
        if legacy == Some(LegacyPrefix::Watch) {
            return Self::Watch;
        }
        match (method.as_str(), resource.name.is_some()) {
            // The API server watches a single object too, where the query asks for it and a field selector names it; with
            // the name in the path it is a get whatever the query says.
            ("GET" | "HEAD", false) if query.asks_to_watch() => Self::Watch,
            ("GET" | "HEAD", false) => Self::List,
            ("GET" | "HEAD", true) => Self::Get,
            ("POST", _) => Self::Create,
            ("PUT", _) => Self::Update,
            ("PATCH", _) => Self::Patch,
            ("DELETE", true) => Self::Delete,
            ("DELETE", false) => Self::DeleteCollection,
            _ => Self::Options,
        }
    }

    /// Returns true if some request for this object has this verb.
    #[must_use]
    pub fn may_be_asked_of(self, object: &Object) -> bool {
        match self {
            Self::Connect => object.resource().is_some_and(Resource::connects),
            Self::Get | Self::Patch | Self::Delete | Self::Options => {
                !object.resource().is_some_and(Resource::connects)
            }
            Self::List | Self::Watch | Self::Create | Self::Update | Self::DeleteCollection => {
                object.resource().is_some_and(|resource| !resource.connects())
            }
            Self::Head | Self::Post | Self::Put => object.resource().is_none(),
        }
    }

    fn of_path(method: &Method) -> Self {
        match method.as_str() {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            _ => Self::Options,
        }
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Verb {
    type Err = NotAVerb;

    fn from_str(text: &str) -> Result<Self, NotAVerb> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == text).ok_or(NotAVerb)
    }
}

/// Returns true if an API server serves this method.
pub(super) fn is_served(method: &Method) -> bool {
    ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"].contains(&method.as_str())
}

/// Returns true if Kubernetes upgrades a request of this verb to `protocol`. To both protocols it upgrades
/// what opens a connection to a workload, to WebSocket also a watch and a log.
pub(super) fn may_upgrade(protocol: UpgradeProtocol, verb: Verb, object: &Object) -> bool {
    let subresource = subresource(object);
    subresource.is_some_and(|subresource| UPGRADED.contains(&subresource))
        || (protocol == UpgradeProtocol::WebSocket && (verb == Verb::Watch || subresource == Some("log")))
}

/// Returns true if Kubernetes gives a request no deadline: kube-apiserver's `LongRunningFunc`.
/// <https://github.com/kubernetes/kubernetes/blob/v1.35.0/pkg/controlplane/apiserver/config.go>
pub(super) fn is_long_running(verb: Verb, object: &Object) -> bool {
    match object {
        Object::Resource(_) => {
            verb == Verb::Watch
                || subresource(object).is_some_and(|one| one == "log" || UPGRADED.contains(&one))
        }
        Object::Path(path) => path.strip_prefix("/debug/pprof/").is_some_and(|rest| !rest.is_empty()),
    }
}

fn subresource(object: &Object) -> Option<&str> {
    object.resource()?.subresource.as_deref()
}
