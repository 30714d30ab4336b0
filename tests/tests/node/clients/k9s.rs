//! k9s, a popular terminal for clusters: its list, a description, logs, a shell and a port-forward of a real
//! pod.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use futures::future::join_all;
use tests::node_edge::{IMAGE, NodeEdge, POD, trial};
use tests::process::{Invocation, run};
use tests::skip::skip;

use crate::forward::each_has_its_own_back;
use crate::kubectls::{Client, SOON, clients_of};
use screen::Screen;

mod screen;

/// The environment variable that names a k9s.
const PROGRAM: &str = "TOMBOLO_K9S";
/// The address of the forwarded port. Both routes have network namespaces of their own.
const LISTENS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 17_777);
const CONNECTIONS: usize = 10;

#[test]
#[ignore = "soak: needs a k9s, which the environment variable TOMBOLO_K9S names"]
fn k9s_lists_describes_follows_enters_and_forwards_a_pod() {
    let test = "k9s_lists_describes_follows_enters_and_forwards_a_pod";
    let Some(program) = env::var_os(PROGRAM) else {
        return skip(test, "there is no k9s: build or download one and name its file in TOMBOLO_K9S");
    };
    let program = Path::new(&program);
    assert!(program.is_file(), "{PROGRAM} names no file: {}", program.display());
    trial(test, async |edges| {
        let tmux = run(&Invocation::of("tmux").arguments(["-V"]), SOON).await.expect("setpriv runs");
        if !tmux.status.success() {
            return skip(test, "there is no tmux: install Debian's package");
        }
        let edge = &edges.edges[0];
        let clients = clients_of(edge, "k9s", Path::new("tmux"));
        join_all(clients.iter().map(|client| works(edge, client, program))).await;
    });
}

async fn works(edge: &NodeEdge, client: &Client, program: &Path) {
    let pod = client.name.as_str();
    let program = program.to_str().expect("a path");
    let screen =
        Screen::open(edge, client, &[program, "--headless", "--splashless", "--command", "pods"]).await;
    let runs =
        |seen: &str, pod: &str| seen.lines().any(|line| line.contains(pod) && line.contains("Running"));

    screen.shows("the list", |seen| runs(seen, POD)).await;
    edge.run_pod(pod, &format!("command: [pod, serve, {pod}]\nports: [{{ containerPort: 7777 }}]")).await;
    screen.shows("a pod that has come since", |seen| runs(seen, pod)).await;
    screen.types(&format!("/{pod}")).await;
    screen.presses(&["Enter"]).await;
    let listed = |seen: &str| seen.contains("[1]") && runs(seen, pod);
    screen.shows("this pod alone", listed).await;

    let title = format!("Describe(default/{pod})");
    screen.types("d").await;
    screen.shows("its description", |seen| seen.contains(&title) && seen.contains(IMAGE)).await;
    screen.presses(&["Escape"]).await;
    screen.shows("the list again", listed).await;

    screen.types("l").await;
    screen.shows("its log", |seen| seen.contains(&format!("serving {pod}"))).await;
    let line = format!("said to {pod}");
    edge.direct.stdout(&["exec", pod, "--", "sh", "-c", &format!("echo {line} >/proc/1/fd/1")]).await;
    screen.shows("a line that has come since", |seen| seen.contains(&line)).await;
    screen.presses(&["Escape"]).await;
    screen.shows("the list again", listed).await;

    screen.types("s").await;
    screen.shows("a shell", |seen| seen.contains("K9s-Shell") && seen.trim_end().ends_with('#')).await;
    screen.types("echo in $HOSTNAME are $((6 * 7))").await;
    screen.presses(&["Enter"]).await;
    screen.shows("what the shell says", |seen| seen.contains(&format!("in {pod} are 42"))).await;
    screen.types("exit").await;
    screen.presses(&["Enter"]).await;
    screen.shows("the list again", listed).await;

    screen.types("F").await;
    screen.shows("the form", |seen| seen.contains("Local Port:") && seen.contains("7777")).await;
    screen.presses(&["Tab", "C-u"]).await;
    screen.types(&LISTENS.port().to_string()).await;
    screen.shows("the port", |seen| seen.contains(&LISTENS.port().to_string())).await;
    screen.presses(&["Tab", "Tab", "Enter"]).await;
    screen.shows("the list again", listed).await;
    each_has_its_own_back(edge, client, LISTENS, CONNECTIONS).await;
    the_api_server_was_asked(edge, pod, program).await;
}

/// Claims that the list was a watch, and that the streams came by WebSocket, which begins with a GET; and all
/// this by the hand's way.
async fn the_api_server_was_asked(edge: &NodeEdge, pod: &str, program: &str) {
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).expect("a program has a name");
    let agent = format!("{name}/");
    let pods = "/api/v1/namespaces/default/pods";
    for (verb, path, status) in [
        ("watch", pods.to_owned(), 200),
        ("get", format!("{pods}/{pod}/log"), 200),
        ("get", format!("{pods}/{pod}/exec"), 101),
        ("get", format!("{pods}/{pod}/portforward"), 101),
    ] {
        let event = edge.cluster.wait_for_audit(SOON, |event| {
            let by = event.user_agent.as_deref().unwrap_or_default();
            let code = event.response_status.as_ref().and_then(|status| status.code);
            event.verb == verb
                && event.request_uri.split('?').next() == Some(&path)
                && code == Some(status)
                // The shell is its kubectl's; and a port-forward does not come under k9s' name.
                && (by.starts_with(&agent) || status == 101)
                && event.impersonated_user.is_some() == pod.starts_with("tunneled")
        });
        event.await.unwrap_or_else(|error| panic!("{pod}: {verb} {path}: {error}"));
    }
}
