//! What Kubernetes calls a request.
//!
//! The rules of the API server's own `RequestInfoFactory`:
//! <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/request/requestinfo.go>

use http::Method;
use proto::upgrade::Protocol;

use super::path::percent_decoded;
use super::resource::{Object, Resource, Special};

/// The verb of a request: Kubernetes' for a resource, the HTTP method for any other path. Few enough for a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// One object, or `GET` or `HEAD` of another path.
    Get,
    /// A collection.
    List,
    /// Changes of a collection or an object, by whatever protocol.
    Watch,
    /// `POST` to a resource.
    Create,
    /// `PUT` to a resource.
    Update,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
    /// `DELETE` of a collection.
    DeleteCollection,
    /// exec, attach, portforward, proxy and ephemeralcontainers, by whatever method: they reach into a workload.
    Connect,
    /// `HEAD` of a path that is no resource.
    Head,
    /// `OPTIONS`.
    Options,
    /// `POST` to a path that is no resource.
    Post,
    /// `PUT` to a path that is no resource.
    Put,
}

/// There is no such verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a verb, use one of {}", Verb::ALL.map(Verb::as_str).join(", "))]
pub struct NotAVerb;

/// What opens a connection to a workload.
const UPGRADED: [&str; 4] = ["exec", "attach", "portforward", "proxy"];

impl Verb {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Get,
        Self::List,
        Self::Watch,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::DeleteCollection,
        Self::Connect,
        Self::Head,
        Self::Options,
        Self::Post,
        Self::Put,
    ];

    /// The verb of a request for this object, with this raw `query`.
    pub(super) fn of(
        method: &Method,
        object: &Object,
        special: Option<Special>,
        query: Option<&str>,
    ) -> Self {
        let Some(resource) = object.resource() else {
            return Self::of_no_resource(method);
        };
        if resource.connects() {
            return Self::Connect;
        }
        if special == Some(Special::Watch) {
            return Self::Watch;
        }
        match (method.as_str(), resource.name.is_some()) {
            // The API server watches a single object too, where the query says so and a field selector names it; with
            // the name in the path it is a get whatever the query says.
            ("GET" | "HEAD", false) if asks_to_watch(query) => Self::Watch,
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

    /// The verb in lower case, as in Kubernetes' RBAC.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Connect => "connect",
            Self::Head => "head",
            Self::Options => "options",
            Self::Post => "post",
            Self::Put => "put",
        }
    }

    /// Whether some request for this object has this verb.
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

    fn of_no_resource(method: &Method) -> Self {
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

/// The methods that an API server knows.
pub(super) fn is_served(method: &Method) -> bool {
    ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"].contains(&method.as_str())
}

/// Whether Kubernetes upgrades a request of this verb to `protocol`: to both what opens a connection to a workload, to
/// WebSocket also a watch and a log.
pub(super) fn may_upgrade(protocol: Protocol, verb: Verb, object: &Object) -> bool {
    let subresource = subresource(object);
    subresource.is_some_and(|subresource| UPGRADED.contains(&subresource))
        || (protocol == Protocol::WebSocket && (verb == Verb::Watch || subresource == Some("log")))
}

/// Whether Kubernetes gives a request no deadline: kube-apiserver's `LongRunningFunc`.
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

/// Whether the first `watch` of a query is on: whatever is not `false` or `0` is, nothing too. As in
/// `Convert_Slice_string_To_bool` of apimachinery, and Go's `url.ParseQuery`, which drops pairs with a `;`.
fn asks_to_watch(query: Option<&str>) -> bool {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.contains(';'));
    let mut watches = pairs.filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (percent_decoded(key).ok()? == "watch").then_some(percent_decoded(value).ok()?)
    });
    watches.next().is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0")
}
