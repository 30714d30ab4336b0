//! What every request passes before anybody looks at what it asks: layers of one shape, from the outside in.
//!
//! What comes to know something (who asks, for what, whether they may) is no layer but [`Gateway::served`], where each
//! step takes the proof of the one before. One `service_fn` joins the two worlds.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use daemon::metrics::exchanges::Exchanges;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use hyper::body::{Body, Incoming};
use proto::headers;
use tokio::sync::Semaphore;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::request_id::{MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer};
use tower_http::trace::TraceLayer;
use tracing::{Span, debug_span, field};
use uuid::Uuid;

use super::body::{AnswerBody, BrokenOff};
use super::held::{Held, Slot};
use super::{Gateway, Peer, Refusal, browsers, hangup, refused};

/// The header that names an exchange.
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static(headers::AUDIT_ID);

/// The body of a request as it comes out of the stack, holding its place.
pub(super) type CallerBody = Held<Incoming, Slot>;

/// A service in the stack: it answers whatever happens, and each of its clones is as good.
pub(super) trait Serve<In, Out>:
    Service<Request<In>, Response = Response<Out>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<T, In, Out> Serve<In, Out> for T where
    T: Service<Request<In>, Response = Response<Out>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

impl Gateway {
    /// The way of every request over one caller's connection, which is `watched` where it speaks HTTP/1.1.
    pub(super) fn stack(
        self,
        peer: Arc<Peer>,
        watched: Option<Arc<hangup::Exchange>>,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<impl Body<Data = Bytes, Error = BrokenOff> + Send + 'static>,
        Error = Infallible,
        Future: Send,
    > + Clone {
        let (from, slots) = (peer.address, Arc::clone(&self.0.slots));
        let (exchanges, origins) = (self.0.exchanges.clone(), Arc::clone(&self.0.browser_origins));
        ServiceBuilder::new()
            .map_request(keep_audit_id)
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
            .layer_fn(move |inner| watch(watched.clone(), inner))
            .layer_fn(move |inner| in_flight(Arc::clone(&slots), exchanges.clone(), inner))
            .layer_fn(move |inner| browsers::wary(Arc::clone(&origins), inner))
            .layer_fn(limits)
            .service(service_fn(move |request| {
                let (gateway, peer) = (self.clone(), Arc::clone(&peer));
                // On the heap: it is large, and without optimisation each layer moves what it wraps about on the stack.
                async move { Ok(Box::pin(gateway.serve(&peer, request)).await) }
            }))
    }
}

/// Tells the watch of an HTTP/1.1 connection that an exchange runs, to the last byte of its answer, and which answer is the last in HTTP.
fn watch<Out: 'static>(
    watched: Option<Arc<hangup::Exchange>>,
    inner: impl Serve<Incoming, Out>,
) -> impl Serve<Incoming, Held<Out, Option<hangup::Running>>> {
    service_fn(move |request: Request<Incoming>| {
        let running = watched.as_ref().map(|watched| watched.begin(!request.body().is_end_stream()));
        let (watched, is_connect) = (watched.clone(), request.method() == Method::CONNECT);
        let answer = inner.clone().oneshot(request);
        async move {
            let answer = answer.await?;
            if let Some(watched) = watched
                && hangup::is_handed_over(is_connect, answer.status())
            {
                watched.upgrade();
            }
            Ok(answer.map(|body| Held::new(body, running)))
        }
    })
}

/// Gives a request one of [`EXCHANGES_MAX`](crate::limits::EXCHANGES_MAX) places, which rides in both bodies, or asks its caller to come again; counts
/// it either way.
fn in_flight<B: Send + 'static>(
    slots: Arc<Semaphore>,
    exchanges: Exchanges,
    inner: impl Serve<Held<B, Slot>, AnswerBody>,
) -> impl Serve<B, Held<AnswerBody, Option<Slot>>> {
    service_fn(move |request: Request<B>| {
        let active = Arc::new(exchanges.begin());
        let slot = Slot::take(&slots, &active);
        let answer =
            slot.clone().map(|slot| inner.clone().oneshot(request.map(|body| Held::new(body, slot))));
        async move {
            let answer = match answer {
                Some(answer) => answer.await?,
                None => refused(&Refusal::Busy),
            };
            active.answered(answer.status().as_u16());
            Ok(answer.map(|body| Held::new(body, slot)))
        }
    })
}

