//! Exchanges that become pipes: WebSocket and SPDY, byte for byte, both ways.

use audit::EndReason;
use daemon::chain;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use proto::upgrade::Protocol;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::sync::oneshot;
use tracing::debug;

use super::body::{AnswerBody, Passed, Whole};
use super::forward::{Exchange, Sent, handshake};
use super::held::Slot;
use super::refusal::Refusal;
use super::stack::CallerBody;
use crate::exchanges::record::counted;
use crate::exchanges::stalls::Taking;
use crate::limits::LimitGuard;

/// Bytes that a pipe holds in each direction.
const PIPE_BYTES: usize = 16 * 1024;

impl Exchange {
    /// Asks for an upgrade. Bytes behind the request stay where they are until the API server has accepted; if it does
    /// not, its answer is passed on and the caller's connection ends behind it.
    pub(super) async fn upgrade(
        self,
        protocol: Protocol,
        mut request: Request<CallerBody>,
        mut share: LimitGuard,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let answering = self.answering();
        let caller = hyper::upgrade::on(&mut request);
        let slot = request.body().held().clone();
        let (mut request, progress) = self.rewritten(request.map(Sent::Caller))?;
        ask(protocol, request.headers_mut());
        let taking = self.stream.taking();
        let (mut sender, connection) = handshake(self.stream, &answering.cluster).await?;
        let (whole, wholeness) = oneshot::channel();
        self.scope.spawn_on(self.route.home, carry(connection.with_upgrades(), wholeness, taking.clone()));
        // The exchange itself may run as long as it likes; whether there is one is soon known.
        let answer = sender.send_request(request);
        let mut response = answering.head(answer, Some(progress), &self.route.tunnel).await?;
        share.response_started();

        if protocol.is_accepted_by(response.status(), response.headers()) {
            let edge = hyper::upgrade::on(&mut response);
            let mut answer = answering.cleaned(response)?;
            if let Some(record) = slot.record() {
                record.answered(answer.status());
            }
            ask(protocol, answer.headers_mut());
            self.scope.spawn_on(self.route.home, pipe(caller, edge, whole, taking, (slot, share)));
            return Ok(answer.map(|_| AnswerBody::text("")));
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Refusal::Nonsense(answering.cluster));
        }
        let answer = answering.cleaned(response)?;
        Ok(answer.map(|body| AnswerBody::passed(Passed::new(body, whole, taking), share)))
    }
}

/// Names the upgrade, in a request or in the answer that accepts it.
fn ask(protocol: Protocol, headers: &mut http::HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol.token());
}

/// Moves an upgrade's exchange, on the tunnel's home, until it is upgraded, or its answer was taken, or nobody wants it.
async fn carry(
    connection: impl Future<Output = hyper::Result<()>>,
    wholeness: oneshot::Receiver<Whole>,
    taking: Taking,
) {
    let mut connection = std::pin::pin!(connection);
    // All arms are cancel-safe: the connection is polled by reference, and a word that was said stays said.
    tokio::select! {
        () = taking.ended() => return,
        whole = wholeness => if whole.is_err() {
            // Dropped unfinished, which aborts the stream.
            return;
        },
        _ = &mut connection => return,
    }
    if let Err(error) = connection.await {
        debug!(error = %chain(&error), "an exchange broke behind its answer");
    }
}

/// Joins both upgraded connections until both directions have ended, or one broke. What is dropped unfinished is aborted,
/// so neither side takes a broken pipe for its end.
async fn pipe(
    caller: OnUpgrade,
    edge: OnUpgrade,
    whole: oneshot::Sender<Whole>,
    taking: Taking,
    held: (Slot, LimitGuard),
) {
    let joined: Result<(Upgraded, Upgraded), hyper::Error> = async { Ok((caller.await?, edge.await?)) }.await;
    // From here on the stream belongs to the pipe.
    let _ = whole.send(Whole);
    match joined {
        Ok((caller, edge)) => {
            let record = held.0.record();
            let (mut caller, mut edge) = (counted(TokioIo::new(caller), record.cloned()), TokioIo::new(edge));
            let piped = copy_bidirectional_with_sizes(&mut caller, &mut edge, PIPE_BYTES, PIPE_BYTES);
            // Both arms are cancel-safe: what is cut here is meant to be cut.
            tokio::select! {
                piped = piped => {
                    if let Err(error) = &piped {
                        debug!(error = %chain(error), "an upgraded connection broke");
                    }
                    if let Some(record) = record {
                        match piped {
                            Ok(_) => record.ends(EndReason::Clean),
                            Err(_) => record.breaks(EndReason::ClientCancel),
                        }
                    }
                }
                () = taking.ended() => {}
            }
        }
        Err(error) => debug!(error = %chain(&error), "an upgrade was not completed"),
    }
    drop(held);
}
