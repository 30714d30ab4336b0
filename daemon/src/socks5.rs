//! Reads a SOCKS5 request to its last byte and no further, for all listeners of SOCKS5.

use std::io;
use std::time::Duration;

use proto::socks5::{
    self, LOGIN_ACCEPTED, LOGIN_REFUSED, Login, METHOD_ACCEPTED, NO_ACCEPTABLE_METHOD, Parsed, Reply,
    Socks5Error,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// Longest time until the complete request with its target has arrived.
pub const REQUEST_MAX: Duration = Duration::from_secs(10);

/// The reason why no request was read.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The bytes are no message, or one that is not served. It was answered as client as the protocol has an
    /// answer.
    #[error(transparent)]
    Socks5Error(#[from] Socks5Error),
    /// The client closed the connection, or it broke.
    #[error("the connection broke")]
    Broken(#[from] io::Error),
    /// The time [`REQUEST_MAX`] has passed.
    #[error("the request did not arrive in time")]
    TooSlow,
}

/// Reads the login, and the target as `HOST:PORT`; `None` if the client was refused already. The request is
/// not answered yet, and no byte after it is read.
///
/// `is_valid` checks user and password; a client that does not offer password authentication is refused. Not
/// cancel-safe: after cancellation the connection must be closed.
///
/// # Errors
/// [`RequestError`]: no further answer is possible.
pub async fn read_request<S>(
    stream: &mut S,
    is_valid: impl FnOnce(&Login) -> bool,
) -> Result<Option<(Login, String)>, RequestError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    timeout(REQUEST_MAX, read_messages(stream, is_valid)).await.unwrap_or(Err(RequestError::TooSlow))
}

async fn read_messages<S>(
    stream: &mut S,
    is_valid: impl FnOnce(&Login) -> bool,
) -> Result<Option<(Login, String)>, RequestError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if !message(stream, socks5::greeting).await? {
        stream.write_all(&NO_ACCEPTABLE_METHOD).await?;
        return Ok(None);
    }
    stream.write_all(&METHOD_ACCEPTED).await?;
    let login = message(stream, socks5::login).await?;
    if !is_valid(&login) {
        stream.write_all(&LOGIN_REFUSED).await?;
        return Ok(None);
    }
    stream.write_all(&LOGIN_ACCEPTED).await?;
    match message(stream, socks5::request).await {
        Ok(target) => Ok(Some((login, target))),
        Err(RequestError::Socks5Error(fault)) => {
            if let Some(reply) = Reply::from_error(fault) {
                stream.write_all(&reply.bytes()).await?;
            }
            Err(fault.into())
        }
        Err(error) => Err(error),
    }
}

/// Reads one message, and not one byte after it.
async fn message<T>(
    stream: &mut (impl AsyncRead + Unpin),
    parse: impl Fn(&[u8]) -> Result<Parsed<T>, Socks5Error>,
) -> Result<T, RequestError> {
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes)? {
            Parsed::Complete(message) => return Ok(message),
            Parsed::Incomplete(lacking) => {
                let had = bytes.len();
                bytes.resize(had + lacking, 0);
                stream.read_exact(&mut bytes[had..]).await?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    /// Larger than all messages of these tests.
    const BUFFER_BYTES: usize = 4096;

    #[tokio::test]
    async fn bytes_after_a_request_are_left_unread() {
        let (mut server, mut client) = duplex(BUFFER_BYTES);
        client.write_all(b"\x05\x01\x02\x01\x01u\x01s\x05\x01\x00\x03\x03a.b\x00\x50GET /").await.unwrap();

        let (login, target) =
            read_request(&mut server, |login| login.password == "s").await.unwrap().unwrap();

        assert_eq!((login.user.as_str(), target.as_str()), ("u", "a.b:80"));
        drop(client);
        let mut behind = Vec::new();
        server.read_to_end(&mut behind).await.unwrap();
        assert_eq!(behind, b"GET /");
    }

    #[tokio::test]
    async fn invalid_logins_and_unserved_requests_get_their_reply_codes() {
        for (sent, answered, is_fault) in [
            (&b"\x05\x01\x00"[..], &b"\x05\xff"[..], false),
            (b"\x05\x01\x02\x01\x01u\x01x", b"\x05\x02\x01\x01", false),
            (
                b"\x05\x01\x02\x01\x01u\x01s\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50",
                b"\x05\x02\x01\x00\x05\x07\x00\x01\0\0\0\0\0\0",
                true,
            ),
            (
                b"\x05\x01\x02\x01\x01u\x01s\x05\x01\x00\x02\x00\x00\x00",
                b"\x05\x02\x01\x00\x05\x08\x00\x01\0\0\0\0\0\0",
                true,
            ),
            (b"GET / HTTP/1.1\r\n", b"", true),
        ] {
            let (mut server, mut client) = duplex(BUFFER_BYTES);
            client.write_all(sent).await.unwrap();

            let result = read_request(&mut server, |login| login.password == "s").await;

            assert_eq!(result.is_err(), is_fault, "{sent:?}: {result:?}");
            assert!(!matches!(result, Ok(Some(_))), "{sent:?}");
            drop(server);
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, answered, "{sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_request_times_out() {
        let (mut server, mut client) = duplex(BUFFER_BYTES);
        client.write_all(b"\x05\x01\x02\x01\x01u").await.unwrap();
        let begun = tokio::time::Instant::now();

        let result = read_request(&mut server, |_| true).await;

        assert!(matches!(result, Err(RequestError::TooSlow)), "{result:?}");
        assert_eq!(begun.elapsed(), REQUEST_MAX);
    }
}
