//! One exchange: a request and its answer over one stream of a tunnel.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use daemon::{Scope, chain};
use http::header::{HOST, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use proto::headers;
use proto::session::Health;
use proto::wire::StreamOpen;
use proto::{AbortCode, ClusterId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tracing::debug;
use transport::{OpenError, Tunnel, Verdict};

use super::body::{AnswerBody, Passed, Whole};
use super::head::{Paced, Progress, Silent};
use super::patience::{PARK_LIMIT, Wait};
use super::refusal::Refusal;
use super::stack::{AUDIT_ID, CallerBody, audit_id};
use crate::authz::Permit;
use crate::exchanges::record::Recorded;
use crate::exchanges::stalls::{About, Observed, Stalls, Taking};
use crate::impersonation::ImpersonationRules;
use crate::limits::LimitGuard;
use crate::registry::{Registry, Route, RouteError, WaitQueue};

/// After an answer was taken whole, its stream is wound up within this time, or aborted.
const FINISH_MAX: Duration = Duration::from_secs(30);

/// How often a tunnel is chosen for one exchange.
const ROUTES_MAX: usize = 3;

/// Largest head of an answer, in bytes, and most headers in it.
const HEAD_BYTES_MAX: usize = 128 * 1024;
const HEADERS_MAX: usize = 200;

/// A request's body as it enters a stream.
pub(super) type StreamBody = Paced<Sent>;

/// What a request carries.
pub(super) enum Sent {
    /// What its caller sends.
    Caller(CallerBody),
    /// Nothing, because it is sent again.
    Nothing,
}

/// What every exchange needs on its way to a cluster.
#[derive(Clone)]
pub(super) struct Passage {
    pub(super) registry: Registry,
    pub(super) assertions: ImpersonationRules,
    /// In which requests wait for clusters that are away.
    pub(super) places: WaitQueue,
    pub(super) stalls: Stalls,
    pub(super) scope: Scope,
}

/// A stream that was opened for a permitted request; nothing but its first frame was sent.
pub(super) struct Exchange {
    pub(super) permit: Permit,
    pub(super) route: Route,
    pub(super) scope: Scope,
    pub(super) stream: Observed,
    /// What stands before the cluster's own paths where the caller sees them.
    pub(super) prefix: String,
    /// What is asked of the API server.
    path: PathAndQuery,
}

/// An answer whose head is here and whose body is on its way.
pub(super) struct Answered {
    pub(super) response: Response<Passed>,
    pub(super) source: Source,
}

/// Where an answer comes from.
pub(super) struct Source {
    pub(super) route: Route,
    pub(super) verdict: Verdict,
}

/// What stays of an exchange for the answer's head.
pub(super) struct Answering {
    pub(super) cluster: ClusterId,
    pub(super) verdict: Verdict,
    prefix: String,
}

impl Passage {
    /// The way to a cluster, now or after a wait.
    async fn way(&self, cluster: &ClusterId, wait: Wait<'_>) -> Result<Route, RouteError> {
        if wait.is_again()
            && let Some(route) = self.registry.answering_route(cluster).await
        {
            return Ok(route);
        }
        if let Some(route) = self.registry.route(cluster) {
            return Ok(route);
        }
        let until = wait.until(cluster, Instant::now());
        let route = self.registry.route_within(cluster, until, &self.places).await?;
        wait.over(cluster);
        Ok(route)
    }
}

impl Exchange {
    /// Opens the stream, once there is a way. A tunnel that drained or ended since it was chosen has taken nothing, so
    /// another one is chosen.
    pub(super) async fn begin<B>(
        recorded: Recorded,
        request: &Request<B>,
        passage: &Passage,
        wait: Wait<'_>,
    ) -> Result<Self, Refusal> {
        let (permit, record) = (recorded.permit().clone(), recorded.record());
        let cluster = permit.action().cluster().clone();
        let prefix = prefix(request.uri().path(), &cluster);
        let open = StreamOpen::http(
            passage.assertions.identity_for(permit.caller(), permit.assumed(), &cluster)?,
            audit_id(request).to_owned(),
            permit.action().is_long_running(),
        );
        for _ in 0..ROUTES_MAX {
            let route = passage.way(&cluster, wait).await?;
            // PrefixedStream the wait, which may have been long.
            record.may_open()?;
            match route.tunnel.open(&open).await {
                Ok(stream) => {
                    let verb = permit.action().verb().as_str();
                    record.carried(&route, stream.verdict());
                    let audit_id = audit_id(request).to_owned();
                    let record = record.clone();
                    let about = About { tunnel: route.number, cluster, verb, audit_id, record };
                    let stream = passage.stalls.observe(stream, about);
                    let (path, scope) = (permit.action().path().clone(), passage.scope.clone());
                    return Ok(Self { permit, route, scope, stream, prefix, path });
                }
                Err(error) => {
                    debug!(%cluster, error = %chain(&error), "could not open a stream");
                    match error {
                        OpenError::Draining | OpenError::Ended(_) => {}
                        OpenError::Full | OpenError::Frame(_) => break,
                    }
                }
            }
        }
        Err(Refusal::NoStream(cluster))
    }

    /// The same, asking for another path than the caller did.
    pub(super) fn asking(self, path: PathAndQuery) -> Self {
        Self { path, ..self }
    }

    /// Sends the request and returns the answer, whose body is on its way.
    pub(super) async fn ask(self, request: Request<Sent>) -> Result<Answered, Refusal> {
        let answering = self.answering();
        let (request, progress) = self.rewritten(request)?;
        let taking = self.stream.taking();
        let (mut sender, connection) = handshake(self.stream, &answering.cluster).await?;
        let (whole, wholeness) = oneshot::channel();
        self.scope.spawn_on(self.route.home, carry(connection, wholeness, taking.clone()));
        let limit = (!self.permit.action().is_long_running()).then_some(progress);
        let response = answering.head(sender.send_request(request), limit, &self.route.tunnel).await?;
        // An upgrade that nobody asked for: the bytes behind it are nobody's.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Refusal::Nonsense(answering.cluster));
        }
        let response = answering.cleaned(response)?.map(|body| Passed::new(body, whole, taking));
        let source = Source { route: self.route, verdict: answering.verdict };
        Ok(Answered { response, source })
    }

    pub(super) fn answering(&self) -> Answering {
        Answering {
            cluster: self.permit.action().cluster().clone(),
            verdict: self.stream.verdict(),
            prefix: self.prefix.clone(),
        }
    }

    /// The request as it crosses the tunnel. Its headers were cleaned when it was admitted.
    pub(super) fn rewritten(
        &self,
        request: Request<Sent>,
    ) -> Result<(Request<StreamBody>, Progress), Refusal> {
        let cluster = self.permit.action().cluster();
        let (mut parts, body) = request.into_parts();
        parts.uri = Uri::from(self.path.clone());
        parts.version = Version::HTTP_11;
        // What hyper knows of the caller's connection is no business of the stream.
        parts.extensions.clear();
        // The one has crossed with the stream's first frame, the other was meant for this server.
        parts.headers.remove(AUDIT_ID);
        parts.headers.remove(PARK_LIMIT);
        // The agent puts its API server's name here; until then the cluster's says where this is going.
        let host = HeaderValue::from_str(cluster.as_str());
        parts.headers.insert(HOST, host.map_err(|_| Refusal::Nonsense(cluster.clone()))?);
        let progress = Progress::begin();
        Ok((Request::from_parts(parts, Paced::new(body, progress.clone())), progress))
    }
}

/// hyper's side of a stream, with limits.
pub(super) async fn handshake(
    stream: Observed,
    cluster: &ClusterId,
) -> Result<(http1::SendRequest<StreamBody>, http1::Connection<TokioIo<Observed>, StreamBody>), Refusal> {
    http1::Builder::new()
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Refusal::Lost(cluster.clone()))
}

