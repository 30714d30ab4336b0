//! Pings among the frames of an upgraded connection: finds the caller's pings, and answers them on behalf of
//! the edge.
//!
//! WebSocket: RFC 6455, sections 5.2 and 5.5. SPDY/3.1: its draft 3.1, sections 2.2 and 2.6.5.

use bytes::BytesMut;
use proto::upgrade_protocol::UpgradeProtocol;

/// Answers that wait for the end of a frame. Beyond that the oldest one is dropped: only the last counts (RFC
/// 6455, section 5.5.3).
const ANSWERS_MAX: usize = 16;

/// Longest payload of a control frame of WebSocket.
const PING_BYTES_MAX: u8 = 125;

/// First byte of a WebSocket ping and of its answer: both are complete frames (FIN is set).
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// The bit of a length byte that says that the payload is masked. Callers have to mask theirs.
const MASKED: u8 = 0x80;

/// First bytes of a SPDY ping. Its number follows.
const SPDY_PING: [u8; 8] = [0x80, 3, 0, 6, 0, 0, 0, 4];
const SPDY_PING_BYTES: usize = 12;

/// Takes the caller's pings out of its bytes, and puts answers between the edge's frames.
#[derive(Debug)]
pub(super) struct Pings {
    /// Position of the caller's bytes among its frames.
    caller: FramePosition,
    /// Position of the bytes that were written to the caller among the edge's frames.
    edge: FramePosition,
    /// Answers that wait for the end of a frame of the edge.
    waiting: Vec<Vec<u8>>,
    /// Answers that are written to the caller before anything else.
    due: BytesMut,
}

/// Position of a byte stream among its frames.
#[derive(Debug, Clone)]
struct FramePosition {
    protocol: UpgradeProtocol,
    /// Bytes of a frame's head that is not complete yet.
    head: Vec<u8>,
    /// Bytes of the frame's payload that are still to come.
    rest: u64,
}

impl Pings {
    pub(super) fn new(protocol: UpgradeProtocol) -> Self {
        let [caller, edge] = [(); 2].map(|()| FramePosition { protocol, head: Vec::new(), rest: 0 });
        Self { caller, edge, waiting: Vec::new(), due: BytesMut::new() }
    }

    /// Follows the caller's next bytes. With `are_answered`, each complete ping among them is taken out, and
    /// its answer waits.
    pub(super) fn caller_sent(&mut self, bytes: &mut BytesMut, are_answered: bool) {
        let (mut at, mut taken) = (0, Vec::new());
        while at < bytes.len() {
            let next = &bytes[at..];
            if are_answered
                && self.caller.is_between()
                && let Some((length, answer)) = ping(self.caller.protocol, next)
            {
                self.waiting.push(answer);
                taken.push(at..at + length);
                at += length;
            } else {
                at += self.caller.pass(next);
            }
        }
        for range in taken.into_iter().rev() {
            let behind = bytes.split_off(range.end);
            bytes.truncate(range.start);
            bytes.unsplit(behind);
        }
        self.waiting.drain(..self.waiting.len().saturating_sub(ANSWERS_MAX));
    }

    /// Answers that are written to the caller before anything else, because a frame of the edge has ended.
    /// The caller of this removes the bytes that it has written.
    pub(super) fn due_answers(&mut self) -> &mut BytesMut {
        // While the caller does not read, no more are added.
        if self.due.is_empty() && self.edge.is_between() {
            for answer in self.waiting.drain(..) {
                self.due.extend_from_slice(&answer);
            }
        }
        &mut self.due
    }

    /// The number of the edge's next bytes that may be written: up to the end of a frame, where an answer
    /// waits for it.
    pub(super) fn writable(&self, bytes: &[u8]) -> usize {
        if self.waiting.is_empty() {
            return bytes.len();
        }
        self.edge.clone().pass(bytes)
    }

    /// Follows bytes of the edge that were written to the caller.
    pub(super) fn written_to_caller(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.edge.pass(&bytes[at..]);
        }
    }
}

impl FramePosition {
    /// Returns true if the last frame has ended and none has begun.
    fn is_between(&self) -> bool {
        self.head.is_empty() && self.rest == 0
    }

    /// Follows the next bytes up to the end of a frame, and returns their number.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.rest > 0 {
                let part = self.rest.min((bytes.len() - at) as u64);
                self.rest -= part;
                // At most `bytes.len()`, so it fits.
                at += part as usize;
            } else {
                self.head.push(bytes[at]);
                at += 1;
                let Some(payload) = payload(self.protocol, &self.head) else { continue };
                self.head.clear();
                self.rest = payload;
            }
            if self.is_between() {
                break;
            }
        }
        at
    }
}

/// Length of the payload behind this head. `None` while the head is not complete.
fn payload(protocol: UpgradeProtocol, head: &[u8]) -> Option<u64> {
    match protocol {
        UpgradeProtocol::WebSocket => {
            let length = *head.get(1)?;
            let mask = if length & MASKED == 0 { 0 } else { 4 };
            let extended = match length & !MASKED {
                126 => 2,
                127 => 8,
                short => return (head.len() == 2 + mask).then_some(short.into()),
            };
            let length = head.get(2..2 + extended).filter(|_| head.len() == 2 + extended + mask)?;
            Some(number(length))
        }
        UpgradeProtocol::Spdy31 => head.get(5..8).map(number),
    }
}

/// Reads a number in network byte order.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Length of the caller's ping with which `bytes` begin, and its answer. `None` if they begin with something
/// else, or with a part of a ping.
fn ping(protocol: UpgradeProtocol, bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    match protocol {
        UpgradeProtocol::WebSocket => {
            let length = bytes.get(1).filter(|length| **length & MASKED != 0)? & !MASKED;
            if bytes[0] != PING || length > PING_BYTES_MAX {
                return None;
            }
            let end = 6 + usize::from(length);
            let (mask, payload) = bytes.get(2..end)?.split_at(4);
            let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
            Some((end, [PONG, length].into_iter().chain(payload).collect()))
        }
        UpgradeProtocol::Spdy31 => {
            let frame = bytes.get(..SPDY_PING_BYTES)?;
            // Callers have the odd numbers; an even one is an answer.
            let is_callers = frame.starts_with(&SPDY_PING) && frame[SPDY_PING_BYTES - 1] % 2 == 1;
            is_callers.then(|| (SPDY_PING_BYTES, frame.to_vec()))
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
