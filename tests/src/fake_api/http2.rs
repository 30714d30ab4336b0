//! Requests over HTTP/2, each stream on its own.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Shared;
use super::behaviour::Cut;
use super::record::{Head, HttpVersion};
use super::recorded_stream::RecordedStream;
use super::response_plan::{BodySource, BodyStep, ExchangeEnd, PlannedResponse, ResponsePlan};
use super::socket::SocketHandle;

/// The flow-control window of each stream and of the connection, in bytes.
const WINDOW_BYTES: u32 = 1024 * 1024;

/// Serves a connection until it ends or a behaviour ends it.
pub(super) async fn serve(stream: RecordedStream, connection: u64, shared: Arc<Shared>) {
    let Ok(cutter) = SocketHandle::of(stream.socket()) else { return };
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(shared.options.concurrent_streams_max)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let Ok(mut h2) = builder.handshake::<_, Bytes>(stream).await else { return };
    let (cut, mut cuts) = mpsc::channel(1);
    let open = Arc::new(AtomicUsize::new(0));
    let mut exchanges = JoinSet::new();
    let mut requests = 0;
    let mut goaways = shared.goaways.subscribe();
    loop {
        // All arms are cancel-safe: a stream that was not returned is returned next time, `recv` and
        // `changed` lose nothing.
        tokio::select! {
            accepted = h2.accept() => {
                let Some(Ok((request, respond))) = accepted else { break };
                let count = OpenStream::one_more(&open, &shared);
                let exchange = Exchange { shared: Arc::clone(&shared), connection, cut: cut.clone(), open: Some(count) };
                exchanges.spawn(exchange.run(request, respond));
                requests += 1;
                if shared.options.goaway_after == Some(requests) {
                    h2.graceful_shutdown();
                }
            }
            // The sender lives in `shared`.
            _ = goaways.changed() => h2.graceful_shutdown(),
            Some(how) = cuts.recv() => {
                flush(&mut h2).await;
                cutter.arm(how);
                break;
            }
        }
        while exchanges.try_join_next().is_some() {}
    }
    // Tells the exchanges that still run that their peer is gone, so that they record it.
    drop(h2);
    while exchanges.join_next().await.is_some() {}
}

// One poll writes what is queued, as far as windows and the socket take it.
async fn flush(h2: &mut Connection<RecordedStream, Bytes>) {
    poll_fn(|cx| {
        while let Poll::Ready(Some(Ok(_))) = h2.poll_accept(cx) {}
        Poll::Ready(())
    })
    .await;
}

/// Counts a stream for as long as it is open.
struct OpenStream(Arc<AtomicUsize>);

