//! The fleet-controller publishes a ClusterProfile for each cluster of the gateway, and a program that is not ours finds and reaches clusters by them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::binaries::binary;
use tests::kube::EdgeCluster;
use tests::kube::assets::cluster_profiles;
use tests::kube::kubeconfig::Credential;
use tests::kube::kubectl::Kubectl;
use tests::lb_cluster::command::Ended;
use tests::lb_cluster::until;
use tests::process::{Invocation, Process};
use tests::rig::{Agent, ApiServer, GROUP, Rig, free_port, plain};
use tests::skip::skip;
use tests::sources::workspace;

/// The clusters of the gateway. Somebody else has a profile with the name of the last one.
const LIVE: &str = "oslo";
const LEAVING: &str = "bergen";
const TAKEN: &str = "narvik";

/// The limit for one command, and for a change to be published.
const COMMAND_MAX: Duration = Duration::from_secs(60);

/// Rounds in which nothing may be written.
const QUIET_ROUNDS: usize = 3;

/// The counter of all writes, by its kinds.
const WRITES: [&str; 3] = ["apply", "status", "delete"];

/// The gateway with its clusters, and the host cluster.
struct Trial {
    rig: Rig,
    edge: EdgeCluster,
    api: ApiServer,
    host: EdgeCluster,
    admin: Kubectl,
    /// The kubeconfig of the controller's ServiceAccount.
    kubeconfig: PathBuf,
}

