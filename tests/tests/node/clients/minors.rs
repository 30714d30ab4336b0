//! kubectls of other minors at a pod, each by the protocol that its release uses.

use std::collections::BTreeSet;

use futures::future::join_all;
use rustix::process::Signal;
use tests::kube::assets::{all_minors, neighbouring_minors};
use tests::node_edge::{NodeEdge, trial};
use tests::skip::skip;

use crate::copy::a_folder_comes_back;
use crate::exec::{an_attach_passes_both_directions, outputs_are_separate, what_is_typed_arrives};
use crate::forward::each_connection_is_its_own;
use crate::kubectls::{Client, SOON, clients_of, pattern};
use crate::logs::what_comes_is_seen;

/// The minor from which on kubectl asks for WebSocket first, for exec and its like, and for port-forward.
/// Before, it knows SPDY alone.
const BY_WEBSOCKET_FROM: [(&[&str], u32); 2] = [(&["exec", "attach"], 30), (&["portforward"], 31)];
/// The number of bytes that are typed, and copied.
const BYTES: usize = 1024 * 1024;
const CONNECTIONS: usize = 10;

/// These are the minors directly before and after the pinned one. The protocol is that of the minor's
/// release.
#[test]
fn kubectls_of_neighbouring_minors_work_at_a_pod_by_their_protocol() {
    let name = "kubectls_of_neighbouring_minors_work_at_a_pod_by_their_protocol";
    if std::env::var_os("KUBEBUILDER_ASSETS").is_some() {
        return skip(name, "with binaries from elsewhere nobody knows which minors are beside them");
    }
    trial(name, async |edges| work(&edges.edges[0], &neighbouring_minors()).await);
}

/// These are all minors that can be built. The protocol is that of the minor's release.
#[test]
#[ignore = "soak: builds the kubectl of every minor that is to be had"]
fn kubectls_of_every_minor_work_at_a_pod_by_their_protocol() {
    let name = "the_kubectls_of_every_minor_work_at_a_pod";
    trial(name, async |edges| work(&edges.edges[0], &all_minors()).await);
}

async fn work(edge: &NodeEdge, minors: &[String]) {
    for minor in minors {
        let (version, program) = edge.cluster.kubectl_of(minor);
        let clients = clients_of(edge, &format!("kubectl-{}", version.replace('.', "-")), &program);
        join_all(clients.iter().map(|client| works(edge, client))).await;
        for (subresources, from) in BY_WEBSOCKET_FROM {
            for subresource in subresources {
                let protocol = if number(minor) >= from { Protocol::WebSocket } else { Protocol::Spdy };
                let expected = BTreeSet::from([("direct", protocol), ("tunneled", protocol)]);
                assert_eq!(spoken(edge, &version, subresource), expected, "kubectl {version}, {subresource}");
            }
        }
        println!("kubectl {version} works at a pod");
    }
}

async fn works(edge: &NodeEdge, client: &Client) {
    let stderr = outputs_are_separate(client).await;
    assert_eq!(stderr, "err\ncommand terminated with exit code 42\n", "{}", client.name);
    what_is_typed_arrives(edge, client, &pattern(BYTES)).await;
    an_attach_passes_both_directions(edge, client).await;
    a_folder_comes_back(edge, client, &pattern(BYTES)).await;
    each_connection_is_its_own(edge, client, CONNECTIONS).await;
    let mut following = what_comes_is_seen(edge, client).await;
    following.signal(Signal::INT).expect("kubectl runs");
    following.wait(SOON).await.expect("kubectl ends");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Protocol {
    WebSocket,
    Spdy,
}

/// The protocols that a kubectl used by each route: a WebSocket begins with a GET, SPDY with a POST, and the
/// API server's audit log has the verb.
fn spoken(edge: &NodeEdge, version: &str, subresource: &str) -> BTreeSet<(&'static str, Protocol)> {
    let (agent, last) = (format!("/v{version} "), format!("/{subresource}"));
    let events = edge.cluster.audit().expect("an audit log");
    let ours = events.iter().filter(|event| {
        let path = event.request_uri.split('?').next().expect("a path");
        path.ends_with(&last) && event.user_agent.as_ref().is_some_and(|by| by.contains(&agent))
    });
    ours.map(|event| {
        let entry_point = if event.impersonated_user.is_some() { "tunneled" } else { "direct" };
        match event.verb.as_str() {
            "get" => (entry_point, Protocol::WebSocket),
            "create" => (entry_point, Protocol::Spdy),
            other => panic!("{other} is no beginning of a stream: {event:?}"),
        }
    })
    .collect()
}

/// The number of a minor: 35 for 1.35.
pub(crate) fn number(minor: &str) -> u32 {
    minor.split('.').nth(1).and_then(|number| number.parse().ok()).expect("a minor such as 1.35")
}
