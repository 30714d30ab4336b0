//! Pods behind a link that loses packets, and behind one that goes dark for half a minute.

use std::time::Duration;

use tests::node::sha256;
use tests::node_edge::{NodeEdge, POD};
use tests::process::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::ChildStdin;
use tokio::time::{sleep_until, timeout};

use super::behind;
use crate::forward::forward;
use crate::hands::{SOON, hands, pattern, read, until, wrote};

/// What issue and plan ask for: one packet of twenty is lost each way, and a round trip takes 80 ms.
const LOSSY: &str = "delay=40ms loss=5%";
const DARK: Duration = Duration::from_secs(30);

#[test]
fn what_is_read_from_a_pod_and_typed_into_it_over_a_lossy_link_is_whole() {
    behind("what_is_read_from_a_pod_over_a_lossy_link", LOSSY, async |edge: NodeEdge| {
        let bytes = 6 * 1024 * 1024;
        let makes = format!("pod flood {bytes} | sha256sum");
        let made = edge.direct.stdout(&["exec", POD, "--", "sh", "-c", &makes]).await;
        let typed = pattern(1024 * 1024);
        for hand in hands(&edge).iter().filter(|hand| hand.name.starts_with("tunneled")) {
            let output = hand.run(&["exec", POD, "--", "pod", "flood", &bytes.to_string()]).await;
            assert!(output.status.success(), "{}: {:?}", hand.name, String::from_utf8_lossy(&output.stderr));
            assert_eq!(format!("{}  -\n", sha256(&output.stdout)), made, "{}", hand.name);
            let hashed = hand.types(&edge, &["exec", "-i", POD, "--", "sha256sum"], &typed).await;
            assert_eq!(hashed, (Some(0), format!("{}  -\n", sha256(&typed)).into_bytes()), "{}", hand.name);
        }
    });
}

#[test]
fn an_exec_followed_logs_and_a_forwarded_connection_go_on_after_half_a_minute_in_the_dark() {
    behind("an_exec_followed_logs_and_a_forwarded_connection_go_on", "delay=10ms", async |edge: NodeEdge| {
        let all = hands(&edge);
        let mut open = Vec::new();
        for hand in all.iter().filter(|hand| hand.name.starts_with("tunneled")) {
            let output = edge.file(&format!("{}-dark.out", hand.name));
            let words = ["exec", "-i", POD, "--", "cat"];
            let started = hand.kubectl.start_listening(&words, &output).await;
            let (mut exec, mut stdin) = started.expect("kubectl starts");
            types(&mut exec, &mut stdin, "before\n").await;
            let (forwarding, [_, echo]) = forward(&edge, hand).await;
            let mut connection = TcpStream::connect(echo).await.expect("kubectl listens");
            echoes(&mut connection, b"before").await;
            open.push((&hand.name, exec, stdin, forwarding, connection));
        }
        let output = edge.file("dark-logs.out");
        let mut logs = edge.tunneled.start(&["logs", "-f", POD], &output).await.expect("kubectl starts");
        wrote(&mut logs, "serving").await;

        let down = edge.site.link().down().await;
        edge.direct.stdout(&["exec", POD, "--", "sh", "-c", "echo said in the dark >/proc/1/fd/1"]).await;
        for (_, _, stdin, _, connection) in &mut open {
            stdin.write_all(b"in the dark\n").await.expect("kubectl reads");
            connection.write_all(b"in the dark").await.expect("kubectl reads");
        }
        sleep_until((down + DARK).into()).await;
        for (name, exec, ..) in &open {
            assert!(!read(exec.output()).contains("dark"), "{name}: the link was not dark");
        }
        assert!(!read(logs.output()).contains("dark"), "the link was not dark");
        edge.site.link().up().await;

        wrote(&mut logs, "said in the dark\n").await;
        for (name, mut exec, mut stdin, _forwarding, mut connection) in open {
            until("what was typed comes back", async || {
                read(exec.output()).contains("in the dark\n").then_some(())
            })
            .await;
            types(&mut exec, &mut stdin, "after\n").await;
            drop(stdin);
            let status = exec.wait(SOON).await.expect("kubectl ends");
            assert!(status.success(), "{name}: {}", exec.tail());
            assert_eq!(read(exec.output()), "before\nin the dark\nafter\n", "{name}");
            hears(&mut connection, b"in the dark").await;
            echoes(&mut connection, b"after").await;
        }
    });
}

/// Types a line into a `cat`, and waits until it has come back.
async fn types(exec: &mut Process, stdin: &mut ChildStdin, line: &str) {
    stdin.write_all(line.as_bytes()).await.expect("kubectl reads");
    wrote(exec, line).await;
}

async fn echoes(connection: &mut TcpStream, text: &[u8]) {
    connection.write_all(text).await.expect("kubectl reads");
    hears(connection, text).await;
}

async fn hears(connection: &mut TcpStream, text: &[u8]) {
    let mut back = vec![0; text.len()];
    timeout(SOON, connection.read_exact(&mut back)).await.expect("it comes back").expect("all of it");
    assert_eq!(String::from_utf8_lossy(&back), String::from_utf8_lossy(text));
}
