//! The headers of a CONNECT that name its cluster or its network, and what is wrong with a CONNECT that is
//! not served.

use http::{HeaderName, HeaderValue, Request};
use proto::ClusterId;

use crate::directory::{NetworkName, NotANetworkName};

/// The header that names the cluster, where the connection's host name does not.
const CLUSTER: HeaderName = HeaderName::from_static("tombolo-cluster");

/// The header that names a network instead: the cluster is then the one of that network which has the target.
const NETWORK: HeaderName = HeaderName::from_static("tombolo-network");

/// The reason why a CONNECT is not served, and its status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectRequestError {
    /// 400. The request's target is not HOST:PORT.
    #[error("CONNECT needs HOST:PORT, with a DNS name, an IPv4 address or [an IPv6 address]")]
    NoTarget,
    /// 400. Several clusters may have the same addresses.
    #[error(
        "CONNECT does not say of which cluster the target is: name it in one header Tombolo-Cluster, or its network in one header \
         Tombolo-Network, or use `tombolo proxy --cluster NAME`"
    )]
    NoCluster,
    /// 505. A broken stream of HTTP/2 would look complete, because hyper ends the streams that it drops.
    #[error("CONNECT is served by HTTP/1.1 alone: offer http/1.1 and not h2 by ALPN")]
    Multiplexed,
    /// 400. The header's value is no network's name.
    #[error("Tombolo-Network: {0}")]
    NotANetwork(NotANetworkName),
    /// 405. An entry point serves nothing but CONNECT.
    #[error("nothing but CONNECT HOST:PORT is served here")]
    NothingElse,
}

/// The cluster that a CONNECT names, if it names one. The inner result is `Err` for a malformed name.
///
/// # Errors
/// The header was sent twice.
pub(super) fn named_cluster<B>(
    request: &Request<B>,
) -> Result<Option<Result<ClusterId, MalformedCluster>>, ConnectRequestError> {
    let parsed = |name: &HeaderValue| name.to_str().ok()?.parse().ok();
    Ok(one(request, &CLUSTER)?.map(|name| parsed(name).ok_or(MalformedCluster)))
}

/// The value of the header `Tombolo-Cluster` is no cluster's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedCluster;

/// The network that a CONNECT names, if it names one.
///
/// # Errors
/// The header was sent twice, or its value is no network's name.
pub(super) fn named_network<B>(request: &Request<B>) -> Result<Option<NetworkName>, ConnectRequestError> {
    let name = one(request, &NETWORK)?.map(|name| name.to_str().unwrap_or_default().parse());
    name.transpose().map_err(ConnectRequestError::NotANetwork)
}

/// The value of a header that may be sent once.
fn one<'a, B>(
    request: &'a Request<B>,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, ConnectRequestError> {
    let mut sent = request.headers().get_all(name).iter();
    match (sent.next(), sent.next()) {
        (_, Some(_)) => Err(ConnectRequestError::NoCluster),
        (value, None) => Ok(value),
    }
}
