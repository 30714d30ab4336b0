//! `kubectl exec` and `kubectl attach`: exit codes, both outputs, stdin and its end, the terminal and its
//! size.

use std::fs;

use tests::kube::assets::Assets;
use tests::node::sha256;
use tests::node_edge::{NodeEdge, POD, trial};
use tokio::io::AsyncWriteExt;

use super::kubectls::{Client, SOON, clients, pattern, wrote};

const MEGABYTE: usize = 1024 * 1024;
/// The script in the pod: it prints the terminal's size until it is the second one.
pub const PRINTS_SIZES: &str =
    "until [ \"$(stty size)\" = \"44 88\" ]; do stty size; sleep 0.1; done; echo grown; exit 7";

#[test]
fn an_exec_has_the_commands_exit_code_and_separate_outputs() {
    trial("an_exec_has_the_commands_exit_code_and_separate_outputs", async |edges| {
        for client in clients(&edges.edges[0]) {
            let stderr = outputs_are_separate(&client).await;
            assert_eq!(stderr, "err\ncommand terminated with exit code 42\n", "{}", client.name);
        }
    });
}

#[test]
fn megabytes_of_stdin_arrive_complete_and_so_does_their_end() {
    trial("megabytes_of_stdin_arrive_complete_and_so_does_their_end", async |edges| {
        for client in clients(&edges.edges[0]) {
            what_is_typed_arrives(&edges.edges[0], &client, &pattern(5 * MEGABYTE)).await;
        }
    });
}

#[test]
fn a_remote_terminal_has_and_follows_the_local_size() {
    trial("a_remote_terminal_has_and_follows_the_local_size", async |edges| {
        let edge = &edges.edges[0];
        let kubectl = Assets::find().expect("they were there before").kubectl;
        for client in clients(edge) {
            let screen = edge.file(&format!("{}.screen", client.name));
            let (program, seen) = (kubectl.display(), screen.display());
            // Here: take the second size once the first one has been said there.
            let grows = format!(
                "(until grep -q '^33 77' {seen}; do sleep 0.1; done; stty rows 44 cols 88 </dev/tty) &"
            );
            let line = format!(
                "stty rows 33 cols 77; {grows} exec {program} exec -it {POD} -- sh -c '{PRINTS_SIZES}'"
            );
            let script = client.kubectl.clone().of("script");
            let log = edge.file(&format!("{}-script.log", client.name));
            let words = ["-qefc", &line, screen.to_str().expect("a path")];
            let mut process = script.start(&words, &log).await.expect("script(1) starts");

            let status = process.wait(SOON).await.expect("it ends");

            let seen = fs::read_to_string(&screen).expect("what was on the screen");
            assert_eq!(status.code(), Some(7), "{}: {seen}", client.name);
            assert!(seen.contains("33 77\r\n") && seen.contains("grown\r\n"), "{}: {seen}", client.name);
        }
    });
}

#[test]
fn an_attach_passes_both_directions_and_the_end_of_stdin() {
    trial("an_attach_passes_both_directions_and_the_end_of_stdin", async |edges| {
        for client in clients(&edges.edges[0]) {
            an_attach_passes_both_directions(&edges.edges[0], &client).await;
        }
    });
}

/// Runs a command that writes to both outputs and fails, and one that does neither. Returns all text of
/// stderr.
pub async fn outputs_are_separate(client: &Client) -> String {
    let output = client.run(&["exec", POD, "--", "sh", "-c", "echo out; echo err >&2; exit 42"]).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(42), "{}: {stderr}", client.name);
    assert_eq!(output.stdout, b"out\n", "{}", client.name);

    let output = client.run(&["exec", POD, "--", "true"]).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{}: {output:?}", client.name);
    stderr
}

/// All bytes arrive, and so does their end: the hash is printed once stdin has ended.
pub async fn what_is_typed_arrives(edge: &NodeEdge, client: &Client, typed: &[u8]) {
    let hashed = client.types(edge, &["exec", "-i", POD, "--", "sha256sum"], typed).await;
    assert_eq!(hashed, (Some(0), format!("{}  -\n", sha256(typed)).into_bytes()), "{}", client.name);

    let (code, came_back) = client.types(edge, &["exec", "-i", POD, "--", "cat"], typed).await;
    assert!(code == Some(0) && came_back == typed, "{}: {code:?}, {}", client.name, came_back.len());
}

/// Attaches to a container that answers each line, and prints a last line when its stdin ends.
pub async fn an_attach_passes_both_directions(edge: &NodeEdge, client: &Client) {
    let pod = format!("attached-{}", client.name);
    let command = "stdin: true\nstdinOnce: true\n\
                   command: [sh, -c, 'while read line; do echo \"heard $line\"; done; echo bye']";
    edge.run_pod(&pod, command).await;
    let output = edge.file(&format!("{pod}.out"));
    let started = client.kubectl.start_listening(&["attach", "-i", &pod], &output).await;
    let (mut process, mut stdin) = started.expect("kubectl starts");

    stdin.write_all(b"one\n").await.expect("kubectl reads");
    wrote(&mut process, "heard one\n").await;
    stdin.write_all(b"two\n").await.expect("kubectl reads");
    wrote(&mut process, "heard two\n").await;
    drop(stdin);

    let status = process.wait(SOON).await.expect("kubectl ends");
    assert!(status.success(), "{}: {}", client.name, process.tail());
    assert!(process.tail().contains("bye\n"), "{}: {}", client.name, process.tail());
}
