//! A caller that sends frames without end.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::frames::{ACK, Block, put_frame};
use super::{RawHead, RawHttp2, kind};
use crate::caller::SOON;

/// The time after which the gateway counts as one that reads no more until the caller reads. Either is a
/// bound, so nothing depends on the length.
const UNREAD_AFTER: Duration = Duration::from_secs(5);

/// The payload of the PING after the last frame. Its answer proves that everything was read.
const LAST: [u8; 8] = *b"all read";

/// One wave of frames, which are sent at once.
#[derive(Debug)]
pub struct Flood {
    /// The encoded frames of the wave.
    pub bytes: BytesMut,
    next_stream: u32,
}

/// The reaction of the gateway to a flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flooded {
    /// The gateway ended the connection.
    Ended,
    /// The gateway read no more from a caller that does not read either.
    Unread,
    /// It took all of it, and answered a PING behind.
    Taken,
}

impl Flood {
    /// Appends a frame to the wave.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        put_frame(&mut self.bytes, kind, flags, stream, payload);
    }

    /// Appends the complete head of a new stream, and returns the stream's ID.
    pub fn head(&mut self, head: &RawHead, flags: u8) -> u32 {
        let stream = self.stream();
        let block = Block::of(head).into_bytes();
        self.frame(kind::HEADERS, flags | super::END_HEADERS, stream, &block);
        stream
    }

    /// The next stream of a caller.
    pub fn stream(&mut self) -> u32 {
        self.next_stream += 2;
        self.next_stream - 2
    }
}

impl RawHttp2 {
    /// Sends as many waves as `write` makes, as fast as they are accepted, and returns the gateway's
    /// reaction. A caller that does not read (`reads`) sends all of them first, or as many as are accepted,
    /// and then looks for an answer.
    ///
    /// # Panics
    /// If the gateway does not read from a caller that reads.
    pub async fn flood(
        mut self,
        waves: usize,
        reads: bool,
        mut write: impl FnMut(usize, &mut Flood),
    ) -> Flooded {
        let mut flood = Flood { bytes: BytesMut::new(), next_stream: self.next_stream };
        let unread = std::mem::take(&mut self.unread);
        assert!(unread.is_empty(), "a connection without answers");
        let (reader, mut writer) = tokio::io::split(self.stream);
        let reading = tokio::spawn(read_until_answered(reader));
        if !reads {
            reading.abort();
        }
        for wave in 0..waves {
            write(wave, &mut flood);
            let bytes = flood.bytes.split();
            match timeout(if reads { SOON } else { UNREAD_AFTER }, send(&mut writer, &bytes)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Flooded::Ended,
                Err(_) if reads => panic!("it reads no more from one who reads"),
                Err(_) => return Flooded::Unread,
            }
            if reads && reading.is_finished() {
                return Flooded::Ended;
            }
        }
        flood.frame(kind::PING, 0, 0, &LAST);
        match timeout(UNREAD_AFTER, send(&mut writer, &flood.bytes)).await {
            Ok(Ok(())) if reads => {
                let answered = timeout(SOON, reading).await.expect("an answer or an end").expect("no panic");
                if answered { Flooded::Taken } else { Flooded::Ended }
            }
            Ok(Ok(())) => Flooded::Taken,
            Ok(Err(_)) => Flooded::Ended,
            Err(_) => Flooded::Unread,
        }
    }
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// Reads until the last PING is answered; `false` if the connection ends before.
async fn read_until_answered(mut reader: impl AsyncRead + Unpin) -> bool {
    let mut head = [0; 9];
    let mut payload = Vec::new();
    while reader.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        payload.resize(length as usize, 0);
        if reader.read_exact(&mut payload).await.is_err() {
            return false;
        }
        match (head[3], head[4]) {
            (kind::GOAWAY, _) => return false,
            (kind::PING, ACK) if payload == LAST => return true,
            _ => {}
        }
    }
    false
}
