//! `CONNECT HOST:PORT`: a caller who wants bytes to and from a target of a cluster, of which it says the name, or that of its network.

use std::io;

use http::{HeaderName, HeaderValue, Request, Response, Version};
use hyper::upgrade::{Parts, Upgraded};
use policy::Target;
use policy::action::ActionFault;
use proto::ClusterId;
use tokio::net::UnixStream;

use super::body::AnswerBody;
use super::hangup::Watched;
use super::refusal::Refusal;
use super::stack::{CallerBody, audit_id};
use super::{Gateway, Peer, recorded};
use crate::dialing::Within;
use crate::dialing::near::{Behind, Near, taken_back};
use crate::directory::{NetworkName, NotANetworkName};
use crate::exchanges::Live;
use crate::identity::{Authenticated, Caller};
use crate::permit::{Dial, Permit};
use crate::shares::Kind;

/// The header that names the cluster, where the connection's host name does not.
const CLUSTER: HeaderName = HeaderName::from_static("tombolo-cluster");

/// The header that names a network in its place: the cluster is then the one of that network which has the target.
const NETWORK: HeaderName = HeaderName::from_static("tombolo-network");

/// Why a CONNECT is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectFault {
    /// 400.
    #[error("CONNECT needs HOST:PORT, with a DNS name, an IPv4 address or [an IPv6 address]")]
    NoTarget,
    /// 400. Several clusters may have the same addresses.
    #[error(
        "CONNECT does not say of which cluster the target is: name it in one header Tombolo-Cluster, or its network in one header \
         Tombolo-Network, or use `tombolo proxy --cluster NAME`"
    )]
    NoCluster,
    /// 505. Of a stream of HTTP/2 nobody could tell that it broke: hyper ends what is dropped, as if it were whole.
    #[error("CONNECT is served by HTTP/1.1 alone: offer http/1.1 and not h2 by ALPN")]
    Multiplexed,
    /// 400.
    #[error("Tombolo-Network: {0}")]
    NotANetwork(NotANetworkName),
    /// 405. By a way in that is for that alone.
    #[error("nothing but CONNECT HOST:PORT is served here")]
    NothingElse,
}

impl Gateway {
    /// Serves a CONNECT: answered with 200 once the target is connected, and not one byte is passed on before.
    pub(super) async fn connect(
        &self,
        known: &Authenticated,
        peer: &Peer,
        request: Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let caller = known.claimed();
        let permitted = self.wanted(known.require_single_credential()?, peer, &request).await;
        let (permit, live) = match permitted {
            Ok(permitted) => permitted,
            Err(refusal) => {
                let recorder = self.0.dials.recorder();
                recorded::answered(recorder, &request, caller, peer, Some(&refusal)).await?;
                return Err(refusal);
            }
        };
        let place = peer.way_in.as_ref().map(|way_in| way_in.places.take()).transpose()?;
        let kind = if peer.way_in.is_some() { Kind::WayIn } else { Kind::Upgrade };
        let share = self.0.shares.take(permit.caller(), &permit.what().cluster, kind)?;
        let mut share = share.seated().await?;
        let event = recorded::dialed(&permit, peer, &request);
        let recorded = self.0.dials.recorder().intent((permit, live), event).await?;
        let slot = request.body().held().clone();
        slot.keep(recorded.record().clone());
        slot.active().set_sort("dial");
        let connected = self.0.dials.connect(&recorded, audit_id(&request)).await?;
        recorded.record().answered(http::StatusCode::OK);
        share.begun();
        let caller = hyper::upgrade::on(request);
        connected.join(async { near(caller.await.map_err(io::Error::other)?) }, (slot, share, place));
        Ok(Response::new(AnswerBody::text("")))
    }

    /// What is asked for, if it may be.
    async fn wanted<B: Sync>(
        &self,
        caller: &Caller,
        peer: &Peer,
        request: &Request<B>,
    ) -> Result<(Permit<Dial>, Live), Refusal> {
        if request.version() == Version::HTTP_2 {
            return Err(ConnectFault::Multiplexed.into());
        }
        let authority = request.uri().authority().ok_or(ConnectFault::NoTarget)?;
        let target: Target = authority.as_str().parse().map_err(|_| ConnectFault::NoTarget)?;
        let within = self.within(peer, request)?;
        Ok(self.0.dials.permit(caller, within, target).await?)
    }

    /// Where header or host name of the connection, or the way in, say that the target is: both, if they say the same cluster. Who is
    /// bound to a cluster by the connection names no network.
    fn within<B>(&self, peer: &Peer, request: &Request<B>) -> Result<Within, Refusal> {
        let said = one(request, &CLUSTER)?;
        let said = said.map(|name| name.to_str().ok().and_then(|name| name.parse::<ClusterId>().ok()));
        let network = network(request)?;
        let by_name = match &peer.way_in {
            Some(way_in) => Some(way_in.cluster.clone()),
            None => self.0.names.cluster_of_connection(peer.server_name.as_deref())?,
        };
        match (said, network, by_name) {
            (Some(None), ..) => Err(ActionFault::NotAClusterName.into()),
            (Some(Some(_)), Some(_), _) | (None, None, None) => Err(ConnectFault::NoCluster.into()),
            (Some(Some(said)), None, Some(by_name)) if said != by_name => {
                Err(ActionFault::OtherConnection.into())
            }
            (None, Some(_), Some(_)) => Err(ActionFault::OtherConnection.into()),
            (Some(Some(cluster)), None, _) | (None, None, Some(cluster)) => Ok(Within::Cluster(cluster)),
            (None, Some(network), None) => Ok(Within::OneOf(Vec::new(), vec![network])),
        }
    }
}

/// What bytes pass by from now on: the connection itself.
fn near(upgraded: Upgraded) -> io::Result<Box<dyn Near>> {
    match upgraded.downcast::<Watched>() {
        Ok(Parts { io, read_buf, .. }) => Ok(Box::new(Behind::new(read_buf, io.into_near()))),
        Err(upgraded) => Ok(Box::new(taken_back::<UnixStream>(upgraded)?)),
    }
}

/// The network that a CONNECT names, if it names one.
pub(super) fn network<B>(request: &Request<B>) -> Result<Option<NetworkName>, ConnectFault> {
    let name = one(request, &NETWORK)?.map(|name| name.to_str().unwrap_or_default().parse());
    name.transpose().map_err(ConnectFault::NotANetwork)
}

/// What the one header of this name says, if there is one.
fn one<'a, B>(request: &'a Request<B>, name: &HeaderName) -> Result<Option<&'a HeaderValue>, ConnectFault> {
    let mut said = request.headers().get_all(name).iter();
    match (said.next(), said.next()) {
        (_, Some(_)) => Err(ConnectFault::NoCluster),
        (said, None) => Ok(said),
    }
}
