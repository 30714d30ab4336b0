//! The layers that every request passes before it is authenticated, from the outside in.
//!
//! Authentication and what follows is no layer but [`Gateway::respond`], where each step takes the proof of
//! the one before. `service_fn` joins the two.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use daemon::metrics::requests::RequestMetrics;
use http::{Method, Request, Response};
use hyper::body::{Body, Incoming};
use proto::headers;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::request_id::{PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::trace::TraceLayer;
use tracing::{Span, debug_span, field};

use super::audit_id::{NewAuditId, keep_valid_audit_id};
use super::body::{AnswerBody, refused};
use super::body_error::BodyError;
use super::complete_body::CompleteBody;
use super::cross_origin;
use super::disconnect::{self, ExchangeState, RunningGuard};
use super::guarded_body::{GuardedBody, RequestSlot};
use super::layer::HttpService;
use super::peer::Peer;
use super::refusal::Refusal;
use super::state::Gateway;
use crate::forwarding::audit_id::{AUDIT_ID, audit_id};

/// Bytes of a target and headers from which on a head is large. Few programs send such heads.
const LARGE_HEAD_BYTES: usize = 16 * 1024;

/// Large heads that a connection of HTTP/2 may have at the same time: 2 MiB of them.
const LARGE_HEADS_MAX: usize = 16;

impl Gateway {
    /// The service for the requests of one connection. `state` is there on HTTP/1.1, where a disconnect is
    /// watched for.
    pub(super) fn stack(
        self,
        peer: Arc<Peer>,
        state: Option<Arc<ExchangeState>>,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<impl Body<Data = Bytes, Error = BodyError> + Send + 'static>,
        Error = Infallible,
        Future: Send,
    > + Clone {
        let (from, slots) = (peer.address, Arc::clone(&self.0.slots));
        let (metrics, origins) = (self.0.request_metrics.clone(), Arc::clone(&self.0.browser_origins));
        let large_heads = Arc::new(Semaphore::new(LARGE_HEADS_MAX));
        ServiceBuilder::new()
            .map_request(keep_valid_audit_id)
            .layer(SetRequestIdLayer::new(AUDIT_ID, NewAuditId))
            .layer(PropagateRequestIdLayer::new(AUDIT_ID))
            .layer(
                TraceLayer::new_for_http()
                    .make_span_with(move |request: &Request<Incoming>| span(request, &from))
                    .on_request(())
                    .on_response(())
                    .on_body_chunk(())
                    .on_eos(())
                    .on_failure(()),
            )
            .layer_fn(move |inner| mark_running(state.clone(), inner))
            .layer_fn(move |inner| limit_in_flight(Arc::clone(&slots), metrics.clone(), inner))
            .layer_fn(move |inner| cross_origin::check_origin(Arc::clone(&origins), inner))
            .layer_fn(move |inner| limit_head(Arc::clone(&large_heads), inner))
            .service(service_fn(move |request| {
                let (gateway, peer) = (self.clone(), Arc::clone(&peer));
                // On the heap, because the future is large, and without optimisation each layer moves it on
                // the stack.
                async move { Ok(Box::pin(gateway.respond(&peer, request)).await) }
            }))
    }
}

/// Marks the exchange of an HTTP/1.1 connection as running until the last byte of its answer, and notes an
/// answer after which the connection is no longer HTTP.
fn mark_running<Out: 'static>(
    state: Option<Arc<ExchangeState>>,
    inner: impl HttpService<CompleteBody, Out>,
) -> impl HttpService<Incoming, GuardedBody<Out, Option<RunningGuard>>> {
    service_fn(move |request: Request<Incoming>| {
        let running = state.as_ref().map(|state| state.begin(!request.body().is_end_stream()));
        let (state, is_connect) = (state.clone(), request.method() == Method::CONNECT);
        let answer = inner.clone().oneshot(CompleteBody::of(request));
        async move {
            let answer = answer.await?;
            if let Some(state) = state
                && disconnect::is_protocol_switch(is_connect, answer.status())
            {
                state.upgrade();
            }
            Ok(answer.map(|body| GuardedBody::new(body, running)))
        }
    })
}

/// Gives a request one of the `limits.server.requests` slots, which both bodies carry, or
/// refuses it. Counts it either way.
fn limit_in_flight<B: Send + 'static, Out: From<AnswerBody> + 'static>(
    slots: Arc<Semaphore>,
    metrics: RequestMetrics,
    inner: impl HttpService<GuardedBody<B, RequestSlot>, Out>,
) -> impl HttpService<B, GuardedBody<Out, Option<RequestSlot>>> {
    service_fn(move |request: Request<B>| {
        let active = Arc::new(metrics.begin());
        let slot = RequestSlot::take(&slots, &active);
        let answer =
            slot.clone().map(|slot| inner.clone().oneshot(request.map(|body| GuardedBody::new(body, slot))));
        async move {
            let answer = match answer {
                Some(answer) => answer.await?,
                None => refused(&Refusal::Busy).map(Out::from),
            };
            active.answered(answer.status().as_u16());
            Ok(answer.map(|body| GuardedBody::new(body, slot)))
        }
    })
}

/// Refuses a request whose head has too many headers or bytes. A large head takes one of the connection's
/// `large_heads` until its answer has begun, because until then it is in memory.
fn limit_head<B: Send + 'static, Out: From<AnswerBody> + 'static>(
    large_heads: Arc<Semaphore>,
    inner: impl HttpService<B, Out>,
) -> impl HttpService<B, Out> {
    service_fn(move |request: Request<B>| {
        let admitted = admit_head(&large_heads, &request);
        let answer = admitted.map(|permit| (permit, inner.clone().oneshot(request)));
        async move {
            match answer {
                Ok((_permit, answer)) => answer.await,
                Err(refusal) => Ok(refused(&refusal).map(Out::from)),
            }
        }
    })
}

/// The permit of a large head. `None` for every other head within the limits.
fn admit_head<B>(
    large_heads: &Arc<Semaphore>,
    request: &Request<B>,
) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
    headers::check_limits(request.headers())?;
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let of_headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    if target + of_headers.sum::<usize>() <= LARGE_HEAD_BYTES {
        return Ok(None);
    }
    large_heads.clone().try_acquire_owned().map(Some).map_err(|_| Refusal::Busy)
}

