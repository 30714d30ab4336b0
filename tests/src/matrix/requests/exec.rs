//! An upgraded connection to an echo, at the pace of a person who types fast.

use std::time::{Duration, Instant};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Observation, RequestContext, RequestEnd};
use crate::check::stream::{Generator, Verifier};
use crate::fake_api::HttpVersion;
use crate::matrix::code::{Request, Timing};
use crate::matrix::gateway::describe_error;

/// The size of a piece in bytes.
const PIECE_BYTES: usize = 256;
/// The pause between two pieces.
const PIECE_EVERY: Duration = Duration::from_millis(25);
/// So many bytes have come back before the fault begins.
const STANDS_AT: u64 = 8 * PIECE_BYTES as u64;
/// The time that it goes on after the fault's end.
const GOES_ON: Duration = Duration::from_millis(1500);

pub(super) async fn perform(context: &RequestContext) -> Observation {
    context.may_begin().await;
    let (observation, ()) = tokio::join!(context.unless_hung(exec(context)), context.pass_gate());
    observation.unwrap_or_else(Observation::hung)
}

async fn exec(context: &RequestContext) -> Observation {
    let headers = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let mut answer = match context.gateway.send(HttpVersion::Http1, "POST", &context.path, &headers, "").await
    {
        Ok(answer) => answer,
        Err(how) => return Observation::broken(how),
    };
    if answer.response.status() != 101 {
        let noticed_at = Some(Instant::now());
        return Observation::of(
            RequestEnd::refused(answer).await,
            noticed_at,
            context.phases.has_ended().map(|_| Instant::now()),
        );
    }
    let upgraded = match hyper::upgrade::on(&mut answer.response).await {
        Ok(upgraded) => TokioIo::new(upgraded),
        Err(error) => return Observation::broken(describe_error(error)),
    };
    let (reader, writer) = tokio::io::split(upgraded);
    let (back, returned) = watch::channel(0);
    let (sent, observation) = tokio::join!(write(context, writer, returned), read(context, reader, back));
    let missing = sent.saturating_sub(observation.1);
    match observation.0 {
        Observation { end: RequestEnd::Complete, resumed, .. } if missing > 0 => {
            let end = RequestEnd::Wrong(format!("a clean end, and {missing} bytes did not come back"));
            Observation { lost: missing, ..Observation::of(end, None, resumed) }
        }
        observation => observation,
    }
}

/// Writes bytes until a little after the fault, then ends its direction. Returns the number of bytes.
async fn write(
    context: &RequestContext,
    mut writer: WriteHalf<TokioIo<Upgraded>>,
    mut returned: watch::Receiver<u64>,
) -> u64 {
    let mut generator = Generator::new(context.seed);
    let mut stands = context.timing == Timing::New || context.timing == Timing::BeforeHead;
    loop {
        let returned_bytes = *returned.borrow_and_update();
        if !stands && returned_bytes >= STANDS_AT {
            stands = true;
            context.phases.ready(Request::Exec).await;
            if context.timing == Timing::AtTheEnd {
                context.phases.begun().await;
                let _ = writer.write_all(&generator.take(PIECE_BYTES)).await; // The reader learns of it, too.
                break;
            }
        }
        if context.phases.has_ended().is_some_and(|ended| ended.elapsed() >= GOES_ON) {
            break;
        }
        // The reader has seen the end and reports it, so there is nothing more to write.
        if returned.has_changed().is_err() {
            return generator.position();
        }
        let piece = generator.take(PIECE_BYTES);
        if writer.write_all(&piece).await.is_err() {
            break;
        }
        // Both arms are cancel-safe: a pause has nothing to lose, `changed` is asked again.
        tokio::select! {
            () = sleep(PIECE_EVERY) => {}
            ended = returned.changed() => if ended.is_err() { break } else { sleep(PIECE_EVERY).await },
        }
    }
    let _ = writer.shutdown().await; // The reader learns of it, too.
    generator.position()
}

/// Reads the echo to its end, and counts its right bytes.
async fn read(
    context: &RequestContext,
    mut reader: ReadHalf<TokioIo<Upgraded>>,
    back: watch::Sender<u64>,
) -> (Observation, u64) {
    let mut verifier = Verifier::new(context.seed);
    let mut piece = vec![0; 16 * 1024];
    let mut resumed = None;
    loop {
        let read = reader.read(&mut piece).await;
        if resumed.is_none() && context.phases.has_ended().is_some() {
            resumed = Some(Instant::now());
        }
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                return (
                    Observation { resumed: None, ..Observation::broken(error.to_string()) },
                    verifier.right_bytes(),
                );
            }
        };
        verifier.take(&piece[..bytes]);
        back.send_replace(verifier.right_bytes());
        if let Some(fault) = verifier.fault() {
            return (
                Observation::of(RequestEnd::Wrong(fault.to_string()), None, resumed),
                verifier.right_bytes(),
            );
        }
        if bytes == 0 {
            return (Observation::of(RequestEnd::Complete, None, resumed), verifier.right_bytes());
        }
    }
}
