//! The same with a real API server, in each of the encodings, while agents are killed and objects are
//! written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use h2::RecvStream;
use serde_json::{Value, json};
use tests::caller::{GATEWAY, Http2Caller};
use tests::kube::account::AgentAccount;
use tests::kube::{ClusterOptions, EdgeCluster};
use tests::pki::Issued;
use tests::process::Process;
use tests::rig::{Agent, ApiServer, GROUP, Rig};
use tests::{cbor, protobuf};
use tokio::time::{sleep, timeout};

use super::SOON;

const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// The number of times that the agent is killed.
const KILLS: usize = 3;

/// Pause between two looks at what kubectl has written.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// The agents are killed and restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_every_encoding_match_etcd_while_agents_are_killed() {
    let mut site = RealSite::start().await;
    site.write(0).await;
    let mut kubectl = site.kubectl().await;
    let version = site.version().await;
    let streamed =
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".to_owned();
    let mut watches = vec![
        site.watch(Encoding::Json, format!("resourceVersion={version}")).await,
        site.watch(Encoding::Json, streamed.clone()).await,
        site.watch(Encoding::Protobuf, format!("resourceVersion={version}")).await,
        site.watch(Encoding::Protobuf, streamed).await,
        site.watch(Encoding::Cbor, format!("resourceVersion={version}&allowWatchBookmarks=true")).await,
    ];
    kubectl.until("o-0-kept").await;

    for round in 1..=KILLS {
        site.write(2 * round - 1).await;
        for watch in &mut watches {
            watch.until(&format!("o-{}-kept", 2 * round - 1)).await;
        }
        kubectl.until(&format!("o-{}-kept", 2 * round - 1)).await;
        site.agent.process.kill();
        site.write(2 * round).await;
        site.restart_agent().await;
        for watch in &mut watches {
            watch.until(&format!("o-{}-kept", 2 * round)).await;
        }
    }
    let last = format!("o-{}-kept", 2 * KILLS);
    kubectl.until(&last).await;

    let held = site.objects().await;
    for watch in watches {
        let what = format!("{:?} {}", watch.encoding, watch.query);
        assert_eq!(watch.view(version), held, "{what}");
    }
    assert_eq!(kubectl.view(), held.into_iter().map(|(name, (_, keys))| (name, keys)).collect());
    let resumed = site.rig.metric(site.rig.probes(), "tombolo_server_watches_resumed_total").await;
    assert_eq!(resumed, (6 * KILLS) as f64);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Json,
    Protobuf,
    Cbor,
}

/// By name, the version of an object and how many keys its data have.
type View = BTreeMap<String, (u64, usize)>;

struct RealSite {
    cluster: EdgeCluster,
    account: AgentAccount,
    admin: Issued,
    rig: Rig,
    caller: Issued,
    agent: Agent,
    kubeconfig: PathBuf,
}

impl RealSite {
    async fn start() -> Self {
        let place =
            ClusterOptions { feature_gates: &["CBORServingAndStorage=true"], ..ClusterOptions::default() };
        let cluster = EdgeCluster::start_at(place).await.expect("a cluster starts");
        let account = cluster.create_agent_account().await.expect("an account for the agent");
        let admin = cluster.issue_user("admin", &["system:masters"]);
        let rig = Rig::start().await;
        cluster.make_admins(GROUP).await;
        let agent = rig.agent("edge-a", &ApiServer::of(&cluster, &account)).await;
        let caller = rig.caller("alice", &[GROUP]).await;
        let kubeconfig = rig.kubeconfig("alice", &[GROUP], "edge-a").await;
        Self { cluster, account, admin, rig, caller, agent, kubeconfig }
    }

    async fn restart_agent(&mut self) {
        self.agent = self.rig.agent_with("edge-a", &ApiServer::of(&self.cluster, &self.account), "").await;
    }

