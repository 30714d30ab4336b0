//! Frames and header blocks of HTTP/2, written without any check.

use bytes::{BufMut, BytesMut};

use super::RawHead;

/// Largest payload that every peer takes (RFC 9113, section 6.5.2).
pub const FRAME_BYTES: usize = 16 * 1024;

/// The flag by which SETTINGS and PING answer.
pub const ACK: u8 = 1;
/// The flag of a stream's last frame.
pub const END_STREAM: u8 = 1;
/// The flag of a block's last frame.
pub const END_HEADERS: u8 = 4;

/// Types of frames (RFC 9113, section 6).
pub mod kind {
    /// A frame with bytes of a body.
    pub const DATA: u8 = 0;
    /// The begin of a header block.
    pub const HEADERS: u8 = 1;
    /// A stream's weight, which nobody heeds any more.
    pub const PRIORITY: u8 = 2;
    /// The end of a stream.
    pub const RST_STREAM: u8 = 3;
    /// A frame with the sender's settings.
    pub const SETTINGS: u8 = 4;
    /// A frame that has to be answered.
    pub const PING: u8 = 6;
    /// The end of a connection.
    pub const GOAWAY: u8 = 7;
    /// A frame that grants more window.
    pub const WINDOW_UPDATE: u8 = 8;
    /// More of a header block.
    pub const CONTINUATION: u8 = 9;
    /// A type that nobody has defined.
    pub const UNKNOWN: u8 = 0xfa;
}

/// Appends one frame to the bytes.
pub fn put_frame(bytes: &mut BytesMut, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    bytes.put_uint(payload.len() as u64, 3);
    bytes.put_u8(kind);
    bytes.put_u8(flags);
    bytes.put_u32(stream);
    bytes.extend_from_slice(payload);
}

/// A header block, without Huffman's code.
#[derive(Debug, Clone, Default)]
pub struct Block(Vec<u8>);

impl Block {
    /// A head as literals that enter no table (RFC 7541, section 6.2.2).
    pub fn of(head: &RawHead) -> Self {
        let mut block = Self::default();
        for (name, value) in head {
            block.literal(name, value);
        }
        block
    }

    /// Adds a literal that enters no table.
    pub fn literal(&mut self, name: &str, value: &[u8]) {
        self.0.push(0);
        self.text(name.as_bytes());
        self.text(value);
    }

    /// Adds a literal that enters the table (section 6.2.1): [`Block::newest`] repeats it.
    pub fn remember(&mut self, name: &str, value: &[u8]) {
        self.0.push(0x40);
        self.text(name.as_bytes());
        self.text(value);
    }

    /// Adds what entered the table last, in one byte (section 6.1; the static table has 61 entries).
    pub fn newest(&mut self) {
        self.0.push(0x80 | 62);
    }

    /// The bytes of the header block.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn text(&mut self, text: &[u8]) {
        let mut rest = text.len();
        if rest < 0x7f {
            self.0.push(u8::try_from(rest).expect("below 127"));
        } else {
            self.0.push(0x7f);
            rest -= 0x7f;
            while rest >= 0x80 {
                self.0.push(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
                rest >>= 7;
            }
            self.0.push(u8::try_from(rest).expect("below 128"));
        }
        self.0.extend_from_slice(text);
    }
}
