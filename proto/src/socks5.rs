//! Parses the messages of a SOCKS5 client (RFC 1928) with user and password (RFC 1929), and encodes the
//! replies.
//!
//! Each message is parsed from its first bytes on. While it is incomplete, the parser returns the number of
//! bytes that it lacks at least. A reader that reads no more than that never takes a byte that is meant for
//! the target.

/// The version of the protocol, with which a greeting begins.
pub const VERSION: u8 = 5;
/// The version of the exchange of user and password.
const LOGIN_VERSION: u8 = 1;
/// The method of user and password.
const USER_AND_PASSWORD: u8 = 2;
/// The code for "no acceptable method".
const NO_METHOD: u8 = 0xff;

const CONNECT: u8 = 1;

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Longest message: a login with both texts as long as a byte can say.
pub const MESSAGE_BYTES_MAX: usize = 3 + 2 * 255;

/// The result of parsing the first bytes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<T> {
    /// One complete message, which the bytes end with.
    Complete(T),
    /// The beginning of a message that lacks at least this many bytes.
    Incomplete(usize),
}

/// The reply to a greeting that offers user and password: this method is chosen.
pub const METHOD_ACCEPTED: [u8; 2] = [VERSION, USER_AND_PASSWORD];
/// The reply to a greeting that does not offer them. The connection ends behind it.
pub const NO_ACCEPTABLE_METHOD: [u8; 2] = [VERSION, NO_METHOD];
/// The reply to a correct user and password.
pub const LOGIN_ACCEPTED: [u8; 2] = [LOGIN_VERSION, 0];
/// The reply to a wrong user or password. The connection ends behind it.
pub const LOGIN_REFUSED: [u8; 2] = [LOGIN_VERSION, 1];

/// The user and password of RFC 1929.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name, at most 255 bytes.
    pub user: String,
    /// The user's secret, at most 255 bytes.
    pub password: String,
}

/// The reply to a request to connect (RFC 1928, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The target is connected: the next bytes are its own.
    Succeeded,
    /// The request failed for a reason that has no number of its own.
    Failed,
    /// The caller may not connect to this target.
    NotAllowed,
    /// The target cannot be reached, or does not answer.
    Unreachable,
    /// The command is another than CONNECT.
    Command,
    /// The address is of an unknown kind.
    AddressType,
}

/// The reason why bytes are no message of SOCKS5 that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Socks5Error {
    /// Another version, or another protocol.
    #[error("it is not SOCKS5")]
    Version,
    /// A name, a password or a host that is no text.
    #[error("a name is not UTF-8")]
    Text,
    /// A request for something else than CONNECT.
    #[error("only CONNECT is served")]
    Command,
    /// A request with an unknown kind of address.
    #[error("that kind of address is not known")]
    AddressType,
}

/// Parses the greeting: whether user and password are among the methods that it offers.
///
/// # Errors
/// [`Socks5Error::Version`].
pub fn greeting(bytes: &[u8]) -> Result<Parsed<bool>, Socks5Error> {
    let Some((&version, rest)) = bytes.split_first() else { return Ok(Parsed::Incomplete(2)) };
    if version != VERSION {
        return Err(Socks5Error::Version);
    }
    let methods = match text(rest) {
        Ok((methods, _)) => methods,
        Err(lacks) => return Ok(Parsed::Incomplete(lacks)),
    };
    Ok(Parsed::Complete(methods.contains(&USER_AND_PASSWORD)))
}

/// Parses the message with user and password.
///
/// # Errors
/// [`Socks5Error`].
pub fn login(bytes: &[u8]) -> Result<Parsed<Login>, Socks5Error> {
    // The shortest message: the version and two empty texts.
    let Some((&version, rest)) = bytes.split_first() else { return Ok(Parsed::Incomplete(3)) };
    if version != LOGIN_VERSION {
        return Err(Socks5Error::Version);
    }
    let (user, rest) = match text(rest) {
        Ok(found) => found,
        // Behind the user stands at least the length of the password.
        Err(lacks) => return Ok(Parsed::Incomplete(lacks + 1)),
    };
    let password = match text(rest) {
        Ok((password, _)) => password,
        Err(lacks) => return Ok(Parsed::Incomplete(lacks)),
    };
    let utf8 = |text: &[u8]| String::from_utf8(text.to_vec()).map_err(|_| Socks5Error::Text);
    Ok(Parsed::Complete(Login { user: utf8(user)?, password: utf8(password)? }))
}

