//! Parses a request into the cluster and the Kubernetes action that it asks for.
//!
//! Pure. The path is routed on its raw bytes, and the same bytes go to the cluster. Nothing in it is decoded,
//! resolved or cleaned on the way, so that this server and the API server cannot read one path in two ways.
//! The query is read here and goes to the cluster in its one canonical form. An ambiguous path or query is refused.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, Version, header};
use proto::ClusterId;
use proto::upgrade_protocol::UpgradeProtocol;

mod authority;
mod error;
mod list_read;
mod page;
mod path;
mod query;
mod resource;
mod set_read;
mod verb;

pub use authority::GatewayNames;
pub use error::{ActionError, QUERY_PAIRS_MAX, TARGET_BYTES_MAX};
pub use list_read::{ListRead, RowObject};
pub use page::page_of;
use query::Query;
use resource::LegacyPrefix;
pub use resource::{Object, Resource};
pub(crate) use resource::{connects, is_cluster_scoped};
pub use set_read::{SetRead, SetReadKind};
pub use verb::{NotAVerb, Verb};

/// The path prefix of all clusters, and the path of their list.
const CLUSTERS: &str = "/clusters";

/// The first segment of [`CLUSTERS`]. No cluster's own path begins with it: where the API server is another gateway, the
/// request would go on to a cluster of that gateway.
const CLUSTERS_SEGMENT: &str = "clusters";

/// The path prefix of all cluster sets.
const CLUSTER_SETS: &str = "/clustersets/";

/// The first segment of [`CLUSTER_SETS`], which no cluster's own path begins with either.
const CLUSTER_SETS_SEGMENT: &str = "clustersets";

/// The parameter by which a list is summarized in its cluster. It is for the gateway, and never reaches an API server.
const REDUCE: &str = "tombolo-reduce";

/// The parameters of a list's pages.
const LIMIT: &str = "limit";
const CONTINUE: &str = "continue";

/// The meaning of a request at the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedRequest {
    /// An action at a cluster.
    Cluster(Action),
    /// A read of the clusters of a set: `GET /clustersets/NAME/…`.
    ClusterSet(Box<SetRead>),
    /// The list of clusters, or a watch of it: `GET /clusters`.
    ClusterList(ListRead),
}

/// A Kubernetes action at a cluster. Only [`Action::parse`] and [`Action::of_cluster`] make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    cluster: ClusterId,
    verb: Verb,
    object: Object,
    long_running: bool,
    path: PathAndQuery,
    /// The question by which the agent is to reduce the list, unread.
    reduce: Option<String>,
}

/// A cluster's own target, read as its API server reads it.
struct OwnTarget {
    object: Object,
    legacy: Option<LegacyPrefix>,
    query: Query,
    /// The path as it was received, with the canonical query.
    canonical: PathAndQuery,
    /// The parameter [`REDUCE`], which is not in the query any more.
    reduce: Option<String>,
}

/// The parts of a request's head that select the cluster and the action, as they were received.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The method of the request.
    pub method: &'a Method,
    /// HTTP/2's `:authority`, if there is one.
    pub authority: Option<&'a str>,
    /// The value of the one `Host` header, if there is one.
    pub host: Option<&'a [u8]>,
    /// The server name of the TLS handshake (SNI), if the client sent one.
    pub server_name: Option<&'a str>,
    /// The path with the query, raw.
    pub target: &'a [u8],
    /// The protocol of a requested upgrade.
    pub upgrade: Option<UpgradeProtocol>,
}

