//! What a request asks: of which cluster, and what of it.
//!
//! Pure. The path is routed on its raw bytes, and what goes to the cluster are the same bytes: nothing is decoded,
//! resolved or cleaned on the way, so that this server and the API server cannot read two things in one path. What
//! they could read differently is refused.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, Version, header};
use proto::ClusterId;
use proto::upgrade::Protocol;

mod authority;
mod path;
mod resource;
mod verb;

pub use authority::Names;
pub(crate) use resource::connects;
pub use resource::{Object, Resource};
pub use verb::{NotAVerb, Verb};

/// Longest path with query, in bytes.
pub const TARGET_BYTES_MAX: usize = 16 * 1024;

/// The path under which clusters are reached, and which lists them.
const CLUSTERS: &str = "/clusters";

/// What a request asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Something of a cluster.
    Cluster(Action),
    /// Which clusters there are: `GET /clusters`.
    ClusterList,
}

/// What a request asks of a cluster. Only [`Action::parse`] and [`Action::of_cluster`] make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    cluster: ClusterId,
    verb: Verb,
    object: Object,
    long_running: bool,
    path: PathAndQuery,
}

/// Where a request says that it goes, as it was received.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// Its method.
    pub method: &'a Method,
    /// HTTP/2's `:authority`, if there is one.
    pub authority: Option<&'a str>,
    /// The value of the one `Host` header, if there is one.
    pub host: Option<&'a [u8]>,
    /// The name that TLS was asked for (SNI), if there was one.
    pub server_name: Option<&'a str>,
    /// The path with the query, raw.
    pub target: &'a [u8],
    /// The protocol that it wants to be upgraded to.
    pub upgrade: Option<Protocol>,
}

/// Why it cannot be said what a request asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionFault {
    /// 405.
    #[error("the method {0} is not served here, use GET, HEAD, OPTIONS, POST, PUT, PATCH or DELETE")]
    Method(Method),
    /// 405.
    #[error("/clusters is a list, which can only be read with GET")]
    ListOnlyGet,
    /// 400. The whole URL, `host:port` or `*` instead of a path.
    #[error("the request line must hold a path that begins with '/', not a whole URL, an authority or '*'")]
    NotAPath,
    /// 414.
    #[error("the path with its query is longer than {max} bytes", max = TARGET_BYTES_MAX)]
    TooLong,
    /// 400. A byte that has no place in a request line.
    #[error("the path holds a byte that must be percent-encoded in a URL")]
    RawByte,
    /// 400.
    #[error("the path has an empty segment ('//'), remove one of the slashes")]
    EmptySegment,
    /// 400.
    #[error("the path has a segment '.' or '..', send the path that it leads to")]
    DotSegment,
    /// 400. One that another server could take for a separator, the end of the text, or one more encoding.
    #[error(
        "a segment of the path holds an encoded '/', '\\', '%' or control character, which no name here has"
    )]
    HiddenCharacter,
    /// 400.
    #[error("a segment of the path is not valid percent-encoded UTF-8")]
    Encoding,
    /// 400.
    #[error("the request does not say for which host it is, send a Host header")]
    NoHost,
    /// 400.
    #[error("the request has more than one Host header")]
    Hosts,
    /// 400.
    #[error("the request names two different hosts, in :authority and in Host")]
    HostsDisagree,
    /// 400.
    #[error("the request's host is not a DNS name or an IP address, with at most a port behind it")]
    NotAHost,
    /// 404. By path.
    #[error("there is nothing here, a cluster's API is under /clusters/NAME/ and the list is /clusters")]
    NotAClusterPath,
    /// 400. By path or by host name.
    #[error(
        "that is not a cluster's name: use 1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends"
    )]
    NotAClusterName,
    /// 421.
    #[error("this server does not serve that host name, use one that it was given in gateway.hosts")]
    ForeignHost,
    /// 421. The host name is a cluster's, and the path names a cluster too.
    #[error(
        "the host name and the path both name a cluster, use https://{0}.SUFFIX/ without /clusters, or /clusters under the gateway's own name"
    )]
    TwiceNamed(ClusterId),
    /// 421. TLS was asked for one cluster's name and the request for something else.
    #[error(
        "this connection was made to another cluster's host name, open one to the host that this request names"
    )]
    OtherConnection,
    /// 400.
    #[error(
        "an upgrade is served only for exec, attach, portforward and proxy, and one to websocket for log and watch too"
    )]
    UpgradeNotHere,
}