/// A controller that runs, with its probes.
struct Controller {
    process: Process,
    probes: SocketAddr,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_cluster_has_a_profile_by_which_others_reach_it() {
    const NAME: &str = "each_cluster_has_a_profile_by_which_others_reach_it";
    let (consumer, definition) = match cluster_profiles() {
        Ok(found) => found,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    let trial = Trial::start().await;
    let agents = [trial.agent(LIVE).await, trial.agent(LEAVING).await];
    trial.cluster(&["label", LIVE, "region=north"]).await;
    let first = trial.controller("first").await;

    a_missing_definition_is_named(&trial, &first, &definition.display().to_string()).await;
    profiles_say_what_the_gateway_says(&trial).await;
    trial.a_program_lists_namespaces(consumer).await;
    nothing_is_written_in_quiet_rounds(&trial, &first).await;
    what_is_not_ours_stays(&trial, &first).await;
    changes_are_published(&trial, agents).await;
    another_controller_goes_on(&trial, first).await;
}

/// The definition is installed after the controller, which says what it lacks until then.
async fn a_missing_definition_is_named(trial: &Trial, first: &Controller, definition: &str) {
    until("the controller says what it lacks", COMMAND_MAX, async || {
        let answer = plain(first.probes, "/readyz").await.ok()?;
        answer.contains("install the CustomResourceDefinition").then_some(())
    })
    .await;
    trial.admin.stdout(&["apply", "--server-side", "-f", definition]).await;
    let wait = ["wait", "--for=condition=Established", "crd/clusterprofiles.multicluster.x-k8s.io"];
    trial.admin.stdout(&wait).await;
    trial.rig.ready(first.probes).await;
}

async fn profiles_say_what_the_gateway_says(trial: &Trial) {
    until("both clusters are published", COMMAND_MAX, async || {
        let (live, leaving) = (trial.profile(LIVE).await?, trial.profile(LEAVING).await?);
        (condition(&live) == "True" && condition(&leaving) == "True").then_some(())
    })
    .await;
    let live = trial.profile(LIVE).await.expect("a profile");
    assert_eq!(
        live["metadata"]["labels"],
        json!({ "region": "north", "x-k8s.io/cluster-manager": "tombolo" })
    );
    assert_eq!(live["spec"]["clusterManager"]["name"], "tombolo");
    let provider = &live["status"]["accessProviders"][0];
    assert_eq!(provider["name"], "tombolo");
    let server = format!("https://{}/clusters/{LIVE}", trial.rig.gateway());
    assert_eq!(provider["cluster"]["server"], server.as_str());
    let version = trial.edge.admin().stdout(&["version", "--output=json"]).await;
    let version: Value = serde_json::from_str(&version).expect("JSON");
    assert_eq!(live["status"]["version"]["kubernetes"], version["serverVersion"]["gitVersion"]);
}

async fn nothing_is_written_in_quiet_rounds(trial: &Trial, first: &Controller) {
    let before = trial.writes(first).await;
    assert!(before > 0.0);
    for _ in 0..QUIET_ROUNDS {
        trial.a_round_passes(first).await;
    }
    assert_eq!(trial.writes(first).await, before);
}

/// A profile of another manager stays, and so does what others write into ours.
async fn what_is_not_ours_stays(trial: &Trial, first: &Controller) {
    trial.somebody_else_has(TAKEN).await;
    let _agent = trial.agent(TAKEN).await;
    trial.a_round_passes(first).await;
    trial.a_round_passes(first).await;
    let foreign = trial.profile(TAKEN).await.expect("the profile of somebody else");
    assert_eq!(
        (&foreign["spec"]["clusterManager"]["name"], &foreign["status"]),
        (&json!("other"), &Value::Null)
    );
    assert_eq!(trial.rig.metric(first.probes, "tombolo_fleet_foreign_cluster_profiles").await, 1.0);
    trial.admin.stdout(&["label", "clusterprofile", LIVE, "team=shop"]).await;

    trial.cluster(&["label", LIVE, "region=south"]).await;

    until("the other label is published", COMMAND_MAX, async || {
        (trial.profile(LIVE).await?["metadata"]["labels"]["region"] == "south").then_some(())
    })
    .await;
    let labels = &trial.profile(LIVE).await.expect("a profile")["metadata"]["labels"];
    assert_eq!(labels["team"], "shop", "{labels}");
}

/// A cluster that goes dark is unknown and not unhealthy, and one that is deleted has no profile any more.
async fn changes_are_published(trial: &Trial, agents: [Agent; 2]) {
    let [_live, mut leaving] = agents;
    let before = trial.profile(LIVE).await.expect("a profile");
    Rig::ends_with(&mut leaving.process, Signal::TERM).await;
    until("the dark cluster is unknown", COMMAND_MAX, async || {
        (condition(&trial.profile(LEAVING).await?) == "Unknown").then_some(())
    })
    .await;
    assert_eq!(trial.profile(LIVE).await.expect("a profile"), before, "the other profile was written");

    trial.cluster(&["delete", LEAVING, "--yes"]).await;

    until("the profile is gone", COMMAND_MAX, async || trial.profile(LEAVING).await.is_none().then_some(()))
        .await;
    assert!(trial.profile(TAKEN).await.is_some());
}

/// Of two controllers one is active, and the other one goes on after its end.
async fn another_controller_goes_on(trial: &Trial, mut first: Controller) {
    const LEADER: &str = "tombolo_fleet_leader";
    let second = trial.controller("second").await;
    trial.rig.ready(second.probes).await;
    trial.a_round_passes(&first).await;
    let leaders = async |of: &Controller| trial.rig.metric(of.probes, LEADER).await;
    assert_eq!((leaders(&first).await, leaders(&second).await), (1.0, 0.0));

    assert_eq!(Rig::ends_with(&mut first.process, Signal::TERM).await, Some(0));

    until("the second controller is active", COMMAND_MAX, async || {
        (leaders(&second).await == 1.0).then_some(())
    })
    .await;
    trial.a_round_passes(&second).await;
    assert_eq!(trial.writes(&second).await, 0.0, "nothing has changed");
}

impl Trial {
    async fn start() -> Self {
        let rig = Rig::start().await;
        let (edge, host) = tokio::join!(EdgeCluster::start(), EdgeCluster::start());
        let (edge, host) = (edge.expect("a cluster starts"), host.expect("a cluster starts"));
        edge.make_admins(GROUP).await;
        let account = edge.create_agent_account().await.expect("an account for the agent");
        let api = ApiServer::of(&edge, &account);
        let admin = host.admin().limit(COMMAND_MAX);
        let manifests = workspace().join("deploy/fleet-controller").display().to_string();
        admin.stdout(&["apply", "--validate=strict", "--kustomize", &manifests]).await;
        let token = admin.stdout(&["create", "token", "fleet-controller"]).await;
        let kubeconfig =
            host.write_kubeconfig("fleet-controller.conf", Credential::Token(token.trim().to_owned()));
        let kubeconfig = kubeconfig.expect("a file");
        Self { rig, edge, api, host, admin, kubeconfig }
    }

    /// Connects a cluster. All of them are one control plane by several names.
    async fn agent(&self, name: &str) -> Agent {
        let agent = self.rig.agent(name, &self.api).await;
        self.rig.connected(name).await;
        agent
    }

    /// Starts a controller as a caller of the gateway with a certificate.
    async fn controller(&self, name: &str) -> Controller {
        let fleet = self.rig.caller("fleet", &[GROUP]).await;
        let file = |name: &str, text: &str| self.rig.write(name, text).display().to_string();
        let (probes, log) = (free_port(), self.rig.path().join(format!("fleet-{name}.log")));
        let flags = [
            ("gateway", format!("https://{}", self.rig.gateway())),
            ("gateway-ca", file("gateway-ca.crt", &self.rig.server_ca())),
            ("client-certificate", file("fleet.crt", &fleet.certificate_pem)),
            ("client-key", file("fleet.key", &fleet.key_pem)),
            ("kubeconfig", self.kubeconfig.display().to_string()),
            ("namespace", "default".to_owned()),
            ("interval", "1".to_owned()),
            ("probes-listen", probes.to_string()),
        ];
        let program = Invocation::of(binary("fleet-controller"))
            .arguments(flags.into_iter().map(|(flag, value)| format!("--{flag}={value}")));
        let process = Process::start(&program, &log).await.expect("it starts");
        Controller { process, probes }
    }

    /// Runs `tombolo cluster` at the server.
    async fn cluster(&self, words: &[&str]) {
        let socket = self.rig.admin_socket().display().to_string();
        self.rig.tombolo(&[&["cluster"], words, &["--socket", &socket]].concat()).await;
    }

    /// The profile of this name, if there is one.
    async fn profile(&self, name: &str) -> Option<Value> {
        let words = ["get", "clusterprofile", name, "--output=json", "--ignore-not-found"];
        let text = self.admin.stdout(&words).await;
        (!text.is_empty()).then(|| serde_json::from_str(&text).expect("JSON"))
    }

    async fn somebody_else_has(&self, name: &str) {
        let profile = json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
            "metadata": { "name": name, "labels": { "x-k8s.io/cluster-manager": "other" } },
            "spec": { "clusterManager": { "name": "other" } },
        });
        let file = self.rig.write("foreign.json", &profile.to_string());
        self.admin.stdout(&["apply", "-f", file.to_str().expect("a path")]).await;
    }

