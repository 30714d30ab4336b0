//! A tenant comes back from the backup that docs/tenants.md describes, after its host cluster has lost everything of it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tests::host_cluster::tenant::{Tenant, status_for};
use tests::host_cluster::{HostCluster, KUBECTL_MAX};
use tests::kube::assets::NodeAssets;
use tests::lb_cluster::command::Ended;
use tests::lb_cluster::until;
use tests::process::Invocation;
use tests::skip::skip;

/// The name of the tenant.
const TENANT: &str = "tenant-a";

/// The etcd that is saved. Events need no backup.
const ETCD: &str = "etcd-data";

/// The place of its port for clients in the tenant's block.
const ETCD_OFFSET: u16 = 3;

/// So many revisions are left out, more than were written since the snapshot: no watcher believes that it has seen the restored ones.
const REVISIONS_LEFT_OUT: &str = "1000000000";

/// The limit for one command of etcd.
const ETCD_MAX: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a tenant is made twice and restored, three minutes"]
async fn a_tenant_comes_back_from_its_backup() {
    const NAME: &str = "a_tenant_comes_back_from_its_backup";
    let host = match HostCluster::start().await {
        Ok(host) => host,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    host.label_nodes().await;
    let backup = Backup::new();
    let before = Tenant::create(&host, TENANT, &[]).await;
    before.apply("kept", &config_map("kept")).await;
    let administrator = before.administrator().await;
    backup.save(&host, &before).await;
    before.apply("later", &config_map("later")).await;

    let gone = host.tombolo_tenant(&["delete", TENANT, "--purge", "--yes", TENANT]).await;
    assert!(gone.is_done, "{}", gone.said);
    nobody_else_takes_the_cas(&host, &backup).await;
    let tenant = Tenant::create(&host, TENANT, &["--roots", text(&backup.roots())]).await;
    let to = (host.nodes[0].machine.address.into(), tenant.port(&host).await);
    let (ca, identity) = &administrator;
    assert_eq!(status_for(&host, to, ca, identity.clone()).await, "200", "the administrator of before");
    assert_eq!(config_maps(&tenant).await, Vec::<String>::new(), "nothing is restored yet");

    backup.restore(&host, &tenant).await;

    assert_eq!(config_maps(&tenant).await, ["kept"]);
    tenant.add_paper_node().await;
    tenant.schedules("restored").await;
}

/// Another tenant with these CAs would let the administrators of the first one in.
async fn nobody_else_takes_the_cas(host: &HostCluster, backup: &Backup) {
    let ended = host.tombolo_tenant(&["create", "tenant-b", "--roots", text(&backup.roots())]).await;
    assert!(!ended.is_done && ended.said.contains("has the CAs of the tenant tenant-a"), "{}", ended.said);
    let words = ["get", "namespace", "tenant-b", "--ignore-not-found", "--output=name"];
    assert_eq!(host.admin.stdout(&words).await, "");
}

/// A folder with everything that is needed to bring a tenant back.
struct Backup {
    folder: tempfile::TempDir,
    assets: NodeAssets,
}

impl Backup {
    fn new() -> Self {
        let assets = NodeAssets::find().expect("they were found at the start");
        Self { folder: tempfile::tempdir().expect("a folder"), assets }
    }

    /// The Secret with the CAs.
    fn roots(&self) -> PathBuf {
        self.folder.path().join("tenant-roots.yaml")
    }

    fn snapshot(&self) -> PathBuf {
        self.folder.path().join("etcd-data.db")
    }

    /// Saves the Secret as kubectl prints it, and a snapshot of etcd by the name and password of an API server.
    async fn save(&self, host: &HostCluster, tenant: &Tenant) {
        let words = ["get", "secret", "tenant-roots", "--namespace", &tenant.name, "--output=yaml"];
        fs::write(self.roots(), host.admin.stdout(&words).await).expect("a file");
        let files = host.secret(&tenant.name, "apiserver").await;
        let file = |name: &str| {
            let path = self.folder.path().join(name);
            fs::write(&path, &files[name]).expect("a file");
            path.display().to_string()
        };
        let port = format!("{}", tenant.port(host).await + ETCD_OFFSET);
        let log = self.folder.path().join("port-forward.log");
        let forward = ["port-forward", "--namespace", &tenant.name, "pod/etcd-data-0", &port];
        let forward = host.admin.start(&forward, &log).await.expect("kubectl starts");
        until("kubectl forwards the port", KUBECTL_MAX, async || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("Forwarding from")).then_some(())
        })
        .await;
        let save = Invocation::of(&self.assets.etcdctl)
            .arguments([format!("--endpoints=https://127.0.0.1:{port}")])
            .arguments([format!("--cacert={}", file("etcd-ca.crt"))])
            .arguments([format!("--cert={}", file("etcd-client.crt"))])
            .arguments([format!("--key={}", file("etcd-client.key"))])
            .arguments(["snapshot", "save", text(&self.snapshot())])
            .in_network_namespace(Some(host.network.core().path().to_owned()));
        let saved = Ended::within(ETCD_MAX, &save).await;
        drop(forward);
        assert!(saved.is_done, "{}", saved.said);
    }

    /// Stops the etcd, gives each member the snapshot in place of what it has, and starts it and what reads from it.
    async fn restore(&self, host: &HostCluster, tenant: &Tenant) {
        let namespace = ["--namespace", tenant.name.as_str()];
        let host_kubectl = async |words: &[&str]| host.admin.stdout(&[words, &namespace].concat()).await;
        host_kubectl(&["scale", "statefulset", ETCD, "--replicas=0"]).await;
        until("all members are gone", KUBECTL_MAX, async || {
            let selector = format!("--selector=app.kubernetes.io/name={ETCD}");
            let pods = host_kubectl(&["get", "pods", &selector, "--output=name"]).await;
            pods.is_empty().then_some(())
        })
        .await;
        let configuration = host_kubectl(&["get", "configmap", ETCD, "--output=json"]).await;
        let configuration: Value = serde_json::from_str(&configuration).expect("JSON");
        for member in 0..host.nodes.len() {
            let member = format!("{ETCD}-{member}");
            let file = configuration["data"][format!("{member}.yaml")].as_str().expect("a file");
            self.restore_member(&member, file, &volume(host, &tenant.name, &member).await).await;
        }
        host_kubectl(&["scale", "statefulset", ETCD, &format!("--replicas={}", host.nodes.len())]).await;
        host.rolled_out(&tenant.name, &format!("statefulset/{ETCD}")).await;
        let readers = ["daemonset/apiserver", "deployment/controller-manager", "deployment/scheduler"];
        for reader in readers {
            host_kubectl(&["rollout", "restart", reader]).await;
        }
        for reader in readers {
            host.rolled_out(&tenant.name, reader).await;
        }
        let bootstrapped = host.tombolo_tenant(&["bootstrap", &tenant.name]).await;
        assert!(bootstrapped.is_done, "{}", bootstrapped.said);
    }

    /// Replaces the data of one member, whose configuration is this file, in its volume.
    async fn restore_member(&self, member: &str, configuration: &str, volume: &Path) {
        let value = |key: &str| {
            let line = configuration.lines().find_map(|line| line.strip_prefix(&format!("{key}: ")));
            line.unwrap_or_else(|| panic!("no {key} in {configuration}"))
        };
        let data = volume.join("data");
        let owner = fs::metadata(&data).expect("the data of a member").uid();
        fs::remove_dir_all(&data).expect("the data of a member");
        let flags = ["initial-cluster", "initial-cluster-token", "initial-advertise-peer-urls"];
        let restore = Invocation::of(&self.assets.etcdutl)
            .arguments(["snapshot", "restore", text(&self.snapshot()), "--name", member])
            .arguments(flags.map(|flag| format!("--{flag}={}", value(flag))))
            .arguments([format!("--data-dir={}", data.display())])
            .arguments(["--mark-compacted", &format!("--bump-revision={REVISIONS_LEFT_OUT}")]);
        let restored = Ended::within(ETCD_MAX, &restore).await;
        assert!(restored.is_done, "{member}: {}", restored.said);
        let own = Invocation::of("/bin/chown").arguments(["-R", &format!("{owner}:{owner}"), text(&data)]);
        let owned = Ended::within(ETCD_MAX, &own).await;
        assert!(owned.is_done, "{}", owned.said);
    }
}

/// The folder that is the volume of a member.
async fn volume(host: &HostCluster, namespace: &str, member: &str) -> PathBuf {
    let volumes = host.admin.stdout(&["get", "persistentvolumes", "--output=json"]).await;
    let volumes: Value = serde_json::from_str(&volumes).expect("JSON");
    let mut bound = volumes["items"].as_array().into_iter().flatten().filter(|volume| {
        let claim = &volume["spec"]["claimRef"];
        volume["status"]["phase"] == "Bound"
            && claim["namespace"] == namespace
            && claim["name"] == format!("data-{member}")
    });
    let volume = bound.next().unwrap_or_else(|| panic!("no volume of {member}"));
    volume["spec"]["local"]["path"].as_str().expect("a folder").into()
}

fn config_map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "of": "the trial" },
        "metadata": { "name": name, "namespace": "default", "labels": { "of": "the-trial" } },
    })
}

/// The names of those that the trial has made.
async fn config_maps(tenant: &Tenant) -> Vec<String> {
    let words =
        ["get", "configmaps", "--selector=of=the-trial", "--output=jsonpath={.items[*].metadata.name}"];
    tenant.admin.stdout(&words).await.split_whitespace().map(str::to_owned).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}
