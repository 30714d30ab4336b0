//! Resumes a watch: waits for its cluster, authenticates and authorizes its caller again, and sends it to the
//! API server.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use proto::AbortCode;
use proto::deadlines::AGENT_HEAD_MAX;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::debug;

use super::encoding::Encoding;
use super::resumable::ResumableWatch;
use super::version::Version;
use crate::authz::NotDelegated;
use crate::forwarding::ForwardError;
use crate::forwarding::exchange::{OpenedExchange, TunnelResponse};
use crate::forwarding::park_timeout::ParkWait;
use crate::forwarding::request_body::without_body;
use crate::forwarding::tunnel_body::TunnelBody;
use crate::gateway::guarded_body::CallerBody;
use crate::gateway::refusal::Refusal;
use crate::identity::{Caller, NotAuthenticated};
use crate::metrics::{self, WatchEnded};
use crate::registry::RouteError;

/// Pause before the next attempt at a cluster that was connected and could not answer. Mostly its agent is
/// back before its API server is.
const PAUSE: Duration = Duration::from_secs(1);

/// Largest `Status` that is read, in bytes, and the time to read it.
const STATUS_BYTES_MAX: usize = 64 * 1024;
const STATUS_MAX: Duration = Duration::from_secs(10);

/// The outcome of resuming a watch.
pub(super) enum ResumeOutcome {
    /// The watch continues with this answer.
    Resumed(Box<TunnelResponse>),
    /// It was refused. The bytes are a `Status` in the watch's encoding.
    Refused(WatchEnded, Vec<u8>),
    /// The timeout of its caller has passed.
    TimedOut,
    /// This server is stopping, so that no tunnel will come.
    Stopping,
}

impl ResumableWatch {
    /// Resumes the watch after `version`, within the limit.
    pub(super) async fn resume(self: Arc<Self>, version: Version, encoding: Encoding) -> ResumeOutcome {
        let now = Instant::now();
        let (limit, ends) = (now + self.gateway.0.watches.settings.limit, self.ends());
        let until = ends.map_or(limit, |ends| ends.min(limit));
        let stops = self.gateway.0.forwarding.scope.draining();
        // All arms are cancel-safe: an exchange that is dropped is aborted. Biased, so that the caller's own
        // timeout counts before the limit.
        tokio::select! {
            biased;
            () = sleep_until(ends.unwrap_or(now)), if ends.is_some() => ResumeOutcome::TimedOut,
            () = stops => ResumeOutcome::Stopping,
            outcome = self.try_until(until, &version, encoding) => outcome,
        }
    }

    async fn try_until(&self, until: Instant, version: &Version, encoding: Encoding) -> ResumeOutcome {
        loop {
            match self.try_once(until, version).await {
                Ok(answer) => return self.check_answer(answer, encoding).await,
                Err(refusal) if is_transient(&refusal) && Instant::now() + PAUSE < until => {
                    debug!(%refusal, "a watch is not yet resumed");
                    sleep(PAUSE).await;
                }
                Err(refusal) => return refused(&refusal, encoding),
            }
        }
    }

    async fn try_once(&self, until: Instant, version: &Version) -> Result<TunnelResponse, Refusal> {
        let (shared, cluster) = (&self.gateway.0, self.action.cluster());
        let silent = || ForwardError::AgentSilent(cluster.clone(), AGENT_HEAD_MAX);
        let route = shared.forwarding.registry.route_within(cluster, until, &shared.watches.places).await;
        route.map_err(ForwardError::from)?;
        // After the wait, which may have been long.
        let (caller, assumed) = (self.authenticate().await?, self.assumed.clone());
        shared.exchanges.check_revoked(&caller)?;
        let permit = self.gateway.authorize(&caller, assumed, self.action.clone()).await?;
        let request = without_body::<_, CallerBody>(&self.head);
        let audited = self.audit.with_permit(permit);
        let opened = OpenedExchange::open(audited, &request, &shared.forwarding, ParkWait::none()).await?;
        let (route, stream) = (opened.route.clone(), opened.stream.number());
        let answer = opened.with_path(self.path_from(version)).send(request);
        // All arms are cancel-safe: an exchange that is dropped is aborted. Biased, so that an answer that is
        // there counts.
        let answered = tokio::select! {
            biased;
            answer = answer => answer,
            // This tunnel fell silent, too, and its agent answers over another one.
            _ = route.fate(stream) => Err(ForwardError::Lost(cluster.clone())),
            () = shared.forwarding.registry.stable_elsewhere(cluster, &route) => Err(silent()),
            () = sleep(AGENT_HEAD_MAX) => Err(silent()),
        };
        answered.map_err(Refusal::from)
    }

