//! Opens TCP connections through an HTTP proxy, by CONNECT and with a password if it requires one.

use std::fmt;
use std::io;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::{Host, Url};

/// Largest head of a proxy's answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Most header fields in it.
const HEADERS_MAX: usize = 64;

/// An HTTP proxy that opens TCP connections for us. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
    /// The value of the header `Proxy-Authorization`.
    authorization: Option<String>,
}

/// The reason why a text names no proxy that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAProxy {
    /// Not a URL with a host.
    #[error("a proxy is written http://HOST:PORT or http://USER:PASSWORD@HOST:PORT")]
    Url,
    /// A proxy of another kind.
    #[error(
        "a proxy is spoken to in plain HTTP (http://…), not by {0}: the tunnel in it is encrypted anyway"
    )]
    Scheme(String),
    /// A name or password with a character that ends the host of a URL.
    #[error(
        "a proxy's user name and password are %-encoded: / is %2F, ? is %3F, # is %23, \\ is %5C, and % itself is %25"
    )]
    Unescaped,
    /// A name or password that cannot be sent.
    #[error("a proxy's user name has no colon in it, and neither name nor password a control character")]
    Credentials,
}

/// The reason why a proxy opened no connection.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The proxy itself cannot be reached.
    #[error("the proxy {0} cannot be reached: check its address and this host's DNS")]
    Unreachable(Proxy, #[source] io::Error),
    /// The proxy requires another user name and password.
    #[error(
        "the proxy {0} wants another user name and password: write http://USER:PASSWORD@HOST:PORT, with special \
         characters %-encoded (% itself is %25)"
    )]
    Credentials(Proxy),
    /// The proxy does not open this connection.
    #[error("the proxy {proxy} answered {status} to CONNECT {target}: it must allow this host and port")]
    Refused {
        /// The proxy that was asked.
        proxy: Proxy,
        /// The target that it was asked for.
        target: String,
        /// The status of its response.
        status: u16,
    },
    /// The proxy's response is not HTTP.
    #[error("the proxy {0} did not answer in HTTP: check that a proxy listens there")]
    NotHttp(Proxy),
    /// The proxy closed the connection early.
    #[error("the proxy {0} broke off")]
    Broke(Proxy, #[source] io::Error),
}

impl Proxy {
    /// Has the proxy open a connection to `host` and `port`. The deadline is the caller's.
    ///
    /// # Errors
    /// `ProxyError`.
    pub(super) async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, ProxyError> {
        let unreachable = |source| ProxyError::Unreachable(self.clone(), source);
        let broke = |source| ProxyError::Broke(self.clone(), source);
        let mut tcp = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        tcp.write_all(self.request(&target).as_bytes()).await.map_err(broke)?;
        match self.answer(&mut tcp).await? {
            200..=299 => Ok(tcp),
            407 => Err(ProxyError::Credentials(self.clone())),
            status => Err(ProxyError::Refused { proxy: self.clone(), target, status }),
        }
    }

