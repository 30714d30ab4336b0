//! Reads that are sent once more over another tunnel, because theirs was lost before the first byte of their answer.

use std::future::pending;
use std::pin::pin;

use http::uri::PathAndQuery;
use http::{Method, Request};
use hyper::body::Body;
use policy::action::Verb;
use proto::AbortCode;
use tracing::debug;

use super::forward::{Answered, Exchange, Passage, Sent};
use super::patience::Wait;
use super::refusal::Refusal;
use super::stack::CallerBody;
use crate::exchanges::record::Recorded;
use crate::metrics::{self, Retried};
use crate::permit::Permit;

/// Whether a request may reach an API server twice: a get, list or watch without a body. Neither an upgrade, whose method
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

/// Sends a request that [`is_repeatable`] and asks for `path`, and sends it again, once, where its tunnel is lost without a
/// byte of the answer, or is silent while another tunnel of the cluster is not.
pub(super) async fn read(
    recorded: Recorded,
    request: Request<CallerBody>,
    path: PathAndQuery,
    passage: &Passage,
    wait: Wait<'_>,
) -> Result<Answered, Refusal> {
    let again = copied(&request);
    let cluster = recorded.permit().action().cluster().clone();
    let first = Exchange::begin(recorded.clone(), &request, passage, wait).await?.asking(path.clone());
    let (route, taking) = (first.route.clone(), first.stream.taking());
    let moved = async {
        passage.registry.settled_elsewhere(&cluster, &route).await;
        if taking.has_begun() {
            // An answer that has begun is waited for where it is.
            pending::<()>().await;
        }
    };
    let retried = {
        let mut asking = pin!(first.ask(request.map(Sent::Caller)));
        // Both arms are cancel-safe: an exchange that is dropped is aborted. Biased, so that an answer that is there counts.
        tokio::select! {
            biased;
            answered = &mut asking => match answered {
                Err(refusal) if was_lost(&refusal) && !taking.has_begun() => Retried::Lost,
                answered => return answered,
            },
            () = moved => Retried::Silent,
        }
    };
    debug!(%cluster, ?retried, "a read is sent once more");
    metrics::read_retried(retried);
    Exchange::begin(recorded, &again, passage, wait.again()).await?.asking(path).ask(again).await
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
