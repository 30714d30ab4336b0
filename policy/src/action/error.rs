//! Errors of parsing an action, each with the HTTP status of its answer.

use http::Method;
use proto::ClusterId;

use crate::label::NotALabelSelector;

/// Longest path with query, in bytes. Callers have label selectors of 60 KB. [`http::Uri`] ends at 65,534 bytes,
/// a little beyond, so that this limit is the one that answers.
pub const TARGET_BYTES_MAX: usize = 63 * 1024;

/// Most parameters in a query. Go reads a query of more than 10,000 as if it were empty, and the gateway adds up to three
/// to a watch.
pub const QUERY_PAIRS_MAX: usize = 5_000;

/// Errors of parsing an action. Each names the HTTP status of its answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// 405: the method is not served.
    #[error("the method {0} is not served here, use GET, HEAD, OPTIONS, POST, PUT, PATCH or DELETE")]
    Method(Method),
    /// 405: the list of clusters is read-only.
    #[error("/clusters is a list, which can only be read with GET")]
    ListOnlyGet,
    /// 400: a complete URL, `host:port` or `*` instead of a path.
    #[error("the request line must hold a path that begins with '/', not a whole URL, an authority or '*'")]
    NotAPath,
    /// 414: the path exceeds [`TARGET_BYTES_MAX`].
    #[error("the path with its query is longer than {max} bytes", max = TARGET_BYTES_MAX)]
    TooLong,
    /// 400: a byte that a request line must not contain.
    #[error("the path holds a byte that must be percent-encoded in a URL")]
    RawByte,
    /// 400: the path contains `//`.
    #[error("the path has an empty segment ('//'), remove one of the slashes")]
    EmptySegment,
    /// 400: the path contains `.` or `..`.
    #[error("the path has a segment '.' or '..', send the path that it leads to")]
    DotSegment,
    /// 400: a character that another server may read as a separator, an end of text, or a second encoding.
    #[error(
        "a segment of the path holds an encoded '/', '\\', '%' or control character, which no name here has"
    )]
    HiddenCharacter,
    /// 400: the percent-encoding is malformed.
    #[error("a segment of the path is not valid percent-encoded UTF-8")]
    Encoding,
    /// 400: a parameter of the query is malformed, or no UTF-8.
    #[error("a parameter of the query is not valid percent-encoded UTF-8")]
    QueryEncoding,
    /// 400: the query contains a raw `;`, which some servers take for a separator.
    #[error("the query has a raw ';', which is a separator to some servers, write %3B")]
    Semicolon,
    /// 400: the query has more than [`QUERY_PAIRS_MAX`] parameters.
    #[error("the query has more than {max} parameters", max = QUERY_PAIRS_MAX)]
    TooManyParameters,
    /// 400: API servers can differ on whether this is a watch.
    #[error("the query says in two ways whether to watch, use one watch=true or watch=false")]
    AmbiguousWatch,
    /// 400: the cluster's own path begins with `/clusters` or `/clustersets`.
    #[error(
        "a cluster's own path cannot begin with /clusters or /clustersets, send the request to that cluster itself"
    )]
    NestedCluster,
    /// 400: the request names no host.
    #[error("the request does not say for which host it is, send a Host header")]
    NoHost,
    /// 400: the request has several `Host` headers.
    #[error("the request has more than one Host header")]
    Hosts,
    /// 400: `:authority` and `Host` differ.
    #[error("the request names two different hosts, in :authority and in Host")]
    HostsDisagree,
    /// 400: the host is malformed.
    #[error("the request's host is not a DNS name or an IP address, with at most a port behind it")]
    NotAHost,
    /// 404: the path is not below `/clusters` or `/clustersets`.
    #[error(
        "there is nothing here, a cluster's API is under /clusters/NAME/, that of a set under /clustersets/NAME/, and the list of \
         clusters is /clusters"
    )]
    NotAClusterPath,
    /// 400: the path or the host name has no valid cluster name.
    #[error(
        "that is not a cluster's name: use 1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends"
    )]
    NotAClusterName,
    /// 405: a cluster set is only read, and never watched.
    #[error(
        "a cluster set answers GET of lists, of single objects and of discovery: for everything else name one cluster, as in \
         /clusters/NAME/"
    )]
    SetOnlyRead,
    /// 400: a cluster set does not answer for this path.
    #[error(
        "a cluster set answers for resources, discovery, /version and /openapi: for everything else name one cluster, as in \
         /clusters/NAME/"
    )]
    NotOfASet,
    /// 400: the path has no valid name of a cluster set.
    #[error(
        "that is not a cluster set's name: use 1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends"
    )]
    NotASetName,
    /// 400: `clusterSelector` does not parse.
    #[error("clusterSelector: {0}")]
    ClusterSelector(NotALabelSelector),
    /// 400: `labelSelector` of the list of clusters does not parse.
    #[error("labelSelector: {0}")]
    LabelSelector(NotALabelSelector),
    /// 400: a read of the list of clusters asks for a version.
    #[error(
        "the list of clusters has no versions: leave resourceVersion out, or use resourceVersion=0. A watch begins with all clusters"
    )]
    ListVersion,
    /// 400: the row of a table has no such part of its object.
    #[error("includeObject must be None, Metadata or Object")]
    IncludeObject,
    /// 400: this parameter is there more than once.
    #[error("the query has {0} more than once")]
    Twice(&'static str),
    /// 400: this parameter is no number.
    #[error("{0} must be a whole number, 0 or more")]
    NotANumber(&'static str),
    /// 400: a read of a cluster set asks for a version.
    #[error(
        "each cluster of a set counts its own versions: leave resourceVersion out, or use resourceVersion=0"
    )]
    SetVersion,
    /// 400: only the list of a resource is summarized.
    #[error("tombolo-reduce summarizes the list of a resource: send it with GET of a list, without watch")]
    ReduceNotAList,
    /// 400: a summary is of the whole list.
    #[error("tombolo-reduce summarizes the whole list: leave {0} out")]
    ReduceWithPages(&'static str),
    /// 421: the host is not one of this server's.
    #[error("this server does not serve that host name, use one that it was given in gateway.hosts")]
    ForeignHost,
    /// 421: both the host name and the path name a cluster.
    #[error(
        "the host name and the path both name a cluster, use https://{0}.SUFFIX/ without /clusters, or /clusters under the gateway's own name"
    )]
    TwiceNamed(ClusterId),
    /// 421: the connection's SNI names another cluster than the request.
    #[error(
        "this connection was made to another cluster's host name, open one to the host that this request names"
    )]
    OtherConnection,
    /// 400: Kubernetes does not upgrade this request.
    #[error(
        "an upgrade is served only for exec, attach, portforward and proxy, and one to websocket for log and watch too"
    )]
    UpgradeNotHere,
}