/// Parses the request: `HOST:PORT` of the target, with an IPv6 address in brackets. The host is not validated
/// here.
///
/// # Errors
/// [`Socks5Error`].
pub fn request(bytes: &[u8]) -> Result<Parsed<String>, Socks5Error> {
    // The shortest request has an empty name.
    const HEAD_BYTES: usize = 4;
    const PORT_BYTES: usize = 2;
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return Err(Socks5Error::Version);
    }
    let Some((&[_, command, _, kind], rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(Parsed::Incomplete(HEAD_BYTES + 1 + PORT_BYTES - bytes.len()));
    };
    let (host, rest) = match kind {
        IPV4 => match rest.split_first_chunk::<4>() {
            Some((address, rest)) => (std::net::Ipv4Addr::from(*address).to_string(), rest),
            None => return Ok(Parsed::Incomplete(4 + PORT_BYTES - rest.len())),
        },
        IPV6 => match rest.split_first_chunk::<16>() {
            Some((address, rest)) => (format!("[{}]", std::net::Ipv6Addr::from(*address)), rest),
            None => return Ok(Parsed::Incomplete(16 + PORT_BYTES - rest.len())),
        },
        NAME => match text(rest) {
            Ok((name, rest)) => (std::str::from_utf8(name).map_err(|_| Socks5Error::Text)?.to_owned(), rest),
            Err(lacks) => return Ok(Parsed::Incomplete(lacks + PORT_BYTES)),
        },
        _ => return Err(Socks5Error::AddressType),
    };
    let Some((port, _)) = rest.split_first_chunk::<PORT_BYTES>() else {
        return Ok(Parsed::Incomplete(PORT_BYTES - rest.len()));
    };
    if command != CONNECT {
        return Err(Socks5Error::Command);
    }
    Ok(Parsed::Complete(format!("{host}:{}", u16::from_be_bytes(*port))))
}

/// Splits a text off behind its length byte, and returns it with the rest; or the number of bytes that it
/// lacks.
fn text(bytes: &[u8]) -> Result<(&[u8], &[u8]), usize> {
    let Some((&length, rest)) = bytes.split_first() else { return Err(1) };
    let length = usize::from(length);
    rest.split_at_checked(length).ok_or_else(|| length - rest.len())
}