/// Moves an exchange's bytes, on the tunnel's home, until its answer was taken whole or nobody wants it any more, or its
/// caller has held others up for too long.
async fn carry(
    mut connection: http1::Connection<TokioIo<Observed>, StreamBody>,
    mut wholeness: oneshot::Receiver<Whole>,
    taking: Taking,
) {
    // All arms are cancel-safe: the connection is polled by reference, and a word that was said stays said.
    let whole = tokio::select! {
        whole = &mut wholeness => whole,
        () = taking.ended() => return,
        carried = poll_fn(|cx| connection.poll_without_shutdown(cx)) => {
            if let Err(error) = carried {
                debug!(error = %chain(&error), "an exchange broke");
                return;
            }
            // All was read; the caller has still to take it.
            taking.nothing_left();
            wholeness.await
        }
    };
    // Nobody wants the answer any more: the stream is dropped unfinished, which aborts it.
    let Ok(Whole) = whole else {
        return;
    };
    if timeout(FINISH_MAX, wind_up(connection)).await.is_err() {
        debug!("a stream was not wound up in time");
    }
}

/// Ends a stream whose answer was taken whole: both directions are shut down, so neither side sees an abort.
async fn wind_up(mut connection: http1::Connection<TokioIo<Observed>, StreamBody>) {
    if poll_fn(|cx| connection.poll_without_shutdown(cx)).await.is_err() {
        return;
    }
    let mut stream = connection.into_parts().io.into_inner().into_inner();
    // A stream that breaks here breaks behind the answer, and is aborted by being dropped.
    if stream.shutdown().await.is_ok() {
        // PrefixedStream an answer comes nothing; one byte is enough to see that it does.
        let _ = stream.read(&mut [0]).await;
    }
}

