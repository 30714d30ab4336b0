//! Requests over HTTP/1.1, answered byte by byte.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::io::AsyncWriteExt;

use super::Shared;
use super::behaviour::Cut;
use super::exec::{exec, exec_program};
use super::gate::{Gate, Moment};
use super::record::Head;
use super::recorded_stream::RecordedStream;
use super::response_plan::{BodyStep, ExchangeEnd, PlannedResponse, ResponsePlan};
use super::socket::SocketHandle;
use super::wire::{RequestReader, ResponseWriter, put};

/// Serves a connection until it ends or a behaviour ends it.
pub(super) async fn serve(stream: RecordedStream, connection: u64, shared: &Shared) {
    let Ok(cutter) = SocketHandle::of(stream.socket()) else { return };
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = RequestReader::new(reader, shared);
    while let Some(head) = reader.head().await {
        let plan = ResponsePlan::of_head(&head, &shared.script);
        let request = shared.records.arrived(connection, &head);
        if matches!(plan, ResponsePlan::Deaf) {
            return shared.records.hung_up(request, cutter.gone().await);
        }
        match exchange(&mut reader, &mut writer, &head, plan, request, shared).await {
            ExchangeEnd::Answered => {
                shared.records.answered(request);
                if head.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
                    break;
                }
            }
            ExchangeEnd::HungUp(how) => return shared.records.hung_up(request, how),
            ExchangeEnd::Cut(Cut::Hold) => {
                let how = reader.gone().await;
                return shared.records.hung_up(request, how);
            }
            ExchangeEnd::Cut(Cut::Half) => {
                let how = describe(drain(&mut reader, &mut writer).await);
                return shared.records.hung_up(request, how);
            }
            ExchangeEnd::Cut(cut) => {
                cutter.arm(cut);
                return drop(reader.into_inner().unsplit(writer));
            }
        }
    }
    let _ = writer.shutdown().await; // The peer may be gone already.
}

async fn exchange(
    reader: &mut RequestReader<'_>,
    writer: &mut ResponseWriter,
    head: &Head,
    plan: ResponsePlan,
    request: u64,
    shared: &Shared,
) -> ExchangeEnd {
    if !matches!(plan, ResponsePlan::Raw { .. })
        && let Err(error) = reader.body(head, request).await
    {
        return ExchangeEnd::HungUp(error.to_string());
    }
    let plan = plan.with_body(head, || shared.records.body_of(request));
    if let ResponsePlan::Upgrade { pause, first, gate } = plan {
        return upgrade(reader, writer, head, pause, first, gate).await;
    }
    if matches!(plan, ResponsePlan::Exec) {
        return ended(exec(reader, writer, head).await.and(writer.shutdown().await));
    }
    if let ResponsePlan::ExecProgram(program) = &plan {
        return ended(exec_program(reader, writer, program).await.and(writer.shutdown().await));
    }
    let answer = async {
        match plan {
            ResponsePlan::Reply(reply) => {
                answer(writer, head, reply, || shared.records.answered(request)).await
            }
            ResponsePlan::Raw { bytes, cut } => put(writer, &bytes).await.map(|()| ExchangeEnd::Cut(cut)),
            ResponsePlan::Ask(..)
            | ResponsePlan::NeverAnswer
            | ResponsePlan::Deaf
            | ResponsePlan::Upgrade { .. }
            | ResponsePlan::Exec
            | ResponsePlan::ExecProgram(_) => std::future::pending().await,
        }
    };
    // `gone` loses nothing when it is dropped; an answer is dropped only when nobody is there to read it. The
    // answer comes first so that one written to its end counts as answered, though its reader is gone a
    // moment later.
    tokio::select! {
        biased;
        outcome = answer => outcome.unwrap_or_else(|error| ExchangeEnd::HungUp(error.to_string())),
        how = reader.gone() => ExchangeEnd::HungUp(how),
    }
}

async fn answer(
    writer: &mut ResponseWriter,
    head: &Head,
    mut reply: PlannedResponse,
    answered: impl Fn(),
) -> io::Result<ExchangeEnd> {
    if let Some(gate) = reply.gate.take() {
        gate.pass().await;
    }
    put(writer, render(&reply).as_bytes()).await?;
    if head.method == "HEAD" || bodiless(reply.status) {
        return Ok(end(&reply, answered));
    }
    let chunked = reply.length.is_none();
    loop {
        match reply.body.next().await {
            BodyStep::Piece(bytes) if chunked => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend_from_slice(&bytes);
                chunk.extend_from_slice(b"\r\n");
                put(writer, &chunk).await?;
            }
            BodyStep::Piece(bytes) => put(writer, &bytes).await?,
            BodyStep::Cut(cut) => return Ok(ExchangeEnd::Cut(cut)),
            BodyStep::End => {
                if chunked {
                    put(writer, b"0\r\n\r\n").await?;
                }
                return Ok(end(&reply, answered));
            }
        }
    }
}

/// The end of the exchange after the last byte.
fn end(reply: &PlannedResponse, answered: impl Fn()) -> ExchangeEnd {
    reply.last.map_or(ExchangeEnd::Answered, |cut| {
        answered();
        ExchangeEnd::Cut(cut)
    })
}

async fn upgrade(
    reader: &mut RequestReader<'_>,
    writer: &mut ResponseWriter,
    head: &Head,
    pause: Duration,
    first: Bytes,
    gate: Option<Gate>,
) -> ExchangeEnd {
    let wait = async {
        if let Some(gate) = gate.filter(|gate| gate.moment() == Moment::BeforeHead) {
            gate.pass().await;
        }
        tokio::time::sleep(pause).await;
    };
    // Both arms are cancel-safe: a pause has nothing to lose, `gone` keeps what it read.
    tokio::select! {
        how = reader.gone() => return ExchangeEnd::HungUp(how),
        () = wait => {}
    }
    let protocol = head.header("upgrade").unwrap_or("none");
    let mut bytes =
        format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")
            .into_bytes();
    bytes.extend_from_slice(&first);
    ended(echo(reader, writer, &bytes).await)
}

/// The end of an upgraded connection.
fn ended(how: io::Result<()>) -> ExchangeEnd {
    ExchangeEnd::HungUp(describe(how))
}

fn describe(how: io::Result<()>) -> String {
    how.map_or_else(|error| error.to_string(), |()| "the upgraded connection was closed".to_owned())
}

/// Ends its own direction, and reads the other one to its end.
async fn drain(reader: &mut RequestReader<'_>, writer: &mut ResponseWriter) -> io::Result<()> {
    writer.shutdown().await?;
    while !reader.bytes().await?.is_empty() {}
    Ok(())
}

async fn echo(reader: &mut RequestReader<'_>, writer: &mut ResponseWriter, first: &[u8]) -> io::Result<()> {
    put(writer, first).await?;
    loop {
        let bytes = reader.bytes().await?;
        if bytes.is_empty() {
            return writer.shutdown().await;
        }
        put(writer, &bytes).await?;
    }
}

fn render(reply: &PlannedResponse) -> String {
    let phrase = StatusCode::from_u16(reply.status).ok().and_then(|status| status.canonical_reason());
    let mut text = format!("HTTP/1.1 {} {}\r\n", reply.status, phrase.unwrap_or("Unknown"));
    for (name, value) in &reply.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    match reply.length {
        _ if bodiless(reply.status) => {}
        Some(bytes) => text.push_str(&format!("Content-Length: {bytes}\r\n")),
        None => text.push_str("Transfer-Encoding: chunked\r\n"),
    }
    text.push_str("\r\n");
    text
}

fn bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}
