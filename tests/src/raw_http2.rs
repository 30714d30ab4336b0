//! A caller that speaks HTTP/2 frame by frame, and can send heads that no library would.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::caller::SOON;
use crate::dial::dial_name;
use crate::pki::Issued;
use crate::rig::Rig;

mod flood;
mod frames;

pub use flood::{Flood, Flooded};
pub use frames::{ACK, Block, END_HEADERS, END_STREAM, FRAME_BYTES, kind, put_frame};

use kind::{CONTINUATION, DATA, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// HPACK's indexed field for `:status: 200` (RFC 7541, appendix A).
const STATUS_200: u8 = 0x88;

const NO_ERROR: [u8; 4] = [0; 4];

/// Bytes of a frame before its payload (RFC 9113, section 4.1).
const FRAME_HEAD_BYTES: usize = 9;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It was answered with 200.
    Ok,
    /// It was answered with another status.
    Refused,
    /// Its stream was reset by the server.
    Reset,
}

/// The names and values of a head, in the order in which they are sent.
pub type RawHead = Vec<(String, Vec<u8>)>;

/// A connection of such a caller.
#[derive(Debug)]
pub struct RawHttp2 {
    stream: TlsStream<TcpStream>,
    unread: BytesMut,
    next_stream: u32,
    /// Of streams that are answered, and not ended yet.
    outcomes: BTreeMap<u32, RequestOutcome>,
}

/// A frame of the gateway's.
struct ReceivedFrame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: BytesMut,
}

impl RawHttp2 {
    /// Connects to the gateway under a name of its own.
    pub async fn dial(rig: &Rig, name: &str, identity: Option<&Issued>) -> Self {
        Self::dial_saying(rig, name, identity, &[]).await
    }

