//! `kubectl exec` across outages: over WebSocket while kubectl waits for a pong, over SPDY while the tunnel
//! is kept.

use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tests::caller::SOON;
use tests::fake_api::{Behaviour, FakeApi, FakeApiOptions};
use tests::kube::assets::Assets;
use tests::kube::kubectl::Kubectl;
use tests::lab::{Lab, Site, Uplink, trial};
use tests::process::Process;
use tests::rig::{Agent, GROUP, Rig};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::time::sleep;

const API: &str = r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#;
const APIS: &str = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#;
const RESOURCES: &str = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[
    {"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get"]}]}"#;
const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"default"},
    "spec":{"containers":[{"name":"c","image":"c"}]},"status":{"phase":"Running"}}"#;
const PODS: &str = "/api/v1/namespaces/default/pods/p";

/// The variable that makes kubectl use SPDY.
const NO_WEBSOCKETS: (&str, &str) = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
/// kubectl pings every 5 s and gives up 61 s after the last pong: here it surely lives on, and here it surely
/// does not.
const TOLERATED: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(50)];
const NOT_TOLERATED: Duration = Duration::from_secs(75);

const LOOK_EVERY: Duration = Duration::from_millis(20);

#[test]
fn typing_continues_after_a_short_outage_over_websocket_and_spdy() {
    trial("typing_continues_after_a_short_outage_over_websocket_and_spdy", async |lab| {
        let rig = lab.rig("").await;
        let mut edge = ExecEdge::start(lab, &rig, "edge-a").await;
        edge.dark_for(Duration::from_secs(4)).await;
        edge.ends_well().await;
    });
}

/// Over WebSocket it survives what kubectl survives and reports an error beyond; over SPDY it survives
/// everything.
#[test]
#[ignore = "soak: kubectl gives up after a minute"]
fn an_exec_survives_as_long_an_outage_as_its_protocol_allows() {
    trial("an_exec_survives_as_long_an_outage_as_its_protocol_allows", async |lab| {
        let rig = lab.rig("").await;
        let names = ["edge-a", "edge-b"];
        let tolerated = names.into_iter().zip(TOLERATED).map(async |(name, length)| {
            let mut edge = ExecEdge::start(lab, &rig, name).await;
            edge.dark_for(length).await;
            edge.ends_well().await;
        });
        let not_tolerated = async {
            let mut edge = ExecEdge::start(lab, &rig, "edge-c").await;
            let down = edge.dark_but(NOT_TOLERATED, async |edge, down| {
                let (status, message) = edge.websocket.ended().await;
                let after = down.elapsed();
                println!("over WebSocket, {after:.1?} after the link went dark, {status}: {message:?}");
                assert!(after < NOT_TOLERATED, "it did not end by itself");
                assert_eq!(status.code(), Some(1));
                // The echo so far is unchanged, and then kubectl gives the reason for its end.
                let errors = message.strip_prefix(&edge.websocket.echoed).expect("what was echoed");
                let error = errors.lines().last().unwrap_or_default();
                assert!(error.starts_with("error: ") && error.ends_with("i/o timeout"), "{errors}");
            });
            down.await;
            edge.spdy.comes_back().await;
            edge.spdy.ends_well().await;
        };
        tokio::join!(join_all(tolerated), not_tolerated);
    });
}

/// A site with a pod, and two people in it.
struct ExecEdge {
    site: Site,
    _agent: Agent,
    _api: FakeApi,
    websocket: Exec,
    spdy: Exec,
}

/// A `kubectl exec -i p -- cat` that runs.
struct Exec {
    process: Process,
    stdin: ChildStdin,
    typed: String,
    echoed: String,
}