    /// The sum of all writes of a controller.
    async fn writes(&self, of: &Controller) -> f64 {
        let mut sum = 0.0;
        for kind in WRITES {
            let series = format!("tombolo_fleet_cluster_profile_writes_total{{kind=\"{kind}\"}}");
            sum += self.rig.metric(of.probes, &series).await;
        }
        sum
    }

    /// Waits until a controller has compared everything once more.
    async fn a_round_passes(&self, of: &Controller) {
        const LAST: &str = "tombolo_fleet_last_success_timestamp_seconds";
        let before = self.rig.metric(of.probes, LAST).await;
        until("a round passes", COMMAND_MAX, async || {
            (self.rig.metric(of.probes, LAST).await > before).then_some(())
        })
        .await;
    }

    /// A program on client-go and the access package of cluster-inventory-api, with `tombolo credential` as its credential plugin.
    async fn a_program_lists_namespaces(&self, consumer: PathBuf) {
        let plugin = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": binary("tombolo").display().to_string(),
            "args": [
                "credential", "--cert", self.rig.path().join("fleet.crt").display().to_string(),
                "--key", self.rig.path().join("fleet.key").display().to_string(),
            ],
        });
        let providers = json!({ "providers": [{ "name": "tombolo", "execConfig": plugin }] });
        let providers = self.rig.write("providers.json", &providers.to_string()).display().to_string();
        let program = Invocation::of(consumer).arguments([
            format!("--kubeconfig={}", self.host.admin_kubeconfig().display()),
            format!("--clusterprofile-provider-file={providers}"),
            "--manager=tombolo".to_owned(),
        ]);
        let ended = Ended::within(COMMAND_MAX, &program).await;
        assert!(ended.is_done, "{}", ended.said);
        let found: BTreeMap<String, Vec<String>> = serde_json::from_str(&ended.out).expect("JSON");
        assert_eq!(found.keys().collect::<Vec<_>>(), [LEAVING, LIVE]);
        for (cluster, namespaces) in found {
            assert!(namespaces.iter().any(|name| name == "kube-system"), "{cluster}: {namespaces:?}");
        }
    }
}

/// The status of the condition that says whether the control plane is well.
fn condition(profile: &Value) -> &str {
    let conditions = profile["status"]["conditions"].as_array();
    let ours = conditions.into_iter().flatten().find(|one| one["type"] == "ControlPlaneHealthy");
    ours.and_then(|one| one["status"].as_str()).unwrap_or_default()
}
