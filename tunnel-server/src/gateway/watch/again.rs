//! Begins a watch again: waits for its cluster, asks who its caller is and whether it may, and asks the API server.

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

use super::Watch;
use super::event::Encoding;
use super::safe_point::Version;
use crate::gateway::Refusal;
use crate::gateway::body::Passed;
use crate::gateway::forward::{Answered, Exchange};
use crate::gateway::patience::Wait;
use crate::gateway::retry::copied;
use crate::identity::{Caller, NotAuthenticated};
use crate::metrics::{self, WatchEnded};
use crate::permit::NotDelegated;
use crate::registry::NoTunnel;

/// Pause before a cluster is asked once more that was there and could not answer, because its agent is back before its API
/// server is, mostly.
const PAUSE: Duration = Duration::from_secs(1);

/// Largest `Status` that is read, in bytes, and how long it may take.
const STATUS_BYTES_MAX: usize = 64 * 1024;
const STATUS_MAX: Duration = Duration::from_secs(10);

/// How it went.
pub(super) enum Outcome {
    /// The watch goes on.
    Goes(Box<Answered>),
    /// It does not, as this `Status` says in its encoding.
    Refused(WatchEnded, Vec<u8>),
    /// The time that its caller gave it has passed.
    Over,
    /// This server stops.
    Stopping,
}

impl Watch {
    /// Begins the watch again behind `version`, within the limit.
    pub(super) async fn again(self: Arc<Self>, version: Version, encoding: Encoding) -> Outcome {
        let now = Instant::now();
        let (limit, ends) = (now + self.gateway.0.watches.settings.limit, self.ends());
        let until = ends.map_or(limit, |ends| ends.min(limit));
        let stops = self.gateway.0.passage.scope.draining();
        // All arms are cancel-safe: an exchange that is dropped is aborted. Biased, so that the caller's own time has passed
        // before the limit has.
        tokio::select! {
            biased;
            () = sleep_until(ends.unwrap_or(now)), if ends.is_some() => Outcome::Over,
            () = stops => Outcome::Stopping,
            outcome = self.try_until(until, &version, encoding) => outcome,
        }
    }

    async fn try_until(&self, until: Instant, version: &Version, encoding: Encoding) -> Outcome {
        loop {
            match self.try_once(until, version).await {
                Ok(answered) => return self.judged(answered, encoding).await,
                Err(refusal) if may_pass(&refusal) && Instant::now() + PAUSE < until => {
                    debug!(%refusal, "a watch is not yet begun again");
                    sleep(PAUSE).await;
                }
                Err(refusal) => return refused(&refusal, encoding),
            }
        }
    }

    async fn try_once(&self, until: Instant, version: &Version) -> Result<Answered, Refusal> {
        let (inner, cluster) = (&self.gateway.0, self.action.cluster());
        inner.passage.registry.route_within(cluster, until, &inner.watches.places).await?;
        // Behind the wait, which may have been long.
        let (caller, assumed) = (self.authenticated().await?, self.assumed.clone());
        self.gateway.0.table.admits(&caller)?;
        let permit = self.gateway.authorize(&caller, assumed, self.action.clone()).await?;
        let request = copied(&self.head);
        let recorded = self.record.again(permit);
        let exchange = Exchange::begin(recorded, &request, &inner.passage, Wait::none()).await?;
        let asked = exchange.asking(self.path_again(version)).ask(request);
        timeout(AGENT_HEAD_MAX, asked).await.unwrap_or_else(|_| Err(Refusal::AgentSilent(cluster.clone())))
    }

    /// The caller, if it still is who it was.
    async fn authenticated(&self) -> Result<Caller, NotAuthenticated> {
        let mut headers = HeaderMap::new();
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let certified = self.peer.certified.as_ref();
        let known = self.gateway.0.authenticator.authenticate(certified, &headers, SystemTime::now()).await?;
        let caller = known.require_single_credential()?;
        if *caller == self.caller { Ok(caller.clone()) } else { Err(NotAuthenticated::UnknownToken) }
    }

