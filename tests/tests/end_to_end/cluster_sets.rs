//! Six clusters read as one by an unmodified kubectl: two that answer, one without a tunnel, one that hangs, one that forbids, and one
//! without the resource.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::kube::kubectl::Kubectl;
use tests::kube::{ClusterError, EdgeCluster};
use tests::rig::{Agent, ApiServer, GROUP, Reply, Rig};

/// The clusters, with what is wrong with each.
const LIVE: [&str; 2] = ["a-live", "b-live"];
const DARK: &str = "c-dark";
const FORBIDDING: &str = "d-forbids";
const HANGING: &str = "e-hangs";
const WITHOUT: &str = "f-without";

/// The limit for one kubectl.
const KUBECTL_MAX: Duration = Duration::from_secs(60);

/// kubectl's own limit for each request. The answer comes before it, although a cluster hangs.
const SHORT: &str = "--request-timeout=4s";

/// A type that all clusters but one have.
const CRD: &str = include_str!("../../fixtures/islands.yaml");

/// A map of every cluster, and an island.
const OBJECTS: &str = "apiVersion: v1
kind: ConfigMap
metadata: { name: chart, namespace: default, annotations: { of: CLUSTER } }
data: { x: \"1\" }
";
const ISLAND: &str = "apiVersion: tombolo.test/v1
kind: Island
metadata: { name: tombolo, namespace: default }
spec: { tides: 2 }
";

/// The rig with its clusters.
struct Fleet {
    rig: Rig,
    clusters: Vec<(&'static str, EdgeCluster)>,
    alice: Kubectl,
    _agents: Vec<Agent>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_clusters_are_read_as_one_and_the_missing_are_named() {
    let fleet = Fleet::start().await;
    fleet.of(HANGING).pause_apiserver().expect("a signal");

    rows_have_a_cluster_and_the_missing_are_warned_of(&fleet).await;
    header_and_body_name_the_same_clusters(&fleet).await;
    items_are_those_of_a_direct_list(&fleet).await;
    a_name_in_several_clusters_is_no_single_object(&fleet).await;
    each_cluster_has_an_audit_entry_of_its_own(&fleet).await;

    fleet.of(HANGING).resume_apiserver().expect("a signal");
    pages_are_the_whole_list(&fleet).await;
    only_reads_pass(&fleet).await;
    sets_and_selectors_choose_clusters(&fleet).await;
}

async fn rows_have_a_cluster_and_the_missing_are_warned_of(fleet: &Fleet) {
    let islands = fleet.alice.run(&["get", "islands", "-A", SHORT]).await.expect("kubectl");
    let (rows, warnings) = (text(&islands.stdout), text(&islands.stderr));
    assert!(islands.status.success(), "{warnings}");
    let header = rows.lines().next().unwrap_or_default();
    assert_eq!(
        header.split_whitespace().collect::<Vec<_>>(),
        ["NAMESPACE", "CLUSTER", "NAME", "TIDES"],
        "{rows}"
    );
    let cells: Vec<Vec<&str>> = rows.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(cells, LIVE.map(|cluster| vec!["default", cluster, "tombolo", "2"]));
    for (cluster, cause) in [(DARK, "ClusterNotConnected"), (FORBIDDING, "Forbidden"), (HANGING, "Timeout")] {
        assert!(warnings.contains(&format!("Warning: {cluster}: {cause}: ")), "{cluster}: {warnings}");
    }
    assert!(!warnings.contains(WITHOUT), "it has answered that it has none: {warnings}");
}

async fn header_and_body_name_the_same_clusters(fleet: &Fleet) {
    let path = "/apis/tombolo.test/v1/islands?timeoutSeconds=2";
    let begun = Instant::now();
    let reply = fleet.ask(path, &[]).await;
    println!("with two of six silent, 2 s: {:?}", begun.elapsed());
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(
        reply.head.to_lowercase().contains("tombolo-clusters: asked=6, answered=3, failed=3"),
        "{}",
        reply.head
    );
    let body = json_of(&reply);
    let states: Vec<(&str, &str)> = body["clusters"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|line| (line["name"].as_str().unwrap_or_default(), line["state"].as_str().unwrap_or_default()))
        .collect();
    let all = [
        (LIVE[0], "Fresh"),
        (LIVE[1], "Fresh"),
        (DARK, "Failed"),
        (FORBIDDING, "Failed"),
        (HANGING, "Failed"),
        (WITHOUT, "Absent"),
    ];
    assert_eq!(states, all);
    assert_eq!(body["kind"], "IslandList");

    let refused = fleet.ask(path, &[("Tombolo-Partial", "refuse")]).await;
    assert_eq!((refused.status, refused.cause().as_str()), (504, "PartialAnswer"));
    let named = json_of(&refused);
    let fields: Vec<&str> = named["details"]["causes"]
        .as_array()
        .expect("causes")
        .iter()
        .filter_map(|cause| cause["field"].as_str())
        .collect();
    assert_eq!(fields, [DARK, FORBIDDING, HANGING]);
    let protobuf = fleet.ask(path, &[("Accept", "application/vnd.kubernetes.protobuf")]).await;
    assert_eq!((protobuf.status, protobuf.cause().as_str()), (406, "NotAcceptable"));
}

/// Every item is equal to that of a direct list, but for the annotation with the cluster's name.
async fn items_are_those_of_a_direct_list(fleet: &Fleet) {
    let path = "/api/v1/namespaces/default/configmaps";
    let body = json_of(&fleet.ask(&format!("{path}?timeoutSeconds=2"), &[]).await);
    for cluster in LIVE {
        let direct = fleet.of(cluster).admin().stdout(&["get", "--raw", path]).await;
        let direct: Value = serde_json::from_str(&direct).expect("JSON");
        let expected: Vec<Value> =
            direct["items"].as_array().expect("items").iter().map(|item| annotated(item, cluster)).collect();
        let of_set = body["items"].as_array().expect("items").iter();
        let of_set: Vec<&Value> =
            of_set.filter(|item| item["metadata"]["annotations"]["tombolo.dev/cluster"] == cluster).collect();
        assert_eq!(of_set, expected.iter().collect::<Vec<_>>(), "{cluster}");
    }
}

async fn a_name_in_several_clusters_is_no_single_object(fleet: &Fleet) {
    let rows = fleet.alice.stdout(&["get", "configmap", "chart", SHORT]).await;
    let clusters: Vec<&str> = rows.lines().skip(1).filter_map(|row| row.split_whitespace().next()).collect();
    assert_eq!(clusters, [LIVE[0], LIVE[1], WITHOUT], "{rows}");
    let refused = fleet.alice.refusal(&["get", "configmap", "chart", "-o", "yaml", SHORT]).await;
    assert!(refused.contains("3 clusters of the set have an object of this name"), "{refused}");
    // Those without an answer may have it.
    let unknown = fleet.alice.refusal(&["get", "configmap", "nowhere", SHORT]).await;
    assert!(unknown.contains("has answered") && !unknown.contains("NotFound"), "{unknown}");
}

async fn each_cluster_has_an_audit_entry_of_its_own(fleet: &Fleet) {
    let path = "/api/v1/namespaces/default/configmaps?timeoutSeconds=2";
    fleet.ask(path, &[("Audit-ID", "read-of-a-set")]).await;
    for (number, cluster) in LIVE.into_iter().enumerate() {
        let id = format!("read-of-a-set.{number}");
        let event = fleet
            .of(cluster)
            .wait_for_audit(KUBECTL_MAX, |event| event.audit_id == id)
            .await
            .expect("an event");
        let user = event.impersonated_user.expect("the caller");
        assert_eq!(user.username, "alice", "{cluster}");
    }
}

async fn pages_are_the_whole_list(fleet: &Fleet) {
    let names = [
        "get",
        "clusterroles",
        "-o",
        "jsonpath={range .items[*]}{.metadata.annotations.tombolo\\.dev/cluster}/{.metadata.name}{\"\\n\"}{end}",
    ];
    let whole = fleet.alice.stdout(&[names.as_slice(), &["--chunk-size=0"]].concat()).await;
    let pages = fleet.alice.stdout(&[names.as_slice(), &["--chunk-size=7"]].concat()).await;
    assert!(whole.lines().count() > 100, "{whole}");
    assert_eq!(pages, whole);
    let altered = fleet.ask("/api/v1/configmaps?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", &[]).await;
    assert_eq!(altered.status, 400, "{altered:?}");
}

async fn only_reads_pass(fleet: &Fleet) {
    for words in [
        ["create", "configmap", "new"].as_slice(),
        &["delete", "configmap", "chart"],
        &["get", "configmaps", "--watch-only"],
    ] {
        let refused = fleet.alice.refusal(words).await;
        assert!(refused.contains("name one cluster"), "{words:?}: {refused}");
    }
    let versions = fleet.alice.stdout(&["version"]).await;
    assert!(versions.contains("Server Version: v1."), "{versions}");
}

async fn sets_and_selectors_choose_clusters(fleet: &Fleet) {
    let socket = fleet.rig.admin_socket().display().to_string();
    fleet.rig.tombolo(&["cluster", "label", LIVE[1], "stage=live", "--socket", &socket]).await;
    for path in [
        "global/api/v1/namespaces/default/configmaps?clusterSelector=stage%3Dlive",
        "staged/api/v1/namespaces/default/configmaps",
    ] {
        let reply = fleet.ask_at(&format!("/clustersets/{path}"), &[]).await;
        assert!(reply.head.to_lowercase().contains("asked=1, answered=1, failed=0"), "{path}: {reply:?}");
        assert_eq!(json_of(&reply)["clusters"][0]["name"], LIVE[1]);
    }
    let unknown = fleet.ask_at("/clustersets/nowhere/api/v1/pods", &[]).await;
    assert_eq!((unknown.status, unknown.cause().as_str()), (400, "ClusterSetUnknown"));
    fleet.rig.write_config(|text| text.replace("name: staged", "name: nowhere"));
    tests::lb_cluster::until("the changed set is in force", KUBECTL_MAX, async || {
        (fleet.ask_at("/clustersets/nowhere/api/v1/pods", &[]).await.status == 200).then_some(())
    })
    .await;
    // Clusters that policy hides are neither named nor counted.
    let bob = fleet.rig.caller("bob", &["tombolo:nobody"]).await;
    let nothing = fleet.ask_as(&bob, "/clustersets/global/api/v1/pods", &[]).await;
    assert!(nothing.head.to_lowercase().contains("asked=0, answered=0, failed=0"), "{nothing:?}");
    assert!(!nothing.body.contains("live"), "{nothing:?}");
}

impl Fleet {
    async fn start() -> Self {
        let rig = Rig::start_with(
            "clusterSets:\n- name: staged\n  labelSelector: { matchLabels: { stage: live } }\n",
        )
        .await;
        let names = [LIVE[0], LIVE[1], FORBIDDING, HANGING, WITHOUT];
        let started = futures::future::join_all(
            names.map(async |name| Ok::<_, ClusterError>((name, EdgeCluster::start().await?))),
        )
        .await;
        let clusters: Vec<_> =
            started.into_iter().map(|started| started.expect("a cluster starts")).collect();
        let (mut agents, mut apis) = (Vec::new(), Vec::new());
        for (name, cluster) in &clusters {
            apply(&rig, cluster, name).await;
            let account = cluster.create_agent_account().await.expect("an account for the agent");
            apis.push(ApiServer::of(cluster, &account));
            agents.push(rig.agent(name, &apis[apis.len() - 1]).await);
        }
        // It was connected once, and is away now.
        let mut gone = rig.agent(DARK, &apis[0]).await;
        Rig::ends_with(&mut gone.process, Signal::TERM).await;
        rig.disconnected(DARK).await;
        let kubeconfig = rig.kubeconfig_of_set("alice", &[GROUP], "global").await;
        let alice = clusters[0].1.kubectl_with(kubeconfig).limit(KUBECTL_MAX);
        Self { rig, clusters, alice, _agents: agents }
    }

    fn of(&self, name: &str) -> &EdgeCluster {
        &self.clusters.iter().find(|(own, _)| *own == name).expect("a cluster").1
    }

    async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.ask_at(&format!("/clustersets/global{path}"), headers).await
    }

    async fn ask_at(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let alice = self.rig.caller("alice", &[GROUP]).await;
        self.ask_as(&alice, path, headers).await
    }

    async fn ask_as(&self, who: &tests::pki::Issued, path: &str, headers: &[(&str, &str)]) -> Reply {
        let (gateway, ca) = (self.rig.gateway(), self.rig.server_ca());
        tests::rig::ask(gateway, &ca, Some(who), "GET", path, headers).await.expect("the gateway answers")
    }
}

/// Makes the objects of a cluster.
async fn apply(rig: &Rig, cluster: &EdgeCluster, name: &str) {
    if name != FORBIDDING {
        cluster.make_admins(GROUP).await;
    }
    let map = rig.write(&format!("{name}.yaml"), &OBJECTS.replace("CLUSTER", name));
    cluster.admin().stdout(&["apply", "-f", map.to_str().expect("a path")]).await;
    if name == WITHOUT {
        return;
    }
    let crd = rig.write("crd.yaml", CRD);
    cluster.admin().stdout(&["apply", "-f", crd.to_str().expect("a path")]).await;
    cluster
        .admin()
        .limit(KUBECTL_MAX)
        .stdout(&["wait", "--for=condition=Established", "crd/islands.tombolo.test"])
        .await;
    let island = rig.write("island.yaml", ISLAND);
    tests::lb_cluster::until("the island is made", KUBECTL_MAX, async || {
        let made = cluster.admin().run(&["apply", "-f", island.to_str().expect("a path")]).await.ok()?;
        made.status.success().then_some(())
    })
    .await;
}

fn annotated(item: &Value, cluster: &str) -> Value {
    let mut item = item.clone();
    let metadata = item["metadata"].as_object_mut().expect("metadata");
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    annotations["tombolo.dev/cluster"] = json!(cluster);
    item
}

fn json_of(reply: &Reply) -> Value {
    serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
