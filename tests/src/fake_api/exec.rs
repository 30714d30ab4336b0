//! A pod that runs `cat` or another program, for `kubectl exec -i`. `cat` echoes its input and succeeds at its end.

use std::io;

use serde_json::json;

use super::record::Head;
use super::wire::{RequestReader, ResponseWriter, put};
use crate::process::Invocation;

mod spdy;
mod websocket;

/// The status at the command's end, for exit code 0 (`remotecommand`'s version 4 and later).
const SUCCEEDED: &[u8] = br#"{"metadata":{},"status":"Success"}"#;

/// Agrees to the upgrade that was asked for, and serves until the command or the connection ends.
pub(super) async fn exec(
    reader: &mut RequestReader<'_>,
    writer: &mut ResponseWriter,
    head: &Head,
) -> io::Result<()> {
    let is_websocket = head.header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket"));
    let lines = if is_websocket { websocket::agreement(head)? } else { spdy::AGREEMENT.to_owned() };
    put(writer, format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{lines}\r\n").as_bytes())
        .await?;
    if is_websocket { websocket::cat(reader, writer).await } else { spdy::cat(reader, writer).await }
}

/// Agrees to SPDY, and lets a program serve until it or the connection ends.
pub(super) async fn exec_program(
    reader: &mut RequestReader<'_>,
    writer: &mut ResponseWriter,
    program: &Invocation,
) -> io::Result<()> {
    let lines = spdy::AGREEMENT;
    put(writer, format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{lines}\r\n").as_bytes())
        .await?;
    spdy::program(reader, writer, program).await
}

/// The status at the end of a program with another exit code than 0.
fn failed(code: i32) -> Vec<u8> {
    let details = json!({ "causes": [{ "reason": "ExitCode", "message": code.to_string() }] });
    let status =
        json!({ "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": details });
    status.to_string().into_bytes()
}

/// An error for a message that kubectl would not send.
fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
