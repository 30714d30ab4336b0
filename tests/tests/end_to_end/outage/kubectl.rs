//! The same with kubectl: a short drop goes unnoticed, a dark cluster's error comes soon, and writes are sent
//! once.

use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use tests::fake_api::{Answer, Behaviour, FakeApi};
use tests::kube::assets::Assets;
use tests::kube::kubectl::Kubectl;
use tests::rig::{ApiServer, GROUP};

use super::{OutageTrial, SOON};

const API: &str = r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#;
const APIS: &str = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#;
const RESOURCES: &str = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[
    {"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap",
     "verbs":["create","delete","get","list","patch","update","watch"]}]}"#;
const OBJECT: &str = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","namespace":"default",
    "uid":"1","resourceVersion":"7"},"data":{"a":"1"}}"#;
const MANIFEST: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: c, namespace: default }\ndata: { a: \"2\" }\n";

const CREATE: &[&str] = &["create", "--validate=false", "-f"];
const APPLY: &[&str] = &["apply", "--validate=false", "-f"];
const PATCH: &[&str] = &["patch", "configmap", "c", "--patch", "{\"data\":{\"a\":\"3\"}}"];
const GET: &[&str] = &["get", "configmaps", "c"];

/// Each write arrives once at the API server.
#[tokio::test]
async fn an_outage_below_the_limit_goes_unnoticed() {
    let trial = KubectlTrial::start("").await;
    for (words, method) in [(GET, "GET"), (CREATE, "POST"), (APPLY, "PATCH"), (PATCH, "PATCH")] {
        trial.trial.dark().await;
        let asked = trial.trial.api.requests().len();

        let (output, ()) = tokio::join!(trial.run(words), async {
            // Discovery waits as well, where it is not cached.
            trial.trial.rig.measured("tombolo_server_requests_parked", |now| now >= 1.0).await;
            trial.trial.bright();
        });

        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {stderr}");
        assert!(trial.seen(asked, method) >= 1, "{words:?}");
        assert_eq!(trial.writes(asked), usize::from(method != "GET"), "{words:?}");
    }
}

/// No write has reached the cluster.
#[tokio::test]
async fn an_unreachable_clusters_error_comes_once_the_limit_has_passed() {
    dark_errors("parking: { limitSeconds: 5 }", Duration::from_secs(5)).await;
}

#[tokio::test]
#[ignore = "soak: five commands wait for 15 s each"]
async fn under_the_default_limit_the_error_comes_once_it_has_passed() {
    dark_errors("", Duration::from_secs(15)).await;
}

/// Five commands towards a dark cluster, each of which fails once `limit` has passed.
async fn dark_errors(more: &str, limit: Duration) {
    let trial = KubectlTrial::start(more).await;
    // What the cluster knows is cached by kubectl, so that writes get as far as they can.
    assert!(trial.run(GET).await.status.success());
    trial.trial.dark().await;
    let asked = trial.trial.api.requests().len();

    let uncached = trial.kubectl.clone().with_home(trial.trial.rig.path().join("another-home"));
    for (kubectl, words) in [
        (&uncached, GET),
        (&trial.kubectl, GET),
        (&trial.kubectl, CREATE),
        (&trial.kubectl, APPLY),
        (&trial.kubectl, PATCH),
    ] {
        let (began, gave_up) = (Instant::now(), trial.trial.ended("gave_up").await);
        let output = trial.run_with(kubectl, words).await;

        let (took, waited) = (began.elapsed(), trial.trial.ended("gave_up").await - gave_up);
        let stderr = String::from_utf8_lossy(&output.stderr);
        println!(
            "{words:?}: {waited} waits, an error after {took:?}, promised within {:?}",
            limit + Duration::from_secs(5)
        );
        assert!(!output.status.success());
        // While it discovers, kubectl shows no message of a server's but its own for the status.
        let is_explained = stderr.contains("cluster edge-a is not connected and was last heard of at 20");
        let discovers = stderr.contains("the server is currently unable to handle the request");
        assert!(is_explained || (discovers && words == GET), "{words:?}: {stderr}");
        // kubectl discovers two things at once, five times: its user waits once.
        assert!(took < 2 * limit, "{words:?} waited more than once: {took:?}");
    }
    assert_eq!(trial.trial.api.requests().len(), asked, "nothing is sent into the dark");
    let sent = trial.trial.ended("turned_away").await;
    assert_eq!(sent, 0.0, "kubectl repeated nothing");
}

#[tokio::test]
async fn a_write_whose_tunnel_is_lost_is_not_resent() {
    let mut trial = KubectlTrial::start("").await;
    assert!(trial.run(GET).await.status.success());
    let asked = trial.trial.api.requests().len();

    trial.trial.api.on("/api/v1/namespaces/default/configmaps", Behaviour::NeverAnswer);
    let kubectl = trial.kubectl.clone();
    let manifest = trial.manifest.clone();
    let create = async move {
        let words = [CREATE, &[manifest.to_str().expect("a path")]].concat();
        kubectl.limit(3 * SOON).run(&words).await.expect("kubectl runs")
    };
    let (output, again) = tokio::join!(create, async {
        let is_post = |one: &tests::fake_api::RecordedRequest| one.method == "POST";
        trial.trial.api.wait_for_request(SOON, is_post).await.expect("the write arrives");
        trial.trial.agent.process.kill();
        trial
            .trial
            .rig
            .agent_with("edge-a", &ApiServer::of_fake(&trial.trial.rig, &trial.trial.api), "")
            .await
    });

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("outcome of this request is not known"), "{stderr}");
    assert_eq!(trial.seen(asked, "POST"), 1);
    trial.trial.agent = again;
}

