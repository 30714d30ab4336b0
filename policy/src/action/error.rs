//! Errors of parsing an action, each with the HTTP status of its answer.

use http::Method;
use proto::ClusterId;

/// Longest path with query, in bytes.
pub const TARGET_BYTES_MAX: usize = 16 * 1024;

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
    /// 404: the path is not below `/clusters`.
    #[error("there is nothing here, a cluster's API is under /clusters/NAME/ and the list is /clusters")]
    NotAClusterPath,
    /// 400: the path or the host name has no valid cluster name.
    #[error(
        "that is not a cluster's name: use 1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends"
    )]
    NotAClusterName,
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
