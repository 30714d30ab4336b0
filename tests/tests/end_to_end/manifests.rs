//! The manifests of deploy/, applied at a real API server.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tests::kube::EdgeCluster;
use tests::kube::assets::Assets;
use tests::kube::kubectl::Kubectl;
use tests::scratch::Scratch;
use tests::sources::copy_of_deploy;

/// Each example, its namespace, and what owns its pods.
const EXAMPLES: [(&str, &str, &str); 2] = [
    ("edge-a", "tombolo", "deployment/tunnel-agent"),
    ("cloud", "tombolo-system", "deployment/tunnel-server"),
];

/// The API server knows every field and gives no warning, in a namespace where pods have to be restricted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_manifests_are_valid_and_run_as_restricted_pods() {
    let cluster = EdgeCluster::start().await.unwrap();

    for (example, namespace, _) in EXAMPLES {
        apply(&cluster, example).await;
        let enforced = "jsonpath={.metadata.labels.pod-security\\.kubernetes\\.io/enforce}";
        let enforced = cluster.admin().stdout(&["get", "namespace", namespace, "-o", enforced]).await;
        assert_eq!(enforced, "restricted");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/node-lb/static-pod.yaml");
    apply_from(&cluster, "--filename", file.to_str().unwrap()).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/fleet-controller");
    apply_from(&cluster, "--kustomize", folder.to_str().unwrap()).await;
    let words = ["get", "deployment/fleet-controller", "--output=jsonpath={.spec.template.spec}"];
    let spec: Value = serde_json::from_str(&cluster.admin().stdout(&words).await).unwrap();
    let restricted = ["label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted"];
    cluster.admin().stdout(&restricted).await;
    assert_eq!(create(&cluster, "default", &spec).await, Ok(()));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/etcd/etcd.yaml");
    apply_from(&cluster, "--filename", file.to_str().unwrap()).await;
    let words = ["get", "statefulset/tombolo-etcd", "--namespace", "tombolo-system", "-o", "json"];
    let etcd: Value = serde_json::from_str(&cluster.admin().stdout(&words).await).unwrap();
    let mut spec = etcd["spec"]["template"]["spec"].clone();
    // In place of the claim that a StatefulSet adds.
    spec["volumes"].as_array_mut().unwrap().push(json!({ "name": "data", "emptyDir": {} }));
    assert_eq!(create(&cluster, "tombolo-system", &spec).await, Ok(()));
    // The release that the tests run knows every flag.
    let help = std::process::Command::new(Assets::find().unwrap().etcd).arg("--help").output().unwrap();
    let help = format!("{}{}", String::from_utf8_lossy(&help.stdout), String::from_utf8_lossy(&help.stderr));
    let arguments = spec["containers"][0]["args"].as_array().unwrap();
    assert!(arguments.len() > 10);
    for argument in arguments {
        let flag = argument.as_str().unwrap().split('=').next().unwrap();
        assert!(help.contains(&format!("{flag} ")), "{flag}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_pods_are_admitted_and_ones_with_one_more_right_are_not() {
    let cluster = EdgeCluster::start().await.unwrap();

    for (example, namespace, owner) in EXAMPLES {
        apply(&cluster, example).await;
        let owner = cluster.admin().stdout(&["get", owner, "--namespace", namespace, "-o", "json"]).await;
        let owner: Value = serde_json::from_str(&owner).unwrap();
        let spec = &owner["spec"]["template"]["spec"];

        assert_eq!(create(&cluster, namespace, spec).await, Ok(()));
        for (path, wider) in [
            ("/securityContext/runAsNonRoot", json!(false)),
            ("/securityContext/seccompProfile/type", json!("Unconfined")),
            ("/containers/0/securityContext/capabilities/drop", json!([])),
            ("/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
        ] {
            let mut changed = spec.clone();
            *changed.pointer_mut(path).unwrap() = wider;
            let refused = create(&cluster, namespace, &changed).await.unwrap_err();
            assert!(refused.contains("violates PodSecurity \"restricted:latest\""), "{path}: {refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_match_the_selectors_of_their_workloads() {
    let cluster = EdgeCluster::start().await.unwrap();
    apply(&cluster, "cloud").await;
    let selector = |kind: &'static str, path: &'static str| {
        let cluster = &cluster;
        async move {
            let words = ["get", kind, "tunnel-server", "--namespace", "tombolo-system", "-o", "json"];
            let found: Value = serde_json::from_str(&cluster.admin().stdout(&words).await).unwrap();
            found.pointer(path).cloned().unwrap()
        }
    };
    let labels = selector("deployment", "/spec/template/metadata/labels").await;

    for (kind, path) in [
        ("service", "/spec/selector"),
        ("poddisruptionbudget", "/spec/selector/matchLabels"),
        ("networkpolicy", "/spec/podSelector/matchLabels"),
    ] {
        let selected = selector(kind, path).await;
        let selected = selected.as_object().unwrap();
        assert!(
            !selected.is_empty() && selected.iter().all(|(name, value)| labels[name] == *value),
            "{kind}"
        );
    }
}

/// The ConfigMap of the policy has a name without a hash, so no pod is replaced; the configuration's has one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_policy_restarts_no_server_and_a_changed_configuration_does() {
    let (scratch, kubectl) = (Scratch::new("tombolo-manifests-").unwrap(), Assets::find().unwrap().kubectl);
    let kubectl = Kubectl::new(kubectl, "/dev/null");
    let site = copy_of_deploy(scratch.path(), ["server", "examples/cloud"]);
    let rendered = async || kubectl.stdout(&["kustomize", site.to_str().unwrap()]).await;
    let before = rendered().await;

    append(&site.join("policy.yaml"), "# another rule\n");
    let with_policy = rendered().await;
    append(&site.join("server.yaml"), "# another value\n");
    let with_configuration = rendered().await;

    assert_ne!(with_policy, before);
    assert_eq!(deployment(&with_policy), deployment(&before));
    assert_ne!(deployment(&with_configuration), deployment(&before));
}

fn append(file: &Path, line: &str) {
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text + line).unwrap();
}

/// The Deployment among rendered manifests.
fn deployment(manifests: &str) -> &str {
    manifests.split("\n---\n").find(|manifest| manifest.contains("kind: Deployment\n")).unwrap()
}

/// As a person does, but that a field that Kubernetes does not know is an error.
async fn apply(cluster: &EdgeCluster, example: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples").join(example);
    apply_from(cluster, "--kustomize", folder.to_str().unwrap()).await;
}

/// The same for any file or kustomization, by kubectl's flag for it.
async fn apply_from(cluster: &EdgeCluster, flag: &str, path: &str) {
    let output = cluster.admin().run(&["apply", "--validate=strict", flag, path]).await.unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.is_empty(), "{path}: {message}");
}

/// Creates a pod with this specification and deletes it again. The error is the API server's.
async fn create(cluster: &EdgeCluster, namespace: &str, spec: &Value) -> Result<(), String> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "trial", "namespace": namespace },
        "spec": spec,
    });
    let file = cluster.directory().join("trial.json");
    fs::write(&file, pod.to_string()).unwrap();
    let output = cluster.admin().run(&["create", "-f", file.to_str().unwrap()]).await.unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let delete =
        ["delete", "pod", "trial", "--namespace", namespace, "--force", "--grace-period=0", "--wait=false"];
    cluster.admin().stdout(&delete).await;
    Ok(())
}
