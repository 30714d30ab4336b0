//! The main job: the real kubectl reaches a real API server through gateway and tunnel.

use serde_json::Value;
use tests::kube::EdgeCluster;
use tests::kube::kubectl::Kubectl;
use tests::rig::{ApiServer, GROUP, Rig};

/// What lets the callers' group do everything in the cluster.
const ADMINS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: tombolo-admins }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin }
subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: Group, name: \"tombolo:admins\" }]
";

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: islands.tombolo.test }
spec:
  group: tombolo.test
  scope: Namespaced
  names: { plural: islands, singular: island, kind: Island }
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: { type: object, properties: { tides: { type: integer } } }
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_type_works_through_the_gateway() {
    let edge = Edge::start().await;
    reading(&edge).await;
    writing(&edge).await;
    discovering(&edge).await;
    asking_who_one_is(&edge).await;
    custom_resources(&edge).await;
    audit_names_both(&edge).await;
    the_control_plane_is_found(&edge).await;
}

async fn reading(edge: &Edge) {
    let json = edge.kubectl.stdout(&["get", "namespace", "default", "-o", "json"]).await;
    let direct = edge.cluster.admin().stdout(&["get", "namespace", "default", "-o", "json"]).await;
    assert_eq!(json, direct, "the object is the same by both ways");

    let table = edge.kubectl.stdout(&["get", "namespaces"]).await;
    assert!(table.starts_with("NAME") && table.contains("kube-system"), "{table}");

    // A list in chunks: the continue token goes through the query.
    for number in 0..7 {
        let name = format!("page-{number}");
        edge.kubectl.stdout(&["create", "configmap", &name, "--from-literal=a=b"]).await;
    }
    let all = edge.kubectl.stdout(&["get", "configmaps", "--chunk-size=3", "-o", "name"]).await;
    assert_eq!(all.lines().filter(|line| line.starts_with("configmap/page-")).count(), 7, "{all}");
}

async fn writing(edge: &Edge) {
    let manifest =
        edge.rig.write("map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: '1'}\n");
    let manifest = manifest.to_str().expect("a path");
    edge.kubectl.stdout(&["create", "-f", manifest]).await;
    edge.kubectl.stdout(&["apply", "--server-side", "--force-conflicts", "-f", manifest]).await;
    edge.kubectl.stdout(&["patch", "configmap", "m", "--type=merge", "-p", r#"{"data":{"a":"2"}}"#]).await;
    let patched = edge.cluster.admin().stdout(&["get", "configmap", "m", "-o", "jsonpath={.data.a}"]).await;
    assert_eq!(patched, "2");

    edge.kubectl.stdout(&["delete", "configmap", "m"]).await;
    let gone = edge.cluster.admin().run(&["get", "configmap", "m"]).await.expect("kubectl runs");
    assert!(String::from_utf8_lossy(&gone.stderr).contains("NotFound"));
}

async fn discovering(edge: &Edge) {
    let through = edge.kubectl.stdout(&["api-resources", "--sort-by=name"]).await;
    let direct = edge.cluster.admin().stdout(&["api-resources", "--sort-by=name"]).await;
    assert_eq!(through, direct);
}

async fn asking_who_one_is(edge: &Edge) {
    let can = edge.kubectl.stdout(&["auth", "can-i", "delete", "nodes"]).await;
    assert_eq!(can.trim(), "yes");

    let who = edge.kubectl.stdout(&["auth", "whoami", "-o", "json"]).await;
    let who: Value = serde_json::from_str(&who).expect("JSON");
    let user = &who["status"]["userInfo"];
    assert_eq!(user["username"], "alice", "the caller, and not the agent");
    assert_eq!(user["groups"], serde_json::json!([GROUP, "system:authenticated"]));

    // A caller whom the cluster's own RBAC gives nothing gets nothing, although policy lets it through.
    let bob = edge.cluster.kubectl_with(&edge.rig.kubeconfig("bob", &[GROUP, "team-b"], "edge-a").await);
    let who = bob.stdout(&["auth", "whoami", "-o", "json"]).await;
    assert!(who.contains("team-b"), "{who}");
}

async fn custom_resources(edge: &Edge) {
    let crd = edge.rig.write("crd.yaml", CRD);
    edge.kubectl.stdout(&["apply", "-f", crd.to_str().expect("a path")]).await;
    edge.kubectl
        .stdout(&["wait", "--for=condition=Established", "crd/islands.tombolo.test", "--timeout=60s"])
        .await;
    let island = "apiVersion: tombolo.test/v1\nkind: Island\nmetadata: {name: sylt}\nspec: {tides: 2}\n";
    let island = edge.rig.write("island.yaml", island);
    edge.kubectl.stdout(&["apply", "-f", island.to_str().expect("a path")]).await;
    let tides = edge.kubectl.stdout(&["get", "island", "sylt", "-o", "jsonpath={.spec.tides}"]).await;
    assert_eq!(tides, "2");
    edge.kubectl.stdout(&["delete", "island", "sylt"]).await;
}

/// The edge cluster's own audit log has the agent as the user and the caller as the one impersonated.
async fn audit_names_both(edge: &Edge) {
    let events = edge.cluster.audit().expect("the audit log is readable");
    let event = events
        .iter()
        .find(|event| event.impersonated_user.as_ref().is_some_and(|user| user.username == "alice"))
        .expect("an event of alice");
    assert_eq!(event.user.username, tests::kube::account::USERNAME);
}

/// The agent asked its cluster where its control plane is, and the gateway shows it.
async fn the_control_plane_is_found(edge: &Edge) {
    let (advertise, port) = (edge.cluster.place().advertise, edge.cluster.address().port());
    let advertised = format!("\"endpoints\":[\"{advertise}:{port}\"]");
    edge.rig.listed("edge-a", |item| item.contains(&advertised)).await;
}

/// A cluster with an agent, a server, and alice's kubectl through the gateway.
struct Edge {
    cluster: EdgeCluster,
    rig: Rig,
    kubectl: Kubectl,
    _agent: tests::rig::Agent,
}

impl Edge {
    async fn start() -> Self {
        let cluster = EdgeCluster::start().await.expect("a cluster starts");
        let account = cluster.create_agent_account().await.expect("an account for the agent");
        let rig = Rig::start().await;
        let admins = rig.write("admins.yaml", ADMINS);
        cluster.admin().stdout(&["apply", "-f", admins.to_str().expect("a path")]).await;
        let more = "impersonation: { users: [\"*\"], groups: [\"*\"] }";
        let agent = rig.agent_with("edge-a", &ApiServer::of(&cluster, &account), more).await;
        rig.connected("edge-a").await;
        let kubectl = cluster.kubectl_with(&rig.kubeconfig("alice", &[GROUP], "edge-a").await);
        Self { cluster, rig, kubectl, _agent: agent }
    }
}