impl OpenStream {
    fn one_more(open: &Arc<AtomicUsize>, shared: &Shared) -> Self {
        let before = open.fetch_add(1, Ordering::Relaxed);
        shared.records.streams_open(before + 1);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Exchange {
    shared: Arc<Shared>,
    connection: u64,
    cut: mpsc::Sender<Cut>,
    open: Option<OpenStream>,
}

impl Exchange {
    async fn run(mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let (parts, body) = request.into_parts();
        let head = head(&parts);
        let plan = ResponsePlan::of_head(&head, &self.shared.script);
        let id = self.shared.records.arrived(self.connection, &head);
        match self.answer(body, respond, plan, &head, id).await {
            ExchangeEnd::Answered => self.shared.records.answered(id),
            ExchangeEnd::HungUp(how) => self.shared.records.hung_up(id, how),
            // The stream was kept until the cut was made: dropping it would take back what it has not sent
            // yet.
            ExchangeEnd::Cut(_) => {}
        }
    }

    async fn answer(
        &mut self,
        mut body: RecvStream,
        mut respond: SendResponse<Bytes>,
        plan: ResponsePlan,
        head: &Head,
        id: u64,
    ) -> ExchangeEnd {
        if matches!(plan, ResponsePlan::Deaf) {
            return ExchangeEnd::HungUp(reset_of(poll_fn(|cx| respond.poll_reset(cx)).await));
        }
        while let Some(data) = body.data().await {
            match data {
                Ok(bytes) => {
                    let _ = body.flow_control().release_capacity(bytes.len()); // Fails only on a stream that is gone.
                    self.shared.records.body(id, &bytes);
                }
                Err(error) => return ExchangeEnd::HungUp(error.to_string()),
            }
        }
        self.shared.records.body_ended(id);
        let mut reply = match plan.with_body(head, || self.shared.records.body_of(id)) {
            ResponsePlan::Reply(reply) => reply,
            ResponsePlan::Ask(..) | ResponsePlan::NeverAnswer | ResponsePlan::Deaf => {
                return ExchangeEnd::HungUp(reset_of(poll_fn(|cx| respond.poll_reset(cx)).await));
            }
            ResponsePlan::Upgrade { .. }
            | ResponsePlan::Exec
            | ResponsePlan::ExecProgram(_)
            | ResponsePlan::Raw { .. } => {
                respond.send_reset(Reason::HTTP_1_1_REQUIRED);
                return ExchangeEnd::Answered;
            }
        };
        if let Some(gate) = reply.gate.take() {
            // Both arms are cancel-safe: neither has anything to lose.
            tokio::select! {
                () = gate.pass() => {}
                reset = poll_fn(|cx| respond.poll_reset(cx)) => return ExchangeEnd::HungUp(reset_of(reset)),
            }
        }
        match respond.send_response(response(&reply), false) {
            Ok(mut stream) => {
                let mut outcome = send(&mut stream, reply.body, &mut self.open).await;
                if let (ExchangeEnd::Answered, Some(cut)) = (&outcome, reply.last) {
                    self.shared.records.answered(id);
                    outcome = ExchangeEnd::Cut(cut);
                }
                if let ExchangeEnd::Cut(cut) = outcome {
                    let _ = self.cut.send(cut).await; // The connection may have ended already.
                    let _ = poll_fn(|cx| stream.poll_reset(cx)).await;
                }
                outcome
            }
            Err(error) => ExchangeEnd::HungUp(error.to_string()),
        }
    }
}

async fn send(
    stream: &mut SendStream<Bytes>,
    mut body: BodySource,
    open: &mut Option<OpenStream>,
) -> ExchangeEnd {
    loop {
        // A step that is dropped here is dropped for good: nobody is left to read it.
        let step = tokio::select! {
            step = body.next() => step,
            reset = poll_fn(|cx| stream.poll_reset(cx)) => return ExchangeEnd::HungUp(reset_of(reset)),
        };
        let sent = match step {
            BodyStep::Piece(bytes) => send_piece(stream, bytes).await,
            BodyStep::End => {
                // With END_STREAM the peer may open another: this one must not be counted any more.
                drop(open.take());
                return match stream.send_data(Bytes::new(), true) {
                    Ok(()) => ExchangeEnd::Answered,
                    Err(error) => ExchangeEnd::HungUp(error.to_string()),
                };
            }
            BodyStep::Cut(Cut::Hold | Cut::Half) => {
                return ExchangeEnd::HungUp(reset_of(poll_fn(|cx| stream.poll_reset(cx)).await));
            }
            BodyStep::Cut(cut) => return ExchangeEnd::Cut(cut),
        };
        if let Err(how) = sent {
            return ExchangeEnd::HungUp(how);
        }
    }
}

async fn send_piece(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), String> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(room)) => room,
            Some(Err(error)) => return Err(error.to_string()),
            None => return Err("the stream was reset".to_owned()),
        };
        let piece = bytes.split_to(room.min(bytes.len()));
        stream.send_data(piece, false).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn head(parts: &http::request::Parts) -> Head {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Head {
        version: HttpVersion::Http2,
        method: parts.method.to_string(),
        target: parts.uri.path_and_query().map_or_else(|| parts.uri.to_string(), ToString::to_string),
        authority: parts.uri.authority().map(ToString::to_string),
        headers: parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
    }
}

fn response(reply: &PlannedResponse) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(reply.status).expect("a test answers with a valid status");
    for (name, value) in &reply.headers {
        let name: HeaderName = name.parse().expect("a test answers with valid header names");
        let value = HeaderValue::from_str(value).expect("a test answers with valid header values");
        response.headers_mut().append(name, value);
    }
    if let Some(bytes) = reply.length {
        response.headers_mut().insert(http::header::CONTENT_LENGTH, bytes.into());
    }
    response
}

fn reset_of(reset: Result<Reason, h2::Error>) -> String {
    match reset {
        Ok(reason) => format!("the stream was reset: {reason}"),
        Err(error) => error.to_string(),
    }
}
