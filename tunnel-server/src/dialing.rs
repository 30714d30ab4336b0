//! Connects callers to targets at the edge, for every entry point: checks permission, picks a tunnel and
//! relays the bytes.
//!
//! Three lists must agree on a target. The server's store lets its cluster advertise it. The tunnel's agent
//! advertises it. The agent's own list, which the agent checks last, lets it be dialed. An agent's statements
//! can only narrow what the store allows.

pub(crate) mod admit;
pub(crate) mod by_source;
mod error;
pub(crate) mod local_stream;
pub(crate) mod reason_phrase;
pub(crate) mod reset_on_drop;
mod resolve_cluster;
mod source_slots;

use std::sync::Arc;
use std::time::Duration;

use audit::EndReason;
use daemon::{Scope, error_chain, run_until};
use policy::{ClusterFacts, Target};
use proto::wire::dial_reply::Outcome;
use proto::wire::{DialReply, StreamOpen};
use proto::{AbortCode, ClusterId};
use tokio::io::copy_bidirectional_with_sizes;
use tokio::time::{Instant, timeout};
use tracing::debug;
use transport::{OpenError, OpenFrameError};

use crate::authz::{Delegation, Dial, Permit, Policy};
use crate::exchanges::audit::{AuditEntry, AuditLog, Audited};
use crate::exchanges::byte_count::count_bytes;
use crate::exchanges::slow_readers::{ExchangeInfo, ObservedStream, SlowReaders};
use crate::exchanges::{ExchangeTable, RunningExchange};
use crate::identity::Caller;
use crate::limits::Limiter;
use crate::metrics::{self, SentAgainKind};
use crate::registry::{Registry, Route, WaitQueue, never_begun};
use local_stream::LocalStream;

pub use by_source::ServeError;
pub use error::DialError;
pub(crate) use resolve_cluster::TargetScope;

/// The longest wait for the agent's reply to a dial. It exceeds the time that the agent gives to name
/// resolution and connecting together.
pub const REPLY_MAX: Duration = Duration::from_secs(15);

/// The most tunnels that are tried for one dial.
const ROUTES_MAX: usize = 3;

/// The buffer of a relayed connection in each direction, in bytes.
const BUFFER_BYTES: usize = 32 * 1024;

/// Dials targets for all entry points. Clones share one dialer.
#[derive(Clone)]
pub struct Dialer(Arc<DialerParts>);

/// The dependencies of a [`Dialer`].
pub(crate) struct DialerParts {
    pub(crate) registry: Registry,
    pub(crate) policy: Policy,
    pub(crate) delegation: Delegation,
    /// The table of running exchanges.
    pub(crate) table: ExchangeTable,
    pub(crate) recorder: AuditLog,
    pub(crate) slow_readers: SlowReaders,
    /// The limits of each caller and each cluster.
    pub(crate) limiter: Limiter,
    /// The queue of dials that wait for clusters that are away.
    pub(crate) wait_queue: WaitQueue,
    /// The longest wait for a cluster that is away.
    pub(crate) park_timeout: Duration,
    pub(crate) scope: Scope,
}

/// A stream whose other end is connected to a target.
pub(crate) struct TargetStream {
    route: Route,
    stream: ObservedStream,
    audit_entry: AuditEntry,
    scope: Scope,
}

impl Dialer {
    pub(crate) fn new(parts: DialerParts) -> Self {
        Self(Arc::new(parts))
    }

    pub(crate) fn recorder(&self) -> &AuditLog {
        &self.0.recorder
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.0.limiter
    }

    /// Permits `caller` to be connected to `target`, and enters the exchange in the table. If `scope` is not
    /// one cluster, the one that has the target is found first. Policy is checked before the store, so that
    /// callers without rights learn nothing about a cluster.
    ///
    /// # Errors
    /// [`DialError`] if the caller may not dial the target, the cluster may not advertise it, or several
    /// clusters have it.
    pub(crate) async fn permit(
        &self,
        caller: &Caller,
        scope: TargetScope,
        target: Target,
    ) -> Result<(Permit<Dial>, RunningExchange), DialError> {
        let DialerParts { registry, policy, delegation, table, .. } = &*self.0;
        table.check_revoked(caller)?;
        let permit = match scope {
            TargetScope::Cluster(cluster) => {
                let facts = ClusterFacts { labels: registry.directory().labels(&cluster) };
                let allowed = policy.snapshot().authorize_dial(caller, Dial { cluster, target }, &facts)?;
                delegation.grant(allowed).await?
            }
            TargetScope::OneOf(clusters, networks) => {
                self.resolve_cluster(caller, (&clusters, &networks), &target).await?
            }
        };
        let Dial { cluster, target } = permit.what();
        if !registry.directory().may_advertise(cluster, target) {
            return Err(DialError::NotOfCluster(cluster.clone(), target.clone()));
        }
        let live = table.enter(&permit)?;
        Ok((permit, live))
    }

