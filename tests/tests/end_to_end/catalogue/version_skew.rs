//! kubectls of other minors do their daily work through the gateway.

use tests::kube::assets::{all_minors, neighbouring_minors};
use tests::kube::kubectl::Kubectl;
use tests::real_edge::RealEdge;
use tests::routes::Route;
use tests::skip::skip;

use super::watching::until_printed;

// Older kubectls take what begins with a brace for JSON.
const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: m }\ndata: { a: '1' }\n";

/// These are the minors directly before and after the pinned one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectls_of_neighbouring_minors_work_by_path_and_by_host_name() {
    let name = "kubectls_of_neighbouring_minors_work_by_path_and_by_host_name";
    if std::env::var_os("KUBEBUILDER_ASSETS").is_some() {
        return skip(name, "with binaries from elsewhere nobody knows which minors are beside them");
    }
    work(&neighbouring_minors()).await;
}

/// These are all minors that can be built.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: builds the kubectl of every minor that is to be had"]
async fn kubectls_of_every_minor_work_by_path_and_by_host_name() {
    work(&all_minors()).await;
}

async fn work(minors: &[String]) {
    let edge = RealEdge::shared().await;
    for minor in minors {
        let (version, program) = edge.cluster.kubectl_of(minor);
        let [_, path, host] = &edge.routes;
        tokio::join!(work_with(&edge, &version, &program, path), work_with(&edge, &version, &program, host));
        println!("kubectl {version} works");
    }
}

async fn work_with(edge: &RealEdge, version: &str, program: &std::path::Path, route: &Route) {
    let namespace = format!("skew-{}-{}", version.replace('.', "-"), &route.name[..4]);
    edge.namespace(&namespace).await;
    // A home of its own: minors do not share what they know of the API server.
    let kubectl = route.kubectl.clone().of(program).with_home(edge.rig.path().join(&namespace));
    let kubectl = Worker { kubectl, namespace, case: format!("kubectl {version} by {}", route.name) };
    let map = edge.rig.write(&format!("{}.yaml", kubectl.namespace), MAP).display().to_string();

    let versions = kubectl.does("version -o json").await;
    assert!(versions.contains(&format!("\"gitVersion\": \"v{version}\"")), "{versions}");
    assert!(versions.contains("serverVersion"), "{versions}");
    kubectl.prints("apply -f MAP", &map, "configmap/m created").await;
    kubectl.prints("get configmaps", "", "AGE").await;
    let watch = edge.rig.path().join(format!("{}.watch", kubectl.namespace));
    let words = ["get", "configmaps", "--watch", "-o", "yaml", "-n", &kubectl.namespace];
    let _watching = kubectl.kubectl.start(&words, &watch).await.unwrap();
    until_printed(&watch, "name: m").await;
    kubectl.does("patch configmap m --type=merge -p {\"data\":{\"b\":\"patched\"}}").await;
    until_printed(&watch, "patched").await;
    kubectl.prints("apply --server-side --force-conflicts -f MAP", &map, "serverside-applied").await;
    kubectl.prints("get configmap m -o jsonpath={.data.b}", "", "patched").await;
    kubectl.prints("apply -f MAP --dry-run=server", &map, "(server dry run)").await;
    kubectl.prints("explain configmaps.data", "", "Data contains the configuration data").await;
    kubectl.prints("api-resources", "", "islands").await;
    kubectl.prints("describe configmap m", "", "patched").await;
    kubectl.prints("auth can-i create pods", "", "yes").await;
    kubectl.prints("delete configmap m", "", "deleted").await;
    kubectl.prints("get configmaps -o name", "", "").await;
}

struct Worker {
    kubectl: Kubectl,
    namespace: String,
    case: String,
}

impl Worker {
    async fn does(&self, command: &str) -> String {
        self.run(command, "").await
    }

    async fn prints(&self, command: &str, map: &str, what: &str) {
        let message = self.run(command, map).await;
        assert!(message.contains(what), "{} {command}: {message}", self.case);
    }

    async fn run(&self, command: &str, map: &str) -> String {
        let words: Vec<&str> =
            command.split(' ').map(|word| if word == "MAP" { map } else { word }).collect();
        let words = [words.as_slice(), &["-n", &self.namespace]].concat();
        let output = self.kubectl.run(&words).await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {command}: {stderr}", self.case);
        String::from_utf8(output.stdout).unwrap()
    }
}
