//! `CONNECT HOST:PORT`: connects a caller to a target of a cluster, or of a network's cluster, and passes
//! bytes both ways.

use std::io;

use http::{Request, Response, StatusCode, Version};
use hyper::upgrade::{Parts, Upgraded};
use policy::Target;
use policy::action::ActionError;
use tokio::net::UnixStream;

use super::audit;
use super::body::AnswerBody;
use super::connect_target::{ConnectRequestError, MalformedCluster, named_cluster, named_network};
use super::disconnect::WatchedConnection;
use super::guarded_body::CallerBody;
use super::peer::Peer;
use super::refusal::Refusal;
use super::state::Gateway;
use crate::authz::{Dial, Permit};
use crate::dialing::TargetScope;
use crate::dialing::local_stream::{LocalStream, PrefixedStream, from_upgraded};
use crate::exchanges::RunningExchange;
use crate::forwarding::audit_id::audit_id;
use crate::identity::Caller;
use crate::limits::ExchangeKind;

/// A connection to a target, with its permit.
pub(super) struct AdmittedDial {
    permit: Permit<Dial>,
    exchange: RunningExchange,
}

impl Gateway {
    /// Connects a caller to a target. The answer is 200 once the target is connected, and no byte passes
    /// before.
    pub(super) async fn dial(
        &self,
        peer: &Peer,
        admitted: AdmittedDial,
        request: Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let AdmittedDial { permit, exchange } = admitted;
        let slot_of_entry_point =
            peer.entry_point.as_ref().map(|entry_point| entry_point.slots.take()).transpose()?;
        let kind = if peer.entry_point.is_some() { ExchangeKind::EntryPoint } else { ExchangeKind::Upgrade };
        let limit_guard = self.0.limiter.admit(permit.caller(), &permit.what().cluster, kind)?;
        let mut limit_guard = limit_guard.wait_for_seat().await?;
        let event = audit::dial_intent(&permit, peer, &request);
        let audited = self.0.audit_log.write_intent((permit, exchange), event).await?;
        let slot = request.body().guard().clone();
        slot.set_audit_entry(audited.entry().clone());
        slot.active().set_kind("dial");
        let connected = self.0.dials.connect(&audited, audit_id(&request)).await?;
        audited.entry().set_status(StatusCode::OK);
        limit_guard.response_started();
        let caller = hyper::upgrade::on(request);
        let guards = (slot, limit_guard, slot_of_entry_point);
        connected.relay(async { local_stream(caller.await.map_err(io::Error::other)?) }, guards);
        Ok(Response::new(AnswerBody::text("")))
    }

    /// Reads the target and its cluster, and has the connection permitted.
    pub(super) async fn admit_dial<B: Sync>(
        &self,
        caller: &Caller,
        peer: &Peer,
        request: &Request<B>,
    ) -> Result<AdmittedDial, Refusal> {
        if request.version() == Version::HTTP_2 {
            return Err(ConnectRequestError::Multiplexed.into());
        }
        let authority = request.uri().authority().ok_or(ConnectRequestError::NoTarget)?;
        let target: Target = authority.as_str().parse().map_err(|_| ConnectRequestError::NoTarget)?;
        let within = self.within(peer, request)?;
        let (permit, exchange) = self.0.dials.permit(caller, within, target).await?;
        Ok(AdmittedDial { permit, exchange })
    }

    /// The cluster or the network of the target, as the headers, the connection's host name or its entry
    /// point name it. If several of them name a cluster, they must agree. A connection that is bound to a
    /// cluster names no network.
    fn within<B>(&self, peer: &Peer, request: &Request<B>) -> Result<TargetScope, Refusal> {
        let (by_header, network) = (named_cluster(request)?, named_network(request)?);
        let by_connection = match &peer.entry_point {
            Some(entry_point) => Some(entry_point.cluster.clone()),
            None => self.0.names.cluster_of_connection(peer.server_name.as_deref())?,
        };
        match (by_header, network, by_connection) {
            (Some(Err(MalformedCluster)), ..) => Err(ActionError::NotAClusterName.into()),
            (Some(Ok(_)), Some(_), _) | (None, None, None) => Err(ConnectRequestError::NoCluster.into()),
            (Some(Ok(named)), None, Some(bound)) if named != bound => {
                Err(ActionError::OtherConnection.into())
            }
            (None, Some(_), Some(_)) => Err(ActionError::OtherConnection.into()),
            (Some(Ok(cluster)), None, _) | (None, None, Some(cluster)) => Ok(TargetScope::Cluster(cluster)),
            (None, Some(network), None) => Ok(TargetScope::OneOf(Vec::new(), vec![network])),
        }
    }
}

/// The caller's own stream, without HTTP.
fn local_stream(upgraded: Upgraded) -> io::Result<Box<dyn LocalStream>> {
    match upgraded.downcast::<WatchedConnection>() {
        Ok(Parts { io, read_buf, .. }) => Ok(Box::new(PrefixedStream::new(read_buf, io.into_near()))),
        Err(upgraded) => Ok(Box::new(from_upgraded::<UnixStream>(upgraded)?)),
    }
}
