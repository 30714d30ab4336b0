//! Forwards one request over a new stream of a tunnel, and receives the head of its answer.

use std::future::poll_fn;
use std::time::Duration;

use daemon::{Scope, error_chain};
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use proto::wire::StreamOpen;
use proto::{ClusterId, deadlines};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tracing::debug;
use transport::{AbortCodes, OpenError};

use super::audit_id::{AUDIT_ID, audit_id};
use super::error::ForwardError;
use super::head_timeout::{ProgressBody, UploadProgress};
use super::informational::InformationalHeads;
use super::kept_body::KeptBytes;
use super::location::LocationRules;
use super::park_timeout::{PARK_LIMIT, ParkWait, longest_own_timeout};
use super::request_body::{RequestBody, UploadBody, UploadSource};
use super::response_head::ResponseContext;
use super::tunnel_body::{BodyComplete, TunnelBody};
use crate::authz::Permit;
use crate::exchanges::audit::Audited;
use crate::exchanges::slow_readers::{ExchangeInfo, ObservedStream, ReadProgress, SlowReaders};
use crate::impersonation::ImpersonationRules;
use crate::registry::{Registry, Route, RouteError, WaitQueue};

/// After an answer was taken completely, its stream is closed within this time, or aborted.
const FINISH_MAX: Duration = Duration::from_secs(30);

/// Number of attempts to open a stream for one exchange, each over a newly chosen tunnel.
const ROUTES_MAX: usize = 3;

/// Largest head of an answer, in bytes, and most headers in it.
const HEAD_BYTES_MAX: usize = 128 * 1024;
const HEADERS_MAX: usize = 200;

/// The shared state that every exchange needs on its way to a cluster.
#[derive(Clone)]
pub(crate) struct ForwardContext {
    pub(crate) registry: Registry,
    pub(crate) impersonation_rules: ImpersonationRules,
    /// The queue in which requests wait for disconnected clusters.
    pub(crate) places: WaitQueue,
    pub(crate) slow_readers: SlowReaders,
    /// The room for bodies of requests that may have to be sent again.
    pub(crate) kept_bytes: KeptBytes,
    pub(crate) scope: Scope,
}

/// A stream that was opened for a permitted request. Only its first frame was sent.
pub(crate) struct OpenedExchange {
    permit: Permit,
    pub(crate) route: Route,
    scope: Scope,
    pub(crate) stream: ObservedStream,
    /// The path and query for the API server, and how the `Location` of its answer is adapted.
    locations: LocationRules,
    /// The longest time that the API server may take until the head of its answer.
    deadline: Duration,
}

/// hyper's client side of a stream.
type ClientConnection<B> = http1::Connection<TokioIo<ObservedStream>, UploadBody<B>>;

/// The head of an answer as the agent has sent it, and the exchange that brings its body.
pub(crate) struct ReceivedHead {
    pub(crate) response: Response<Incoming>,
    pub(crate) context: ResponseContext,
    pub(crate) complete: oneshot::Sender<BodyComplete>,
    pub(crate) read_progress: ReadProgress,
    pub(crate) scope: Scope,
    pub(crate) route: Route,
}

/// An answer of which the head has arrived and the body is on its way.
pub(crate) struct TunnelResponse {
    pub(crate) response: Response<TunnelBody>,
    pub(crate) source: ResponseSource,
}

/// The tunnel and the stream that carry an answer.
pub(crate) struct ResponseSource {
    pub(crate) route: Route,
    /// The number of the stream on its tunnel.
    pub(crate) stream: u64,
    pub(crate) abort_codes: AbortCodes,
}

impl ForwardContext {
    /// A route to the cluster, now or after a wait.
    async fn route(&self, cluster: &ClusterId, wait: ParkWait<'_>) -> Result<Route, RouteError> {
        if wait.is_repeated()
            && let Some(route) = self.registry.answering_route(cluster).await
        {
            return Ok(route);
        }
        if let Some(route) = self.registry.route(cluster) {
            return Ok(route);
        }
        let until = wait.until(cluster, Instant::now());
        let route = self.registry.route_within(cluster, until, &self.places).await?;
        wait.cluster_returned(cluster);
        Ok(route)
    }
}