impl ExecEdge {
    async fn start(lab: &Lab, rig: &Rig, name: &str) -> Self {
        let site = lab.site(name, Uplink::simulated("delay=20ms")).await;
        let api = site.fake_api(FakeApiOptions::default()).await;
        for (path, body) in [("/api", API), ("/apis", APIS), ("/api/v1", RESOURCES), (PODS, POD)] {
            api.on(path, Behaviour::json(body));
        }
        api.on(&format!("{PODS}/exec"), Behaviour::Exec);
        let agent = site.agent(rig, &api, "").await;
        let kubeconfig = rig.kubeconfig(&format!("user-of-{name}"), &[GROUP], name).await;
        let kubectl = Kubectl::new(Assets::find().expect("kubectl").kubectl, kubeconfig)
            .in_network_namespace(Some(lab.cloud().path().to_owned()));
        let output = |how: &str| rig.path().join(format!("{name}-{how}.out"));
        let websocket = Exec::start(&kubectl, &output("websocket")).await;
        let spdy = kubectl.with_variable(NO_WEBSOCKETS.0, NO_WEBSOCKETS.1);
        let spdy = Exec::start(&spdy, &output("spdy")).await;
        // The two do speak what they are said to.
        let asked = |protocol: &str| {
            let is_exec = |one: &&tests::fake_api::RecordedRequest| one.target.contains("/exec?");
            let all = api.requests();
            all.iter().filter(is_exec).filter(|one| one.header("upgrade") == [protocol]).count()
        };
        assert_eq!((asked("websocket"), asked("SPDY/3.1")), (1, 1));
        Self { site, _agent: agent, _api: api, websocket, spdy }
    }

    /// An outage of this length that both survive.
    async fn dark_for(&mut self, length: Duration) {
        self.dark_but(length, async |_, _| {}).await;
        self.websocket.comes_back().await;
        self.spdy.comes_back().await;
    }

    /// An outage of this length in which something happens.
    async fn dark_but(&mut self, length: Duration, happens: impl AsyncFnOnce(&mut Self, Instant)) {
        let down = self.site.link().down().await;
        self.websocket.types("in the dark\n").await;
        self.spdy.types("in the dark\n").await;
        happens(self, down).await;
        tokio::time::sleep_until((down + length).into()).await;
        for exec in [&self.websocket, &self.spdy] {
            assert!(!exec.output().contains("dark"), "the link was not dark: {}", exec.output());
        }
        self.site.link().up().await;
    }

    async fn ends_well(self) {
        self.websocket.ends_well().await;
        self.spdy.ends_well().await;
    }
}

impl Exec {
    async fn start(kubectl: &Kubectl, output: &Path) -> Self {
        let words = ["exec", "-i", "p", "-c", "c", "--", "cat"];
        let (process, stdin) = kubectl.start_listening(&words, output).await.expect("kubectl starts");
        let mut exec = Self { process, stdin, typed: String::new(), echoed: String::new() };
        exec.types("before\n").await;
        exec.comes_back().await;
        exec
    }

    async fn types(&mut self, text: &str) {
        self.stdin.write_all(text.as_bytes()).await.expect("kubectl reads");
        self.typed.push_str(text);
    }

    /// Everything that was typed has come back, once and in order.
    async fn comes_back(&mut self) {
        let deadline = Instant::now() + SOON;
        while self.output().len() < self.typed.len() {
            assert!(Instant::now() < deadline, "it said only {:?}", self.output());
            sleep(LOOK_EVERY).await;
        }
        assert_eq!(self.output(), self.typed);
        self.echoed.clone_from(&self.typed);
    }

    /// It goes on unnoticed, and kubectl ends with the command's own exit code.
    async fn ends_well(mut self) {
        self.types("after\n").await;
        self.comes_back().await;
        drop(self.stdin);
        let status = self.process.wait(SOON).await.expect("kubectl ends");
        assert!(status.success(), "{status}: {}", self.process.tail());
    }

    /// Waits for its end, and returns its status and its output.
    async fn ended(&mut self) -> (ExitStatus, String) {
        let status = self.process.wait(2 * NOT_TOLERATED).await.expect("kubectl ends");
        (status, self.output())
    }

    /// All that kubectl has written, to stdout and to stderr.
    fn output(&self) -> String {
        fs::read_to_string(self.process.output()).expect("a file that kubectl writes")
    }
}
