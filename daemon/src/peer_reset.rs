//! Detects that the peer of a TCP connection has closed or reset it, while its request is handled.

use std::future::pending;

use tokio::io::Interest;
use tokio::net::TcpStream;

/// Returns once the peer has closed the connection. If bytes arrive first it never returns, and leaves them
/// unread. Cancel-safe.
pub async fn peer_closed(stream: &TcpStream) {
    if let Ok(1..) = stream.peek(&mut [0]).await {
        pending().await
    }
}

/// Returns once the peer has reset the connection. A peer that merely ended its direction may still read.
/// Cancel-safe.
pub async fn peer_reset(stream: &TcpStream) {
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
    async fn unread_bytes_hide_a_close_and_stay_readable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        client.write_all(b"a").await.unwrap();
        stream.readable().await.unwrap();
        assert_eq!(peer_closed(&stream).now_or_never(), None);
        assert_eq!(stream.read_u8().await.unwrap(), b'a');

        drop(client);
        peer_closed(&stream).await;
    }

    #[tokio::test]
    async fn a_half_close_is_not_a_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(stream.read_u8().await.map_err(|error| error.kind()), Err(ErrorKind::UnexpectedEof));
        assert_eq!(peer_reset(&stream).now_or_never(), None);

        client.set_zero_linger().unwrap();
        drop(client);
        peer_reset(&stream).await;
    }
}
