//! Repeats a read over another tunnel when its own tunnel was lost before the first byte of the answer.

use std::future::pending;
use std::pin::pin;

use http::uri::PathAndQuery;
use http::{Method, Request};
use policy::action::Verb;
use proto::{AbortCode, ClusterId};
use tracing::debug;

use super::error::ForwardError;
use super::exchange::{ForwardContext, OpenedExchange, TunnelResponse};
use super::park_timeout::ParkWait;
use super::request_body::{RequestBody, UploadSource, without_body};
use crate::authz::Permit;
use crate::exchanges::audit::Audited;
use crate::metrics::{self, RetryReason};

/// Limits how many agents see the same request, so that a request that crashes agents cannot crash all of
/// them.
const READ_AGAIN_MAX: usize = 2;

/// Returns true if a request may reach an API server more than once: a get, list or watch without a body. An
/// upgrade, whose method is GET, and a GET under a `proxy` may not, because both may have effects.
pub(crate) fn is_repeatable<B: UploadSource>(permit: &Permit, request: &Request<B>) -> bool {
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

/// Sends a request that [`is_repeatable`], with `path` in place of its own. Repeats it up to
/// [`READ_AGAIN_MAX`] times if its tunnel is lost before a byte of the answer, or is silent while another
/// tunnel of the cluster is not.
pub(crate) async fn read<B: UploadSource>(
    audited: Audited,
    request: Request<B>,
    path: PathAndQuery,
    context: &ForwardContext,
    wait: ParkWait<'_>,
) -> Result<TunnelResponse, ForwardError> {
    let cluster = audited.permit().action().cluster().clone();
    let (mut request, mut wait) = (request.map(|body| RequestBody::of_caller(body, audited.entry())), wait);
    for _ in 0..READ_AGAIN_MAX {
        let copy = without_body(&request);
        let opened =
            OpenedExchange::open(audited.clone(), &request, context, wait).await?.with_path(path.clone());
        let retried = match send_unless_lost(opened, request, &cluster, context).await {
            Ok(answered) => return answered,
            Err(retried) => retried,
        };
        debug!(%cluster, ?retried, "a read is sent again");
        metrics::read_retried(retried);
        (request, wait) = (copy, wait.repeated());
    }
    OpenedExchange::open(audited, &request, context, wait).await?.with_path(path).send(request).await
}

/// Sends a request. Returns its outcome, or why it is to be repeated over another tunnel; no byte of an
/// answer has come then.
async fn send_unless_lost<B: UploadSource>(
    opened: OpenedExchange,
    request: Request<RequestBody<B>>,
    cluster: &ClusterId,
    context: &ForwardContext,
) -> Result<Result<TunnelResponse, ForwardError>, RetryReason> {
    let (route, read_progress) = (opened.route.clone(), opened.stream.read_progress());
    let stream = opened.stream.number();
    let moved = async {
        // Both arms are cancel-safe: they only observe the registry.
        tokio::select! {
            () = context.registry.stable_elsewhere(cluster, &route) => {}
            // Its agent answers over another tunnel, and a read may be sent again whatever became of it.
            _ = route.fate(stream) => {}
        }
        if read_progress.has_begun() {
            // An answer that has begun is awaited where it is.
            pending::<()>().await;
        }
    };
    let mut sent = pin!(opened.send(request));
    // Both arms are cancel-safe: an exchange that is dropped is aborted. Biased, so that an answer that is
    // there counts.
    tokio::select! {
        biased;
        answered = &mut sent => match answered {
            Err(refusal) if was_lost(&refusal) && !read_progress.has_begun() => Err(RetryReason::Lost),
            answered => Ok(answered),
        },
        () = moved => Err(RetryReason::Silent),
    }
}

/// Returns true if an exchange ended with its tunnel, or with a stopping agent.
fn was_lost(refusal: &ForwardError) -> bool {
    matches!(
        refusal,
        ForwardError::Lost(_)
            | ForwardError::Aborted(_, AbortCode::Draining | AbortCode::Abandoned | AbortCode::Fenced)
    )
}
