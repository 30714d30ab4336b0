//! Reads the ClientHello of TLS for its server name, and keeps every byte for the real server.

use std::io;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Largest ClientHello with the records around it; kubectl's has 0.3 KiB, and 1.6 KiB with a post-quantum
/// key.
pub(super) const HELLO_BYTES_MAX: usize = 16 * 1024;

/// A complete ClientHello and the bytes around it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BufferedHello {
    /// The server name in lower case, if there is one. With Encrypted Client Hello it is the outer name.
    pub(super) server_name: Option<String>,
    /// Everything that was read, including bytes after the ClientHello.
    pub(super) bytes: Vec<u8>,
}

/// The reason why there is no ClientHello.
#[derive(Debug, thiserror::Error)]
pub enum ClientHelloError {
    /// The bytes are not a ClientHello of TLS.
    #[error("the client sent no ClientHello of TLS")]
    NotTls(#[source] rustls::Error),
    /// The ClientHello is larger than `HELLO_BYTES_MAX`.
    #[error("the ClientHello is longer than {HELLO_BYTES_MAX} bytes")]
    TooLong,
    /// The connection ended before the ClientHello was complete.
    #[error("the connection ended before its ClientHello did")]
    Ended(#[source] io::Error),
}

/// Reads one ClientHello. Not cancel-safe: bytes that were read are lost.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<BufferedHello, ClientHelloError> {
    let (mut acceptor, mut bytes) = (Acceptor::default(), Vec::new());
    loop {
        let had = bytes.len();
        if had == HELLO_BYTES_MAX {
            return Err(ClientHelloError::TooLong);
        }
        let read = stream.take((HELLO_BYTES_MAX - had) as u64).read_buf(&mut bytes).await;
        if read.map_err(ClientHelloError::Ended)? == 0 {
            return Err(ClientHelloError::Ended(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut new = &bytes[had..];
        while !new.is_empty() {
            // Reading from memory fails only if the buffer is full, and it is larger than our limit.
            acceptor.read_tls(&mut new).map_err(|_| ClientHelloError::TooLong)?;
            if let Some(accepted) = acceptor.accept().map_err(|(error, _)| ClientHelloError::NotTls(error))? {
                let server_name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                return Ok(BufferedHello { server_name, bytes });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use rustls_pki_types::ServerName;
    use tokio::io::AsyncWriteExt as _;

    fn hello(name: &str, protocols: &[Vec<u8>]) -> Vec<u8> {
        let mut config = ClientConfig::builder_with_provider(transport::tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        config.alpn_protocols = protocols.to_vec();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut bytes = Vec::new();
        ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut bytes).unwrap();
        bytes
    }

    /// Reads a ClientHello from bytes that arrive in these pieces and then end.
    async fn read_pieces(pieces: &[&[u8]]) -> Result<BufferedHello, ClientHelloError> {
        let (mut sender, mut receiver) = tokio::io::duplex(1);
        let sending = async {
            for piece in pieces {
                // A reader that has failed takes no more bytes.
                let _ = sender.write_all(piece).await;
            }
            drop(sender);
        };
        let reading = async {
            let read = read(&mut receiver).await;
            drop(receiver);
            read
        };
        tokio::join!(sending, reading).1
    }

    #[tokio::test]
    async fn a_client_hello_is_kept_with_every_byte_after_it() {
        for (name, expected) in [("API.Edge-A.example", Some("api.edge-a.example")), ("192.168.1.10", None)] {
            let sent = [hello(name, &[b"h2".to_vec()]), b"behind".to_vec()].concat();
            let read = read(&mut sent.as_slice()).await.unwrap();
            assert_eq!((read.server_name.as_deref(), read.bytes), (expected, sent));
        }
    }

    #[tokio::test]
    async fn a_client_hello_may_arrive_byte_by_byte_but_not_end_early() {
        let sent = hello("api.edge-a.example", &[]);
        assert_eq!(read_pieces(&[&sent]).await.unwrap().bytes, sent);
        for end in [0, 1, 4, 5, 6, sent.len() / 2, sent.len() - 1] {
            assert!(matches!(read_pieces(&[&sent[..end]]).await, Err(ClientHelloError::Ended(_))), "{end}");
        }
    }

    #[tokio::test]
    async fn a_client_hello_is_limited_to_the_byte() {
        // An ALPN name has up to 255 bytes, preceded by one length byte.
        let of_length = |length: usize| {
            let mut names = vec![b"a".to_vec()];
            let mut lacking = length - hello("a.example", &names).len();
            while lacking > 0 {
                let taken = if lacking > 300 { 256 } else { lacking.min(150) };
                names.push(vec![b'a'; taken - 1]);
                lacking -= taken;
            }
            hello("a.example", &names)
        };
        let (longest, beyond) = (of_length(HELLO_BYTES_MAX), of_length(HELLO_BYTES_MAX + 1));
        assert_eq!((longest.len(), beyond.len()), (HELLO_BYTES_MAX, HELLO_BYTES_MAX + 1));

        assert!(read(&mut longest.as_slice()).await.is_ok());
        assert!(matches!(read(&mut beyond.as_slice()).await, Err(ClientHelloError::TooLong)));
    }

    #[tokio::test]
    async fn bytes_that_are_not_tls_are_refused_at_once() {
        for sent in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"SSH-2.0-OpenSSH\r\n",
            &[5, 1, 2],
            &[0x15, 3, 3, 0, 2, 1, 0],
            &[0x16, 3, 1, 0, 4, 2, 0, 0, 0],
            &[0; 64],
        ] {
            assert!(
                matches!(
                    read(&mut [sent, &[0; 64]].concat().as_slice()).await,
                    Err(ClientHelloError::NotTls(_))
                ),
                "{sent:?}"
            );
        }
    }

    proptest! {
        /// Any input is a complete ClientHello, kept byte for byte, or an error; and no more is read than the
        /// limit.
        #[test]
        fn any_input_is_kept_as_it_is_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600), is_mutant: bool, at: prop::sample::Index) {
            let mut sent = hello("api.edge-a.example", &[]);
            if is_mutant {
                let at = at.index(sent.len());
                let end = (at + bytes.len().min(8)).min(sent.len());
                sent[at..end].copy_from_slice(&bytes[..end - at]);
            } else {
                sent = bytes;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            if let Ok(hello) = runtime.block_on(read(&mut sent.as_slice())) {
                prop_assert_eq!(hello.bytes, sent);
            }
        }
    }
}
