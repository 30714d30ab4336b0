//! What a client of SOCKS5 says (RFC 1928) and how it names user and token (RFC 1929), and what it is answered.
//!
//! Each message is parsed from its first bytes on: as long as it is not whole, the parser says how many bytes it lacks at
//! least. Who reads no more than that never takes a byte of what is meant for the target.

/// The version of the protocol, with which a greeting begins.
pub const VERSION: u8 = 5;
/// The version of the exchange of user and password.
const LOGIN_VERSION: u8 = 1;
/// The method of user and password.
const USER_AND_PASSWORD: u8 = 2;
/// No method is acceptable.
const NO_METHOD: u8 = 0xff;

const CONNECT: u8 = 1;

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Longest message: a login with both texts as long as a byte can say.
pub const MESSAGE_BYTES_MAX: usize = 3 + 2 * 255;

/// What the first bytes of a message are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<T> {
    /// All of one, which they end with.
    Whole(T),
    /// The beginning of one that lacks so many bytes at least.
    Lacks(usize),
}

/// What is answered to the greeting where user and password are offered: that they are chosen.
pub const CHOSEN: [u8; 2] = [VERSION, USER_AND_PASSWORD];
/// The same where they are not: the connection ends behind it.
pub const NOT_CHOSEN: [u8; 2] = [VERSION, NO_METHOD];
/// User and password are good.
pub const LOGGED_IN: [u8; 2] = [LOGIN_VERSION, 0];
/// They are not: the connection ends behind it.
pub const NOT_LOGGED_IN: [u8; 2] = [LOGIN_VERSION, 1];

/// User and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// A name.
    pub user: String,
    /// A secret.
    pub password: String,
}

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Connected: what comes now is the target's.
    Succeeded,
    /// For no reason that has a number of its own.
    Failed,
    /// It may not be.
    NotAllowed,
    /// Nobody answers there.
    Unreachable,
    /// Not CONNECT.
    Command,
    /// No kind of address that there is.
    AddressType,
}

/// No message of SOCKS5 that can be answered with more than an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
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

/// The greeting: whether user and password are among the methods that are offered.
///
/// # Errors
/// [`Fault::Version`].
pub fn greeting(bytes: &[u8]) -> Result<Parsed<bool>, Fault> {
    let Some((&version, rest)) = bytes.split_first() else { return Ok(Parsed::Lacks(2)) };
    if version != VERSION {
        return Err(Fault::Version);
    }
    let methods = match text(rest) {
        Ok((methods, _)) => methods,
        Err(lacks) => return Ok(Parsed::Lacks(lacks)),
    };
    Ok(Parsed::Whole(methods.contains(&USER_AND_PASSWORD)))
}

/// User and password.
///
/// # Errors
/// [`Fault`].
pub fn login(bytes: &[u8]) -> Result<Parsed<Login>, Fault> {
    // The version, two lengths and no text.
    let Some((&version, rest)) = bytes.split_first() else { return Ok(Parsed::Lacks(3)) };
    if version != LOGIN_VERSION {
        return Err(Fault::Version);
    }
    let (user, rest) = match text(rest) {
        Ok(found) => found,
        // Behind the user stands at least the length of the password.
        Err(lacks) => return Ok(Parsed::Lacks(lacks + 1)),
    };
    let password = match text(rest) {
        Ok((password, _)) => password,
        Err(lacks) => return Ok(Parsed::Lacks(lacks)),
    };
    let utf8 = |text: &[u8]| String::from_utf8(text.to_vec()).map_err(|_| Fault::Text);
    Ok(Parsed::Whole(Login { user: utf8(user)?, password: utf8(password)? }))
}

/// The request: `HOST:PORT` of the target, with an IPv6 address in brackets. Whether that is a host is not asked here.
///
/// # Errors
/// [`Fault`].
pub fn request(bytes: &[u8]) -> Result<Parsed<String>, Fault> {
    // The least that there is: with a name of no length.
    const HEAD_BYTES: usize = 4;
    const PORT_BYTES: usize = 2;
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return Err(Fault::Version);
    }
    let Some((&[_, command, _, kind], rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(Parsed::Lacks(HEAD_BYTES + 1 + PORT_BYTES - bytes.len()));
    };
    let (host, rest) = match kind {
        IPV4 => match rest.split_first_chunk::<4>() {
            Some((address, rest)) => (std::net::Ipv4Addr::from(*address).to_string(), rest),
            None => return Ok(Parsed::Lacks(4 + PORT_BYTES - rest.len())),
        },
        IPV6 => match rest.split_first_chunk::<16>() {
            Some((address, rest)) => (format!("[{}]", std::net::Ipv6Addr::from(*address)), rest),
            None => return Ok(Parsed::Lacks(16 + PORT_BYTES - rest.len())),
        },
        NAME => match text(rest) {
            Ok((name, rest)) => (std::str::from_utf8(name).map_err(|_| Fault::Text)?.to_owned(), rest),
            Err(lacks) => return Ok(Parsed::Lacks(lacks + PORT_BYTES)),
        },
        _ => return Err(Fault::AddressType),
    };
    let Some((port, _)) = rest.split_first_chunk::<PORT_BYTES>() else {
        return Ok(Parsed::Lacks(PORT_BYTES - rest.len()));
    };
    if command != CONNECT {
        return Err(Fault::Command);
    }
    Ok(Parsed::Whole(format!("{host}:{}", u16::from_be_bytes(*port))))
}

