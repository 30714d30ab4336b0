//! What Kubernetes calls a request.
//!
//! The rules of the API server's own `RequestInfoFactory`:
//! <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/request/requestinfo.go>

use std::borrow::Cow;

use http::Method;
use proto::upgrade::Protocol;

use super::path::percent_decoded;

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

/// What the segments of a path say, relative to the resource.
struct Resource<'a> {
    /// `watch` or `proxy` before the resource, an old form that the API server still serves.
    special: Option<&'a str>,
    named: bool,
    subresource: Option<&'a str>,
}

/// What reaches into a workload.
const CONNECT: [&str; 5] = ["exec", "attach", "portforward", "proxy", "ephemeralcontainers"];

/// Those of them that open a connection.
const UPGRADED: [&str; 4] = ["exec", "attach", "portforward", "proxy"];

impl Verb {
    /// The verb of a request with these decoded `segments` and this raw `query`.
    pub(super) fn of(method: &Method, segments: &[Cow<'_, str>], query: Option<&str>) -> Self {
        let Some(resource) = Resource::of(segments) else {
            return Self::of_no_resource(method);
        };
        let connects = resource.special == Some("proxy")
            || resource.subresource.is_some_and(|subresource| CONNECT.contains(&subresource));
        if connects {
            return Self::Connect;
        }
        if resource.special == Some("watch") {
            return Self::Watch;
        }
        match (method.as_str(), resource.named) {
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

impl<'a> Resource<'a> {
    /// `None` for a path that is no resource.
    fn of(segments: &'a [Cow<'_, str>]) -> Option<Self> {
        let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        let rest = match segments.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] if !rest.is_empty() => rest,
            _ => return None,
        };
        let (special, rest) = match rest {
            [special @ ("watch" | "proxy"), rest @ ..] => (Some(*special), rest),
            rest => (None, rest),
        };
        let parts = match rest {
            // A namespace's own subresources are the only ones that do not move the resource along.
            ["namespaces", _, subresource, ..] if !["status", "finalize"].contains(subresource) => &rest[2..],
            rest => rest,
        };
        Some(Self { special, named: parts.len() >= 2, subresource: parts.get(2).copied() })
    }
}

/// The methods that an API server knows.
pub(super) fn is_served(method: &Method) -> bool {
    ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"].contains(&method.as_str())
}

/// Whether Kubernetes upgrades a request of this verb to `protocol`: to both what opens a connection to a workload, to
/// WebSocket also a watch and a log.
pub(super) fn may_upgrade(protocol: Protocol, verb: Verb, segments: &[Cow<'_, str>]) -> bool {
    let resource = Resource::of(segments);
    let subresource = resource.as_ref().and_then(|resource| resource.subresource);
    let connects = resource.as_ref().is_some_and(|resource| resource.special == Some("proxy"))
        || subresource.is_some_and(|subresource| UPGRADED.contains(&subresource));
    connects || (protocol == Protocol::WebSocket && (verb == Verb::Watch || subresource == Some("log")))
}

/// Whether Kubernetes gives a request no deadline: kube-apiserver's `LongRunningFunc`.
/// <https://github.com/kubernetes/kubernetes/blob/v1.35.0/pkg/controlplane/apiserver/config.go>
pub(super) fn is_long_running(verb: Verb, segments: &[Cow<'_, str>]) -> bool {
    match Resource::of(segments) {
        Some(resource) => {
            verb == Verb::Watch
                || resource.special == Some("proxy")
                || resource.subresource.is_some_and(|one| one == "log" || UPGRADED.contains(&one))
        }
        None => matches!(segments, [first, second, _, ..] if first == "debug" && second == "pprof"),
    }
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