    /// Creates two objects, changes both, deletes one, and creates the one whose name marks the end.
    async fn write(&self, round: usize) {
        for (method, name, keys) in [
            ("POST", "gone", 1),
            ("POST", "changed", 1),
            ("PUT", "changed", 2),
            ("PUT", "gone", 2),
            ("PUT", "changed", 3),
            ("DELETE", "gone", 0),
            ("POST", "kept", 1),
        ] {
            let name = format!("o-{round}-{name}");
            let path = if method == "POST" { PATH.to_owned() } else { format!("{PATH}/{name}") };
            let data: BTreeMap<_, _> = (0..keys).map(|key| (format!("k{key}"), "{\"}")).collect();
            let object =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            let body = if method == "DELETE" { String::new() } else { object.to_string() };
            self.ask(&format!(
                "{method} {path} HTTP/1.1\r\nHost: api\r\nConnection: close\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        }
    }

    /// Asks the API server itself.
    async fn ask(&self, request: &str) -> Value {
        let (address, ca) = (self.cluster.address(), self.cluster.ca_pem());
        let reply = tests::rig::ask_raw(address, ca, Some(&self.admin), request.as_bytes()).await;
        let reply = reply.expect("the API server answers");
        assert!((200..300).contains(&reply.status), "{request}: {}", reply.body);
        serde_json::from_str(&reply.body).unwrap_or_default()
    }

    async fn list(&self) -> Value {
        // HTTP/1.0 has no chunks.
        self.ask(&format!("GET {PATH} HTTP/1.0\r\nHost: api\r\n\r\n")).await
    }

    async fn version(&self) -> u64 {
        version(&self.list().await)
    }

    /// The objects that exist now.
    async fn objects(&self) -> View {
        let list = self.list().await;
        let items = list["items"].as_array().expect("a list").iter();
        items.filter_map(|item| Some((ours(item)?, (version(item), keys(item))))).collect()
    }

    /// A watch from `version`, or from a list that is streamed.
    async fn watch(&self, encoding: Encoding, query: String) -> RealWatch {
        let mut caller = Http2Caller::dial_name(&self.rig, GATEWAY, Some(&self.caller)).await;
        let accept = match encoding {
            Encoding::Json => "application/json",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            Encoding::Cbor => "application/cbor",
        };
        let target = format!("/clusters/edge-a{PATH}?watch=1&{query}");
        let (answer, _) = caller.send("GET", &target, &[("accept", accept)], true);
        let answer = timeout(SOON, answer).await.expect("a head in time").expect("a head");
        let content_type = answer.headers()["content-type"].to_str().expect("text");
        assert!(answer.status() == 200 && content_type.starts_with(accept), "{content_type}");
        let before = if query.starts_with("resourceVersion") { self.objects().await } else { View::new() };
        RealWatch { encoding, query, body: answer.into_body(), got: Vec::new(), before, _caller: caller }
    }

    /// A kubectl that watches the objects as Tables.
    async fn kubectl(&self) -> Kubectl {
        let output = self.rig.path().join("kubectl.out");
        let words = ["get", "configmaps", "-n", "default", "--watch", "--output-watch-events"];
        let kubectl = self.cluster.kubectl_with(&self.kubeconfig);
        let process = kubectl.start(&words, &output).await.expect("kubectl starts");
        Kubectl { process, output }
    }
}

struct RealWatch {
    encoding: Encoding,
    query: String,
    body: RecvStream,
    got: Vec<u8>,
    /// The objects at the watch's begin.
    before: View,
    _caller: Http2Caller,
}

impl RealWatch {
    /// Reads until the name of an object has come, which is written alike in all encodings.
    async fn until(&mut self, name: &str) {
        while !self.got.windows(name.len()).any(|window| window == name.as_bytes()) {
            let more = timeout(SOON, self.body.data()).await;
            let more = more.unwrap_or_else(|_| panic!("{:?} never saw {name}", self.encoding));
            let more = more.expect("the watch goes on").expect("the watch is whole");
            let _ = self.body.flow_control().release_capacity(more.len());
            self.got.extend_from_slice(&more);
        }
    }

    /// The view of a reflector, which must find neither a gap nor a duplicate.
    fn view(&self, version: u64) -> View {
        let events = match self.encoding {
            Encoding::Json => {
                let lines = self.got.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                lines.map(|line| serde_json::from_slice(line).expect("a whole event")).collect()
            }
            Encoding::Protobuf => protobuf::watch_events(&self.got),
            Encoding::Cbor => cbor::decode(&self.got),
        };
        let (mut view, mut last) = (self.before.clone(), version);
        let mut is_initial = self.query.contains("sendInitialEvents");
        for event in events {
            let object = &event["object"];
            let kind = event["type"].as_str().expect("a type");
            if kind == "BOOKMARK" {
                assert!(self.query.contains("allowWatchBookmarks"), "a bookmark that nobody asked for");
                is_initial &= object["metadata"]["annotations"]["k8s.io/initial-events-end"] != "true";
                last = last.max(self::version(object));
                continue;
            }
            let Some(name) = ours(object) else { continue };
            let now = (self::version(object), keys(object));
            assert!(is_initial || now.0 > last, "{kind} {name} at {} behind {last}", now.0);
            last = last.max(now.0);
            let was = if kind == "DELETED" { view.remove(&name) } else { view.insert(name.clone(), now) };
            assert_eq!(was.is_some(), kind != "ADDED", "{kind} {name}: a gap or a duplicate");
        }
        view
    }
}

struct Kubectl {
    process: Process,
    output: PathBuf,
}

impl Kubectl {
    async fn until(&mut self, name: &str) {
        let deadline = Instant::now() + SOON;
        while !self.written().contains(name) {
            assert!(self.process.ended().is_none(), "kubectl ended: {}", self.written());
            assert!(Instant::now() < deadline, "kubectl never saw {name}: {}", self.written());
            sleep(LOOK_EVERY).await;
        }
    }

    /// By name, how many keys its data have. Each change adds one, so that a change too few or too many is
    /// seen.
    fn view(&self) -> BTreeMap<String, usize> {
        let mut view = BTreeMap::new();
        for line in self.written().lines().filter(|line| line.contains(" o-")) {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let [kind, name, keys, ..] = columns.as_slice() else { panic!("{line:?}") };
            let keys: usize = keys.parse().expect("a number");
            let was = match *kind {
                "DELETED" => view.remove(*name),
                _ => view.insert((*name).to_owned(), keys),
            };
            let expected = match *kind {
                "ADDED" => was.is_none(),
                "MODIFIED" => was == Some(keys - 1),
                _ => was == Some(keys),
            };
            assert!(expected, "{line:?}: a gap or a duplicate behind {was:?} in\n{}", self.written());
        }
        view
    }

    fn written(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }
}

/// An object's name, if a trial wrote it.
fn ours(object: &Value) -> Option<String> {
    object["metadata"]["name"].as_str().filter(|name| name.starts_with("o-")).map(str::to_owned)
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a version")
}

fn keys(object: &Value) -> usize {
    object["data"].as_object().map_or(0, serde_json::Map::len)
}