    /// Connects to the target, through a tunnel that is live or becomes live in time. Stops if the exchange
    /// is terminated.
    ///
    /// # Errors
    /// [`DialError`] if there is no tunnel, or the agent does not connect.
    pub(crate) async fn connect(
        &self,
        proof: &Audited<Dial>,
        audit_id: &str,
    ) -> Result<TargetStream, DialError> {
        // Both arms are cancel-safe: a stream that is dropped is aborted.
        tokio::select! {
            connected = self.dial(proof, audit_id) => connected,
            why = proof.entry().terminated() => Err(why.into()),
        }
    }

    async fn dial(&self, proof: &Audited<Dial>, audit_id: &str) -> Result<TargetStream, DialError> {
        let Dial { cluster, target } = proof.permit().what();
        let open = StreamOpen::dial(target.to_string(), audit_id.to_owned());
        let until = Instant::now() + self.0.park_timeout;
        for attempt in 0..ROUTES_MAX {
            let route = self.0.registry.route_within(cluster, until, &self.0.wait_queue).await?;
            if !route.advertises(target) {
                return Err(DialError::NotAdvertised(cluster.clone(), target.clone()));
            }
            // Checked after the wait, which may have been long.
            proof.entry().check_log()?;
            match route.open(&open).await {
                Ok(mut stream) => {
                    proof.entry().stream_opened(&route, stream.abort_codes());
                    let (verdict, number) = (stream.abort_codes(), stream.number());
                    // Both arms are cancel-safe: a stream that is dropped is aborted.
                    let reply = tokio::select! {
                        reply = timeout(REPLY_MAX, stream.read_reply()) => Some(reply),
                        () = never_begun(route.fate(number)) => None,
                    };
                    let is_fenced = verdict.peer_code() == Some(AbortCode::Fenced);
                    let Some(reply) = reply.filter(|_| !is_fenced) else {
                        if attempt + 1 < ROUTES_MAX {
                            debug!(%cluster, "a dial that its agent never began is sent again");
                            metrics::sent_again(SentAgainKind::Dial);
                        }
                        continue;
                    };
                    let address = dial_outcome(cluster, target, reply.ok(), verdict.peer_code())?;
                    proof.entry().target_connected(address);
                    let about = ExchangeInfo {
                        tunnel: route.tunnel_number(),
                        cluster: cluster.clone(),
                        verb: "dial",
                        audit_id: audit_id.to_owned(),
                        audit: proof.entry().clone(),
                    };
                    let stream = self.0.slow_readers.observe(stream, about);
                    let (audit_entry, scope) = (proof.entry().clone(), self.0.scope.clone());
                    return Ok(TargetStream { route, stream, audit_entry, scope });
                }
                Err(error) => {
                    debug!(%cluster, error = %error_chain(&error), "could not open a stream");
                    match error {
                        OpenError::Draining | OpenError::Ended(_) => {}
                        OpenError::Full | OpenError::Frame(_) => break,
                    }
                }
            }
        }
        Err(DialError::NoStream(cluster.clone()))
    }
}

/// The address to which the agent has connected, or the error that its reply or its silence means.
fn dial_outcome(
    cluster: &ClusterId,
    target: &Target,
    reply: Option<Result<DialReply, OpenFrameError>>,
    aborted: Option<AbortCode>,
) -> Result<String, DialError> {
    match (reply, aborted) {
        (Some(Ok(DialReply { outcome: Some(Outcome::Connected(connected)) })), _) => Ok(connected.address),
        (Some(Ok(DialReply { outcome: Some(Outcome::NotConnected(refused)) })), _) => {
            Err(DialError::ByAgent(cluster.clone(), target.clone(), refused.reason()))
        }
        (None, _) => Err(DialError::Silent(cluster.clone())),
        // Older agents do not know dials.
        (Some(_), Some(AbortCode::BadOpen)) => Err(DialError::OldAgent(cluster.clone())),
        (Some(_), _) => Err(DialError::Lost(cluster.clone())),
    }
}