/// The span of an exchange's log lines. It exists only at level DEBUG, because it names the caller's address.
fn span<B>(request: &Request<B>, from: &SocketAddr) -> Span {
    debug_span!("exchange", audit_id = audit_id(request), %from, cluster = field::Empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use http::StatusCode;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_connection_has_as_many_large_heads_as_it_may_and_not_one_more() {
        let never =
            service_fn(|_: Request<()>| std::future::pending::<Result<Response<AnswerBody>, Infallible>>());
        let service = limit_head(Arc::new(Semaphore::new(LARGE_HEADS_MAX)), never);
        let of_bytes = |bytes: usize| {
            let request = Request::get(format!("/{}", "x".repeat(bytes - 1))).body(()).unwrap();
            Box::pin(service.clone().oneshot(request))
        };

        let mut large: Vec<_> = (0..LARGE_HEADS_MAX).map(|_| of_bytes(LARGE_HEAD_BYTES + 1)).collect();
        for one in &mut large {
            assert!(polled_once(one).is_none());
        }
        let beyond = polled_once(&mut of_bytes(LARGE_HEAD_BYTES + 1)).unwrap();
        assert_eq!(beyond.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(beyond.headers()["retry-after"], "1");
        assert!(polled_once(&mut of_bytes(LARGE_HEAD_BYTES)).is_none(), "it is no large one");

        large.pop();
        assert!(polled_once(&mut of_bytes(LARGE_HEAD_BYTES + 1)).is_none(), "another one has ended");
    }

    /// The answer of a request that is polled once.
    fn polled_once<F>(request: &mut std::pin::Pin<Box<F>>) -> Option<Response<AnswerBody>>
    where
        F: Future<Output = Result<Response<AnswerBody>, Infallible>>,
    {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match request.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(answer) => Some(answer.unwrap_or_else(|never| match never {})),
            std::task::Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_slot_is_taken_as_long_as_a_body_exists_and_beyond_the_limit_is_429() {
        let (taken, mut bodies) = mpsc::channel(2);
        let serve = service_fn(move |request: Request<GuardedBody<(), RequestSlot>>| {
            let taken = taken.clone();
            async move {
                let _ = taken.send(request.into_body()).await;
                Ok(Response::new(AnswerBody::text("x")))
            }
        });
        let service = limit_in_flight(Arc::new(Semaphore::new(2)), metrics::requests(), serve);
        let send =
            async || service.clone().oneshot(Request::new(())).await.unwrap_or_else(|never| match never {});

        let (first, second) = (send().await, send().await);
        assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
        let beyond = send().await;
        assert_eq!(beyond.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(beyond.headers()["retry-after"], "1");

        drop(first);
        assert_eq!(
            send().await.status(),
            StatusCode::TOO_MANY_REQUESTS,
            "the body of its request still exists"
        );
        drop(bodies.recv().await);
        assert_eq!(send().await.status(), StatusCode::OK);
    }
}