/// A text behind its length, and what is behind both; or how many bytes it lacks.
fn text(bytes: &[u8]) -> Result<(&[u8], &[u8]), usize> {
    let Some((&length, rest)) = bytes.split_first() else { return Err(1) };
    let length = usize::from(length);
    rest.split_at_checked(length).ok_or_else(|| length - rest.len())
}

impl Reply {
    /// The answer. The address from which the target was dialed is nobody's business.
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

    /// The answer where HTTP has this status for what became of a request that can be read.
    #[must_use]
    pub fn to_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Succeeded,
            401 | 403 | 407 => Self::NotAllowed,
            502..=504 => Self::Unreachable,
            _ => Self::Failed,
        }
    }

    /// The answer to a request that cannot be read; `None` where it is none of SOCKS5.
    #[must_use]
    pub fn to_fault(fault: Fault) -> Option<Self> {
        match fault {
            Fault::Version => None,
            Fault::Text => Some(Self::Failed),
            Fault::Command => Some(Self::Command),
            Fault::AddressType => Some(Self::AddressType),
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
        assert_eq!(greeting(&[5, 1, 2]), Ok(Parsed::Whole(true)));
        assert_eq!(greeting(&[5, 3, 0, 1, 2]), Ok(Parsed::Whole(true)));
        assert_eq!(greeting(&[5, 2, 0, 1]), Ok(Parsed::Whole(false)));
        assert_eq!(greeting(&[5, 0]), Ok(Parsed::Whole(false)));
        assert_eq!(greeting(&[4, 1, 0, 80]), Err(Fault::Version));
        assert_eq!(greeting(b"CONNECT"), Err(Fault::Version));
    }

    #[test]
    fn a_login_has_two_texts_and_its_debug_shows_one() {
        let Ok(Parsed::Whole(found)) = login(b"\x01\x02ci\x03pw0") else { panic!("whole") };
        assert_eq!((found.user.as_str(), found.password.as_str()), ("ci", "pw0"));
        assert!(!format!("{found:?}").contains("pw0"));
        assert_eq!(login(b"\x01\x00\x00").map(|_| ()), Ok(()));
        assert_eq!(login(b"\x05\x00\x00"), Err(Fault::Version));
        assert_eq!(login(b"\x01\x01\xff\x00"), Err(Fault::Text));
    }

    #[test]
    fn a_request_names_a_target_and_nothing_but_connect_is_served() {
        let v6 = [&[5, 1, 0, 4][..], &[0; 15], &[1, 1, 187]].concat();
        for (bytes, expected) in [
            (&b"\x05\x01\x00\x01\xc0\xa8\x01\x0a\x19\x2b"[..], Ok("192.168.1.10:6443")),
            (b"\x05\x01\x00\x03\x03a.b\x00\x50", Ok("a.b:80")),
            (b"\x05\x01\x00\x03\x00\x00\x50", Ok(":80")),
            (&v6, Ok("[::1]:443")),
            (b"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", Err(Fault::Command)),
            (b"\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x50", Err(Fault::Command)),
            (b"\x05\x01\x00\x02\x7f\x00\x00\x01\x00\x50", Err(Fault::AddressType)),
            (b"\x05\x01\x00\x03\x01\xff\x00\x50", Err(Fault::Text)),
            (b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", Err(Fault::Version)),
        ] {
            let expected = expected.map(|target: &str| Parsed::Whole(target.to_owned()));
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
            assert_eq!(Reply::to_status(status), expected, "{status}");
        }
    }

    #[test]
    fn who_reads_what_is_lacking_never_reads_beyond_a_message() {
        type IsWhole = fn(&[u8]) -> bool;
        let by_request: IsWhole = |bytes| matches!(request(bytes), Ok(Parsed::Whole(_)));
        let whole: [(&[u8], IsWhole); 4] = [
            (b"\x05\x02\x00\x02", |bytes| greeting(bytes).is_ok_and(|parsed| parsed == Parsed::Whole(true))),
            (b"\x01\x02ci\x05token", |bytes| matches!(login(bytes), Ok(Parsed::Whole(_)))),
            (b"\x05\x01\x00\x03\x03a.b\x00\x50", by_request),
            (b"\x05\x01\x00\x01\x01\x02\x03\x04\x00\x50", by_request),
        ];
        for (message, is_whole) in whole {
            for end in 0..message.len() {
                assert!(!is_whole(&message[..end]), "{message:?} at {end}");
            }
            assert!(is_whole(message), "{message:?}");
        }
    }
}
