//! `kubectl proxy`: a local listener without a credential, by path with `--append-server-path`, by host name
//! without.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::caller::SOON;
use tests::process::Process;
use tests::real_edge::RealEdge;
use tests::routes::{Route, TestRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{config_map, create};

const COLLECTION: &str = "/api/v1/namespaces/proxied/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_proxy_serves_the_cluster_by_every_entry_point() {
    let edge = RealEdge::shared().await;
    edge.namespace("proxied").await;
    create(&edge, COLLECTION, [config_map("m", "x")]).await;
    let direct = edge.routes[0].connect().await;
    let complete = direct.ask(&TestRequest::get(format!("{COLLECTION}/m"))).await;

    let [_, path, host] = &edge.routes;
    for (route, more) in [(path, vec!["--append-server-path"]), (host, vec![])] {
        let proxy = Proxy::start(&edge, route, &more).await;

        let (head, body) = proxy.ask("GET", &format!("{COLLECTION}/m"), "").await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{}: {head}", route.name);
        assert!(body == complete.body, "{}", route.name);

        let name = route.name.replace(' ', "-");
        let (head, _) = proxy.ask("POST", COLLECTION, &config_map(&name, "y").to_string()).await;
        assert!(head.starts_with("HTTP/1.1 201 "), "{}: {head}", route.name);
        let (head, _) = proxy.ask("DELETE", &format!("{COLLECTION}/{name}"), "").await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{}: {head}", route.name);

        let kubectl = route.kubectl.clone().with_home(edge.rig.path().join(format!("proxied {name}")));
        let server = format!("--server=http://{}", proxy.address);
        let names = kubectl.stdout(&[&server, "get", "configmaps", "-n", "proxied", "-o", "name"]).await;
        assert_eq!(names, "configmap/m\n", "{}", route.name);

        proxy.watches(&edge, route, &complete.body).await;
    }
}

/// Without `--append-server-path` kubectl drops the path of its server, and the gateway explains the paths of
/// clusters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_proxy_by_path_without_the_path_gets_an_explanation() {
    let edge = RealEdge::shared().await;
    let proxy = Proxy::start(&edge, &edge.routes[1], &[]).await;

    let (head, body) = proxy.ask("GET", "/api/v1/namespaces/default", "").await;

    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert!(status["message"].as_str().unwrap().contains("/clusters/"), "{status}");
}

/// A `kubectl proxy` that runs.
struct Proxy {
    address: SocketAddr,
    _process: Process,
}

impl Proxy {
    async fn start(edge: &RealEdge, route: &Route, more: &[&str]) -> Self {
        let output = edge.rig.path().join(format!("proxy {} {}", route.name, more.len()));
        let words = [&["proxy", "--port=0"], more].concat();
        let process = route.kubectl.start(&words, &output).await.unwrap();
        let deadline = Instant::now() + SOON;
        loop {
            let text = std::fs::read_to_string(&output).unwrap_or_default();
            let message =
                text.split_once("Starting to serve on ").and_then(|(_, address)| address.strip_suffix('\n'));
            if let Some(address) = message {
                return Self { address: address.parse().unwrap(), _process: process };
            }
            assert!(Instant::now() < deadline, "kubectl proxy: {text}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The head and the body of an answer that has a length.
    async fn ask(&self, method: &str, path: &str, body: &str) -> (String, Vec<u8>) {
        let mut stream = self.send(method, path, body).await;
        let mut bytes = Vec::new();
        timeout(SOON, stream.read_to_end(&mut bytes)).await.expect("an answer in time").unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let rest = bytes.split_off(end + 4);
        (String::from_utf8(bytes).unwrap(), rest)
    }

    /// An event comes while the watch goes on.
    async fn watches(&self, edge: &RealEdge, route: &Route, before: &[u8]) {
        let before: Value = serde_json::from_slice(before).unwrap();
        let version = before["metadata"]["resourceVersion"].as_str().unwrap();
        let mut stream =
            self.send("GET", &format!("{COLLECTION}?watch=1&resourceVersion={version}"), "").await;
        let name = format!("seen-{}", route.name.replace(' ', "-"));
        create(edge, COLLECTION, [json!({ "metadata": { "name": name } })]).await;
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes).contains(&name) {
            let read = timeout(SOON, stream.read_buf(&mut bytes)).await.expect("an event in time").unwrap();
            assert!(read > 0, "{}: the watch ended", route.name);
        }
        edge.routes[0].kubectl.stdout(&["delete", "configmap", &name, "-n", "proxied"]).await;
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }
}
