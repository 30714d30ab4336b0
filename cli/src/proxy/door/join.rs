//! Bytes between who has come and a target, and what becomes of one side when the other breaks.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;

/// A connection without TLS, which is reset unless both its directions have ended: nothing else tells half of something from
/// all of it.
struct Near {
    stream: TcpStream,
    has_ended: bool,
}

/// Moves bytes until both directions have ended, each on its own, or one breaks: then the near side is reset, and the far
/// one is dropped without a word, so that neither takes it for an end. `came` is what was read of the near one already.
pub(super) async fn join(near: TcpStream, came: &[u8], far: Upgraded) {
    let (mut near, mut far) = (Near { stream: near, has_ended: false }, TokioIo::new(far));
    let joined = async {
        far.write_all(came).await?;
        copy_bidirectional(&mut near.stream, &mut far).await
    };
    near.has_ended = joined.await.is_ok();
}

impl Drop for Near {
    fn drop(&mut self) {
        if !self.has_ended {
            // One that is closed already cannot be reset.
            let _ = self.stream.set_zero_linger();
        }
    }
}