    /// Authenticates the caller again, with its first credential.
    ///
    /// # Errors
    /// The credential no longer names the same caller.
    async fn authenticate(&self) -> Result<Caller, NotAuthenticated> {
        let mut headers = HeaderMap::new();
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let certified = self.peer.certified.as_ref();
        let authenticated =
            self.gateway.0.authenticator.authenticate(certified, &headers, SystemTime::now()).await?;
        let caller = authenticated.require_single_credential()?;
        if *caller == self.caller { Ok(caller.clone()) } else { Err(NotAuthenticated::UnknownToken) }
    }

    async fn check_answer(&self, answer: TunnelResponse, encoding: Encoding) -> ResumeOutcome {
        let (status, cluster) = (answer.response.status(), self.action.cluster());
        let is_ok = status == StatusCode::OK;
        if is_ok && Encoding::from_headers(answer.response.headers()) == Some(encoding) {
            return ResumeOutcome::Resumed(Box::new(answer));
        }
        if is_ok {
            return refused(&ForwardError::NotHttp(cluster.clone()).into(), encoding);
        }
        let is_same = is_object_in(encoding, answer.response.headers());
        let read = timeout(STATUS_MAX, read_body(answer.response.into_body())).await;
        let status_of = |body: &Vec<u8>| is_same && encoding.kind_of(body).as_deref() == Some(Refusal::KIND);
        match read.ok().flatten().filter(status_of) {
            Some(body) => ResumeOutcome::Refused(WatchEnded::Answered, body),
            None => refused(&Refusal::WatchNotResumed(cluster.clone(), status), encoding),
        }
    }
}

/// Returns true if another attempt may succeed: the cluster was connected only briefly or not completely, its
/// tunnel was silent, or an authenticator or reviewer was unreachable. Nothing was answered then, and a watch has no effects.
fn is_transient(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotAuthenticated(NotAuthenticated::Unreachable(_))
            | Refusal::NotDelegated(NotDelegated::Away)
            | Refusal::Forward(
                ForwardError::RouteError(RouteError::Away { .. })
                    | ForwardError::NoStream(_)
                    | ForwardError::Lost(_)
                    // A tunnel may pass heartbeats and nothing larger.
                    | ForwardError::AgentSilent(..)
                    | ForwardError::LinkSilent(..)
                    | ForwardError::Aborted(
                        _,
                        AbortCode::Draining
                            | AbortCode::Abandoned
                            | AbortCode::Busy
                            | AbortCode::Fenced
                            | AbortCode::ApiServerUnreachable
                    )
            )
    )
}

/// The outcome for a refusal, with its `Status` in the watch's encoding.
fn refused(refusal: &Refusal, encoding: Encoding) -> ResumeOutcome {
    debug!(%refusal, "a watch was not resumed");
    let facts = refusal.facts();
    metrics::refused(facts.cause);
    ResumeOutcome::Refused(facts.watch_end, encode_status(refusal, encoding))
}

/// The `Status` of a refusal in an encoding.
pub(super) fn encode_status(refusal: &Refusal, encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Json => refusal.json().to_string().into_bytes(),
        Encoding::Protobuf => refusal.protobuf(),
        Encoding::Cbor => refusal.cbor(),
    }
}

/// Returns true if an answer with these headers is a single object in this encoding.
fn is_object_in(encoding: Encoding, headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case(match encoding {
        Encoding::Json => "application/json",
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
        Encoding::Cbor => "application/cbor",
    })
}

/// Reads a complete body. `None` if it breaks or is too large.
async fn read_body(body: TunnelBody) -> Option<Vec<u8>> {
    let (mut body, mut bytes) = (pin!(body), BytesMut::new());
    loop {
        match std::future::poll_fn(|cx| body.poll_frame(cx)).await {
            None => return Some(bytes.into()),
            Some(Err(_)) => return None,
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    if bytes.len() + data.len() > STATUS_BYTES_MAX {
                        return None;
                    }
                    bytes.extend_from_slice(data);
                }
            }
        }
    }
}
