//! A chain of lines: each line ends with a MAC over itself and the MAC of the line before it.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::keys::ChainKey;

/// The end of an event without a MAC: closes the annotations, then the event.
const TAIL: &[u8] = b"}}";

/// The bytes before and after the MAC, which is the last of an event's annotations.
const MAC_HEAD: &[u8] = br#","tombolo.dev/mac":""#;
const MAC_TAIL: &[u8] = br#""}}"#;

/// The length of a MAC in base64.
const MAC_TEXT_BYTES: usize = 43;

/// The MAC of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mac([u8; 32]);

/// The position of a chain: its last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number of the last line, from 1; 0 before the first.
    pub(crate) sequence: u64,
    /// The MAC of the last line.
    pub(crate) mac: Mac,
}

/// A chain that is being written or verified. Pure.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    key: hmac::Key,
    head: Head,
}

impl Mac {
    pub(crate) fn to_text(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }
}

impl Head {
    /// The position before the first line.
    pub(crate) const START: Self = Self { sequence: 0, mac: Mac([0; 32]) };
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

    /// Appends the next line, whose event ends with its annotations; returns it with its MAC and a line break.
    pub(crate) fn seal(&mut self, mut event: Vec<u8>) -> Vec<u8> {
        event.truncate(event.len().saturating_sub(TAIL.len()));
        let mac = self.follow(&event);
        event.extend_from_slice(MAC_HEAD);
        event.extend_from_slice(mac.to_text().as_bytes());
        event.extend_from_slice(MAC_TAIL);
        event.push(b'\n');
        event
    }

    /// Advances over `body`, the part of a line before its MAC, and returns the MAC.
    pub(crate) fn follow(&mut self, body: &[u8]) -> Mac {
        let mut context = hmac::Context::with_key(&self.key);
        // The first part has a fixed length, so that no two pairs give the same input.
        context.update(&self.head.mac.0);
        context.update(body);
        let mut mac = [0; 32];
        mac.copy_from_slice(context.sign().as_ref());
        self.head = Head { sequence: self.next(), mac: Mac(mac) };
        self.head.mac
    }
}

/// Splits a line without its line break into its body and the text of its MAC; `None` if it has no MAC.
pub(crate) fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_suffix(MAC_TAIL)?;
    let (rest, mac) = rest.split_at_checked(rest.len().checked_sub(MAC_TEXT_BYTES)?)?;
    Some((rest.strip_suffix(MAC_HEAD)?, mac))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_depends_on_the_line_before_and_on_the_key() {
        let key = ChainKey::generate().unwrap();
        let event = || br#"{"annotations":{"a":"b"}}"#.to_vec();
        let mut chain = Chain::new(&key, Head::START);
        let (first, second) = (chain.seal(event()), chain.seal(event()));
        assert_ne!(first, second);
        assert_eq!(chain.head().sequence, 2);
        assert_ne!(first, Chain::new(&ChainKey::generate().unwrap(), Head::START).seal(event()));
        assert!(serde_json::from_slice::<serde_json::Value>(&first).is_ok());

        let (body, mac) = split(first.strip_suffix(b"\n").unwrap()).unwrap();
        assert_eq!(body, br#"{"annotations":{"a":"b""#);
        assert_eq!(mac, Chain::new(&key, Head::START).follow(body).to_text().as_bytes());
    }
}