impl Action {
    /// Parses `head` for a server with these `names`.
    ///
    /// # Errors
    ///
    /// [`ActionError`]; the request must not be forwarded.
    pub fn parse(names: &GatewayNames, head: &Head<'_>) -> Result<ParsedRequest, ActionError> {
        if !verb::is_served(head.method) {
            return Err(ActionError::Method(head.method.clone()));
        }
        let target = path::target(head.target)?;
        let by_host = names.cluster_of(authority::agreed_host(head.authority, head.host)?)?;
        let bound_to = names.cluster_of_connection(head.server_name)?;
        if by_host.is_none()
            && let Some(rest) = target.strip_prefix(CLUSTER_SETS)
        {
            if bound_to.is_some() {
                return Err(ActionError::OtherConnection);
            }
            return SetRead::parse(head.method, rest, head.upgrade)
                .map(Box::new)
                .map(ParsedRequest::ClusterSet);
        }
        let routed = route(by_host, target)?;
        if bound_to.is_some() && bound_to.as_ref() != routed.as_ref().map(|(cluster, _)| cluster) {
            return Err(ActionError::OtherConnection);
        }
        let Some((cluster, rest)) = routed else {
            return match *head.method {
                Method::GET if head.upgrade.is_none() => {
                    let query = target.split_once('?').map_or("", |(_, query)| query);
                    ListRead::parse(query).map(ParsedRequest::ClusterList)
                }
                Method::GET => Err(ActionError::UpgradeNotHere),
                _ => Err(ActionError::ListOnlyGet),
            };
        };
        Self::parse_rest(cluster, head.method, rest, head.upgrade).map(ParsedRequest::Cluster)
    }

    /// Parses a request to `cluster` with this raw `target`: a path with its query.
    ///
    /// # Errors
    ///
    /// [`ActionError`]; the request must not be forwarded.
    pub fn of_cluster(
        cluster: ClusterId,
        method: &Method,
        target: &str,
        upgrade: Option<UpgradeProtocol>,
    ) -> Result<Self, ActionError> {
        if !verb::is_served(method) {
            return Err(ActionError::Method(method.clone()));
        }
        Self::parse_rest(cluster, method, path::target(target.as_bytes())?, upgrade)
    }

    /// Parses the rest of a target after the cluster's name, with or without a leading slash.
    fn parse_rest(
        cluster: ClusterId,
        method: &Method,
        rest: &str,
        upgrade: Option<UpgradeProtocol>,
    ) -> Result<Self, ActionError> {
        let OwnTarget { object, legacy, query, canonical: path, reduce } = OwnTarget::read(rest)?;
        let verb = Verb::from_request(method, &object, legacy, &query);
        if reduce.is_some() {
            check_reduced(verb, &query)?;
        }
        if upgrade.is_some_and(|protocol| !verb::may_upgrade(protocol, verb, &object)) {
            return Err(ActionError::UpgradeNotHere);
        }
        let long_running = verb::is_long_running(verb, &object);
        Ok(Self { cluster, verb, object, long_running, path, reduce })
    }

    /// The cluster that the request goes to.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The verb, as Kubernetes names it; *connect* is a verb of our policy.
    #[must_use]
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// The resource or non-resource path of the request.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Returns true if Kubernetes gives the request no deadline: a watch, a log, or a connection into a
    /// workload.
    #[must_use]
    pub fn is_long_running(&self) -> bool {
        self.long_running
    }

    /// The cluster's own path, exactly as received after the cluster's name, with the canonical query. This is what goes
    /// to the cluster. The query of a `proxy` belongs to the application, and is as received.
    #[must_use]
    pub fn path(&self) -> &PathAndQuery {
        &self.path
    }

    /// The question by which the agent is to reduce the list (`tombolo-reduce`), as it was received and unread. It is not in the path.
    #[must_use]
    pub fn reduce(&self) -> Option<&str> {
        self.reduce.as_deref()
    }

    /// The path and query with the parameters that are for the gateway, as the audit log shows them.
    #[must_use]
    pub fn recorded_path(&self) -> String {
        let Some(question) = &self.reduce else { return self.path.to_string() };
        let mut reduce = Query::default();
        reduce.push(REDUCE, question.clone());
        let separator = if self.path.query().is_some() { '&' } else { '?' };
        format!("{}{separator}{}", self.path, reduce.encoded())
    }
}