impl Reply {
    /// The encoded reply. It does not reveal the address from which the target was dialed.
    #[must_use]
    pub fn bytes(self) -> [u8; 10] {
        let code = match self {
            Self::Succeeded => 0,
            Self::Failed => 1,
            Self::NotAllowed => 2,
            Self::Unreachable => 4,
            Self::Command => 7,
            Self::AddressType => 8,
        };
        [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
    }

    /// The reply that corresponds to this HTTP status of a request.
    #[must_use]
    pub fn from_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Succeeded,
            401 | 403 | 407 => Self::NotAllowed,
            502..=504 => Self::Unreachable,
            _ => Self::Failed,
        }
    }

    /// The reply to a request that cannot be parsed; `None` if the client does not speak SOCKS5.
    #[must_use]
    pub fn from_error(error: Socks5Error) -> Option<Self> {
        match error {
            Socks5Error::Version => None,
            Socks5Error::Text => Some(Self::Failed),
            Socks5Error::Command => Some(Self::Command),
            Socks5Error::AddressType => Some(Self::AddressType),
        }
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_has_to_offer_user_and_password() {
        assert_eq!(greeting(&[5, 1, 2]), Ok(Parsed::Complete(true)));
        assert_eq!(greeting(&[5, 3, 0, 1, 2]), Ok(Parsed::Complete(true)));
        assert_eq!(greeting(&[5, 2, 0, 1]), Ok(Parsed::Complete(false)));
        assert_eq!(greeting(&[5, 0]), Ok(Parsed::Complete(false)));
        assert_eq!(greeting(&[4, 1, 0, 80]), Err(Socks5Error::Version));
        assert_eq!(greeting(b"CONNECT"), Err(Socks5Error::Version));
    }

    #[test]
    fn a_login_has_two_texts_and_its_debug_shows_one() {
        let Ok(Parsed::Complete(found)) = login(b"\x01\x02ci\x03pw0") else { panic!("a complete login") };
        assert_eq!((found.user.as_str(), found.password.as_str()), ("ci", "pw0"));
        assert!(!format!("{found:?}").contains("pw0"));
        assert_eq!(login(b"\x01\x00\x00").map(|_| ()), Ok(()));
        assert_eq!(login(b"\x05\x00\x00"), Err(Socks5Error::Version));
        assert_eq!(login(b"\x01\x01\xff\x00"), Err(Socks5Error::Text));
    }

    #[test]
    fn a_request_names_a_target_and_nothing_but_connect_is_served() {
        let v6 = [&[5, 1, 0, 4][..], &[0; 15], &[1, 1, 187]].concat();
        for (bytes, expected) in [
            (&b"\x05\x01\x00\x01\xc0\xa8\x01\x0a\x19\x2b"[..], Ok("192.168.1.10:6443")),
            (b"\x05\x01\x00\x03\x03a.b\x00\x50", Ok("a.b:80")),
            (b"\x05\x01\x00\x03\x00\x00\x50", Ok(":80")),
            (&v6, Ok("[::1]:443")),
            (b"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", Err(Socks5Error::Command)),
            (b"\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x50", Err(Socks5Error::Command)),
            (b"\x05\x01\x00\x02\x7f\x00\x00\x01\x00\x50", Err(Socks5Error::AddressType)),
            (b"\x05\x01\x00\x03\x01\xff\x00\x50", Err(Socks5Error::Text)),
            (b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", Err(Socks5Error::Version)),
        ] {
            let expected = expected.map(|target: &str| Parsed::Complete(target.to_owned()));
            assert_eq!(request(bytes), expected, "{bytes:?}");
        }
        assert_eq!(Reply::NotAllowed.bytes()[..2], [5, 2]);
    }

    #[test]
    fn a_status_of_http_has_the_number_of_its_kind() {
        for (status, expected) in [
            (200, Reply::Succeeded),
            (400, Reply::Failed),
            (401, Reply::NotAllowed),
            (403, Reply::NotAllowed),
            (407, Reply::NotAllowed),
            (429, Reply::Failed),
            (500, Reply::Failed),
            (502, Reply::Unreachable),
            (503, Reply::Unreachable),
            (504, Reply::Unreachable),
        ] {
            assert_eq!(Reply::from_status(status), expected, "{status}");
        }
    }

    #[test]
    fn reading_the_missing_bytes_never_reads_beyond_a_message() {
        type IsComplete = fn(&[u8]) -> bool;
        let by_request: IsComplete = |bytes| matches!(request(bytes), Ok(Parsed::Complete(_)));
        let messages: [(&[u8], IsComplete); 4] = [
            (b"\x05\x02\x00\x02", |bytes| {
                greeting(bytes).is_ok_and(|parsed| parsed == Parsed::Complete(true))
            }),
            (b"\x01\x02ci\x05token", |bytes| matches!(login(bytes), Ok(Parsed::Complete(_)))),
            (b"\x05\x01\x00\x03\x03a.b\x00\x50", by_request),
            (b"\x05\x01\x00\x01\x01\x02\x03\x04\x00\x50", by_request),
        ];
        for (message, is_complete) in messages {
            for end in 0..message.len() {
                assert!(!is_complete(&message[..end]), "{message:?} at {end}");
            }
            assert!(is_complete(message), "{message:?}");
        }
    }
}
