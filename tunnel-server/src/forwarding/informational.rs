//! Bounds the informational heads (1xx) before an answer, which HTTP allows without end and hyper skips.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::Request;
use hyper::ext::on_informational;
use proto::ClusterId;

use super::error::ForwardError;

/// Most informational heads before an answer. An agent's own HTTP server sends one at most, `100 Continue`, and
/// passes none of an API server on.
const INFORMATIONAL_MAX: u32 = 16;

/// The number of informational heads that have come before an answer.
pub(crate) struct InformationalHeads(Arc<AtomicU32>);

impl InformationalHeads {
    /// Counts the heads before the answer to `request`. `end` is called for each one beyond the limit, and has
    /// to end the exchange.
    pub(crate) fn count<B>(request: &mut Request<B>, end: impl Fn() + Send + Sync + 'static) -> Self {
        let heads = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&heads);
        on_informational(request, move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) >= INFORMATIONAL_MAX {
                end();
            }
        });
        Self(heads)
    }

    /// The refusal for an exchange that failed with `refusal`, which says if the heads were too many.
    pub(crate) fn explain(&self, refusal: ForwardError, cluster: &ClusterId) -> ForwardError {
        let are_too_many = self.0.load(Ordering::Relaxed) > INFORMATIONAL_MAX;
        if are_too_many { ForwardError::NotHttp(cluster.clone()) } else { refusal }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;

    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

    #[tokio::test]
    async fn an_exchange_with_endless_informational_heads_is_ended() {
        let (ours, mut theirs) = duplex(1024);
        let (mut sender, connection) = http1::handshake(TokioIo::new(ours)).await.unwrap();
        let mut request = Request::new(Empty::<Bytes>::new());
        let ends = Arc::new(Notify::new());
        let told = Arc::clone(&ends);
        let heads = InformationalHeads::count(&mut request, move || told.notify_one());
        let floods = async {
            // An answer before its request is another fault.
            let _ = theirs.read(&mut [0; 1024]).await;
            while theirs.write_all(CONTINUE).await.is_ok() {}
        };

        // All arms are cancel-safe: they are dropped together.
        let ended = async {
            tokio::select! {
                () = ends.notified() => {}
                _ = sender.send_request(request) => panic!("no answer comes"),
                _ = connection => panic!("the flood does not end"),
                () = floods => panic!("the flood is read"),
            }
        };
        timeout(Duration::from_secs(60), ended).await.unwrap();

        let cluster: ClusterId = "edge-1".parse().unwrap();
        let refusal = heads.explain(ForwardError::Lost(cluster.clone()), &cluster);
        assert!(matches!(refusal, ForwardError::NotHttp(_)), "{refusal}");
    }

    #[tokio::test]
    async fn informational_heads_up_to_the_limit_precede_an_answer() {
        let (ours, mut theirs) = duplex(64 * 1024);
        let (mut sender, connection) = http1::handshake(TokioIo::new(ours)).await.unwrap();
        let mut request = Request::new(Empty::<Bytes>::new());
        let heads = InformationalHeads::count(&mut request, || panic!("they are few"));
        let answers = async {
            theirs.read_u8().await.unwrap();
            theirs.write_all(&CONTINUE.repeat(INFORMATIONAL_MAX as usize)).await.unwrap();
            theirs.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        };

        // Both arms are cancel-safe: they are dropped together.
        let answered = tokio::select! {
            (answered, ()) = async { tokio::join!(sender.send_request(request), answers) } => answered.unwrap(),
            _ = connection => panic!("the connection goes on"),
        };

        assert_eq!(answered.status(), 204);
        let cluster: ClusterId = "edge-1".parse().unwrap();
        assert!(matches!(
            heads.explain(ForwardError::Lost(cluster.clone()), &cluster),
            ForwardError::Lost(_)
        ));
    }
}
