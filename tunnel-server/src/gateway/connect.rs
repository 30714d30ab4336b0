//! `CONNECT HOST:PORT`: a caller who wants bytes to and from a target of a cluster, of which it says the name.

use std::io;

use http::{HeaderName, Request, Response, Version};
use hyper::upgrade::{Parts, Upgraded};
use hyper_util::rt::TokioIo;
use policy::Target;
use policy::action::ActionFault;
use proto::ClusterId;
use tokio::net::UnixStream;

use super::body::AnswerBody;
use super::hangup::Watched;
use super::refusal::Refusal;
use super::stack::{CallerBody, audit_id};
use super::{Gateway, Peer, recorded};
use crate::dialing::near::{Behind, Near};
use crate::exchanges::Live;
use crate::identity::{Authenticated, Caller};
use crate::permit::{Dial, Permit};
use crate::shares::Kind;

/// The header that names the cluster, where the connection's host name does not.
const CLUSTER: HeaderName = HeaderName::from_static("tombolo-cluster");

/// Why a CONNECT is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectFault {
    /// 400.
    #[error("CONNECT needs HOST:PORT, with a DNS name, an IPv4 address or [an IPv6 address]")]
    NoTarget,
    /// 400. Several clusters may have the same addresses.
    #[error(
        "CONNECT does not say of which cluster the target is: name it in one header Tombolo-Cluster, or use `tombolo proxy \
         --cluster NAME`"
    )]
    NoCluster,
    /// 505. Of a stream of HTTP/2 nobody could tell that it broke: hyper ends what is dropped, as if it were whole.
    #[error("CONNECT is served by HTTP/1.1 alone: offer http/1.1 and not h2 by ALPN")]
    Multiplexed,
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
        let permitted = self.wanted(known.alone()?, peer, &request).await;
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
        let cluster = self.cluster_of(peer, request)?;
        Ok(self.0.dials.permit(caller, cluster, target).await?)
    }

    /// The cluster that header or host name of the connection, or the way in, say: both, if they say the same.
    fn cluster_of<B>(&self, peer: &Peer, request: &Request<B>) -> Result<ClusterId, Refusal> {
        let mut said = request.headers().get_all(CLUSTER).iter();
        let (said, more) = (said.next(), said.next());
        let said = said.map(|name| name.to_str().ok().and_then(|name| name.parse().ok()));
        let by_name = match &peer.way_in {
            Some(way_in) => Some(way_in.cluster.clone()),
            None => self.0.names.cluster_of_connection(peer.server_name.as_deref()),
        };
        match (said, by_name) {
            _ if more.is_some() => Err(ConnectFault::NoCluster.into()),
            (Some(None), _) => Err(ActionFault::NotAClusterName.into()),
            (Some(Some(said)), Some(by_name)) if said != by_name => Err(ActionFault::OtherConnection.into()),
            (Some(Some(cluster)), _) | (None, Some(cluster)) => Ok(cluster),
            (None, None) => Err(ConnectFault::NoCluster.into()),
        }
    }
}

/// What bytes pass by from now on: the connection itself.
fn near(upgraded: Upgraded) -> io::Result<Box<dyn Near>> {
    let upgraded = match upgraded.downcast::<Watched>() {
        Ok(Parts { io, read_buf, .. }) => return Ok(Box::new(Behind::new(read_buf, io.into_near()))),
        Err(upgraded) => upgraded,
    };
    let parts = upgraded.downcast::<TokioIo<UnixStream>>();
    let Parts { io, read_buf, .. } = parts.map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Box::new(Behind::new(read_buf, io.into_inner())))
}
