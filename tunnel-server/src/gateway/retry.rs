//! Reads that are sent again over another tunnel, because theirs was lost before the first byte of their answer.

use std::future::pending;
use std::pin::pin;

use http::uri::PathAndQuery;
use http::{Method, Request};
use hyper::body::Body;
use policy::action::Verb;
use proto::{AbortCode, ClusterId};
use tracing::debug;

use super::forward::{Answered, Exchange, Passage, Sent};
use super::patience::Wait;
use super::refusal::Refusal;
use super::stack::CallerBody;
use crate::authz::Permit;
use crate::exchanges::record::Recorded;
use crate::metrics::{self, RetryReason};

/// How often a read is sent again at most: the agent that it is sent to next may be the next to die, but what kills whoever is
/// asked it is not asked everybody.
const READ_AGAIN_MAX: usize = 2;

/// Whether a request may reach an API server more than once: a get, list or watch without a body. Neither an upgrade, whose method
/// is GET, nor a GET under a `proxy` is one: both may have effects.
pub(super) fn is_repeatable(permit: &Permit, request: &Request<CallerBody>) -> bool {
    let is_read = match permit.action().verb() {
        Verb::Get | Verb::List | Verb::Watch | Verb::Head => true,
        Verb::Create
        | Verb::Update
        | Verb::Patch
        | Verb::Delete
        | Verb::DeleteCollection
        | Verb::Connect
        | Verb::Options
        | Verb::Post
        | Verb::Put => false,
    };
    is_read && matches!(*request.method(), Method::GET | Method::HEAD) && request.body().is_end_stream()
}

/// Sends a request that [`is_repeatable`] and asks for `path`, and sends it again, up to [`READ_AGAIN_MAX`] times, where its
/// tunnel is lost without a byte of the answer, or is silent while another tunnel of the cluster is not.
pub(super) async fn read(
    recorded: Recorded,
    request: Request<CallerBody>,
    path: PathAndQuery,
    passage: &Passage,
    wait: Wait<'_>,
) -> Result<Answered, Refusal> {
    let cluster = recorded.permit().action().cluster().clone();
    let (mut request, mut wait) = (request.map(Sent::Caller), wait);
    for _ in 0..READ_AGAIN_MAX {
        let again = copied(&request);
        let exchange = Exchange::begin(recorded.clone(), &request, passage, wait).await?.asking(path.clone());
        let retried = match unless_lost(exchange, request, &cluster, passage).await {
            Ok(answered) => return answered,
            Err(retried) => retried,
        };
        debug!(%cluster, ?retried, "a read is sent again");
        metrics::read_retried(retried);
        (request, wait) = (again, wait.again());
    }
    Exchange::begin(recorded, &request, passage, wait).await?.asking(path).ask(request).await
}

/// What became of a request, or why it is to be sent over another tunnel, not a byte of an answer having come.
async fn unless_lost(
    exchange: Exchange,
    request: Request<Sent>,
    cluster: &ClusterId,
    passage: &Passage,
) -> Result<Result<Answered, Refusal>, RetryReason> {
    let (route, taking) = (exchange.route.clone(), exchange.stream.taking());
    let moved = async {
        passage.registry.stable_elsewhere(cluster, &route).await;
        if taking.has_begun() {
            // An answer that has begun is waited for where it is.
            pending::<()>().await;
        }
    };
    let mut asking = pin!(exchange.ask(request));
    // Both arms are cancel-safe: an exchange that is dropped is aborted. Biased, so that an answer that is there counts.
    tokio::select! {
        biased;
        answered = &mut asking => match answered {
            Err(refusal) if was_lost(&refusal) && !taking.has_begun() => Err(RetryReason::Lost),
            answered => Ok(answered),
        },
        () = moved => Err(RetryReason::Silent),
    }
}

/// Whether an exchange ended with its tunnel, or with an agent that stops.
fn was_lost(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Lost(_) | Refusal::Aborted(_, AbortCode::Draining | AbortCode::Abandoned))
}

/// The same head without a body.
pub(super) fn copied<B>(request: &Request<B>) -> Request<Sent> {
    let mut again = Request::new(Sent::Nothing);
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.version_mut() = request.version();
    *again.headers_mut() = request.headers().clone();
    again
}