impl OpenedExchange {
    /// Opens a stream once there is a route. A tunnel that drained or ended since it was chosen has taken
    /// nothing, so another one is chosen.
    ///
    /// # Errors
    /// There is no route, no stream, or no audit log.
    pub(crate) async fn open<B>(
        audited: Audited,
        request: &Request<B>,
        context: &ForwardContext,
        wait: ParkWait<'_>,
    ) -> Result<Self, ForwardError> {
        let (permit, entry) = (audited.permit().clone(), audited.entry());
        let cluster = permit.action().cluster().clone();
        let locations = LocationRules {
            prefix: prefix(request.uri().path(), &cluster),
            path: permit.action().path().clone(),
            host: asked_host(request),
        };
        let own = permit.action().path().query().and_then(longest_own_timeout);
        let configured = context.impersonation_rules.request_timeout(&cluster);
        let deadline = deadlines::api_server_deadline(configured, own);
        let open = StreamOpen::http(
            context.impersonation_rules.identity_for(permit.caller(), permit.assumed(), &cluster)?,
            audit_id(request).to_owned(),
            permit.action().is_long_running(),
        )
        .with_deadline(deadline)
        .with_reduce(permit.action().reduce().unwrap_or_default());
        for _ in 0..ROUTES_MAX {
            let route = context.route(&cluster, wait).await?;
            if permit.action().reduce().is_some() && !route.capabilities().reduces {
                return Err(ForwardError::CannotReduce(cluster));
            }
            // After the wait, which may have been long.
            entry.check_log()?;
            match route.open(&open).await {
                Ok(stream) => {
                    let verb = permit.action().verb().as_str();
                    entry.stream_opened(&route, stream.abort_codes());
                    let audit_id = audit_id(request).to_owned();
                    let audit = entry.clone();
                    let info = ExchangeInfo { tunnel: route.tunnel_number(), cluster, verb, audit_id, audit };
                    let stream = context.slow_readers.observe(stream, info);
                    let scope = context.scope.clone();
                    return Ok(Self { permit, route, scope, stream, locations, deadline });
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
        Err(ForwardError::NoStream(cluster))
    }

    /// The same exchange with another path and query than the caller's.
    pub(crate) fn with_path(mut self, path: PathAndQuery) -> Self {
        self.locations.path = path;
        self
    }

    /// Sends the request and returns the answer once its head has arrived.
    ///
    /// # Errors
    /// The refusal that says why no acceptable head came.
    pub(crate) async fn send<B: UploadSource>(
        self,
        request: Request<RequestBody<B>>,
    ) -> Result<TunnelResponse, ForwardError> {
        let (request, progress) = self.rewrite(request)?;
        let limit = (!self.permit.action().is_long_running()).then_some(progress);
        let stream = self.stream.number();
        let received = self.receive_head(request, limit, carry).await?;
        let ReceivedHead { response, context, complete, read_progress, scope: _, route } = received;
        // Nobody asked for an upgrade, so nobody would take the bytes after it.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(ForwardError::NotHttp(context.cluster));
        }
        let response = context.clean(response)?.map(|body| TunnelBody::new(body, complete, read_progress));
        let source = ResponseSource { route, stream, abort_codes: context.abort_codes };
        Ok(TunnelResponse { response, source })
    }

    /// Sends a request that [`Self::rewrite`] has made, and waits for the head of its answer. `limit` bounds
    /// the wait. `carry` moves the exchange's bytes, on the tunnel's home.
    ///
    /// # Errors
    /// The refusal that says why no head came.
    pub(crate) async fn receive_head<B: UploadSource, C>(
        self,
        mut request: Request<UploadBody<B>>,
        limit: Option<UploadProgress>,
        carry: impl FnOnce(ClientConnection<B>, oneshot::Receiver<BodyComplete>, ReadProgress) -> C,
    ) -> Result<ReceivedHead, ForwardError>
    where
        C: Future<Output = ()> + Send + 'static,
    {
        let Self { permit, route, scope, stream, locations, deadline } = self;
        let (cluster, abort_codes) = (permit.action().cluster().clone(), stream.abort_codes());
        let context = ResponseContext { cluster, abort_codes, deadline, locations };
        let read_progress = stream.read_progress();
        let heads = InformationalHeads::count(&mut request, {
            let read_progress = read_progress.clone();
            move || read_progress.end()
        });
        let (mut sender, connection) = handshake(stream, &context.cluster).await?;
        let (complete, completed) = oneshot::channel();
        scope.spawn_on(route.home(), carry(connection, completed, read_progress.clone()));
        let response = context.wait(sender.send_request(request), limit, &route).await;
        let response = response.map_err(|refusal| heads.explain(refusal, &context.cluster))?;
        Ok(ReceivedHead { response, context, complete, read_progress, scope, route })
    }

    /// The request as it crosses the tunnel, and the progress of its body. Its headers were cleaned when it
    /// was admitted.
    ///
    /// # Errors
    /// The cluster's name is no host name, which its parser rules out.
    pub(crate) fn rewrite<B>(
        &self,
        request: Request<RequestBody<B>>,
    ) -> Result<(Request<UploadBody<B>>, UploadProgress), ForwardError> {
        let cluster = self.permit.action().cluster();
        let (mut parts, body) = request.into_parts();
        parts.uri = Uri::from(self.locations.path.clone());
        parts.version = Version::HTTP_11;
        // hyper's extensions belong to the caller's connection, not to the stream.
        parts.extensions.clear();
        // The audit ID has crossed with the stream's first frame. The park limit was meant for this server.
        parts.headers.remove(AUDIT_ID);
        parts.headers.remove(PARK_LIMIT);
        // The agent replaces this by its API server's name. Until then it names the cluster.
        let host = HeaderValue::from_str(cluster.as_str());
        parts.headers.insert(HOST, host.map_err(|_| ForwardError::NotHttp(cluster.clone()))?);
        let progress = UploadProgress::begin(deadlines::agent_deadline(self.deadline));
        Ok((Request::from_parts(parts, ProgressBody::new(body, progress.clone())), progress))
    }
}

/// Starts hyper's client side of a stream, with limits.
///
/// # Errors
/// The stream was lost.
async fn handshake<B: UploadSource>(
    stream: ObservedStream,
    cluster: &ClusterId,
) -> Result<(http1::SendRequest<UploadBody<B>>, ClientConnection<B>), ForwardError> {
    http1::Builder::new()
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| ForwardError::Lost(cluster.clone()))
}

/// Moves an exchange's bytes on the tunnel's home. Returns when its answer was taken completely, when the
/// answer was dropped, or when the exchange is to be ended.
async fn carry<B: UploadSource>(
    mut connection: ClientConnection<B>,
    mut completed: oneshot::Receiver<BodyComplete>,
    read_progress: ReadProgress,
) {
    // All arms are cancel-safe: the connection is polled by reference, and a sent message stays.
    let complete = tokio::select! {
        complete = &mut completed => complete,
        () = read_progress.ended() => return,
        carried = poll_fn(|cx| connection.poll_without_shutdown(cx)) => {
            if let Err(error) = carried {
                debug!(error = %error_chain(&error), "an exchange broke");
                return;
            }
            // All of the stream was read; the caller has still to take it.
            read_progress.caught_up();
            completed.await
        }
    };
    // The answer was dropped: the stream is dropped unfinished, which aborts it.
    let Ok(BodyComplete) = complete else {
        return;
    };
    if timeout(FINISH_MAX, finish(connection)).await.is_err() {
        debug!("a stream was not closed in time");
    }
}

/// Closes a stream whose answer was taken completely: both directions are shut down, so that neither side
/// sees an abort.
async fn finish<B: UploadSource>(mut connection: ClientConnection<B>) {
    if poll_fn(|cx| connection.poll_without_shutdown(cx)).await.is_err() {
        return;
    }
    let mut stream = connection.into_parts().io.into_inner().into_inner();
    // A stream that breaks here breaks after its answer, and is aborted when it is dropped.
    if stream.shutdown().await.is_ok() {
        // No byte comes after an answer. One byte is enough to see that one does.
        let _ = stream.read(&mut [0]).await;
    }
}

/// The prefix of the cluster's paths as its callers see them: `/clusters/NAME` where the cluster was chosen
/// by path. Where it was chosen by host name no path begins like this, because that is refused.
fn prefix(path: &str, cluster: &ClusterId) -> String {
    if path.starts_with("/clusters/") { format!("/clusters/{cluster}") } else { String::new() }
}

/// The host and port that a request names, which was checked when its action was parsed.
fn asked_host<B>(request: &Request<B>) -> Option<String> {
    let from_uri = request.uri().authority().map(|authority| authority.as_str());
    let from_header = || request.headers().get(HOST).and_then(|host| host.to_str().ok());
    from_uri.or_else(from_header).map(str::to_owned)
}
