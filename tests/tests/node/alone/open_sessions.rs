//! The sessions of a person through a tunnel: an exec and a forwarded connection by each protocol, and
//! followed logs.

use tests::node_edge::{NodeEdge, POD};
use tests::process::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::ChildStdin;
use tokio::time::timeout;

use crate::forward::forward;
use crate::kubectls::{SOON, clients, read, wrote};

/// All sessions. Each typed line comes back once, in its order.
pub struct OpenSessions {
    typed: Vec<TypedSession>,
    logs: Process,
    typed_so_far: String,
}

/// A `cat` that is typed to, and a connection to an echo.
struct TypedSession {
    name: String,
    exec: Process,
    stdin: ChildStdin,
    _forwarding: Process,
    connection: TcpStream,
}

impl OpenSessions {
    /// Opens all of these sessions.
    pub async fn start(edge: &NodeEdge) -> Self {
        let mut typed = Vec::new();
        for client in clients(edge).iter().filter(|client| client.name.starts_with("tunneled")) {
            let output = edge.file(&format!("{}-open.out", client.name));
            let started = client.kubectl.start_listening(&["exec", "-i", POD, "--", "cat"], &output).await;
            let (exec, stdin) = started.expect("kubectl starts");
            let (forwarding, [_, echo]) = forward(edge, client).await;
            let connection = TcpStream::connect(echo).await.expect("kubectl listens");
            typed.push(TypedSession {
                name: client.name.clone(),
                exec,
                stdin,
                _forwarding: forwarding,
                connection,
            });
        }
        let output = edge.file("open-logs.out");
        let mut logs = edge.tunneled.start(&["logs", "-f", POD], &output).await.expect("kubectl starts");
        wrote(&mut logs, "serving").await;
        Self { typed, logs, typed_so_far: String::new() }
    }

    /// Types a line into all of it, and lets the pod log it.
    pub async fn type_line(&mut self, edge: &NodeEdge, line: &str) {
        let echo = format!("echo {line} >/proc/1/fd/1");
        edge.direct.stdout(&["exec", POD, "--", "sh", "-c", &echo]).await;
        self.typed_so_far += &format!("{line}\n");
        for TypedSession { stdin, connection, .. } in &mut self.typed {
            stdin.write_all(format!("{line}\n").as_bytes()).await.expect("kubectl reads");
            connection.write_all(line.as_bytes()).await.expect("kubectl reads");
        }
    }

    /// Waits until a typed line has come back everywhere, and nothing else.
    pub async fn expect_line(&mut self, line: &str) {
        wrote(&mut self.logs, &format!("{line}\n")).await;
        for TypedSession { name, exec, connection, .. } in &mut self.typed {
            assert_eq!(wrote(exec, &format!("{line}\n")).await, self.typed_so_far, "{name}");
            let mut back = vec![0; line.len()];
            let complete = timeout(SOON, connection.read_exact(&mut back)).await.expect("it comes back");
            complete.expect("all of it");
            assert_eq!(String::from_utf8_lossy(&back), line, "{name}");
        }
    }

    /// Types a line and waits until it is back.
    pub async fn goes_on(&mut self, edge: &NodeEdge, line: &str) {
        self.type_line(edge, line).await;
        self.expect_line(line).await;
    }

    /// Claims that a line has not come back anywhere.
    pub fn has_not_received(&self, line: &str) {
        for TypedSession { name, exec, .. } in &self.typed {
            assert!(!read(exec.output()).contains(line), "{name} has heard {line:?}");
        }
        assert!(!read(self.logs.output()).contains(line), "the logs have {line:?}");
    }

    /// Ends what is typed to, and claims that it ended well.
    pub async fn end(self) {
        for TypedSession { name, mut exec, stdin, .. } in self.typed {
            drop(stdin);
            let status = exec.wait(SOON).await.expect("kubectl ends");
            assert!(status.success(), "{name}: {}", exec.tail());
            assert_eq!(read(exec.output()), self.typed_so_far, "{name}");
        }
    }
}