impl TargetStream {
    /// Relays bytes between `caller`, once it is ready, and the target. It runs on the tunnel's home until
    /// each direction has ended or one of them breaks. A break is never passed on as a clean end. `guards`
    /// are held until then.
    pub(crate) fn relay<C, E>(
        self,
        caller: impl Future<Output = Result<C, E>> + Send + 'static,
        guards: impl Send + 'static,
    ) where
        C: LocalStream,
        E: std::error::Error + Send + 'static,
    {
        let Self { route, mut stream, audit_entry, scope } = self;
        scope.spawn_on(route.home(), async move {
            let _guards = guards;
            let taking = stream.read_progress();
            let mut caller = match caller.await {
                Ok(caller) => caller,
                Err(error) => {
                    debug!(error = %error_chain(&error), "a caller hung up before its connection was ready");
                    return;
                }
            };
            caller.move_to_current_runtime();
            let mut caller = count_bytes(caller, Some(audit_entry.clone()));
            let joined = copy_bidirectional_with_sizes(&mut caller, &mut stream, BUFFER_BYTES, BUFFER_BYTES);
            // A terminated exchange is meant to be cut off here.
            match run_until(joined, taking.ended()).await {
                Ok(Ok(_)) => audit_entry.set_end(EndReason::Clean),
                Ok(Err(error)) => {
                    debug!(error = %error_chain(&error), "a connection to a target broke");
                    audit_entry.set_broken(EndReason::ClientCancel);
                }
                Err(()) => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use proto::wire::not_connected::Reason;

    #[test]
    fn each_reply_of_an_agent_and_its_silence_have_an_outcome() {
        let (cluster, target) = ("edge-a".parse().unwrap(), "10.0.0.1:80".parse().unwrap());
        let outcome_of = |reply, aborted| dial_outcome(&cluster, &target, reply, aborted);
        let broken = || Some(Err(OpenFrameError::Stream(std::io::ErrorKind::UnexpectedEof.into())));
        let refused = |reason| Some(Ok(DialReply::not_connected(reason)));

        let connected = outcome_of(Some(Ok(DialReply::connected("10.0.0.1:80".to_owned()))), None);
        assert_eq!(connected.unwrap(), "10.0.0.1:80");
        for (reply, aborted, status, cause) in [
            (None, None, StatusCode::GATEWAY_TIMEOUT, "AgentSilent"),
            (broken(), Some(AbortCode::BadOpen), StatusCode::BAD_GATEWAY, "AgentCannotDial"),
            (broken(), None, StatusCode::GATEWAY_TIMEOUT, "ClusterLost"),
            (Some(Ok(DialReply { outcome: None })), None, StatusCode::GATEWAY_TIMEOUT, "ClusterLost"),
            (refused(Reason::Unlisted), None, StatusCode::FORBIDDEN, "ForbiddenByAgent"),
            (refused(Reason::Unspecified), None, StatusCode::FORBIDDEN, "ForbiddenByAgent"),
            (refused(Reason::Unresolved), None, StatusCode::BAD_GATEWAY, "TargetUnreachable"),
            (refused(Reason::NoService), None, StatusCode::BAD_GATEWAY, "TargetUnreachable"),
            (refused(Reason::NotReady), None, StatusCode::BAD_GATEWAY, "TargetUnreachable"),
            (refused(Reason::Unread), None, StatusCode::BAD_GATEWAY, "TargetUnreachable"),
            (refused(Reason::Timeout), None, StatusCode::GATEWAY_TIMEOUT, "TargetSilent"),
            (refused(Reason::Limit), None, StatusCode::SERVICE_UNAVAILABLE, "AgentFull"),
        ] {
            let fault = outcome_of(reply, aborted).unwrap_err();
            assert_eq!((fault.status(), fault.cause()), (status, cause), "{fault}");
        }
    }
}
