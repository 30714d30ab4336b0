//! Many runs of `kubectl exec -i … cat` at once: a line in each every tenth of a second, and the times until
//! the echoes.

use std::time::Duration;

use futures::future::join_all;
use tests::kube::kubectl::Kubectl;
use tests::node_edge::{NodeEdge, POD};
use tests::process::Process;
use tests::typing::{EchoTimes, TYPED_EVERY, echoes, typed};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::kubectls::SOON;

const LINE: &[u8] = b"what is typed comes back\n";

/// A number of open shells.
pub(super) struct Shells(Vec<Shell>);

struct Shell {
    _kubectl: Process,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Shells {
    pub(super) async fn open(edge: &NodeEdge, kubectl: &Kubectl, route: &str, count: usize) -> Self {
        let open = (0..count).map(async |number| {
            let output = edge.file(&format!("{route}-shell-{number}.err"));
            let started = kubectl.start_talking(&["exec", "-i", POD, "--", "cat"], &output).await;
            let (process, mut stdin, mut stdout) = started.expect("kubectl starts");
            // What is typed first has to wait until it is connected.
            stdin.write_all(LINE).await.expect("kubectl reads");
            echoes(&mut stdout, LINE, SOON).await;
            Shell { _kubectl: process, stdin, stdout }
        });
        Self(join_all(open).await)
    }

    /// Types for so long, or until this ends.
    pub(super) async fn typed(&mut self, lasts: Duration, ends: watch::Receiver<()>) -> EchoTimes {
        let began = Instant::now();
        let goes_on = |_| began.elapsed() < lasts && ends.has_changed().is_ok();
        let count = self.0.len() as f64;
        let typing = self.0.iter_mut().enumerate().map(|(number, shell)| {
            // Not all at once.
            let from = began + TYPED_EVERY.mul_f64(number as f64 / count);
            typed((&mut shell.stdout, &mut shell.stdin), LINE, from, SOON, goes_on)
        });
        EchoTimes::of(join_all(typing).await.concat())
    }
}
