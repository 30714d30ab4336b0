//! The bytes of a caller before its API server has said anything, for another API server to get them.
//!
//! An API server that ends resets connections that it has not accepted yet. The kernel has completed them, so
//! the dial has succeeded, and the caller may have sent its ClientHello. No byte of an answer was seen, so another
//! API server can get the same bytes. A ClientHello that is sent again is harmless: the handshake that it begins has
//! keys of its own. Data of a request could come with it in TLS 1.3 (0-RTT), as records of another type. API servers do not
//! take such data, and callers that send them all the same are not served again.

/// Most bytes that are kept of a connection. A ClientHello has some hundred to 2,000. 16 KiB.
pub(super) const FIRST_BYTES_MAX: usize = 16 * 1024;

/// The type of a TLS record that carries a part of a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// The bytes of a record before its content: type, version and length.
const RECORD_HEADER_BYTES: usize = 5;

/// The first bytes of a caller, while they can be sent to another API server.
#[derive(Debug)]
pub(super) struct FirstBytes(Option<Vec<u8>>);

impl FirstBytes {
    /// Those of a connection on which nothing has passed.
    pub(super) fn new() -> Self {
        Self(Some(Vec::new()))
    }

    /// Those that wait for the first API server of a connection.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut first = Self::new();
        first.sent(bytes);
        first
    }

    /// Those of a connection that cannot begin anew.
    pub(super) fn unknown() -> Self {
        Self(None)
    }

    /// Notes that the API server has got these bytes.
    pub(super) fn sent(&mut self, bytes: &[u8]) {
        if let Some(kept) = &mut self.0 {
            kept.extend(bytes);
            if kept.len() > FIRST_BYTES_MAX || !is_handshake(kept) {
                self.0 = None;
            }
        }
    }

    /// Notes that the API server has answered, so the connection cannot begin anew.
    pub(super) fn answered(&mut self) {
        self.0 = None;
    }

    /// The bytes that another API server gets. `None` if the connection cannot begin anew.
    pub(super) fn to_send_again(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }
}

/// Returns true if the bytes are records of a TLS handshake and no others. The last one may be cut short.
fn is_handshake(mut bytes: &[u8]) -> bool {
    while let [kind, rest @ ..] = bytes {
        if *kind != HANDSHAKE {
            return false;
        }
        let [_, _, l0, l1, ..] = rest else { return true };
        let length = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([*l0, *l1]));
        bytes = bytes.get(length..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, length: u8) -> Vec<u8> {
        let mut record = vec![kind, 3, 1, 0, length];
        record.resize(RECORD_HEADER_BYTES + usize::from(length), 1);
        record
    }

    #[test]
    fn bytes_of_a_handshake_are_kept_until_the_answer() {
        let hello = [record(HANDSHAKE, 200), record(HANDSHAKE, 7)].concat();
        let mut first = FirstBytes::new();
        assert_eq!(first.to_send_again(), Some(&[][..]));

        for piece in hello.chunks(3) {
            first.sent(piece);
        }

        assert_eq!(first.to_send_again(), Some(&hello[..]));
        first.answered();
        assert_eq!(first.to_send_again(), None);
    }

    /// Early data come as records of application data, behind the ClientHello.
    #[test]
    fn data_of_a_request_are_never_kept() {
        const APPLICATION_DATA: u8 = 23;
        for bytes in [
            [record(HANDSHAKE, 200), record(APPLICATION_DATA, 9)].concat(),
            b"GET / HTTP/1.1\r\n".to_vec(),
            record(HANDSHAKE, 255).repeat(FIRST_BYTES_MAX / 255),
        ] {
            let mut first = FirstBytes::new();

            for piece in bytes.chunks(100) {
                first.sent(piece);
            }

            assert_eq!(first.to_send_again(), None, "{} bytes", bytes.len());
        }
    }
}
