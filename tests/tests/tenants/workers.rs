//! Machines of the same room join a tenant by the command that it prints, and carry its pods.

use std::fs;

use tests::host_cluster::HostCluster;
use tests::host_cluster::tenant::Tenant;
use tests::host_cluster::worker::TenantWorker;
use tests::skip::skip;

/// The name of the tenant.
const TENANT: &str = "tenant-a";

/// The server in the kubeconfig of a kubelet that comes by node-lb.
const BY_NODE_LB: &str = "server: https://127.0.0.1:7443";

/// Parts that are the tenant's own affair, by words in the names of objects.
const ABSENT: [&str; 2] = ["coredns", "kube-proxy"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_join_a_tenant_and_each_api_server_reaches_their_pods() {
    const NAME: &str = "machines_join_a_tenant_and_each_api_server_reaches_their_pods";
    let mut host = match HostCluster::start().await {
        Ok(host) => host,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    host.label_nodes().await;
    let tenant = Tenant::create(&host, TENANT, &["--members", "1"]).await;
    let workers = [host.boot_worker("worker-0").await, host.boot_worker("worker-1").await];

    for worker in &workers {
        println!("{} is Ready after {:?}", worker.name, worker.join(&host, &tenant).await);
        comes_by_node_lb(worker);
        worker.runs_a_pod(&tenant).await;
        is_known_by_its_address(&tenant, worker).await;
    }
    let contexts = tenant.admin.stdout(&["config", "get-contexts", "--output=name"]).await;
    assert_eq!(contexts.lines().count(), host.nodes.len(), "a context for each API server: {contexts}");
    for context in contexts.lines() {
        for worker in &workers {
            worker.pod_is_reached(&tenant.admin, &[&format!("--context={context}")]).await;
        }
    }
    nothing_of_the_workers_own_affair_was_made(&host, &tenant).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a machine joins without the etcd of events, two minutes"]
async fn a_machine_joins_while_the_etcd_of_events_is_dead() {
    const NAME: &str = "a_machine_joins_while_the_etcd_of_events_is_dead";
    let mut host = match HostCluster::start().await {
        Ok(host) => host,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    host.label_nodes().await;
    let tenant = Tenant::create(&host, TENANT, &[]).await;
    let first = host.boot_worker("worker-0").await;
    first.join(&host, &tenant).await;
    let second = host.boot_worker("worker-1").await;
    let before = tenant.restarts(&host, "apiserver").await;
    tenant.lose_events(&host).await;

    println!("{} is Ready after {:?}", second.name, second.join(&host, &tenant).await);

    for worker in [&first, &second] {
        worker.runs_a_pod(&tenant).await;
        worker.pod_is_reached(&tenant.admin, &[]).await;
    }
    for node in &host.nodes {
        assert_ne!(tenant.readyz(&host, node).await.as_deref(), Some("200"), "the etcd is still dead");
    }
    assert_eq!(tenant.restarts(&host, "apiserver").await, before);
}

/// kubelet has node-lb for its API server, and nothing else.
fn comes_by_node_lb(worker: &TenantWorker) {
    let kubeconfig = worker.machine.on_disk("/etc/kubernetes/kubelet.conf");
    let kubeconfig = fs::read_to_string(kubeconfig).expect("kubelet has one");
    assert_eq!(kubeconfig.matches("server:").count(), 1, "{kubeconfig}");
    assert!(kubeconfig.contains(BY_NODE_LB), "{kubeconfig}");
}

/// The Node has the machine's address in the room, by which API servers come to its kubelet.
async fn is_known_by_its_address(tenant: &Tenant, worker: &TenantWorker) {
    let path = "--output=jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    let address = tenant.admin.stdout(&["get", "node", &worker.name, path]).await;
    assert_eq!(address, worker.site.address.to_string());
}

/// No key of the tenant has a name of what the administrators of its workers install themselves.
async fn nothing_of_the_workers_own_affair_was_made(host: &HostCluster, tenant: &Tenant) {
    let keys = tenant.etcd_keys(host, "etcd-data").await;
    assert!(keys.iter().any(|key| key.ends_with("/worker-1")), "the Node is there: {keys:?}");
    for name in ABSENT {
        assert_eq!(keys.iter().find(|key| key.contains(name)), None, "{name}");
    }
}
