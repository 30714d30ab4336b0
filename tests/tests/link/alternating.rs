//! Two sites whose control planes have one address, asked alternately by every entry point: each answer is
//! its own cluster's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde_json::Value;
use tests::caller::{GATEWAY, SOON};
use tests::client_network::ClientNetwork;
use tests::dial::{config, secured, through};
use tests::lab::{Lab, trial};
use tests::rig::policy::{may_dial, user_may_dial, usual};
use tests::rig::{GROUP, Rig, TOKEN, free_port};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::by_address::{ByAddressEdge, uid};

/// The address in each cluster's own kubeconfig.
const CONTROL_PLANE: &str = "192.168.1.10:6443";
const CLUSTERS: [&str; 2] = ["edge-a", "edge-b"];
const NAMES: [&str; 2] = ["api.edge-a.test", "api.edge-b.test"];

/// So many ask at once by each way.
const CALLERS_PER_ENTRY_POINT: usize = 4;
/// Number of requests of one caller after which it connects again.
const REQUESTS_PER_CONNECTION: usize = 50;
/// The interval at which a site's node gets another port at its NAT.
const REBOUND_EVERY: Duration = Duration::from_millis(700);

/// Limits that are not what is tried here.
const LIMITS: &str = "limits: { caller: { requestsPerSecond: 100000, burst: 100000 } }\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryPoint {
    /// The gateway's URL with a path or a host name.
    Url,
    /// HTTP CONNECT, and the cluster's own TLS in it.
    Connect,
    /// The listener by which TLS passes through.
    ServerName,
    /// The address itself, on a machine of the server.
    Address,
}

const ENTRY_POINTS: [EntryPoint; 4] =
    [EntryPoint::Url, EntryPoint::Connect, EntryPoint::ServerName, EntryPoint::Address];

/// Each entry point is tried.
#[test]
fn each_answer_is_of_the_right_one_of_clusters_with_one_address() {
    trial("each_answer_is_of_the_right_one_of_clusters_with_one_address", async |lab| {
        alternate(lab, 2_400).await
    });
}

/// The clusters have the same address.
#[test]
#[ignore = "soak: a hundred thousand requests"]
fn a_hundred_thousand_answers_are_each_of_the_right_cluster() {
    trial("a_hundred_thousand_answers_are_each_of_the_right_cluster", async |lab| {
        alternate(lab, 100_000).await
    });
}

async fn alternate(lab: &Lab, requests: usize) {
    let passthrough = free_port();
    let rig = lab.rig(&configuration(passthrough)).await;
    let edges = [
        ByAddressEdge::start_named(lab, &rig, CLUSTERS[0], &[NAMES[0]]).await,
        ByAddressEdge::start_named(lab, &rig, CLUSTERS[1], &[NAMES[1]]).await,
    ];
    for edge in &edges {
        edge.cluster.make_admins(&format!("token:{GROUP}")).await;
    }
    let by_token = may_dial("dials", ("token", &format!("token:{GROUP}")), &CLUSTERS);
    let entry_points = [("sni", &CLUSTERS[..]), ("office-1", &CLUSTERS[..1]), ("office-2", &CLUSTERS[1..])];
    let entry_points = entry_points.map(|(name, clusters)| {
        let entry_point = format!("entry-point:{name}");
        user_may_dial(name, (&entry_point, &entry_point), clusters)
    });
    rig.put_policy(&usual().into_iter().chain([by_token]).chain(entry_points).collect::<Vec<_>>()).await;
    let client_networks = [ClientNetwork::build(lab, 1).await, ClientNetwork::build(lab, 2).await];
    let callers = Arc::new(Callers::new(&rig, edges.each_ref(), client_networks, passthrough).await);

    let done = Arc::new(AtomicUsize::new(0));
    let mut asking = JoinSet::new();
    for entry_point in ENTRY_POINTS.into_iter().cycle().take(ENTRY_POINTS.len() * CALLERS_PER_ENTRY_POINT) {
        let (callers, done) = (Arc::clone(&callers), Arc::clone(&done));
        let count = requests / (ENTRY_POINTS.len() * CALLERS_PER_ENTRY_POINT);
        asking.spawn(async move { callers.ask_alternately(entry_point, count, &done).await });
    }
    let mut rebound = 0;
    let answered = async {
        while let Some(asked) = asking.join_next().await {
            asked.expect("each answer is the right one");
        }
    };
    let rebinding = async {
        loop {
            sleep(REBOUND_EVERY).await;
            edges[rebound % 2].site.link().rebind(None).await;
            rebound += 1;
        }
    };
    tokio::select! {
        () = answered => {}
        () = rebinding => {}
    }
    assert_eq!(done.load(Ordering::Relaxed), requests);
    assert!(rebound >= 2, "the sites' addresses changed {rebound} times");
}

/// The clients of all entry points, with their credentials for both clusters.
struct Callers {
    uids: [String; 2],
    gateway: (SocketAddr, Arc<ClientConfig>),
    /// The TLS configuration of each cluster's own administrator.
    edges: [Arc<ClientConfig>; 2],
    client_networks: [ClientNetwork; 2],
    passthrough: SocketAddr,
}

