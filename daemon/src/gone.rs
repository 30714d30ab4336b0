//! Whether the other side of a connection has gone, while something is done for it.

use std::future::pending;

use tokio::io::Interest;
use tokio::net::TcpStream;

/// Returns once the other side has gone. Bytes that come before they may are somebody else's, and wait. Cancel-safe.
pub async fn gone(stream: &TcpStream) {
    if let Ok(1..) = stream.peek(&mut [0]).await {
        pending().await
    }
}

/// Returns once the other side has reset the connection. Who has merely ended its direction may still listen. Cancel-safe.
pub async fn reset(stream: &TcpStream) {
    if let Ok(ready) = stream.ready(Interest::ERROR).await
        && !ready.is_error()
    {
        pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn who_has_closed_has_gone_and_who_has_spoken_has_not_and_is_still_to_be_heard() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut speaks = TcpStream::connect(address).await.unwrap();
        let (mut heard, _) = listener.accept().await.unwrap();
        speaks.write_all(b"a").await.unwrap();
        heard.readable().await.unwrap();
        assert_eq!(gone(&heard).now_or_never(), None);
        assert_eq!(heard.read_u8().await.unwrap(), b'a');

        drop(speaks);
        gone(&heard).await;
    }

    #[tokio::test]
    async fn who_has_ended_its_direction_has_reset_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut listens = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut heard, _) = listener.accept().await.unwrap();
        listens.shutdown().await.unwrap();
        assert_eq!(heard.read_u8().await.map_err(|error| error.kind()), Err(ErrorKind::UnexpectedEof));
        assert_eq!(reset(&heard).now_or_never(), None);

        listens.set_zero_linger().unwrap();
        drop(listens);
        reset(&heard).await;
    }
}
