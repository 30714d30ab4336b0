//! Reads that are sent again over another tunnel, because theirs was lost before the first byte of their answer.

use std::future::pending;
use std::pin::pin;

use http::uri::PathAndQuery;
use http::{Method, Request};
use hyper::body::Body;
use policy::action::Verb;
use proto::{AbortCode, ClusterId};
use tracing::debug;

use super::forward::{ForwardContext, OpenedExchange, RequestBody, TunnelResponse};
use super::park_timeout::ParkWait;
use super::refusal::Refusal;
use super::stack::CallerBody;
use crate::exchanges::audit::Audited;
use crate::metrics::{self, Retried};
use crate::permit::Permit;

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
    audited: Audited,
    request: Request<CallerBody>,
    path: PathAndQuery,
    context: &ForwardContext,
    wait: ParkWait<'_>,
) -> Result<TunnelResponse, Refusal> {
    let cluster = audited.permit().action().cluster().clone();
    let (mut request, mut wait) = (request.map(RequestBody::Caller), wait);
    for _ in 0..READ_AGAIN_MAX {
        let again = copied(&request);
        let exchange =
            OpenedExchange::begin(audited.clone(), &request, context, wait).await?.asking(path.clone());
        let retried = match unless_lost(exchange, request, &cluster, context).await {
            Ok(answered) => return answered,
            Err(retried) => retried,
        };
        debug!(%cluster, ?retried, "a read is sent again");
        metrics::read_retried(retried);
        (request, wait) = (again, wait.again());
    }
    OpenedExchange::begin(audited, &request, context, wait).await?.asking(path).ask(request).await
}

/// What became of a request, or why it is to be sent over another tunnel, not a byte of an answer having come.
async fn unless_lost(
    exchange: OpenedExchange,
    request: Request<RequestBody>,
    cluster: &ClusterId,
    context: &ForwardContext,
) -> Result<Result<TunnelResponse, Refusal>, Retried> {
    let (route, read_progress) = (exchange.route.clone(), exchange.stream.read_progress());
    let moved = async {
        context.registry.settled_elsewhere(cluster, &route).await;
        if read_progress.has_begun() {
            // An answer that has begun is waited for where it is.
            pending::<()>().await;
        }
    };
    let mut asking = pin!(exchange.ask(request));
    // Both arms are cancel-safe: an exchange that is dropped is aborted. Biased, so that an answer that is there counts.
    tokio::select! {
        biased;
        answered = &mut asking => match answered {
            Err(refusal) if was_lost(&refusal) && !read_progress.has_begun() => Err(Retried::Lost),
            answered => Ok(answered),
        },
        () = moved => Err(Retried::Silent),
    }
}

/// Whether an exchange ended with its tunnel, or with an agent that stops.
fn was_lost(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Lost(_) | Refusal::Aborted(_, AbortCode::Draining | AbortCode::Abandoned))
}

/// The same head without a body.
pub(super) fn copied<B>(request: &Request<B>) -> Request<RequestBody> {
    let mut again = Request::new(RequestBody::Nothing);
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.version_mut() = request.version();
    *again.headers_mut() = request.headers().clone();
    again
}
