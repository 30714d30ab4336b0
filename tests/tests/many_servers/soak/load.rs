//! Reads and writes at a steady rate, and shells that echo.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tests::caller::{GATEWAY, UPGRADED_TO, head};
use tests::check::writes::mark;
use tests::dial::dial_name;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, sleep, timeout};

use super::client::{KubeClient, whole};
use super::{CONFIGMAPS, HANGS_AFTER, Spread};

/// The pause between two pieces that a shell echoes.
const PIECE_EVERY: Duration = Duration::from_millis(250);
const PIECE: [u8; 64] = [b'x'; 64];

/// Requests that begin at a steady rate, whether or not earlier ones have their answers.
pub(super) struct SteadyLoad(JoinHandle<LoadFigures>, watch::Sender<bool>);

/// The outcome of all requests of one load.
#[derive(Debug, Default)]
pub(super) struct LoadFigures {
    pub(super) served: usize,
    /// Reads that were sent again because their connection had ended without a byte of the answer.
    pub(super) repeated: usize,
    pub(super) failed: Vec<String>,
    pub(super) took: Spread,
    /// The marks of the writes that were answered.
    pub(super) marks: Vec<String>,
}

struct Done {
    error: Option<String>,
    repeated: usize,
    took: Duration,
    mark: Option<String>,
}

/// The end of a shell.
#[derive(Debug)]
pub(super) struct ShellEnd {
    pub(super) at: Instant,
    /// True if it ended as if all were well.
    pub(super) is_clean: bool,
    pub(super) echoed_bytes: u64,
}

impl SteadyLoad {
    /// Reads at these paths in turn, this many times a second.
    pub(super) fn reads(clients: Vec<Arc<KubeClient>>, paths: Vec<String>, each_second: u32) -> Self {
        Self::begin(each_second, move |number| {
            let (client, path) =
                (Arc::clone(&clients[number % clients.len()]), paths[number % paths.len()].clone());
            async move {
                let outcome = client.read(&path).await;
                Done { error: outcome.error, repeated: outcome.repeated, took: outcome.took, mark: None }
            }
        })
    }

    /// Writes to the configmaps of these clusters in turn. A write that fails is not sent again.
    pub(super) fn writes(clients: Vec<Arc<KubeClient>>, clusters: Vec<String>, each_second: u32) -> Self {
        Self::begin(each_second, move |number| {
            let client = Arc::clone(&clients[number % clients.len()]);
            let cluster = clusters[number % clusters.len()].clone();
            async move {
                let (began, mark) = (Instant::now(), mark());
                let path = format!("/clusters/{cluster}{CONFIGMAPS}/written-{}", number % 20);
                let body = Bytes::from(format!(r#"{{"data":{{"mark":"{mark}"}}}}"#));
                let answered = match client.send("PUT", &path, &body).await {
                    Ok(answer) => whole(answer).await,
                    Err(error) => Err(error),
                };
                let error = answered.err();
                Done { error, repeated: 0, took: began.elapsed(), mark: Some(mark) }
            }
        })
    }

    fn begin<F>(each_second: u32, ask: impl Fn(usize) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Done> + Send + 'static,
    {
        let (over, mut is_over) = watch::channel(false);
        let running = async move {
            let mut asked = JoinSet::new();
            let mut due = interval(Duration::from_secs(1) / each_second);
            while !*is_over.borrow_and_update() {
                due.tick().await;
                asked.spawn(ask(asked.len()));
            }
            LoadFigures::of(asked).await
        };
        Self(tokio::spawn(running), over)
    }

    /// Begins no further request, and waits for the answers.
    pub(super) async fn end(self) -> LoadFigures {
        self.1.send_replace(true);
        self.0.await.expect("no caller panics")
    }
}

impl LoadFigures {
    async fn of(mut asked: JoinSet<Done>) -> Self {
        let (mut figures, mut took) = (Self::default(), Vec::new());
        while let Ok(Some(done)) = timeout(HANGS_AFTER, asked.join_next()).await {
            let done = done.expect("no caller panics");
            figures.repeated += usize::from(done.repeated > 0);
            took.push(done.took);
            match done.error {
                None => {
                    figures.served += 1;
                    figures.marks.extend(done.mark);
                }
                Some(error) => figures.failed.push(error),
            }
        }
        figures.failed.extend((0..asked.len()).map(|_| "it hangs".to_owned()));
        figures.took = Spread::of(took);
        figures
    }

    /// Panics unless every request was served, none after longer than anything may hang.
    pub(super) fn check(&self) {
        assert_eq!(self.failed, Vec::<String>::new(), "of {} requests", self.served);
        assert!(self.took.longest <= HANGS_AFTER, "{}", self.took);
    }
}

/// Opens a shell in a pod of this cluster that echoes, and writes to it until it ends. Its path is that of `kubectl exec`.
///
/// # Panics
/// If it does not open.
pub(super) async fn shell(gateway: SocketAddr, ca_pem: String, cluster: &str) -> JoinHandle<ShellEnd> {
    let path = format!("/clusters/{cluster}/api/v1/namespaces/default/pods/shell/exec?stdin=1&stdout=1");
    let lines = format!("Connection: Upgrade\r\nUpgrade: {UPGRADED_TO}\r\nContent-Length: 0\r\n");
    let mut stream = dial_name(gateway, GATEWAY, &ca_pem, &["http/1.1"], None).await.expect("a gateway");
    stream.write_all(head("POST", &path, &lines).as_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("a head"));
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let writing = async {
            while writer.write_all(&PIECE).await.is_ok() && writer.flush().await.is_ok() {
                sleep(PIECE_EVERY).await;
            }
            // Its reader learns of the end.
            std::future::pending::<()>().await;
        };
        let reading = async {
            let (mut echoed_bytes, mut piece) = (0, vec![0; 4096]);
            loop {
                match reader.read(&mut piece).await {
                    Ok(0) => return ShellEnd { at: Instant::now(), is_clean: true, echoed_bytes },
                    Ok(bytes) => echoed_bytes += bytes as u64,
                    Err(_) => return ShellEnd { at: Instant::now(), is_clean: false, echoed_bytes },
                }
            }
        };
        // Both arms are cancel-safe: the writing one never ends, and nothing is done after the other.
        tokio::select! {
            end = reading => end,
            () = writing => unreachable!("it never ends"),
        }
    })
}
