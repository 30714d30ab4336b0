//! kubectls by both protocols, through the tunnel and beside it.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use tests::kube::kubectl::Kubectl;
use tests::node_edge::NodeEdge;
use tests::process::Process;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

/// The limit for anything that has no limit of its own. Builds of other tests may run beside.
pub const SOON: Duration = Duration::from_secs(120);
/// The pause between two looks.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The variables that select kubectl's protocol, for exec and its like and for port-forward.
pub const CHOICES: [&str; 2] = ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"];

/// A kubectl with a protocol, and a way.
#[derive(Debug, Clone)]
pub struct Client {
    /// For messages and names of files.
    pub name: String,
    pub kubectl: Kubectl,
}

/// All four: what holds through the tunnel is what holds beside it, by WebSocket and by SPDY.
pub fn clients(edge: &NodeEdge) -> [Client; 4] {
    let [[a, b], [c, d]] =
        [by_both_protocols("direct", &edge.direct), by_both_protocols("tunneled", &edge.tunneled)];
    [a, b, c, d]
}

/// One way by WebSocket, and by SPDY.
pub fn by_both_protocols(entry_point: &str, kubectl: &Kubectl) -> [Client; 2] {
    [("websocket", "true"), ("spdy", "false")].map(|(protocol, websockets)| {
        let choose = |kubectl: Kubectl, choice| kubectl.with_variable(choice, websockets);
        Client {
            name: format!("{entry_point}-{protocol}"),
            kubectl: CHOICES.into_iter().fold(kubectl.clone(), choose),
        }
    })
}

/// Both ways of another program, which has a home of its own by each: what it keeps of an API server is not
/// shared.
pub fn clients_of(edge: &NodeEdge, name: &str, program: &Path) -> [Client; 2] {
    [("direct", &edge.direct), ("tunneled", &edge.tunneled)].map(|(entry_point, kubectl)| {
        let name = format!("{entry_point}-{name}");
        let home = edge.file(&format!("{name}-home"));
        Client { kubectl: kubectl.clone().of(program).with_home(home), name }
    })
}

impl Client {
    /// Runs it to its end, however that is.
    pub async fn run(&self, words: &[&str]) -> Output {
        self.kubectl.run(words).await.unwrap_or_else(|error| panic!("{}: {words:?}: {error}", self.name))
    }

    /// Types all of this, closes stdin, and returns how it ended and what it wrote to both of its outputs.
    pub async fn types(&self, edge: &NodeEdge, words: &[&str], typed: &[u8]) -> (Option<i32>, Vec<u8>) {
        let output = edge.file(&format!("{}-{}.out", self.name, words.join("-").replace('/', "_")));
        let started = self.kubectl.start_listening(words, &output).await;
        let (mut process, mut stdin) = started.expect("kubectl starts");
        stdin.write_all(typed).await.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        drop(stdin);
        let status = process.wait(SOON).await.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        (status.code(), fs::read(output).expect("a file that kubectl writes"))
    }
}

/// Waits until a process has written this text, and returns all that it has written.
pub async fn wrote(process: &mut Process, text: &str) -> String {
    let output = process.output().to_owned();
    until(text, async || {
        let message = read(&output);
        let is_there = message.contains(text);
        assert!(is_there || process.ended().is_none(), "it ended without {text:?}: {message}");
        is_there.then_some(message)
    })
    .await
}

/// Waits until something is so.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {SOON:?}");
        sleep(LOOK_EVERY).await;
    }
}

pub fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// So many bytes, no stretch of them like another nearby.
pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|n| (n * n / 251) as u8).collect()
}