impl Callers {
    async fn new(
        rig: &Rig,
        edges: [&ByAddressEdge; 2],
        client_networks: [ClientNetwork; 2],
        passthrough: SocketAddr,
    ) -> Self {
        let own = |edge: &ByAddressEdge| {
            let admin = edge.cluster.issue_user("admin", &["system:masters"]);
            Arc::new(config(edge.cluster.ca_pem(), Some(&admin)).expect("valid"))
        };
        let uids = [uid(edges[0].cluster.admin()).await, uid(edges[1].cluster.admin()).await];
        assert_ne!(uids[0], uids[1]);
        let gateway = (rig.gateway(), Arc::new(config(&rig.server_ca(), None).expect("valid")));
        Self { uids, gateway, edges: edges.map(own), client_networks, passthrough }
    }

    /// Asks the one and the other.
    async fn ask_alternately(&self, entry_point: EntryPoint, count: usize, done: &AtomicUsize) {
        let mut connections = [None, None];
        for number in 0..count {
            let which = number % 2;
            if (number / 2).is_multiple_of(REQUESTS_PER_CONNECTION) {
                connections[which] = Some(self.connected(entry_point, which).await);
            }
            let connection = connections[which].as_mut().expect("it was made above");
            let asked = timeout(SOON, self.asked(entry_point, which, connection)).await.expect("an answer");
            let found = asked.unwrap_or_else(|error| panic!("{entry_point:?} {which}: {error}"));
            assert_eq!(found, self.uids[which], "by {entry_point:?}, of {}", CLUSTERS[which]);
            done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests the UID of the namespace kube-system.
    async fn asked(
        &self,
        entry_point: EntryPoint,
        which: usize,
        connection: &mut SendRequest<Empty<Bytes>>,
    ) -> Result<String, hyper::Error> {
        const PATH: &str = "/api/v1/namespaces/kube-system";
        let request = match entry_point {
            EntryPoint::Url => Request::get(format!("/clusters/{}{PATH}", CLUSTERS[which]))
                .header("host", GATEWAY)
                .header("authorization", format!("Bearer {TOKEN}")),
            EntryPoint::Connect | EntryPoint::ServerName | EntryPoint::Address => {
                Request::get(PATH).header("host", "192.168.1.10:6443")
            }
        };
        let answer = connection.send_request(request.body(Empty::new()).expect("a request")).await?;
        assert_eq!(answer.status(), StatusCode::OK, "{entry_point:?} {which}");
        let body = answer.into_body().collect().await?.to_bytes();
        let namespace: Value = serde_json::from_slice(&body).expect("JSON");
        Ok(namespace["metadata"]["uid"].as_str().expect("a uid").to_owned())
    }

    async fn connected(&self, entry_point: EntryPoint, which: usize) -> SendRequest<Empty<Bytes>> {
        let connected = timeout(SOON, self.try_connect(entry_point, which)).await.expect("a connection");
        connected.unwrap_or_else(|error| panic!("{entry_point:?} {which}: {error}"))
    }

    async fn try_connect(
        &self,
        entry_point: EntryPoint,
        which: usize,
    ) -> io::Result<SendRequest<Empty<Bytes>>> {
        let own = &self.edges[which];
        let (gateway, trusted) = &self.gateway;
        match entry_point {
            EntryPoint::Url => {
                spoken(secured(TcpStream::connect(gateway).await?, GATEWAY, trusted).await?).await
            }
            EntryPoint::Connect => {
                let stream = secured(TcpStream::connect(gateway).await?, GATEWAY, trusted).await?;
                let lines =
                    format!("Authorization: Bearer {TOKEN}\r\nTombolo-Cluster: {}\r\n", CLUSTERS[which]);
                let stream = through(stream, CONTROL_PLANE, &lines).await?;
                spoken(secured(stream, "192.168.1.10", own).await?).await
            }
            EntryPoint::ServerName => {
                spoken(secured(TcpStream::connect(self.passthrough).await?, NAMES[which], own).await?).await
            }
            EntryPoint::Address => {
                let stream = self.client_networks[which].connected(CONTROL_PLANE).await?;
                spoken(secured(stream, "192.168.1.10", own).await?).await
            }
        }
    }
}

/// Sends one request by HTTP/1.1 over a stream.
async fn spoken(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<SendRequest<Empty<Bytes>>> {
    let (requests, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(requests)
}

fn configuration(passthrough: SocketAddr) -> String {
    let server = |which: usize| {
        format!("{{ name: {}, cluster: {}, target: \"{CONTROL_PLANE}\" }}", NAMES[which], CLUSTERS[which])
    };
    let entry_point = |which: usize| {
        format!(
            "{{ name: office-{n}, sources: [10.8.{n}.0/24], addresses: [{{ listen: \"{CONTROL_PLANE}\", cluster: {} }}] }}",
            CLUSTERS[which],
            n = which + 1
        )
    };
    format!(
        "passthrough: {{ name: sni, listen: \"{passthrough}\", sources: [127.0.0.1/32], servers: [{}, {}] }}\nvip: {{ entryPoints: [{}, {}] \
         }}\n{LIMITS}",
        server(0),
        server(1),
        entry_point(0),
        entry_point(1)
    )
}