/// A trial whose API server has ConfigMaps, and a kubectl.
struct KubectlTrial {
    trial: OutageTrial,
    kubectl: Kubectl,
    manifest: PathBuf,
}

impl KubectlTrial {
    async fn start(more: &str) -> Self {
        let trial = OutageTrial::start(more).await;
        knows_config_maps(&trial.api);
        let kubeconfig = trial.rig.kubeconfig("alice", &[GROUP], "edge-a").await;
        let kubectl = Kubectl::new(Assets::find().expect("kubectl").kubectl, kubeconfig).limit(SOON);
        let manifest = trial.rig.write("config-map.yaml", MANIFEST);
        Self { trial, kubectl, manifest }
    }

    async fn run(&self, words: &[&str]) -> Output {
        self.run_with(&self.kubectl, words).await
    }

    /// Runs kubectl, with the manifest behind words that ask for one.
    async fn run_with(&self, kubectl: &Kubectl, words: &[&str]) -> Output {
        let manifest = [self.manifest.to_str().expect("a path")];
        let more: &[&str] = if words.ends_with(&["-f"]) { &manifest } else { &[] };
        kubectl.run(&[words, more].concat()).await.expect("kubectl runs")
    }

    /// Requests of a method that have come for config maps since there were `before`.
    fn seen(&self, before: usize, method: &str) -> usize {
        let new = self.trial.api.requests().split_off(before);
        new.iter().filter(|one| one.method == method && one.target.contains("/configmaps")).count()
    }

    fn writes(&self, before: usize) -> usize {
        let new = self.trial.api.requests().split_off(before);
        new.iter().filter(|one| !matches!(one.method.as_str(), "GET" | "HEAD")).count()
    }
}

fn knows_config_maps(api: &FakeApi) {
    api.on("/api", Behaviour::json(API));
    api.on("/apis", Behaviour::json(APIS));
    api.on("/api/v1", Behaviour::json(RESOURCES));
    api.on("/api/v1/namespaces/default/configmaps", Behaviour::Answer(Answer::json(201, OBJECT)));
    api.on("/api/v1/namespaces/default/configmaps/c", Behaviour::json(OBJECT));
}
