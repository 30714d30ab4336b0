//! Copies bytes between a local client and a target, and resets the client's connection if the copy breaks.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;

/// A TCP connection that a drop resets unless both directions have ended. Without TLS, nothing else tells a truncated
/// transfer from a complete one.
struct ResetOnDrop {
    stream: TcpStream,
    has_ended: bool,
}

/// Copies bytes until both directions have ended, or one breaks. If one breaks, the client's connection is reset and the
/// target's is dropped without a close, so neither peer takes it for an end. `buffered` was read from the client already.
pub(super) async fn relay(client: TcpStream, buffered: &[u8], target: Upgraded) {
    let mut client = ResetOnDrop { stream: client, has_ended: false };
    let mut target = TokioIo::new(target);
    let copied = async {
        target.write_all(buffered).await?;
        copy_bidirectional(&mut client.stream, &mut target).await
    };
    client.has_ended = copied.await.is_ok();
}

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        if !self.has_ended {
            // A connection that is closed already cannot be reset.
            let _ = self.stream.set_zero_linger();
        }
    }
}
