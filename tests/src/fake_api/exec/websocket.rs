//! `v5.channel.k8s.io` over WebSocket (RFC 6455): a channel's number in front of every message.

use std::io;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;

use super::{SUCCEEDED, unexpected};
use crate::fake_api::record::Head;
use crate::fake_api::wire::{RequestReader, ResponseWriter, put};

const PROTOCOL: &str = "v5.channel.k8s.io";
/// The GUID of RFC 6455, section 1.3.
const ACCEPT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

// RFC 6455, section 5.2.
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const LAST_FRAGMENT: u8 = 0x80;
const MASKED: u8 = 0x80;
/// RFC 6455, section 7.4.1: the accept key.
const NORMAL: [u8; 2] = 1000_u16.to_be_bytes();

// `k8s.io/apimachinery/pkg/util/remotecommand`.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const ERROR: u8 = 3;
const END_OF: u8 = 255;

/// The lines of the 101.
pub(super) fn agreement(head: &Head) -> io::Result<String> {
    let offered = head.header("sec-websocket-protocol").unwrap_or_default();
    if !offered.split(',').any(|one| one.trim() == PROTOCOL) {
        return Err(unexpected("no v5.channel.k8s.io among the protocols"));
    }
    let key = head.header("sec-websocket-key").ok_or_else(|| unexpected("no key"))?;
    let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{ACCEPT}").as_bytes()));
    Ok(format!(
        "Upgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n"
    ))
}

/// Serves the command. Pings are answered, as by every API server.
pub(super) async fn cat(reader: &mut RequestReader<'_>, writer: &mut ResponseWriter) -> io::Result<()> {
    loop {
        let (opcode, payload) = read(reader).await?;
        match (opcode, payload.split_first()) {
            (PING, _) => put(writer, &frame(PONG, &[&payload])).await?,
            (BINARY, Some((&STDIN, typed))) => put(writer, &frame(BINARY, &[&[STDOUT], typed])).await?,
            (BINARY, Some((&END_OF, [STDIN]))) => {
                put(writer, &frame(BINARY, &[&[ERROR], SUCCEEDED])).await?;
                return put(writer, &frame(CLOSE, &[&NORMAL])).await;
            }
            (CLOSE, _) => return Ok(()),
            _ => return Err(unexpected("a message that kubectl does not send here")),
        }
    }
}

/// A frame's opcode and what it carries; kubectl's messages fit into one.
async fn read(reader: &mut RequestReader<'_>) -> io::Result<(u8, BytesMut)> {
    let head = reader.exactly_upgraded(2).await?;
    if head[0] & LAST_FRAGMENT == 0 || head[1] & MASKED == 0 {
        return Err(unexpected("a fragment, or no mask"));
    }
    let length = match head[1] & !MASKED {
        126 => u16::from_be_bytes(array(&reader.exactly_upgraded(2).await?)).into(),
        127 => return Err(unexpected("a large message")),
        short => usize::from(short),
    };
    let mask = reader.exactly_upgraded(4).await?;
    let mut payload = reader.exactly_upgraded(length).await?;
    for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Ok((head[0] & 0x0f, payload))
}

fn frame(opcode: u8, parts: &[&[u8]]) -> Vec<u8> {
    let payload = parts.concat();
    let mut frame = vec![LAST_FRAGMENT | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short @ ..126), _) => frame.push(short),
        (_, Ok(length)) => {
            frame.push(126);
            frame.extend(length.to_be_bytes());
        }
        (_, Err(_)) => unreachable!("no more comes back than was typed at once"),
    }
    frame.extend(payload);
    frame
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("as many as were read")
}
