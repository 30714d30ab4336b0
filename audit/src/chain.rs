//! Lines that hang together: each ends with a code over itself and the code of the line before.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::keys::ChainKey;

/// What ends an event without a code: of the annotations, and of the event.
const TAIL: &[u8] = b"}}";

/// What stands before and behind the code, which is the last of an event's annotations.
const CODE_HEAD: &[u8] = br#","tombolo.dev/mac":""#;
const CODE_TAIL: &[u8] = br#""}}"#;

/// Bytes of a code as text.
const CODE_TEXT_BYTES: usize = 43;

/// The code of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code([u8; 32]);

/// Where a chain is: its last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number of the last line, from 1; 0 before the first.
    pub(crate) sequence: u64,
    /// Its code.
    pub(crate) code: Code,
}

/// A chain that is written, or read again. Pure.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    key: hmac::Key,
    head: Head,
}

impl Code {
    pub(crate) fn to_text(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }
}

impl Head {
    /// Before the first line.
    pub(crate) const NOTHING: Self = Self { sequence: 0, code: Code([0; 32]) };
}

impl Chain {
    pub(crate) fn new(key: &ChainKey, head: Head) -> Self {
        Self { key: key.hmac().clone(), head }
    }

    pub(crate) fn head(&self) -> Head {
        self.head
    }

    /// The number of the next line.
    pub(crate) fn next(&self) -> u64 {
        self.head.sequence + 1
    }

    /// Adds the next line, whose event ends with its annotations, and gives it with its code and its end.
    pub(crate) fn seal(&mut self, mut event: Vec<u8>) -> Vec<u8> {
        event.truncate(event.len().saturating_sub(TAIL.len()));
        let code = self.follow(&event);
        event.extend_from_slice(CODE_HEAD);
        event.extend_from_slice(code.to_text().as_bytes());
        event.extend_from_slice(CODE_TAIL);
        event.push(b'\n');
        event
    }

    /// Goes on behind `body`, the part of a line that stands before its code, and gives the code.
    pub(crate) fn follow(&mut self, body: &[u8]) -> Code {
        let mut context = hmac::Context::with_key(&self.key);
        // The first part has one length, so that no two pairs are one text.
        context.update(&self.head.code.0);
        context.update(body);
        let mut code = [0; 32];
        code.copy_from_slice(context.sign().as_ref());
        self.head = Head { sequence: self.next(), code: Code(code) };
        self.head.code
    }
}

/// The body and the code's text of a line without its end; `None` if it has none.
pub(crate) fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_suffix(CODE_TAIL)?;
    let (rest, code) = rest.split_at_checked(rest.len().checked_sub(CODE_TEXT_BYTES)?)?;
    Some((rest.strip_suffix(CODE_HEAD)?, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_another_code_behind_another_line_and_under_another_key() {
        let key = ChainKey::generate().unwrap();
        let event = || br#"{"annotations":{"a":"b"}}"#.to_vec();
        let mut chain = Chain::new(&key, Head::NOTHING);
        let (first, second) = (chain.seal(event()), chain.seal(event()));
        assert_ne!(first, second);
        assert_eq!(chain.head().sequence, 2);
        assert_ne!(first, Chain::new(&ChainKey::generate().unwrap(), Head::NOTHING).seal(event()));
        assert!(serde_json::from_slice::<serde_json::Value>(&first).is_ok());

        let (body, code) = split(first.strip_suffix(b"\n").unwrap()).unwrap();
        assert_eq!(body, br#"{"annotations":{"a":"b""#);
        assert_eq!(code, Chain::new(&key, Head::NOTHING).follow(body).to_text().as_bytes());
    }
}
