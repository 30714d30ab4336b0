//! `v4.channel.k8s.io` over SPDY/3.1: a stream for each of error, stdin, stdout and stderr.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;

use super::{SUCCEEDED, failed, unexpected};
use crate::fake_api::wire::{RequestReader, ResponseWriter, put};
use crate::process::{Invocation, Process};

/// The lines of the 101.
pub(super) const AGREEMENT: &str = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";

// The streams in the order in which client-go opens them, each only once the last was agreed to
// (`streamProtocolV2`).
const ERROR: u32 = 1;
const STDIN: u32 = 3;
const STDOUT: u32 = 5;
const STDERR: u32 = 7;

// https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/, section 2.6: control bit and version,
// type.
const SYN_STREAM: u32 = 0x8003_0001;
const SYN_REPLY: u32 = 0x8003_0002;
const PING: u32 = 0x8003_0006;
const GOAWAY: u32 = 0x8003_0007;
const CONTROL: u32 = 0x8000_0000;
const LENGTH: u32 = 0x00ff_ffff;
const FIN: u32 = 0x0100_0000;

/// The bytes of a program's output in one frame.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// The limit for a program that has closed its output to end.
const EXIT_MAX: Duration = Duration::from_secs(10);

/// zlib's head without a dictionary (RFC 1950, section 2.2).
const ZLIB: &[u8] = &[0x78, 0x01];
/// No header at all, stored and flushed (RFC 1951, section 3.2.4): the number zero, and an empty block.
const NO_HEADERS: &[u8] = &[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Serves the command. Pings are answered, as by every API server.
pub(super) async fn cat(reader: &mut RequestReader<'_>, writer: &mut ResponseWriter) -> io::Result<()> {
    let mut zlib = ZLIB;
    loop {
        let read = SpdyFrame::read(reader).await?;
        if let Some(reply) = read.reply(&mut zlib) {
            put(writer, &reply).await?;
        }
        match read.kind {
            STDIN => {
                put(writer, &frame(STDOUT, 0, &[&read.payload])).await?;
                if read.is_last {
                    put(writer, &end_with(SUCCEEDED)).await?;
                }
            }
            GOAWAY => return Ok(()),
            _ => read.is_expected()?,
        }
    }
}

/// Serves a program, which gets what arrives as its input; what it writes to stdout goes back.
pub(super) async fn program(
    reader: &mut RequestReader<'_>,
    writer: &mut ResponseWriter,
    program: &Invocation,
) -> io::Result<()> {
    let started = Process::start_talking(program, Path::new("/dev/null")).await;
    let (mut process, stdin, mut stdout) = started.map_err(io::Error::other)?;
    let writer = Mutex::new(writer);
    let input = async {
        let (mut zlib, mut stdin) = (ZLIB, Some(stdin));
        loop {
            let read = SpdyFrame::read(reader).await?;
            if let Some(reply) = read.reply(&mut zlib) {
                put(&mut **writer.lock().await, &reply).await?;
            }
            match read.kind {
                STDIN => {
                    if let Some(stdin) = &mut stdin {
                        let _ = stdin.write_all(&read.payload).await; // It may have ended, which its status says.
                    }
                    if read.is_last {
                        stdin = None;
                    }
                }
                // The end of the input ends a shell.
                GOAWAY => return Ok(()),
                _ => read.is_expected()?,
            }
        }
    };
    let output = async {
        let mut buffer = vec![0; OUTPUT_BYTES_MAX];
        loop {
            let bytes = stdout.read(&mut buffer).await?;
            if bytes == 0 {
                break;
            }
            put(&mut **writer.lock().await, &frame(STDOUT, 0, &[&buffer[..bytes]])).await?;
        }
        let status = process.wait(EXIT_MAX).await.map_err(io::Error::other)?;
        let code = status.code().unwrap_or(1);
        let status = if code == 0 { SUCCEEDED.to_vec() } else { failed(code) };
        put(&mut **writer.lock().await, &end_with(&status)).await
    };
    tokio::try_join!(input, output).map(|((), ())| ())
}

/// A frame that has been read.
struct SpdyFrame {
    /// The frame's type for a control frame, otherwise its stream.
    kind: u32,
    /// True if the stream ends with it.
    is_last: bool,
    payload: BytesMut,
}

impl SpdyFrame {
    async fn read(reader: &mut RequestReader<'_>) -> io::Result<Self> {
        let head = reader.exactly_upgraded(8).await?;
        let (kind, length) = (number(&head[..4]), number(&head[4..]));
        let bytes = usize::try_from(length & LENGTH).map_err(io::Error::other)?;
        let payload = reader.exactly_upgraded(bytes).await?;
        Ok(Self { kind, is_last: length & FIN != 0, payload })
    }

    /// The answer to a new stream or a ping. All headers of a connection are one stream of zlib, so its head is
    /// taken for the first answer.
    fn reply(&self, zlib: &mut &'static [u8]) -> Option<Vec<u8>> {
        match self.kind {
            SYN_STREAM if self.payload.len() >= 4 => {
                let headers = [std::mem::take(zlib), NO_HEADERS].concat();
                Some(frame(SYN_REPLY, 0, &[&self.payload[..4], &headers]))
            }
            PING => Some(frame(PING, 0, &[&self.payload])),
            _ => None,
        }
    }

    /// Checks that kubectl sends such frames; it ends its halves of what it only reads from.
    fn is_expected(&self) -> io::Result<()> {
        match self.kind {
            ERROR | STDOUT | STDERR => Ok(()),
            control if control & CONTROL != 0 => Ok(()),
            _ => Err(unexpected("a stream that kubectl does not open")),
        }
    }
}

/// The ends of all streams, and the status of the command.
fn end_with(status: &[u8]) -> Vec<u8> {
    let ends = [STDOUT, STDERR, STDIN].map(|stream| frame(stream, FIN, &[])).concat();
    [ends, frame(ERROR, FIN, &[status])].concat()
}

fn frame(kind: u32, flags: u32, parts: &[&[u8]]) -> Vec<u8> {
    let payload = parts.concat();
    let length = u32::try_from(payload.len()).expect("no more comes back than was typed at once");
    [&kind.to_be_bytes()[..], &(flags | length).to_be_bytes(), &payload].concat()
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}