    fn request(&self, target: &str) -> String {
        let authorization = self.authorization.as_ref();
        let authorization = authorization.map(|value| format!("Proxy-Authorization: {value}\r\n"));
        format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{}\r\n",
            authorization.as_deref().unwrap_or_default()
        )
    }

    /// Reads the head of the response and not one byte behind it, and returns its status. The server does not
    /// speak before we do.
    async fn answer(&self, tcp: &mut TcpStream) -> Result<u16, ProxyError> {
        let mut head = BytesMut::new();
        loop {
            let read = tcp.read_buf(&mut head).await;
            match read {
                Ok(0) => return Err(ProxyError::Broke(self.clone(), io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(ProxyError::Broke(self.clone(), error)),
            }
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut response = httparse::Response::new(&mut headers);
            match (response.parse(&head), response.code) {
                // A refusal may have a body.
                (Ok(httparse::Status::Complete(bytes)), Some(status))
                    if bytes == head.len() || status >= 300 =>
                {
                    return Ok(status);
                }
                (Ok(httparse::Status::Partial), _) if head.len() < HEAD_BYTES_MAX => {}
                (Ok(_) | Err(_), _) => return Err(ProxyError::NotHttp(self.clone())),
            }
        }
    }
}

impl FromStr for Proxy {
    type Err = NotAProxy;

    /// Parses a value as in `HTTPS_PROXY`; without a scheme it is HTTP.
    fn from_str(text: &str) -> Result<Self, NotAProxy> {
        if is_unescaped(text) {
            return Err(NotAProxy::Unescaped);
        }
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&with_scheme).map_err(|_| NotAProxy::Url)?;
        if url.scheme() != "http" {
            return Err(NotAProxy::Scheme(url.scheme().to_owned()));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err(NotAProxy::Url),
        };
        let port = url.port_or_known_default().ok_or(NotAProxy::Url)?;
        let user = decoded(url.username())?;
        let password = decoded(url.password().unwrap_or_default())?;
        if user.contains(':') {
            return Err(NotAProxy::Credentials);
        }
        let is_named = !user.is_empty() || !password.is_empty();
        let basic = || format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        Ok(Self { host, port, authorization: is_named.then(basic) })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, authorization: _ } = self;
        if host.contains(':') {
            write!(f, "http://[{host}]:{port}")
        } else {
            write!(f, "http://{host}:{port}")
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Returns true if the part of a URL that should be the host ends before an `@`. Then the host is cut out of a
/// password: `http://user:12/34@proxy` would name the host `user` and the port 12. A URL for a proxy has no path
/// in which an `@` could stand.
fn is_unescaped(text: &str) -> bool {
    let authority = text.split_once("://").map_or(text, |(_, authority)| authority);
    let end = authority.find(['/', '?', '#', '\\']);
    end.is_some_and(|end| authority[end..].contains('@'))
}

/// Decodes a name or a password, in which URLs have `%40` for `@`.
fn decoded(text: &str) -> Result<String, NotAProxy> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        let hex = behind.get(..2).filter(|_| *byte == b'%');
        let hex = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(hex.unwrap_or(*byte));
        rest = if hex.is_some() { &behind[2..] } else { behind };
    }
    let text = String::from_utf8(bytes).map_err(|_| NotAProxy::Credentials)?;
    if text.chars().any(char::is_control) { Err(NotAProxy::Credentials) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_parsed_and_shown_without_its_password() {
        for (written, shown, authorization) in [
            ("http://proxy.test:3128", "http://proxy.test:3128", None),
            ("proxy.test:3128", "http://proxy.test:3128", None),
            ("http://proxy.test/", "http://proxy.test:80", None),
            ("http://[fd00::1]:3128", "http://[fd00::1]:3128", None),
            // RFC 7617, section 2.
            (
                "http://Aladdin:open%20sesame@10.0.0.1:8080",
                "http://10.0.0.1:8080",
                Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ),
            ("http://a%40b:%25@p:1", "http://p:1", Some("Basic YUBiOiU=")),
        ] {
            let proxy: Proxy = written.parse().unwrap();
            assert_eq!(proxy.authorization.as_deref(), authorization, "{written}");
            assert_eq!(proxy.to_string(), shown, "{written}");
            assert_eq!(format!("{proxy:?}"), format!("Proxy({shown})"));
        }
    }

    #[test]
    fn a_text_that_is_no_proxy_is_refused_with_a_reason() {
        for (written, error) in [
            ("https://proxy.test:3128", NotAProxy::Scheme("https".to_owned())),
            ("socks5://proxy.test:1080", NotAProxy::Scheme("socks5".to_owned())),
            ("http://", NotAProxy::Url),
            ("", NotAProxy::Url),
            ("http://a%0d%0aX:y@proxy.test", NotAProxy::Credentials),
            ("http://a%3Ab:y@proxy.test", NotAProxy::Credentials),
            // Otherwise the host would be the user, and the port the beginning of the password.
            ("http://user:12/34@proxy.test:3128", NotAProxy::Unescaped),
            ("user:12/34@proxy.test:3128", NotAProxy::Unescaped),
        ] {
            assert_eq!(written.parse::<Proxy>(), Err(error), "{written}");
        }
    }

    #[test]
    fn an_unescaped_password_is_refused_with_the_escape_of_its_character() {
        for (character, escape) in [('/', "%2F"), ('?', "%3F"), ('#', "%23"), ('\\', "%5C")] {
            for written in
                [format!("http://user:p{character}s@proxy.test:3128"), format!("u{character}:p@proxy.test")]
            {
                let error = written.parse::<Proxy>().unwrap_err();
                assert_eq!(error, NotAProxy::Unescaped, "{written}");
                assert!(error.to_string().contains(&format!("{character} is {escape}")), "{error}");
            }
            let escaped = format!("http://user:p{escape}s@proxy.test:3128").parse::<Proxy>().unwrap();
            let sent = STANDARD.encode(format!("user:p{character}s"));
            assert_eq!(escaped.authorization, Some(format!("Basic {sent}")));
        }
        // The last `@` ends the password, as in curl and in Go.
        let at: Proxy = "http://user:p@s:s@proxy.test:3128".parse().unwrap();
        assert_eq!((at.to_string().as_str(), at.authorization.is_some()), ("http://proxy.test:3128", true));
    }
}