/// What stands before a cluster's own paths where callers see them: its name, where it was chosen by path. By host name
/// no path begins so, because that is refused.
fn prefix(path: &str, cluster: &ClusterId) -> String {
    if path.starts_with("/clusters/") { format!("/clusters/{cluster}") } else { String::new() }
}

impl Answered {
    /// The answer as it goes to the caller, who holds `share` while it does.
    pub(super) fn passed(self, share: LimitGuard) -> Response<AnswerBody> {
        self.response.map(|passed| AnswerBody::passed(passed, share))
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Caller(body) => {
                let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
                if let (Some(Ok(frame)), Some(record)) = (&frame, body.held().record()) {
                    record.sent_up(frame.data_ref().map_or(0, Bytes::len));
                }
                Poll::Ready(frame)
            }
            Self::Nothing => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Caller(body) => body.is_end_stream(),
            Self::Nothing => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Caller(body) => body.size_hint(),
            Self::Nothing => SizeHint::with_exact(0),
        }
    }
}

impl Answering {
    /// The head of `answer`, which came over `tunnel`; nobody may be silent for too long before it where `limit` watches.
    pub(super) async fn head(
        &self,
        answer: impl Future<Output = hyper::Result<Response<Incoming>>>,
        limit: Option<Progress>,
        tunnel: &Tunnel,
    ) -> Result<Response<Incoming>, Refusal> {
        let answer = match limit {
            Some(progress) => {
                progress.head_of(answer).await.map_err(|silent| self.silence(silent, tunnel.health()))?
            }
            None => answer.await,
        };
        answer.map_err(|error| self.broken(&error))
    }

    /// Who was silent, as the caller is told.
    fn silence(&self, silent: Silent, health: Health) -> Refusal {
        match (silent, health) {
            (Silent::Caller, _) => Refusal::CallerSilent,
            (Silent::Agent, Health::Live) => Refusal::AgentSilent(self.cluster.clone()),
            (Silent::Agent, Health::Suspect | Health::Lost) => Refusal::LinkSilent(self.cluster.clone()),
        }
    }

    /// An answer's head without what concerns one hop only, and without a way to somewhere else.
    pub(super) fn cleaned<B>(&self, response: Response<B>) -> Result<Response<B>, Refusal> {
        let (mut parts, body) = response.into_parts();
        headers::clean_response(&mut parts.headers);
        let mut locations = parts.headers.get_all(LOCATION).iter();
        if let Some(location) = locations.next() {
            let within = location_within(location, &self.prefix).filter(|_| locations.next().is_none());
            let within = within.ok_or_else(|| Refusal::Redirect(self.cluster.clone()))?;
            parts.headers.insert(LOCATION, within);
        }
        Ok(Response::from_parts(parts, body))
    }

    /// Why no head of an answer came.
    fn broken(&self, error: &hyper::Error) -> Refusal {
        let cluster = self.cluster.clone();
        debug!(%cluster, error = %chain(error), "no answer");
        match self.verdict.heard() {
            Some(AbortCode::ApiServerNonsense) => Refusal::Nonsense(cluster),
            Some(code) => Refusal::Aborted(cluster, code),
            None if error.is_parse() => Refusal::Nonsense(cluster),
            None if error.is_user() => Refusal::BrokenBody,
            None => Refusal::Lost(cluster),
        }
    }
}

/// Where a redirect leads as the caller sees it; `None` if it leads away from the cluster, to another host or up out of
/// the cluster's own paths. A caller's credential would follow it (CVE-2022-3172).
fn location_within(location: &HeaderValue, prefix: &str) -> Option<HeaderValue> {
    let location = location.to_str().ok()?;
    // Browsers drop tabs before they look whether a second slash follows.
    let is_graphic = location.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_path = is_graphic && location.starts_with('/') && !location.starts_with("//");
    let path = location.split(['?', '#']).next().unwrap_or_default();
    // A caller resolves these before it asks again, and some resolve the encoded ones too.
    let climbs = path.split('/').any(|segment| segment.to_ascii_lowercase().replace("%2e", ".") == "..");
    if is_path && !climbs { HeaderValue::try_from(format!("{prefix}{location}")).ok() } else { None }
}