impl OwnTarget {
    /// Reads the rest of a target after the cluster's name, with or without a leading slash.
    fn read(rest: &str) -> Result<Self, ActionError> {
        let received = path::of_cluster(rest)?;
        let segments = path::segments(received.path())?;
        if segments.first().is_some_and(|first| is_of_a_gateway(first)) {
            return Err(ActionError::NestedCluster);
        }
        let (object, legacy) = Object::from_segments(&segments, received.path().ends_with('/'));
        if object.is_proxied() {
            return Ok(Self { object, legacy, query: Query::default(), canonical: received, reduce: None });
        }
        let mut query = Query::parse(received.query().unwrap_or_default())?;
        let reduce = query.take_one(REDUCE)?;
        let canonical = path::with_query(received, &query.encoded())?;
        Ok(Self { object, legacy, query, canonical, reduce })
    }
}

/// The canonical form of a cluster's own `target`, by the rules of [`Action::of_cluster`]. An agent applies it again to
/// what crossed the tunnel.
///
/// # Errors
///
/// [`ActionError`]; the request must not be forwarded.
pub fn canonical_target(target: &str) -> Result<PathAndQuery, ActionError> {
    OwnTarget::read(path::target(target.as_bytes())?).map(|own| own.canonical)
}

impl<'a> Head<'a> {
    /// Extracts the head of a request on a connection to `server_name`. `upgrade` is the result of [`UpgradeProtocol::requested`].
    ///
    /// # Errors
    ///
    /// The request line holds no path, or there are several `Host` headers.
    pub fn from_request(
        server_name: Option<&'a str>,
        version: Version,
        method: &'a Method,
        uri: &'a Uri,
        headers: &'a HeaderMap,
        upgrade: Option<UpgradeProtocol>,
    ) -> Result<Self, ActionError> {
        let authority = uri.authority().map(http::uri::Authority::as_str);
        // HTTP/1.1 puts an authority into the request line only for proxies; HTTP/2 has a pseudo-header for it.
        if version < Version::HTTP_2 && authority.is_some() {
            return Err(ActionError::NotAPath);
        }
        let target = uri.path_and_query().ok_or(ActionError::NotAPath)?.as_str().as_bytes();
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, None) = (hosts.next(), hosts.next()) else {
            return Err(ActionError::Hosts);
        };
        Ok(Self { method, authority, host: host.map(|host| host.as_bytes()), server_name, target, upgrade })
    }
}

/// Checks a request for a summary. Its agent makes the pages.
fn check_reduced(verb: Verb, query: &Query) -> Result<(), ActionError> {
    if verb != Verb::List {
        return Err(ActionError::ReduceNotAList);
    }
    let paged = [LIMIT, CONTINUE].into_iter().find(|name| query.has(name));
    paged.map_or(Ok(()), |name| Err(ActionError::ReduceWithPages(name)))
}

/// Returns true for a first segment under which a gateway serves clusters.
fn is_of_a_gateway(segment: &str) -> bool {
    segment == CLUSTERS_SEGMENT || segment == CLUSTER_SETS_SEGMENT
}

/// Splits a target into the cluster and the rest after its name; `None` for the list of clusters.
fn route(by_host: Option<ClusterId>, target: &str) -> Result<Option<(ClusterId, &str)>, ActionError> {
    if let Some(cluster) = by_host {
        // Decoded, because the API server decodes it too.
        return match path::first_segment(target)? {
            Some(first) if is_of_a_gateway(&first) => Err(ActionError::TwiceNamed(cluster)),
            Some(_) | None => Ok(Some((cluster, target))),
        };
    }
    let rest = match target.strip_prefix(CLUSTERS) {
        Some(rest) if rest.is_empty() || rest.starts_with('?') => return Ok(None),
        Some(rest) => rest.strip_prefix('/').ok_or(ActionError::NotAClusterPath)?,
        None => return Err(ActionError::NotAClusterPath),
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let cluster = name.parse().map_err(|_| ActionError::NotAClusterName)?;
    Ok(Some((cluster, rest)))
}

#[cfg(test)]
mod tests;
