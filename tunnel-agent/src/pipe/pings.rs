//! Pings among the frames of an upgraded connection: where one is, and what answers it.
//!
//! WebSocket: RFC 6455, sections 5.2 and 5.5. SPDY/3.1: its draft 3.1, sections 2.2 and 2.6.5.

use bytes::BytesMut;
use proto::upgrade::Protocol;

/// Answers that wait for the end of a frame. Beyond, the oldest is not given: what counts is the last (RFC 6455, section 5.5.3).
const ANSWERS_MAX: usize = 16;

/// Longest payload of a control frame of WebSocket.
const PING_BYTES_MAX: u8 = 125;

/// How a ping of WebSocket begins, and what answers it: whole frames, of these kinds.
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// The bit of a length that says that the payload is masked, as a caller's has to be.
const MASKED: u8 = 0x80;

/// How a ping of SPDY begins; its number follows.
const SPDY_PING: [u8; 8] = [0x80, 3, 0, 6, 0, 0, 0, 4];
const SPDY_PING_BYTES: usize = 12;

/// The caller's pings, and answers on behalf of the edge.
#[derive(Debug)]
pub(super) struct Pings {
    /// Where what the caller says is among its frames.
    caller: Frames,
    /// Where what the caller is told is.
    edge: Frames,
    answers: Vec<Vec<u8>>,
    /// Answers whose turn it is: whatever else is told comes behind them.
    given: BytesMut,
}

/// Where a stream is among its frames.
#[derive(Debug, Clone)]
struct Frames {
    protocol: Protocol,
    /// Of a frame whose head is not whole.
    head: Vec<u8>,
    /// What is left of a frame's payload.
    rest: u64,
}

impl Pings {
    pub(super) fn new(protocol: Protocol) -> Self {
        let [caller, edge] = [(); 2].map(|()| Frames { protocol, head: Vec::new(), rest: 0 });
        Self { caller, edge, answers: Vec::new(), given: BytesMut::new() }
    }

    /// Goes over what the caller says next; where that is to be, each ping in it that is whole is taken out, and its answer waits.
    pub(super) fn asked(&mut self, words: &mut BytesMut, are_answered: bool) {
        let (mut at, mut taken) = (0, Vec::new());
        while at < words.len() {
            let next = &words[at..];
            if are_answered
                && self.caller.is_between()
                && let Some((bytes, answer)) = ping(self.caller.protocol, next)
            {
                self.answers.push(answer);
                taken.push(at..at + bytes);
                at += bytes;
            } else {
                at += self.caller.pass(next);
            }
        }
        for place in taken.into_iter().rev() {
            let behind = words.split_off(place.end);
            words.truncate(place.start);
            words.unsplit(behind);
        }
        self.answers.drain(..self.answers.len().saturating_sub(ANSWERS_MAX));
    }

    /// What is told first, if the turn of an answer has come: where a frame has ended. Whoever tells it takes it away.
    pub(super) fn given(&mut self) -> &mut BytesMut {
        // What a caller never reads is not added to.
        if self.given.is_empty() && self.edge.is_between() {
            for answer in self.answers.drain(..) {
                self.given.extend_from_slice(&answer);
            }
        }
        &mut self.given
    }

    /// How much of what the edge has said may be told next: up to the end of a frame, where an answer waits for it.
    pub(super) fn most(&self, words: &[u8]) -> usize {
        if self.answers.is_empty() {
            return words.len();
        }
        self.edge.clone().pass(words)
    }

    /// Goes over what of it is told.
    pub(super) fn told(&mut self, words: &[u8]) {
        let mut at = 0;
        while at < words.len() {
            at += self.edge.pass(&words[at..]);
        }
    }
}

impl Frames {
    /// Whether the last frame has ended and none has begun.
    fn is_between(&self) -> bool {
        self.head.is_empty() && self.rest == 0
    }

    /// Passes over the bytes that come next, up to the end of a frame; how many these were.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.rest > 0 {
                let part = self.rest.min((bytes.len() - at) as u64);
                self.rest -= part;
                // At most as many as there are.
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

/// How long the payload is behind this head; `None` while that is not whole.
fn payload(protocol: Protocol, head: &[u8]) -> Option<u64> {
    match protocol {
        Protocol::WebSocket => {
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
        Protocol::Spdy31 => head.get(5..8).map(number),
    }
}

/// In the order of the network.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// How long the caller's ping is that stands first in `bytes`, and what answers it; `None` if there is none, or not all of it.
fn ping(protocol: Protocol, bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    match protocol {
        Protocol::WebSocket => {
            let length = bytes.get(1).filter(|length| **length & MASKED != 0)? & !MASKED;
            if bytes[0] != PING || length > PING_BYTES_MAX {
                return None;
            }
            let whole = 6 + usize::from(length);
            let (mask, payload) = bytes.get(2..whole)?.split_at(4);
            let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
            Some((whole, [PONG, length].into_iter().chain(payload).collect()))
        }
        Protocol::Spdy31 => {
            let whole = bytes.get(..SPDY_PING_BYTES)?;
            // Callers have the odd numbers; an even one is an answer.
            let is_callers = whole.starts_with(&SPDY_PING) && whole[SPDY_PING_BYTES - 1] % 2 == 1;
            is_callers.then(|| (SPDY_PING_BYTES, whole.to_vec()))
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
