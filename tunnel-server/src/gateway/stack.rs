//! What every request passes before anybody looks at what it asks: layers of one shape, from the outside in.
//!
//! What comes to know something (who asks, for what, whether they may) is no layer but [`Gateway::admit`], where each
//! step takes the proof of the one before. One `service_fn` joins the two worlds.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use hyper::body::{Body, Incoming};
use proto::headers;
use tokio::sync::Semaphore;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::request_id::{MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer};
use tower_http::trace::TraceLayer;
use tracing::{Span, debug_span, field};
use uuid::Uuid;

use super::body::AnswerBody;
use super::held::{Held, Slot};
use super::{Gateway, Peer, Refusal, hangup, refused};

/// Requests that are served at once, to the last byte of their answers; beyond, callers are asked to come again.
pub const EXCHANGES_MAX: usize = 10_000;

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
        Response = Response<impl Body<Data = Bytes, Error = hyper::Error> + Send + 'static>,
        Error = Infallible,
        Future: Send,
    > + Clone {
        let (from, slots) = (peer.address, Arc::clone(&self.0.slots));
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
            .layer_fn(move |inner| in_flight(Arc::clone(&slots), inner))
            .layer_fn(limits)
            .service(service_fn(move |request| {
                let (gateway, peer) = (self.clone(), Arc::clone(&peer));
                async move { Ok(gateway.serve(&peer, request).await) }
            }))
    }
}

/// Tells the watch of an HTTP/1.1 connection that an exchange runs, to the last byte of its answer.
fn watch<Out: 'static>(
    watched: Option<Arc<hangup::Exchange>>,
    inner: impl Serve<Incoming, Out>,
) -> impl Serve<Incoming, Held<Out, Option<hangup::Running>>> {
    service_fn(move |request: Request<Incoming>| {
        let running = watched.as_ref().map(|watched| watched.begin(!request.body().is_end_stream()));
        let answer = inner.clone().oneshot(request);
        async move { Ok(answer.await?.map(|body| Held::new(body, running))) }
    })
}

/// Gives a request one of [`EXCHANGES_MAX`] places, which rides in both bodies, or asks its caller to come again.
fn in_flight(
    slots: Arc<Semaphore>,
    inner: impl Serve<CallerBody, AnswerBody>,
) -> impl Serve<Incoming, Held<AnswerBody, Option<Slot>>> {
    service_fn(move |request: Request<Incoming>| {
        let slot = Slot::take(&slots);
        let answer =
            slot.clone().map(|slot| inner.clone().oneshot(request.map(|body| Held::new(body, slot))));
        async move {
            let answer = match answer {
                Some(answer) => answer.await?,
                None => refused(&Refusal::Busy),
            };
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
