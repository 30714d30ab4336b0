//! What somebody asks by SOCKS5, read to its last byte and not beyond: the beginning that every door of SOCKS5 shares.

use std::io;
use std::time::Duration;

use proto::socks5::{self, CHOSEN, Fault, LOGGED_IN, Login, NOT_CHOSEN, NOT_LOGGED_IN, Parsed, Reply};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// Everything up to the target's name arrives within this time.
pub const ASKED_MAX: Duration = Duration::from_secs(10);

/// Why nothing was asked.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// What came is no message, or none that is served; it was answered as far as there is an answer.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The other side has gone.
    #[error("the connection broke")]
    Broken(#[from] io::Error),
    /// [`ASKED_MAX`] has passed.
    #[error("nothing was asked for in time")]
    TooSlow,
}

/// Who asks, and for which `HOST:PORT`; `None` where it was refused already. The request is not answered yet, and of what stands
/// behind it nothing was read.
///
/// `knows` says whether user and password are good; without an offer to say them nobody goes on. Dropped, it leaves messages
/// half read: only who hangs up may do that.
///
/// # Errors
/// [`Unread`]: there is nothing more to be said.
pub async fn ask<S>(
    stream: &mut S,
    knows: impl FnOnce(&Login) -> bool,
) -> Result<Option<(Login, String)>, Unread>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    timeout(ASKED_MAX, asked(stream, knows)).await.unwrap_or(Err(Unread::TooSlow))
}

async fn asked<S>(
    stream: &mut S,
    knows: impl FnOnce(&Login) -> bool,
) -> Result<Option<(Login, String)>, Unread>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if !message(stream, socks5::greeting).await? {
        stream.write_all(&NOT_CHOSEN).await?;
        return Ok(None);
    }
    stream.write_all(&CHOSEN).await?;
    let login = message(stream, socks5::login).await?;
    if !knows(&login) {
        stream.write_all(&NOT_LOGGED_IN).await?;
        return Ok(None);
    }
    stream.write_all(&LOGGED_IN).await?;
    match message(stream, socks5::request).await {
        Ok(target) => Ok(Some((login, target))),
        Err(Unread::Fault(fault)) => {
            if let Some(reply) = Reply::to_fault(fault) {
                stream.write_all(&reply.bytes()).await?;
            }
            Err(fault.into())
        }
        Err(error) => Err(error),
    }
}

/// One message, and not one byte of what stands behind it.
async fn message<T>(
    stream: &mut (impl AsyncRead + Unpin),
    parse: impl Fn(&[u8]) -> Result<Parsed<T>, Fault>,
) -> Result<T, Unread> {
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes)? {
            Parsed::Whole(message) => return Ok(message),
            Parsed::Lacks(lacking) => {
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

    /// More than any of this.
    const ROOM_BYTES: usize = 4096;

    #[tokio::test]
    async fn what_stands_behind_a_request_is_left_where_it_is() {
        let (mut near, mut far) = duplex(ROOM_BYTES);
        far.write_all(b"\x05\x01\x02\x01\x01u\x01s\x05\x01\x00\x03\x03a.b\x00\x50GET /").await.unwrap();

        let (login, target) = ask(&mut near, |login| login.password == "s").await.unwrap().unwrap();

        assert_eq!((login.user.as_str(), target.as_str()), ("u", "a.b:80"));
        drop(far);
        let mut behind = Vec::new();
        near.read_to_end(&mut behind).await.unwrap();
        assert_eq!(behind, b"GET /");
    }

    #[tokio::test]
    async fn who_is_not_known_is_asked_for_nothing_more_and_other_requests_have_their_numbers() {
        for (said, answered, is_fault) in [
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
            let (mut near, mut far) = duplex(ROOM_BYTES);
            far.write_all(said).await.unwrap();

            let asked = ask(&mut near, |login| login.password == "s").await;

            assert_eq!(asked.is_err(), is_fault, "{said:?}: {asked:?}");
            assert!(!matches!(asked, Ok(Some(_))), "{said:?}");
            drop(near);
            let mut heard = Vec::new();
            far.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, answered, "{said:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_ask_in_time_is_waited_for_no_longer() {
        let (mut near, mut far) = duplex(ROOM_BYTES);
        far.write_all(b"\x05\x01\x02\x01\x01u").await.unwrap();
        let begun = tokio::time::Instant::now();

        let asked = ask(&mut near, |_| true).await;

        assert!(matches!(asked, Err(Unread::TooSlow)), "{asked:?}");
        assert_eq!(begun.elapsed(), ASKED_MAX);
    }
}
