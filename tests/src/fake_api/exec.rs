//! A pod that runs `cat`, for `kubectl exec -i`: input is echoed, and its end makes the command succeed.

use std::io;

use super::record::Head;
use super::wire::{RequestReader, ResponseWriter, put};

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

/// An error for a message that kubectl would not send.
fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
