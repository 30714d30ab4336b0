//! Reads HTTP/1.1 to the byte: heads with their names as written, bodies, and any bytes besides. Writes bytes
//! as they are.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use super::Shared;
use super::record::{Head, HttpVersion};
use super::recorded_stream::RecordedStream;

const HEAD_BYTES_MAX: usize = 1024 * 1024;
const HEADERS_MAX: usize = 1024;
/// The bytes that may be unread after a request that is being answered. Beyond this the fake stops reading.
const PIPELINED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The reading half of a connection.
pub(super) struct RequestReader<'a> {
    half: ReadHalf<RecordedStream>,
    buffer: BytesMut,
    shared: &'a Shared,
}

/// The writing half of a connection.
pub(super) type ResponseWriter = WriteHalf<RecordedStream>;

/// The framing of a request's body.
enum Framing {
    Length(u64),
    Chunked,
}

impl<'a> RequestReader<'a> {
    pub(super) fn new(half: ReadHalf<RecordedStream>, shared: &'a Shared) -> Self {
        Self { half, buffer: BytesMut::new(), shared }
    }

    /// The next head, or `None` where the peer ended the connection or sent what is no HTTP.
    pub(super) async fn head(&mut self) -> Option<Head> {
        loop {
            if let Some((head, bytes)) = parse(&self.buffer)? {
                self.buffer.advance(bytes);
                return Some(head);
            }
            if self.buffer.len() > HEAD_BYTES_MAX || self.more().await.ok()? == 0 {
                return None;
            }
        }
    }

    /// Reads a request's body to its end into the records.
    pub(super) async fn body(&mut self, head: &Head, request: u64) -> io::Result<()> {
        match framing(head) {
            Framing::Length(bytes) => self.exactly(bytes, request).await?,
            Framing::Chunked => loop {
                let size = self.line().await?;
                let size = size.split(';').next().unwrap_or_default().trim();
                let bytes = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
                if bytes == 0 {
                    while !self.line().await?.is_empty() {} // Trailers.
                    break;
                }
                self.exactly(bytes, request).await?;
                self.line().await?;
            },
        }
        self.shared.records.body_ended(request);
        Ok(())
    }

    /// Reads on until the peer is gone, and returns a description. Cancel-safe: the bytes stay in the buffer.
    pub(super) async fn gone(&mut self) -> String {
        loop {
            if self.buffer.len() >= PIPELINED_BYTES_MAX {
                std::future::pending::<()>().await;
            }
            match self.more().await {
                Ok(0) => return "the connection was closed".to_owned(),
                Ok(_) => {}
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Returns the bytes that have arrived and were not consumed, or the next ones; empty at the end.
    /// Cancel-safe.
    pub(super) async fn bytes(&mut self) -> io::Result<Bytes> {
        if self.buffer.is_empty() {
            self.more().await?;
        }
        Ok(self.buffer.split().freeze())
    }

    /// The next so many bytes of what comes after an upgrade. Cancel-safe: what was read stays in the buffer.
    pub(super) async fn exactly_upgraded(&mut self, bytes: usize) -> io::Result<BytesMut> {
        while self.buffer.len() < bytes {
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.split_to(bytes))
    }

    pub(super) fn into_inner(self) -> ReadHalf<RecordedStream> {
        self.half
    }

    async fn exactly(&mut self, mut bytes: u64, request: u64) -> io::Result<()> {
        while bytes > 0 {
            if self.buffer.is_empty() && self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let here = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.buffer.len());
            self.shared.records.body(request, &self.buffer.split_to(here).freeze());
            bytes -= here as u64;
        }
        Ok(())
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line = self.buffer.split_to(end);
                self.buffer.advance(2);
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.buffer.len() > HEAD_BYTES_MAX || self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn more(&mut self) -> io::Result<usize> {
        self.half.read_buf(&mut self.buffer).await
    }
}

/// Writes bytes and flushes them.
pub(super) async fn put(writer: &mut ResponseWriter, bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

// The outer `None` is for bytes that are no HTTP, the inner one for an incomplete head.
fn parse(bytes: &[u8]) -> Option<Option<(Head, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = request.parse(bytes).ok()? else { return Some(None) };
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let head = Head {
        version: HttpVersion::Http1,
        method: request.method?.to_owned(),
        target: request.path?.to_owned(),
        authority: None,
        headers: request.headers.iter().map(|header| (header.name.to_owned(), text(header.value))).collect(),
    };
    Some(Some((head, length)))
}

fn framing(head: &Head) -> Framing {
    if head.header("transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().contains("chunked")) {
        return Framing::Chunked;
    }
    Framing::Length(head.header("content-length").and_then(|value| value.trim().parse().ok()).unwrap_or(0))
}
