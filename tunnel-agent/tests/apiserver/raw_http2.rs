//! A server of HTTP/2 frame by frame, which refuses streams and goes away as a test says.

use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fake::Connection;

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The setting of the most streams at a time, and of the window of each stream.
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// `:status: 200` of HPACK's static table.
const STATUS_200: u8 = 0x88;

/// Codes of RFC 9113, section 7.
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;

/// A request that has arrived completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) stream: u32,
    pub(crate) body: String,
}

/// A connection of HTTP/2, after its settings.
pub(crate) struct RawConnection {
    connection: Connection,
    /// Bodies of requests that have not arrived completely.
    bodies: BTreeMap<u32, Vec<u8>>,
}

impl RawConnection {
    /// Greets the client, and grants it so many streams.
    pub(crate) async fn accept(mut connection: Connection, streams: u32) -> Option<Self> {
        connection.read_exact(&mut [0; PREFACE]).await.ok()?;
        let mut this = Self { connection, bodies: BTreeMap::new() };
        let mut settings = Vec::new();
        for (setting, value) in [(MAX_CONCURRENT_STREAMS, streams), (INITIAL_WINDOW_SIZE, 1 << 24)] {
            settings.extend_from_slice(&setting.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        this.send(SETTINGS, 0, 0, &settings).await?;
        // All bodies of a test fit.
        this.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()).await?;
        Some(this)
    }

    /// The next complete request. `None` if the client has closed the connection.
    pub(crate) async fn request(&mut self) -> Option<Arrived> {
        loop {
            let (kind, flags, stream, payload) = self.frame().await?;
            match kind {
                SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]).await?,
                PING if flags & ACK == 0 => self.send(PING, ACK, 0, &payload).await?,
                HEADERS => drop(self.bodies.insert(stream, Vec::new())),
                DATA => self.bodies.entry(stream).or_default().extend_from_slice(&payload),
                RST_STREAM => drop(self.bodies.remove(&stream)),
                _ => {}
            }
            if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
                let body = self.bodies.remove(&stream).unwrap_or_default();
                return Some(Arrived { stream, body: String::from_utf8(body).unwrap() });
            }
        }
    }

    /// The stream of the next request whose head has arrived, whatever of its body follows.
    pub(crate) async fn head(&mut self) -> Option<u32> {
        loop {
            let (kind, flags, stream, payload) = self.frame().await?;
            match kind {
                SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]).await?,
                PING if flags & ACK == 0 => self.send(PING, ACK, 0, &payload).await?,
                HEADERS => return Some(stream),
                _ => {}
            }
        }
    }

    /// Reads so many bytes of bodies.
    pub(crate) async fn read_body(&mut self, bytes: usize) -> Option<()> {
        let mut read = 0;
        while read < bytes {
            let (kind, _, _, payload) = self.frame().await?;
            read += if kind == DATA { payload.len() } else { 0 };
        }
        Some(())
    }

    /// Answers 200 with this body.
    pub(crate) async fn answer(&mut self, stream: u32, body: &str) -> Option<()> {
        if body.is_empty() {
            return self.send(HEADERS, END_HEADERS | END_STREAM, stream, &[STATUS_200]).await;
        }
        self.send(HEADERS, END_HEADERS, stream, &[STATUS_200]).await?;
        self.send(DATA, END_STREAM, stream, body.as_bytes()).await
    }

    pub(crate) async fn reset(&mut self, stream: u32, code: u32) -> Option<()> {
        self.send(RST_STREAM, 0, stream, &code.to_be_bytes()).await
    }

    /// Says that streams above `last` were not processed, and that none is taken any more.
    pub(crate) async fn go_away(&mut self, last: u32) -> Option<()> {
        self.send(GOAWAY, 0, 0, &[last.to_be_bytes(), NO_ERROR.to_be_bytes()].concat()).await
    }

    /// Ends the connection behind everything that was sent.
    pub(crate) async fn end(mut self) {
        if self.connection.shutdown().await.is_ok() {
            self.closed().await;
        }
    }

    /// Waits until the client has closed the connection.
    pub(crate) async fn closed(mut self) {
        while self.frame().await.is_some() {}
    }

    /// Kind, flags, stream and payload of the next frame.
    async fn frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.connection.read_exact(&mut head).await.ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        self.connection.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & (u32::MAX >> 1);
        Some((head[3], head[4], stream, payload))
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.connection.write_all(&[&head, payload].concat()).await.ok()?;
        self.connection.flush().await.ok()
    }
}
