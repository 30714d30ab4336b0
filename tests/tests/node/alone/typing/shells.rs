//! `kubectl exec -i … cat`, twenty times: a line in each every tenth of a second, and how long it took to come back.

use std::time::Duration;

use futures::future::join_all;
use tests::kube::kubectl::Kubectl;
use tests::node_edge::{NodeEdge, POD};
use tests::process::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval_at, timeout};

use crate::hands::SOON;

const SHELLS: usize = 20;
const TYPED_EVERY: Duration = Duration::from_millis(100);
const LINE: &[u8] = b"what is typed comes back\n";
/// Lines that may be under way in a shell: what is typed in the time after which nothing comes back any more.
const UNDER_WAY_MAX: usize = 4096;

/// Shells that are open.
pub(super) struct Shells(Vec<Shell>);

struct Shell {
    _kubectl: Process,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

/// How long lines took.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "all of it is printed")]
pub(super) struct Took {
    pub(super) lines: usize,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) longest: Duration,
}

impl Shells {
    pub(super) async fn open(edge: &NodeEdge, kubectl: &Kubectl, way: &str) -> Self {
        let open = (0..SHELLS).map(async |number| {
            let output = edge.file(&format!("{way}-shell-{number}.err"));
            let started = kubectl.start_talking(&["exec", "-i", POD, "--", "cat"], &output).await;
            let (process, stdin, stdout) = started.expect("kubectl starts");
            let mut shell = Shell { _kubectl: process, stdin, stdout };
            // What is typed first has to wait until it is connected.
            shell.stdin.write_all(LINE).await.expect("kubectl reads");
            shell.hears().await;
            shell
        });
        Self(join_all(open).await)
    }

    /// Types for so long, or until this ends.
    pub(super) async fn typed(&mut self, lasts: Duration, ends: watch::Receiver<()>) -> Took {
        let began = Instant::now();
        let typing = self.0.iter_mut().enumerate().map(|(number, shell)| {
            // Not all at once.
            let from = began + TYPED_EVERY.mul_f64(number as f64 / SHELLS as f64);
            shell.typed(from, began + lasts, ends.clone())
        });
        let mut took: Vec<Duration> = join_all(typing).await.concat();
        took.sort();
        let part = |part: f64| took[((took.len() - 1) as f64 * part).ceil() as usize];
        Took { lines: took.len(), p50: part(0.5), p99: part(0.99), longest: part(1.0) }
    }
}

impl Shell {
    async fn typed(&mut self, from: Instant, until: Instant, ends: watch::Receiver<()>) -> Vec<Duration> {
        let (typed, mut under_way) = mpsc::channel::<Instant>(UNDER_WAY_MAX);
        let (stdin, stdout) = (&mut self.stdin, &mut self.stdout);
        let write = async move {
            let mut ticks = interval_at(from, TYPED_EVERY);
            while Instant::now() < until && ends.has_changed().is_ok() {
                // When it should have been typed: a machine that is late makes no line look quick.
                let due = ticks.tick().await;
                stdin.write_all(LINE).await.expect("kubectl reads");
                typed.send(due).await.expect("somebody reads");
            }
        };
        let read = async {
            let mut took = Vec::new();
            while let Some(due) = under_way.recv().await {
                hears(stdout).await;
                took.push(due.elapsed());
            }
            took
        };
        tokio::join!(write, read).1
    }

    async fn hears(&mut self) {
        hears(&mut self.stdout).await;
    }
}

async fn hears(stdout: &mut ChildStdout) {
    let mut line = [0; LINE.len()];
    timeout(SOON, stdout.read_exact(&mut line)).await.expect("it comes back").expect("all of it");
    assert_eq!(line, LINE);
}
