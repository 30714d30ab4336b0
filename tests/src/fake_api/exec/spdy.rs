//! `v4.channel.k8s.io` over SPDY/3.1: a stream for each of error, stdin, stdout and stderr.

use std::io;

use super::{SUCCEEDED, unexpected};
use crate::fake_api::wire::{RequestReader, ResponseWriter, put};

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
const RST_STREAM: u32 = 0x8003_0003;
const PING: u32 = 0x8003_0006;
const GOAWAY: u32 = 0x8003_0007;
const CONTROL: u32 = 0x8000_0000;
const LENGTH: u32 = 0x00ff_ffff;
const FIN: u32 = 0x0100_0000;

/// zlib's head without a dictionary (RFC 1950, section 2.2).
const ZLIB: &[u8] = &[0x78, 0x01];
/// No header at all, stored and flushed (RFC 1951, section 3.2.4): the number zero, and an empty block.
const NO_HEADERS: &[u8] = &[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Serves the command. Pings are answered, as by every API server.
pub(super) async fn cat(reader: &mut RequestReader<'_>, writer: &mut ResponseWriter) -> io::Result<()> {
    // All headers of a connection are one stream of zlib.
    let mut zlib = ZLIB;
    loop {
        let head = reader.exactly_upgraded(8).await?;
        let (kind, length) = (number(&head[..4]), number(&head[4..]));
        let bytes = usize::try_from(length & LENGTH).map_err(io::Error::other)?;
        let payload = reader.exactly_upgraded(bytes).await?;
        match kind {
            SYN_STREAM if payload.len() >= 4 => {
                let headers = [std::mem::take(&mut zlib), NO_HEADERS].concat();
                put(writer, &frame(SYN_REPLY, 0, &[&payload[..4], &headers])).await?;
            }
            PING => put(writer, &frame(PING, 0, &[&payload])).await?,
            STDIN => {
                put(writer, &frame(STDOUT, 0, &[&payload])).await?;
                if length & FIN != 0 {
                    for stream in [STDOUT, STDERR, STDIN] {
                        put(writer, &frame(stream, FIN, &[])).await?;
                    }
                    put(writer, &frame(ERROR, FIN, &[SUCCEEDED])).await?;
                }
            }
            GOAWAY => return Ok(()),
            // kubectl ends its halves of what it only reads from.
            RST_STREAM | ERROR | STDOUT | STDERR => {}
            _ if kind & CONTROL != 0 => {}
            _ => return Err(unexpected("a stream that kubectl does not open")),
        }
    }
}

fn frame(kind: u32, flags: u32, parts: &[&[u8]]) -> Vec<u8> {
    let payload = parts.concat();
    let length = u32::try_from(payload.len()).expect("no more comes back than was typed at once");
    [&kind.to_be_bytes()[..], &(flags | length).to_be_bytes(), &payload].concat()
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}
