//! Endless transfers out of a cluster and into it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ::tests::caller::{GATEWAY, Http2Caller, send_all};
use ::tests::fake_api::{Answer, Behaviour, FakeApi};
use ::tests::rig::Rig;
use bytes::Bytes;
use tokio::task::JoinSet;

const OUT: &str = "/api/v1/namespaces/default/pods/out/log";
const IN: &str = "/api/v1/namespaces/default/services/in/proxy/";
const PIECE_BYTES: usize = 64 * 1024;
/// The receive window of a downloading caller. It is larger than the link's bandwidth-delay product, so that
/// it limits nothing.
const CALLER_WINDOW_BYTES: u32 = 16 << 20;

/// Running transfers. They end when this is dropped.
pub(super) struct Bulk {
    /// Bytes that callers have read, and bytes that were accepted from them.
    pub(super) out_bytes: Arc<AtomicU64>,
    pub(super) in_bytes: Arc<AtomicU64>,
    transfers: JoinSet<()>,
}

/// Configures an API server for the transfers.
pub(super) fn serve(api: &FakeApi) {
    api.on(OUT, Behaviour::Endless(Bytes::from(vec![0; PIECE_BYTES])));
    api.on(IN, Behaviour::Answer(Answer::json(200, "{}")));
}

impl Bulk {
    pub(super) async fn begin(rig: &Rig, [out, into]: [u32; 2]) -> Self {
        let mut bulk =
            Self { out_bytes: Arc::default(), in_bytes: Arc::default(), transfers: JoinSet::new() };
        for _ in 0..out {
            bulk.begin_out(rig).await;
        }
        for _ in 0..into {
            bulk.begin_in(rig).await;
        }
        bulk
    }

    /// Ends the transfers. Panics if one has ended before, because the measurement is worthless then.
    pub(super) fn end(mut self) {
        assert!(self.transfers.try_join_next().is_none(), "a transfer broke");
    }

    async fn begin_out(&mut self, rig: &Rig) {
        let mut caller = dial(rig).await;
        let (answer, _) = caller.send("GET", &at(OUT), &[], true);
        let mut body = answer.await.expect("the download begins").into_body();
        let count = Arc::clone(&self.out_bytes);
        self.transfers.spawn(async move {
            let _caller = caller; // The connection lives as long as its stream.
            while let Some(Ok(data)) = body.data().await {
                let _ = body.flow_control().release_capacity(data.len()); // Fails only on a stream that is gone.
                count.fetch_add(data.len() as u64, Relaxed);
            }
        });
    }

    async fn begin_in(&mut self, rig: &Rig) {
        let mut caller = dial(rig).await;
        let (answer, mut stream) = caller.send("POST", &at(IN), &[], false);
        let count = Arc::clone(&self.in_bytes);
        let piece = Bytes::from(vec![0; PIECE_BYTES]);
        self.transfers.spawn(async move {
            let _caller = caller;
            let sending = async {
                while send_all(&mut stream, piece.clone(), false).await.is_ok() {
                    count.fetch_add(piece.len() as u64, Relaxed);
                }
            };
            // Both arms are cancel-safe, and neither ends by itself.
            tokio::select! {
                () = sending => {}
                _ = answer => {}
            }
        });
    }
}

async fn dial(rig: &Rig) -> Http2Caller {
    let window = CALLER_WINDOW_BYTES;
    Http2Caller::dial_windows(rig, GATEWAY, None, window, window).await.with_token()
}

fn at(path: &str) -> String {
    format!("/clusters/edge{path}")
}
