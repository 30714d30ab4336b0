//! Upgraded connections (WebSocket and SPDY) as pipes that copy bytes in both directions.

use audit::EndReason;
use daemon::error_chain;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Body as _;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use proto::upgrade_protocol::UpgradeProtocol;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::sync::oneshot;
use tracing::debug;

use super::body::AnswerBody;
use super::guarded_body::{CallerBody, RequestSlot};
use crate::exchanges::audit::Audited;
use crate::exchanges::byte_count::count_bytes;
use crate::exchanges::slow_readers::ReadProgress;
use crate::forwarding::ForwardError;
use crate::forwarding::exchange::{ForwardContext, OpenedExchange, ReceivedHead};
use crate::forwarding::park_timeout::ParkWait;
use crate::forwarding::request_body::{RequestBody, without_body};
use crate::forwarding::send_again::{self, Repetitions, SentStream};
use crate::forwarding::tunnel_body::{BodyComplete, TunnelBody};
use crate::limits::LimitGuard;
use crate::metrics::SentAgainKind;

/// Size of the buffer of a pipe in each direction, in bytes.
const PIPE_BYTES: usize = 16 * 1024;

/// The forwarding of one request for an upgrade.
#[derive(Clone, Copy)]
pub(super) struct UpgradeContext<'a> {
    pub(super) context: &'a ForwardContext,
    pub(super) wait: ParkWait<'a>,
    /// The request is sent again this often at most, if its agent never began it.
    pub(super) again_max: usize,
}

impl UpgradeContext<'_> {
    /// Asks for an upgrade. Bytes after the request are not read until the API server has accepted it. If it
    /// does not, its answer is passed on and the caller's connection is closed after it.
    ///
    /// # Errors
    /// The refusal that says why no acceptable head came.
    pub(super) async fn upgrade(
        self,
        audited: Audited,
        protocol: UpgradeProtocol,
        mut request: Request<CallerBody>,
        mut limit_guard: LimitGuard,
    ) -> Result<Response<AnswerBody>, ForwardError> {
        let caller = hyper::upgrade::on(&mut request);
        let slot = request.body().guard().clone();
        let answered = self.ask(audited, protocol, request).await?;
        let ReceivedHead { mut response, context, complete, read_progress, scope, route } = answered;
        limit_guard.response_started();

        if protocol.is_accepted_by(response.status(), response.headers()) {
            let edge = hyper::upgrade::on(&mut response);
            let mut answer = context.clean(response)?;
            if let Some(entry) = slot.audit_entry() {
                entry.set_status(answer.status());
            }
            set_upgrade(protocol, answer.headers_mut());
            scope.spawn_on(route.home(), pipe(caller, edge, complete, read_progress, (slot, limit_guard)));
            return Ok(answer.map(|_| AnswerBody::text("")));
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(ForwardError::NotHttp(context.cluster));
        }
        let answer = context.clean(response)?;
        Ok(answer.map(|body| AnswerBody::tunnel(TunnelBody::new(body, complete, read_progress), limit_guard)))
    }
}

impl UpgradeContext<'_> {
    /// Sends the request, and sends it again if its agent never began it.
    async fn ask(
        self,
        audited: Audited,
        protocol: UpgradeProtocol,
        request: Request<CallerBody>,
    ) -> Result<ReceivedHead, ForwardError> {
        let Self { context, mut wait, again_max } = self;
        let cluster = audited.permit().action().cluster().clone();
        // A request for an upgrade has no body. One that has is sent once.
        let again_max = if request.body().is_end_stream() { again_max } else { 0 };
        let (mut request, mut repetitions) =
            (request.map(|body| RequestBody::of_caller(body, audited.entry())), Repetitions::new(again_max));
        loop {
            let copy = without_body(&request);
            let opened = OpenedExchange::open(audited.clone(), &request, context, wait).await?;
            let stream = SentStream::of(&opened);
            if let Ok(answered) = stream.answer(opened.ask_upgrade(protocol, request)).await {
                return answered;
            }
            if !repetitions.take() {
                return Err(send_again::not_begun(cluster));
            }
            send_again::count(&cluster, SentAgainKind::Upgrade);
            (request, wait) = (copy, wait.repeated());
        }
    }
}

impl OpenedExchange {
    /// Sends a request for an upgrade, and waits for its answer.
    async fn ask_upgrade(
        self,
        protocol: UpgradeProtocol,
        request: Request<RequestBody<CallerBody>>,
    ) -> Result<ReceivedHead, ForwardError> {
        let (mut request, progress) = self.rewrite(request)?;
        set_upgrade(protocol, request.headers_mut());
        // An upgraded exchange may run forever, but the answer that accepts it comes within the limit.
        self.receive_head(request, Some(progress), |connection, completed, read_progress| {
            carry(connection.with_upgrades(), completed, read_progress)
        })
        .await
    }
}

/// Sets the headers of an upgrade, in a request or in the answer that accepts it.
fn set_upgrade(protocol: UpgradeProtocol, headers: &mut http::HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol.token());
}

/// Moves the bytes of an exchange on the tunnel's home until it is upgraded, its answer was taken completely,
/// or the answer was dropped.
async fn carry(
    connection: impl Future<Output = hyper::Result<()>>,
    completed: oneshot::Receiver<BodyComplete>,
    read_progress: ReadProgress,
) {
    let mut connection = std::pin::pin!(connection);
    // All arms are cancel-safe: the connection is polled by reference, and a sent message stays.
    tokio::select! {
        () = read_progress.ended() => return,
        complete = completed => if complete.is_err() {
            // Dropped unfinished, which aborts the stream.
            return;
        },
        _ = &mut connection => return,
    }
    if let Err(error) = connection.await {
        debug!(error = %error_chain(&error), "an exchange broke after its answer");
    }
}

/// Joins both upgraded connections until both directions have ended, or one broke. Dropped unfinished they
/// are aborted, so that neither side takes a broken pipe for its end.
async fn pipe(
    caller: OnUpgrade,
    edge: OnUpgrade,
    complete: oneshot::Sender<BodyComplete>,
    read_progress: ReadProgress,
    guards: (RequestSlot, LimitGuard),
) {
    let joined: Result<(Upgraded, Upgraded), hyper::Error> = async { Ok((caller.await?, edge.await?)) }.await;
    // From here on the stream belongs to the pipe.
    let _ = complete.send(BodyComplete);
    match joined {
        Ok((caller, edge)) => {
            let entry = guards.0.audit_entry();
            let (mut caller, mut edge) =
                (count_bytes(TokioIo::new(caller), entry.cloned()), TokioIo::new(edge));
            let piped = copy_bidirectional_with_sizes(&mut caller, &mut edge, PIPE_BYTES, PIPE_BYTES);
            // Both arms are cancel-safe: a copy that is dropped here is meant to break off.
            tokio::select! {
                piped = piped => {
                    if let Err(error) = &piped {
                        debug!(error = %error_chain(error), "an upgraded connection broke");
                    }
                    if let Some(entry) = entry {
                        match piped {
                            Ok(_) => entry.set_end(EndReason::Clean),
                            Err(_) => entry.set_broken(EndReason::ClientCancel),
                        }
                    }
                }
                () = read_progress.ended() => {}
            }
        }
        Err(error) => debug!(error = %error_chain(&error), "an upgrade was not completed"),
    }
    drop(guards);
}
