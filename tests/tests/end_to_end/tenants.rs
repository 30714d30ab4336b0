//! `tombolo tenant` at a real API server of a host cluster without nodes that run anything: whatever is refused, and what a second run keeps.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tests::binaries::binary;
use tests::helm::Helm;
use tests::kube::EdgeCluster;
use tests::kube::assets::Assets;
use tests::process::{Invocation, run};
use tests::skip::skip;
use tokio::time::{Instant, sleep};

/// The limit for one command.
const RUN_MAX: Duration = Duration::from_secs(60);

/// The limit until a new admission policy is in force, and a pause between two tries.
const IN_FORCE_MAX: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Nodes of paper, with their addresses. They run nothing.
const NODES: [(&str, &str); 3] = [("m1", "10.0.0.11"), ("m2", "10.0.0.12"), ("m3", "10.0.0.13")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_cannot_work_is_refused_before_anything_is_written() {
    const NAME: &str = "a_tenant_that_cannot_work_is_refused_before_anything_is_written";
    let host = match Host::start().await {
        Ok(host) => host,
        Err(missing) => return skip(NAME, &missing),
    };
    host.refuses(&["create", "Acme"], "is not a cluster name").await;
    host.refuses(&["create", "acme", "--members", "2"], "use 3 or 1").await;
    host.refuses(&["create", "acme"], "need as many nodes, and 0 take pods").await;
    host.make_nodes().await;
    host.refuses(&["create", "acme"], "no default StorageClass").await;
    host.make_storage().await;
    for (words, said) in [
        ("create acme --storage-class slow", "there is no StorageClass slow; there are: by-hand, quick"),
        ("create acme --storage-class by-hand", "0 volumes of it are available where 6 are needed"),
        ("create default", "the namespace default is there, and is no tenant's"),
        ("create acme --service-network 10.96.0.0/16", "overlaps 10.96.0.1/32 of the host's Service"),
        (
            "create acme --pod-network 10.244.0.0/16",
            "overlaps 10.244.1.0/24 of the pods of the host's node m1",
        ),
        ("create acme --pod-network 10.0.0.0/24", "overlaps 10.0.0.11/32 of the host's node m1"),
        ("create acme --port-base 443", "not the first port of a block"),
        ("status acme", "there is no tenant acme"),
        ("delete acme --yes acme", "there is no tenant acme"),
        ("delete acme --yes other", "--yes names other, and the tenant is acme"),
    ] {
        host.refuses(&words.split(' ').collect::<Vec<_>>(), said).await;
    }
    assert_eq!(host.tenants().await, Vec::<String>::new());

    host.forbid_the_hosts_network().await;
    host.refuses(&["create", "acme"], "does not admit the pods of a control plane").await;
    // Nobody ends the deletion here, because no controller runs.
    let phase = ["get", "namespace", "acme", "-o", "jsonpath={.status.phase}"];
    assert_eq!(host.cluster.admin().stdout(&phase).await, "Terminating");

    host.replace_helm("v3.2.0");
    host.refuses(&["list"], "helm v3.2.0 is too old; install 3.12 or newer").await;
    fs::remove_file(host.programs.join("helm")).unwrap();
    host.refuses(&["list"], "helm is not in PATH; install helm 3.12 or newer").await;
}

/// Its pods never come, because no controller makes them. So the command ends at its limit, and is run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_run_keeps_cas_addresses_and_ports() {
    const NAME: &str = "a_second_run_keeps_cas_addresses_and_ports";
    let host = match Host::start().await {
        Ok(host) => host,
        Err(missing) => return skip(NAME, &missing),
    };
    host.make_nodes().await;
    host.make_storage().await;

    host.refuses(&["create", "acme", "--timeout", "1s"], "not ready within 1 s").await;
    let before = host.kept("acme").await;
    host.refuses(&["create", "acme", "--timeout", "1s"], "not ready within 1 s").await;
    assert_eq!(host.kept("acme").await, before);
    host.refuses(&["create", "acme", "--port-base", "16500"], "which cannot be changed to 16500").await;
    host.refuses(&["create", "blue", "--port-base", "16440"], "are those of the tenant acme").await;
    host.refuses(&["create", "blue", "--pod-network", "10.245.1.0/24"], "of the tenant acme").await;

    let folder = host.cluster.directory().join("blue");
    let folder = folder.to_str().unwrap();
    let said = host.succeeds(&["create", "blue", "--output", folder]).await;
    assert!(said.contains("keys in plain text"), "{said}");
    let roots = fs::read_to_string(format!("{folder}/tenant-roots.yaml")).unwrap();
    host.succeeds(&["create", "blue", "--output", folder]).await;
    assert_eq!(fs::read_to_string(format!("{folder}/tenant-roots.yaml")).unwrap(), roots);
    for file in ["tenant-roots.yaml", "secrets.yaml", "values.yaml"] {
        let mode = fs::metadata(format!("{folder}/{file}")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert_eq!(host.tenants().await, ["acme", "blue"]);
    let listed: Value = serde_json::from_str(&host.succeeds(&["list", "-o", "json"]).await).unwrap();
    let ports: Vec<&Value> =
        listed.as_array().unwrap().iter().map(|tenant| &tenant["ports"]["first"]).collect();
    assert_eq!(ports, [16440, 16450]);

    let purged = host.run(&["delete", "acme"]).await;
    assert!(!purged.0 && purged.1.contains("Give --yes acme if you are sure"), "{}", purged.1);
    host.succeeds(&["delete", "acme", "--yes", "acme"]).await;
    assert_eq!(host.kept("acme").await, before);
    let left = ["get", "daemonsets,deployments,statefulsets,configmaps,secrets", "-n", "acme", "-o", "name"];
    assert_eq!(host.cluster.admin().stdout(&left).await, "secret/tenant-roots\n");

    host.pretend_that_acmes_ca_is_the_hosts().await;
    host.refuses(&["create", "acme", "--timeout", "1s"], "has the CA of the host cluster").await;
}

/// A host cluster, and a folder with kubectl and helm of a person.
struct Host {
    cluster: EdgeCluster,
    programs: PathBuf,
}

impl Host {
    async fn start() -> Result<Self, String> {
        let helm = Helm::find().map_err(|missing| missing.to_string())?;
        let kubectl = Assets::find().map_err(|missing| missing.to_string())?.kubectl;
        let cluster = EdgeCluster::start().await.unwrap();
        let programs = cluster.directory().join("programs");
        fs::create_dir(&programs).unwrap();
        symlink(helm.program(), programs.join("helm")).unwrap();
        symlink(kubectl, programs.join("kubectl")).unwrap();
        Ok(Self { cluster, programs })
    }

    /// Runs `tombolo tenant`, and returns whether it succeeded, and everything that it said.
    async fn run(&self, words: &[&str]) -> (bool, String) {
        let invocation = Invocation::of(binary("tombolo"))
            .arguments(["tenant"].iter().chain(words).copied())
            .variable("PATH", format!("{}:/usr/bin:/bin", self.programs.display()))
            .variable("HOME", self.cluster.directory().display().to_string())
            .variable("KUBECONFIG", self.cluster.admin_kubeconfig().display().to_string());
        let output = run(&invocation, RUN_MAX).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    }

    async fn succeeds(&self, words: &[&str]) -> String {
        let (is_done, said) = self.run(words).await;
        assert!(is_done, "{words:?}: {said}");
        said
    }

    async fn refuses(&self, words: &[&str], expected: &str) {
        let (is_done, said) = self.run(words).await;
        assert!(!is_done && said.contains(expected), "{words:?}: {said}");
    }

    async fn tenants(&self) -> Vec<String> {
        let words = ["get", "namespaces", "-l", "tombolo.dev/tenant", "-o", "name"];
        let names = self.cluster.admin().stdout(&words).await;
        names.lines().map(|name| name.trim_start_matches("namespace/").to_owned()).collect()
    }

    /// The CAs, the addresses and the ports of a tenant, which workers and etcd rely on.
    async fn kept(&self, tenant: &str) -> [String; 3] {
        let get = async |kind: &str, path: &str| {
            let path = format!("jsonpath={path}");
            self.cluster.admin().stdout(&["get", kind, "-n", tenant, "-o", &path]).await
        };
        [
            get("secret/tenant-roots", "{.data}").await,
            get("services", "{.items[*].spec.clusterIP}").await,
            get(&format!("namespace/{tenant}"), "{.metadata.annotations}").await,
        ]
    }

    async fn make_nodes(&self) {
        for (number, (name, address)) in (1..).zip(NODES) {
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": name, "labels": { "tombolo.dev/control-planes": "true" } },
                "spec": { "podCIDRs": [format!("10.244.{number}.0/24")], "podCIDR": format!("10.244.{number}.0/24") },
            });
            self.create(&node).await;
            let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": address }] } });
            let patch =
                ["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status.to_string()];
            self.cluster.admin().stdout(&patch).await;
        }
    }

    async fn make_storage(&self) {
        for (name, provisioner, default) in
            [("by-hand", "kubernetes.io/no-provisioner", "false"), ("quick", "storage.example/quick", "true")]
        {
            let annotations = json!({ "storageclass.kubernetes.io/is-default-class": default });
            self.create(&json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": provisioner,
                "metadata": { "name": name, "annotations": annotations },
            }))
            .await;
        }
    }

    /// As clusters of careful administrators do. It is in force some time after it was made.
    async fn forbid_the_hosts_network(&self) {
        let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
        self.create(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": "no-host-network" },
            "spec": {
                "matchConstraints": { "resourceRules": [rule] },
                "validations": [{ "expression": "!object.spec.?hostNetwork.orValue(false)" }],
            },
        }))
        .await;
        self.create(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": "no-host-network" },
            "spec": { "policyName": "no-host-network", "validationActions": ["Deny"] },
        }))
        .await;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "default" },
            "spec": { "hostNetwork": true, "containers": [{ "name": "c", "image": "i" }] },
        });
        let file = self.file(&pod);
        let end = Instant::now() + IN_FORCE_MAX;
        let words = ["create", "--dry-run=server", "-f", &file];
        while self.cluster.admin().run(&words).await.unwrap().status.success() {
            assert!(Instant::now() < end, "the policy is not in force");
            sleep(ASK_EVERY).await;
        }
    }

    /// The host's own CA is in this ConfigMap, which a controller writes elsewhere.
    async fn pretend_that_acmes_ca_is_the_hosts(&self) {
        let ca = [
            "get",
            "secret",
            "tenant-roots",
            "-n",
            "acme",
            "-o",
            "go-template={{index .data \"ca.crt\" | base64decode}}",
        ];
        let ca = self.cluster.admin().stdout(&ca).await;
        self.create(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "ca.crt": ca },
            "metadata": { "name": "kube-root-ca.crt", "namespace": "default" },
        }))
        .await;
    }

    fn replace_helm(&self, version: &str) {
        let helm = self.programs.join("helm");
        fs::remove_file(&helm).unwrap();
        fs::write(&helm, format!("#!/bin/sh\necho {version}\n")).unwrap();
        fs::set_permissions(&helm, fs::Permissions::from_mode(0o755)).unwrap();
    }

    async fn create(&self, object: &Value) {
        self.cluster.admin().stdout(&["create", "-f", &self.file(object)]).await;
    }

    fn file(&self, object: &Value) -> String {
        let file = self.cluster.directory().join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        file.display().to_string()
    }
}
