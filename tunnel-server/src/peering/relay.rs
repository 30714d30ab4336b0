//! Serves the streams of other servers: each is carried to an agent of this server, and never to a further server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::audit::{Annotation, Completion, EndReason, Event, Log, Receipt, Status, User};
use daemon::{Scope, error_chain};
use http::StatusCode;
use proto::AbortCode;
use proto::peering::{ViaOutcome, ViaRequest};
use proto::wire::stream_open::Kind;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;
use tracing::debug;
use transport::{OpenError, Tunnel, TunnelStream};

use super::splice::{BrokenLeg, Passed, splice};
use crate::directory::Freshness;
use crate::metrics;
use crate::registry::{Registry, Route};

/// Longest wait for the first frame of a stream, and for the answer to it to be taken.
const FRAME_MAX: Duration = Duration::from_secs(5);

/// Tunnels that are tried for a stream. One that drains or ends meanwhile has taken nothing.
const ROUTES_MAX: usize = 3;

/// The parts that all relays need. Clones share them.
#[derive(Clone)]
pub(super) struct Relays(Arc<SharedRelays>);

struct SharedRelays {
    registry: Registry,
    log: Log,
}

impl Relays {
    pub(super) fn new(registry: Registry, log: Log) -> Self {
        Self(Arc::new(SharedRelays { registry, log }))
    }

    /// Serves the streams that the server `from` opens, until its session ends. Each runs on its agent's home.
    pub(super) async fn serve(&self, from: &str, session: &Tunnel, scope: &Scope) {
        while let Ok(stream) = session.accept().await {
            let (relays, from, within) = (self.clone(), from.to_owned(), scope.clone());
            scope.spawn(async move { relays.relay(&from, stream, &within).await });
        }
    }

    async fn relay(&self, from: &str, mut stream: TunnelStream, scope: &Scope) {
        let request = match timeout(FRAME_MAX, stream.read_open()).await {
            Ok(Ok(open)) => ViaRequest::parse(open),
            Ok(Err(_)) | Err(_) => return stream.abort(AbortCode::BadOpen),
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                debug!(from, %error, "a stream of another server is not understood");
                return stream.abort(AbortCode::BadOpen);
            }
        };
        match self.open(from, &request).await {
            Ok((agent, route, receipt)) => {
                let opened = ViaOutcome::Opened {
                    agent: route.agent().instance().to_owned(),
                    number: route.tunnel_number().get(),
                };
                scope.spawn_on(route.home(), carry(stream, agent, opened, receipt));
            }
            Err(outcome) => {
                // The other server learns it from the end of the stream, too.
                let _ = timeout(FRAME_MAX, refuse(&mut stream, outcome)).await;
            }
        }
    }

    /// Opens a stream to an agent of this server. Nothing waits here: the other server does, and asks again.
    async fn open(
        &self,
        from: &str,
        request: &ViaRequest,
    ) -> Result<(TunnelStream, Route, Receipt), ViaOutcome> {
        let SharedRelays { registry, log, .. } = &*self.0;
        let refused = |why: &str| ViaOutcome::Refused(why.to_owned());
        if registry.directory().freshness() >= Freshness::Stale {
            return Err(refused("this server has had no news from etcd for too long"));
        }
        let receipt = log.intent(event(from, request)).await;
        let receipt = receipt.map_err(|_| refused("this server cannot write its audit log"))?;
        for _ in 0..ROUTES_MAX {
            let Some(route) = registry.route_here(&request.cluster) else { break };
            match route.open(&request.open).await {
                Ok(stream) => return Ok((stream, route, receipt)),
                Err(error) => {
                    debug!(cluster = %request.cluster, error = %error_chain(&error), "could not open a stream");
                    match error {
                        OpenError::Draining | OpenError::Ended(_) => {}
                        OpenError::Full | OpenError::Frame(_) => break,
                    }
                }
            }
        }
        let unavailable = Some(Status::code(StatusCode::SERVICE_UNAVAILABLE.as_u16()));
        receipt.complete(Completion::new(unavailable, EndReason::Refused));
        Err(ViaOutcome::NoTunnel)
    }
}

/// Answers the other server, and passes bytes until both directions have ended.
async fn carry(mut peer: TunnelStream, agent: TunnelStream, opened: ViaOutcome, receipt: Receipt) {
    metrics::relayed();
    let answered = timeout(FRAME_MAX, peer.write_via_reply(opened)).await;
    let (passed, end) = if matches!(answered, Ok(Ok(()))) {
        let (passed, broken) = splice(peer, agent).await;
        let end = match broken {
            None => EndReason::Clean,
            Some(BrokenLeg::Peer) => EndReason::ClientCancel,
            Some(BrokenLeg::Agent) => EndReason::UpstreamReset,
        };
        (passed, end)
    } else {
        (Passed::default(), EndReason::ClientCancel)
    };
    let completion = Completion::new(None, end)
        .with(Annotation::BytesUp, passed.up.to_string())
        .with(Annotation::BytesDown, passed.down.to_string());
    receipt.complete(completion);
}

/// Answers that no agent has the stream, and ends it.
async fn refuse(stream: &mut TunnelStream, outcome: ViaOutcome) -> io::Result<()> {
    stream.write_via_reply(outcome).await?;
    stream.shutdown().await
}

/// The audit event of a relayed stream. The log of the caller's server has the caller, under the same audit ID.
fn event(from: &str, request: &ViaRequest) -> Event {
    let (mode, audit_id) = match &request.open.kind {
        Some(Kind::Http(open)) => ("kube-api", open.audit_id.clone()),
        Some(Kind::Dial(open)) => ("dial", open.audit_id.clone()),
        Some(Kind::Via(_)) | None => ("", String::new()),
    };
    let user = User { username: format!("peer:{from}"), groups: Vec::new(), method: "peer".to_owned() };
    let mut event = Event::new("relay", format!("/clusters/{}", request.cluster), user)
        .with(Annotation::Mode, mode)
        .with(Annotation::Listener, "peering")
        .with(Annotation::Cluster, request.cluster.as_str());
    event.audit_id = audit_id;
    event
}
