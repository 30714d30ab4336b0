//! kubectls of other minors at a pod, each by the protocol that its release speaks.

use std::collections::BTreeSet;

use futures::future::join_all;
use rustix::process::Signal;
use tests::kube::assets::{all_minors, neighbours};
use tests::node_edge::{NodeEdge, trial};
use tests::skip::skip;

use crate::copy::a_folder_comes_back;
use crate::exec::{outputs_are_told_apart, what_is_typed_arrives, who_attaches_is_heard};
use crate::forward::each_connection_is_its_own;
use crate::kubectls::{Client, SOON, hands_of, pattern};
use crate::logs::what_comes_is_seen;

/// From which minor on kubectl asks for WebSocket first, for exec and its like, and for port-forward. Before, it knows SPDY alone.
const BY_WEBSOCKET_FROM: [(&[&str], u32); 2] = [(&["exec", "attach"], 30), (&["portforward"], 31)];
/// What is typed, and copied.
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
    trial(name, async |edges| work(&edges.edges[0], &neighbours()).await);
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
        let hands = hands_of(edge, &format!("kubectl-{}", version.replace('.', "-")), &program);
        join_all(hands.iter().map(|hand| works(edge, hand))).await;
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

async fn works(edge: &NodeEdge, hand: &Client) {
    let stderr = outputs_are_told_apart(hand).await;
    assert_eq!(stderr, "err\ncommand terminated with exit code 42\n", "{}", hand.name);
    what_is_typed_arrives(edge, hand, &pattern(BYTES)).await;
    who_attaches_is_heard(edge, hand).await;
    a_folder_comes_back(edge, hand, &pattern(BYTES)).await;
    each_connection_is_its_own(edge, hand, CONNECTIONS).await;
    let mut following = what_comes_is_seen(edge, hand).await;
    following.signal(Signal::INT).expect("kubectl runs");
    following.wait(SOON).await.expect("kubectl ends");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Protocol {
    WebSocket,
    Spdy,
}

/// What a kubectl spoke, each way: a WebSocket begins with a GET, SPDY with a POST, and the API server has written down which.
fn spoken(edge: &NodeEdge, version: &str, subresource: &str) -> BTreeSet<(&'static str, Protocol)> {
    let (agent, last) = (format!("/v{version} "), format!("/{subresource}"));
    let events = edge.cluster.audit().expect("an audit log");
    let ours = events.iter().filter(|event| {
        let path = event.request_uri.split('?').next().expect("a path");
        path.ends_with(&last) && event.user_agent.as_ref().is_some_and(|by| by.contains(&agent))
    });
    ours.map(|event| {
        let way = if event.impersonated_user.is_some() { "tunneled" } else { "direct" };
        match event.verb.as_str() {
            "get" => (way, Protocol::WebSocket),
            "create" => (way, Protocol::Spdy),
            other => panic!("{other} is no beginning of a stream: {event:?}"),
        }
    })
    .collect()
}

/// Of 1.35: 35.
pub(crate) fn number(minor: &str) -> u32 {
    minor.split('.').nth(1).and_then(|number| number.parse().ok()).expect("a minor such as 1.35")
}