    /// The same with settings of its own (RFC 9113, section 6.5.2): their numbers and values.
    pub async fn dial_saying(
        rig: &Rig,
        name: &str,
        identity: Option<&Issued>,
        settings: &[(u16, u32)],
    ) -> Self {
        let dialed = dial_name(rig.gateway(), name, &rig.server_ca(), &["h2"], identity).await;
        let mut this = Self {
            stream: dialed.expect("a handshake"),
            unread: BytesMut::new(),
            next_stream: 1,
            outcomes: BTreeMap::new(),
        };
        let mut hello = BytesMut::from(PREFACE);
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(number, value)| [number.to_be_bytes().as_slice(), &value.to_be_bytes()].concat())
            .collect();
        put_frame(&mut hello, SETTINGS, 0, 0, &settings);
        // Answers are never held up by our windows.
        put_frame(&mut hello, WINDOW_UPDATE, 0, 0, &(u32::from(u16::MAX) << 14).to_be_bytes());
        this.write(&hello).await.expect("the gateway reads");
        this
    }

    /// Sends these heads without a body, all at once, and waits for what becomes of each.
    ///
    /// # Errors
    /// The gateway ends the connection before.
    pub async fn ask(&mut self, heads: &[RawHead]) -> io::Result<Vec<RequestOutcome>> {
        let streams = self.send(heads).await?;
        let mut ended = BTreeMap::new();
        while ended.len() < heads.len() {
            let (stream, outcome) = self.ended().await?;
            ended.insert(stream, outcome);
        }
        Ok(streams.iter().map(|stream| ended[stream]).collect())
    }

    /// Sends these heads without a body, all at once, and returns their streams.
    ///
    /// # Errors
    /// If the gateway has ended the connection.
    pub async fn send(&mut self, heads: &[RawHead]) -> io::Result<Vec<u32>> {
        self.send_and(heads, |_, _| {}).await
    }

    /// Sends these heads, each with the reset of its stream behind it, all at once.
    ///
    /// # Errors
    /// The gateway has ended the connection.
    pub async fn send_and_reset(&mut self, heads: &[RawHead]) -> io::Result<Vec<u32>> {
        const CANCEL: [u8; 4] = 8_u32.to_be_bytes();
        self.send_and(heads, |bytes, stream| put_frame(bytes, RST_STREAM, 0, stream, &CANCEL)).await
    }

    async fn send_and(
        &mut self,
        heads: &[RawHead],
        behind: impl Fn(&mut BytesMut, u32),
    ) -> io::Result<Vec<u32>> {
        let first = self.next_stream;
        let mut bytes = BytesMut::new();
        for head in heads {
            let block = Block::of(head).into_bytes();
            let mut pieces = block.chunks(FRAME_BYTES).peekable();
            let mut kind = HEADERS;
            while let Some(piece) = pieces.next() {
                let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
                let flags = end | if kind == HEADERS { END_STREAM } else { 0 };
                put_frame(&mut bytes, kind, flags, self.next_stream, piece);
                kind = CONTINUATION;
            }
            behind(&mut bytes, self.next_stream);
            self.next_stream += 2;
        }
        self.write(&bytes).await?;
        Ok((first..self.next_stream).step_by(2).collect())
    }

    /// Waits until another stream has ended, and returns its outcome.
    ///
    /// # Errors
    /// If the gateway ends the connection before.
    pub async fn ended(&mut self) -> io::Result<(u32, RequestOutcome)> {
        loop {
            if let Some(stream) = self.receive().await? {
                return Ok((stream, self.outcomes.remove(&stream).unwrap_or(RequestOutcome::Reset)));
            }
        }
    }

    /// Reads until `done` resolves. The gateway closes a connection that does not answer a PING within 20 s, so a caller that
    /// waits for something else has to read all the same.
    ///
    /// # Panics
    /// If a stream or the connection ends meanwhile.
    pub async fn read_until<T>(&mut self, done: impl Future<Output = T>) -> T {
        let mut done = pin!(done);
        loop {
            // Both arms are cancel-safe: a frame is taken only when all of it is there.
            let frame = tokio::select! {
                result = &mut done => return result,
                frame = self.frame() => frame,
            };
            match frame {
                Ok(frame) => {
                    let ended = self.take(frame).await.expect("the connection goes on");
                    assert_eq!(ended, None, "a stream has ended");
                }
                // A gateway without processor time for its PINGs closes nothing, either.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                Err(error) => panic!("the connection has ended: {error}"),
            }
        }
    }

    /// Reads one frame, and returns the stream that ended with it.
    async fn receive(&mut self) -> io::Result<Option<u32>> {
        let frame = self.frame().await?;
        self.take(frame).await
    }

    /// The next frame of the gateway. Cancel-safe.
    async fn frame(&mut self) -> io::Result<ReceivedFrame> {
        self.fill(FRAME_HEAD_BYTES).await?;
        let length = usize::try_from((&self.unread[..]).get_uint(3)).expect("three bytes");
        self.fill(FRAME_HEAD_BYTES + length).await?;
        self.unread.advance(3);
        let (kind, flags, stream) = (self.unread.get_u8(), self.unread.get_u8(), self.unread.get_u32());
        Ok(ReceivedFrame { kind, flags, stream, payload: self.unread.split_to(length) })
    }

    /// Notes a frame, and returns the stream that ended with it.
    async fn take(&mut self, frame: ReceivedFrame) -> io::Result<Option<u32>> {
        let ReceivedFrame { kind, flags, stream, payload } = frame;
        match kind {
            HEADERS => {
                let outcome = if payload.first() == Some(&STATUS_200) {
                    RequestOutcome::Ok
                } else {
                    RequestOutcome::Refused
                };
                self.outcomes.entry(stream).or_insert(outcome);
            }
            // Behind a complete answer: the rest of the request is not needed (RFC 9113, section 8.1).
            RST_STREAM if payload == NO_ERROR[..] => {}
            RST_STREAM => {
                self.outcomes.insert(stream, RequestOutcome::Reset);
                return Ok(Some(stream));
            }
            SETTINGS if flags & ACK == 0 => self.reply(SETTINGS, &[]).await?,
            PING if flags & ACK == 0 => self.reply(PING, &payload).await?,
            GOAWAY => return Err(io::Error::other(format!("GOAWAY {payload:?}"))),
            _ => {}
        }
        Ok((matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0).then_some(stream))
    }

    async fn reply(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        put_frame(&mut bytes, kind, ACK, 0, payload);
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout(SOON, written).await?
    }

    async fn fill(&mut self, count: usize) -> io::Result<()> {
        while self.unread.len() < count {
            if timeout(SOON, self.stream.read_buf(&mut self.unread)).await?? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}