impl Action {
    /// What `head` asks of a server with these `names`.
    ///
    /// # Errors
    ///
    /// [`ActionFault`]; the request must not go anywhere.
    pub fn parse(names: &Names, head: &Head<'_>) -> Result<Asked, ActionFault> {
        if !verb::is_served(head.method) {
            return Err(ActionFault::Method(head.method.clone()));
        }
        let target = path::target(head.target)?;
        let by_host = names.cluster_of(authority::agreed(head.authority, head.host)?)?;
        let routed = routed(by_host, target)?;
        let bound_to = names.cluster_of_connection(head.server_name)?;
        if bound_to.is_some() && bound_to.as_ref() != routed.as_ref().map(|(cluster, _)| cluster) {
            return Err(ActionFault::OtherConnection);
        }
        let Some((cluster, rest)) = routed else {
            return match *head.method {
                Method::GET if head.upgrade.is_none() => Ok(Asked::ClusterList),
                Method::GET => Err(ActionFault::UpgradeNotHere),
                _ => Err(ActionFault::ListOnlyGet),
            };
        };
        Self::behind(cluster, head.method, rest, head.upgrade).map(Asked::Cluster)
    }

    /// What a request with this raw `target`, a path with its query, asks of `cluster`.
    ///
    /// # Errors
    ///
    /// [`ActionFault`]; the request must not go anywhere.
    pub fn of_cluster(
        cluster: ClusterId,
        method: &Method,
        target: &str,
        upgrade: Option<Protocol>,
    ) -> Result<Self, ActionFault> {
        if !verb::is_served(method) {
            return Err(ActionFault::Method(method.clone()));
        }
        Self::behind(cluster, method, path::target(target.as_bytes())?, upgrade)
    }

    /// What the rest of a target asks of `cluster`: what stands behind the cluster's name, perhaps without a slash.
    fn behind(
        cluster: ClusterId,
        method: &Method,
        rest: &str,
        upgrade: Option<Protocol>,
    ) -> Result<Self, ActionFault> {
        let path = path::of_cluster(rest)?;
        let segments = path::segments(path.path())?;
        let (object, special) = Object::of(&segments, path.path().ends_with('/'));
        let verb = Verb::of(method, &object, special, path.query());
        if upgrade.is_some_and(|protocol| !verb::may_upgrade(protocol, verb, &object)) {
            return Err(ActionFault::UpgradeNotHere);
        }
        let long_running = verb::is_long_running(verb, &object);
        Ok(Self { cluster, verb, object, long_running, path })
    }

    /// The cluster that is asked.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// What Kubernetes, and for *connect* our policy, calls it.
    #[must_use]
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// The resource or other path that it is about.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Whether Kubernetes lets its answer take as long as it likes: a watch, a log, and what reaches into a workload.
    #[must_use]
    pub fn is_long_running(&self) -> bool {
        self.long_running
    }

    /// The cluster's own path with the query: byte for byte what was received behind the cluster's name.
    #[must_use]
    pub fn path(&self) -> &PathAndQuery {
        &self.path
    }
}

impl<'a> Head<'a> {
    /// The head of a request received on a connection to `server_name`, `upgrade` being what [`Protocol::asked`] found
    /// in it.
    ///
    /// # Errors
    ///
    /// The request line holds no path, or there are several `Host` headers.
    pub fn received(
        server_name: Option<&'a str>,
        version: Version,
        method: &'a Method,
        uri: &'a Uri,
        headers: &'a HeaderMap,
        upgrade: Option<Protocol>,
    ) -> Result<Self, ActionFault> {
        let authority = uri.authority().map(http::uri::Authority::as_str);
        // HTTP/1.1 puts an authority into the request line only for proxies; HTTP/2 has a field of its own for it.
        if version < Version::HTTP_2 && authority.is_some() {
            return Err(ActionFault::NotAPath);
        }
        let target = uri.path_and_query().ok_or(ActionFault::NotAPath)?.as_str().as_bytes();
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, None) = (hosts.next(), hosts.next()) else {
            return Err(ActionFault::Hosts);
        };
        Ok(Self { method, authority, host: host.map(|host| host.as_bytes()), server_name, target, upgrade })
    }
}

/// The cluster and the rest of the target behind its name; `None` for the list of clusters.
fn routed(by_host: Option<ClusterId>, target: &str) -> Result<Option<(ClusterId, &str)>, ActionFault> {
    if let Some(cluster) = by_host {
        // Decoded, because the API server would read it decoded.
        return match path::first_segment(target)? {
            Some(first) if first == "clusters" => Err(ActionFault::TwiceNamed(cluster)),
            Some(_) | None => Ok(Some((cluster, target))),
        };
    }
    let rest = match target.strip_prefix(CLUSTERS) {
        Some("") => return Ok(None),
        Some(rest) => rest.strip_prefix('/').ok_or(ActionFault::NotAClusterPath)?,
        None => return Err(ActionFault::NotAClusterPath),
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let cluster = name.parse().map_err(|_| ActionFault::NotAClusterName)?;
    Ok(Some((cluster, rest)))
}

#[cfg(test)]
mod tests;