    async fn judged(&self, answered: Answered, encoding: Encoding) -> Outcome {
        let (status, cluster) = (answered.response.status(), self.action.cluster());
        let goes_on = status == StatusCode::OK;
        if goes_on && Encoding::of(answered.response.headers()) == Some(encoding) {
            return Outcome::Goes(Box::new(answered));
        }
        if goes_on {
            return refused(&Refusal::Nonsense(cluster.clone()), encoding);
        }
        let is_same = is_object_in(encoding, answered.response.headers());
        let read = timeout(STATUS_MAX, whole(answered.response.into_body())).await;
        let status_of = |body: &Vec<u8>| is_same && encoding.kind_of(body).as_deref() == Some(Refusal::KIND);
        match read.ok().flatten().filter(status_of) {
            Some(body) => Outcome::Refused(WatchEnded::Answered, body),
            None => refused(&Refusal::NotWatchedAgain(cluster.clone(), status), encoding),
        }
    }
}

/// Whether a refusal says that the cluster was there for a moment only, or not with all that it needs, or that somebody who
/// knows its caller was not. Nothing has been answered then, and a watch changes nothing.
fn may_pass(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NoTunnel(NoTunnel::Away { .. })
            | Refusal::NotAuthenticated(NotAuthenticated::Unreachable(_))
            | Refusal::NotDelegated(NotDelegated::Away)
            | Refusal::NoStream(_)
            | Refusal::Lost(_)
            | Refusal::Aborted(
                _,
                AbortCode::Draining
                    | AbortCode::Abandoned
                    | AbortCode::Busy
                    | AbortCode::ApiServerUnreachable
            )
    )
}

/// A refusal, as a `Status` in an encoding.
fn refused(refusal: &Refusal, encoding: Encoding) -> Outcome {
    debug!(%refusal, "a watch was not begun again");
    metrics::refused(refusal.cause());
    let status = written(refusal, encoding);
    let ended = match refusal {
        Refusal::NoTunnel(NoTunnel::Crowded(_)) => WatchEnded::NoPlace,
        Refusal::NoTunnel(_) => WatchEnded::Away,
        Refusal::NotAuthenticated(_)
        | Refusal::Ended(_)
        | Refusal::Forbidden(_)
        | Refusal::NotDelegated(_)
        | Refusal::NotAsserted(_) => WatchEnded::NotAllowed,
        Refusal::NotWatchedAgain(..) => WatchEnded::Answered,
        Refusal::Browser(_)
        | Refusal::Action(_)
        | Refusal::Connect(_)
        | Refusal::NotConnected(_)
        | Refusal::Headers(_)
        | Refusal::Upgrade(_)
        | Refusal::ParkLimit(_)
        | Refusal::NoStream(_)
        | Refusal::Lost(_)
        | Refusal::AgentSilent(_)
        | Refusal::LinkSilent(_)
        | Refusal::CallerSilent
        | Refusal::Aborted(..)
        | Refusal::Redirect(_)
        | Refusal::Nonsense(_)
        | Refusal::BrokenBody
        | Refusal::Busy
        | Refusal::NotRecorded(_)
        | Refusal::Limited(_) => WatchEnded::Refused,
    };
    Outcome::Refused(ended, status)
}

/// A refusal's `Status`.
pub(super) fn written(refusal: &Refusal, encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Json => refusal.json().to_string().into_bytes(),
        Encoding::Protobuf => refusal.protobuf(),
        Encoding::Cbor => refusal.cbor(),
    }
}

/// Whether an answer with these headers is one object in an encoding.
fn is_object_in(encoding: Encoding, headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case(match encoding {
        Encoding::Json => "application/json",
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
        Encoding::Cbor => "application/cbor",
    })
}

/// A whole body; `None` for one that breaks or is too large.
async fn whole(body: Passed) -> Option<Vec<u8>> {
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