/// Refuses a request whose head is larger than it may be.
fn limits(inner: impl Serve<CallerBody, AnswerBody>) -> impl Serve<CallerBody, AnswerBody> {
    service_fn(move |request: Request<CallerBody>| {
        let fits = headers::check_limits(request.headers());
        let answer = fits.map(|()| inner.clone().oneshot(request));
        async move {
            match answer {
                Ok(answer) => answer.await,
                Err(fault) => Ok(refused(&fault.into())),
            }
        }
    })
}

/// Makes a name for an exchange whose caller sent none.
#[derive(Clone)]
struct NewAuditId;

impl MakeRequestId for NewAuditId {
    fn make_request_id<B>(&mut self, _: &Request<B>) -> Option<RequestId> {
        HeaderValue::try_from(Uuid::now_v7().to_string()).ok().map(RequestId::new)
    }
}

/// Takes out an `Audit-ID` that is not one, or that is not alone.
fn keep_audit_id<B>(mut request: Request<B>) -> Request<B> {
    let mut sent = request.headers().get_all(AUDIT_ID).iter();
    let (id, others) = (sent.next(), sent.next());
    if id.is_some_and(|id| others.is_some() || !headers::is_audit_id(id.as_bytes())) {
        request.headers_mut().remove(AUDIT_ID);
    }
    request
}

/// What the lines about an exchange have in common. Only where DEBUG is on, because it names a caller's address.
fn span<B>(request: &Request<B>, from: &SocketAddr) -> Span {
    debug_span!("exchange", audit_id = audit_id(request), %from, cluster = field::Empty)
}

/// The name of an exchange in every log, ours, the agent's and the API server's. The stack has seen to it that there is
/// one.
pub(super) fn audit_id<B>(request: &Request<B>) -> &str {
    request.headers().get(AUDIT_ID).and_then(|id| id.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use http::StatusCode;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_place_is_held_as_long_as_a_body_is_and_beyond_the_limit_callers_are_asked_to_come_again() {
        let (taken, mut bodies) = mpsc::channel(2);
        let serve = service_fn(move |request: Request<Held<(), Slot>>| {
            let taken = taken.clone();
            async move {
                let _ = taken.send(request.into_body()).await;
                Ok(Response::new(AnswerBody::text("x")))
            }
        });
        let door = in_flight(Arc::new(Semaphore::new(2)), metrics::requests(), serve);
        let knock =
            async || door.clone().oneshot(Request::new(())).await.unwrap_or_else(|never| match never {});

        let (first, second) = (knock().await, knock().await);
        assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
        let beyond = knock().await;
        assert_eq!(beyond.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(beyond.headers()["retry-after"], "1");

        drop(first);
        assert_eq!(
            knock().await.status(),
            StatusCode::TOO_MANY_REQUESTS,
            "its request's body is still on its way"
        );
        drop(bodies.recv().await);
        assert_eq!(knock().await.status(), StatusCode::OK);
    }

    #[test]
    fn an_audit_id_that_is_none_is_taken_out() {
        for (sent, kept) in [(&["x"][..], 1), (&["x", "x"], 0), (&["a b"], 0), (&[""], 0), (&[], 0)] {
            let mut request = Request::new(());
            for id in sent {
                request.headers_mut().append(AUDIT_ID, HeaderValue::from_static(id));
            }
            assert_eq!(keep_audit_id(request).headers().len(), kept, "{sent:?}");
        }
    }
}
