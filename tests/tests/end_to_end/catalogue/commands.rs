//! Commands that change a cluster: kubectl does and prints the same by every route.

use tests::kube::kubectl::Kubectl;
use tests::real_edge::RealEdge;
use tests::routes::{Route, masked};

use super::output_of;

const MAP: &str = "apiVersion: v1
kind: ConfigMap
metadata: { name: m, labels: { app: m } }
data: { a: '1' }
";

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec: { containers: [{ name: a, image: a }] }
";

const NODE: &str = "{ apiVersion: v1, kind: Node, metadata: { name: stone } }";

const ISLAND: &str = "{ apiVersion: tombolo.test/v1, kind: Island, metadata: { name: sylt } }";

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: reefs.tombolo.test }
spec:
  group: tombolo.test
  scope: Cluster
  names: { plural: reefs, singular: reef, kind: Reef }
  versions:
  - name: v1
    served: true
    storage: true
    schema: { openAPIV3Schema: { type: object, properties: { depth: { type: integer } } } }
";

const REEF: &str = "{ apiVersion: tombolo.test/v1, kind: Reef, metadata: { name: great }, depth: 3 }";

/// `FILE` names a file of the test; a line that begins with `!` must fail.
const MAPS: &str = "create -f MAP --dry-run=server -o name
!get configmap m
create -f MAP
!create -f MAP
get configmap m -o jsonpath={.data}
apply -f CHANGED --dry-run=server
!diff -f CHANGED
apply -f CHANGED
get configmap m -o jsonpath={.data}
apply --server-side -f MAP
apply --server-side --force-conflicts -f MAP
apply --server-side --dry-run=server -f CHANGED
diff -f MAP
apply view-last-applied configmap m
patch configmap m --type=json -p [{\"op\":\"replace\",\"path\":\"/data/a\",\"value\":\"3\"}]
patch configmap m --type=merge -p {\"data\":{\"b\":\"4\"}}
patch configmap m --type=strategic -p {\"data\":{\"c\":\"5\"}} --dry-run=server -o name
get configmap m -o jsonpath={.data}
label configmap m one=1
label configmap m one=2 --overwrite
annotate configmaps --all by=me
wait configmap/m --for=jsonpath={.metadata.labels.one}=2 --timeout=30s
!wait configmap/m --for=jsonpath={.metadata.labels.one}=3 --timeout=1s
replace -f MAP
edit configmap m
get configmap m -o jsonpath={.metadata.labels}
create configmap n --from-literal=a=b
create secret generic s --from-literal=a=b
get secret s -o jsonpath={.data.a}
create token default --duration=10m -o jsonpath={.kind}
delete configmap -l web=m
!get configmap m
wait configmap/n --for=create --timeout=30s
delete configmaps --all --wait
wait configmap/n --for=delete --timeout=30s
delete secret s --dry-run=server
delete secret s --now
delete secret s --ignore-not-found";

const WORKLOADS: &str = "apply -f DEPLOYMENT
scale deployment web --replicas=3
!scale deployment web --current-replicas=9 --replicas=1
set image deployment/web a=b
set env deployment/web K=V
set resources deployment web --limits=cpu=1
rollout pause deployment web
rollout resume deployment web
!rollout undo deployment web
patch deployment web --subresource=scale --type=merge -p {\"spec\":{\"replicas\":4}}
get deployment web --subresource=scale -o jsonpath={.spec}
get deployment web -o jsonpath={.spec.replicas}{.spec.template.spec.containers[*].image}
autoscale deployment web --max=5 --name=web
expose deployment web --port=80 --cluster-ip=None
describe service web
run p --image=a
label pods --all x=y
logs p
!exec p -- true
delete pod p --force --grace-period=0
delete deployment,service,hpa web
create -f NODE
cordon stone
taint nodes stone a=b:NoSchedule
uncordon stone
drain stone --force
delete node stone
create role r --verb=get --resource=pods
create rolebinding r --role=r --user=bob
delete role,rolebinding r
create -f ISLAND
scale islands/sylt --replicas=6
get isl sylt -o jsonpath={.spec.tides}
patch island sylt --subresource=status --type=merge -p {\"status\":{\"tides\":1}}
delete islands --all
create quota q --hard=pods=1
delete quota q";

const TYPES: &str = "!get reefs
apply -f CRD --dry-run=server
apply -f CRD
wait crd/reefs.tombolo.test --for=condition=Established --timeout=60s
apply -f REEF
apply -f REEF --server-side --force-conflicts
patch reef great --type=json -p [{\"op\":\"replace\",\"path\":\"/depth\",\"value\":4}]
get reefs -o jsonpath={.items[*].depth}
get reef great -o yaml
!patch reef great --type=merge -p {\"depth\":\"deep\"}
patch crd reefs.tombolo.test --type=merge -p {\"spec\":{\"names\":{\"shortNames\":[\"rf\"]}}}
delete reefs --all
delete crd reefs.tombolo.test --wait --timeout=60s
!get crd reefs.tombolo.test";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_writes_config_maps_the_same_by_every_entry_point() {
    by_every_route(&*RealEdge::shared().await, "commands", MAPS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_works_on_workloads_and_nodes_the_same_by_every_entry_point() {
    by_every_route(&*RealEdge::shared().await, "workload-commands", WORKLOADS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_come_and_go_the_same_by_every_entry_point() {
    // A cluster of its own: other tests compare what the shared one says of its types.
    by_every_route(&RealEdge::start().await, "types", TYPES).await;
}

/// Runs the commands by each route, one route after the other. Each leaves the namespace as it was.
async fn by_every_route(edge: &RealEdge, namespace: &str, commands: &str) {
    edge.namespace(namespace).await;
    let account = ["create", "serviceaccount", "default", "-n", namespace];
    edge.cluster.admin().stdout(&account).await;
    let file = |name, text: &str| {
        (name, edge.rig.write(&format!("{namespace}-{name}.yaml"), text).display().to_string())
    };
    let files = [
        file("MAP", MAP),
        file("CHANGED", &MAP.replace("'1'", "'2'")),
        file("DEPLOYMENT", DEPLOYMENT),
        file("NODE", NODE),
        file("ISLAND", ISLAND),
        file("CRD", CRD),
        file("REEF", REEF),
    ];
    let mut direct: Vec<String> = Vec::new();
    for route in &edge.routes {
        let kubectl = editing(route);
        for (number, command) in commands.lines().enumerate() {
            let case = format!("kubectl {command} by {}", route.name);
            let (fails, command) = command.strip_prefix('!').map_or((false, command), |rest| (true, rest));
            let words = command.split(' ').map(|word| path_or_word(&files, word));
            let words: Vec<&str> = words.chain(["-n", namespace]).collect();
            let output = output_of(&kubectl, &words, mask).await;
            assert_eq!(!output.starts_with("exit status: 0\n"), fails, "{case}: {output}");
            match direct.get(number) {
                None => direct.push(output),
                Some(direct) => assert_eq!(output, *direct, "{case}"),
            }
        }
    }
}

/// The path of the file that a word names, or the word itself.
fn path_or_word<'text>(files: &'text [(&str, String)], word: &'text str) -> &'text str {
    files.iter().find(|(name, _)| *name == word).map_or(word, |(_, path)| path)
}

/// A kubectl with an editor that changes the label `app` into `web`.
fn editing(route: &Route) -> Kubectl {
    route.kubectl.clone().with_variable("KUBE_EDITOR", "sed -i s/app:/web:/")
}

/// `diff` names folders that it has made, and shows objects as YAML.
fn mask(text: &str) -> String {
    let varies = ["diff -u", "--- /", "+++ /", "creationTimestamp:", "uid:", "resourceVersion:"];
    let text = masked(text.as_bytes());
    let lasting =
        text.lines().filter(|line| !varies.iter().any(|begin| line.trim_start().starts_with(begin)));
    lasting.map(|line| format!("{line}\n")).collect()
}
