//! Workers and agents take over the CAs that replace those of their tenant, and nothing that runs on a worker ends.

use std::fs;

use tests::host_cluster::tenant::Tenant;
use tests::host_cluster::worker::TenantWorker;
use tests::host_cluster::{HostCluster, KUBECTL_MAX};
use tests::lab::{NamespaceRuntime, within};
use tests::lb_cluster::callers::Callers;
use tests::lb_cluster::command::Ended;
use tests::lb_cluster::until;
use tests::skip::skip;
use tokio::task::block_in_place;

use super::TENANT;
use super::rotation::rotate;

/// Callers at the same time on the worker.
const CALLERS: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: all pods of a control plane with workers and agents are replaced three times, eight minutes"]
async fn workers_and_agents_take_over_the_cas_of_their_tenant() {
    const NAME: &str = "workers_and_agents_take_over_the_cas_of_their_tenant";
    let mut host = match HostCluster::start().await {
        Ok(host) => host,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    host.label_nodes().await;
    host.load_agent().await;
    let tenant = Tenant::create(&host, TENANT, &[]).await;
    let workers = [host.boot_worker("worker-0").await, host.boot_worker("worker-1").await];
    // The server is beside the host cluster's API server, and its callers are there, too.
    block_in_place(|| within(host.network.core(), async || are_taken_over(&host, &tenant, &workers).await));
}

async fn are_taken_over(host: &HostCluster, tenant: &Tenant, [worker, later]: &[TenantWorker; 2]) {
    worker.join(host, tenant).await;
    worker.runs_a_pod(tenant).await;
    let rig = host.start_server().await;
    host.register(TENANT, &rig).await;
    rig.connected(TENANT).await;
    let alice = host.by_gateway(TENANT, &rig).await;
    let old_ca = tenant.administrator().await.0;

    step(host, tenant, worker, &["trust"]).await;
    worker.pod_is_reached(&alice, &[]).await;
    is_left_behind(host, &["issue", "--yes", TENANT], "may have read the CA of the API servers").await;
    replace_pod(tenant, worker).await;
    step(host, tenant, worker, &["issue", "--yes", TENANT]).await;
    worker.pod_is_reached(&alice, &[]).await;
    is_left_behind(host, &["finish", "--yes", TENANT], "may have a token of the old key").await;
    replace_pod(tenant, worker).await;
    step(host, tenant, worker, &["finish", "--yes", TENANT]).await;

    worker.pod_is_reached(&alice, &[]).await;
    worker.pod_is_reached(&tenant.admin, &[]).await;
    let ca = fs::read_to_string(worker.machine.on_disk("/etc/kubernetes/pki/ca.crt")).expect("a CA");
    assert!(!ca.contains(old_ca.trim()), "the worker still trusts the old CA");
    assert_eq!(ca, tenant.administrator().await.0);
    later.join(host, tenant).await;
    later.runs_a_pod(tenant).await;
    later.pod_is_reached(&tenant.admin, &[]).await;
    later.pod_is_reached(&alice, &[]).await;
}

/// Takes a step, does the part of the worker and of the administrator, and finds the worker's pod as it was. Callers on the worker come by its
/// node-lb all the time.
async fn step(host: &HostCluster, tenant: &Tenant, worker: &TenantWorker, words: &[&str]) {
    let before = pod(tenant, worker).await;
    let (ca_pem, identity) = tenant.administrator().await;
    let inside = NamespaceRuntime::new(&worker.site.network);
    let callers = Callers::start(&inside, CALLERS, &ca_pem, &identity).await;

    let ended = rotate(host, words).await;
    assert!(ended.is_done, "{words:?}: {}", ended.said);
    tenant.renew_kubeconfig(host).await;
    let taken = Ended::of(&worker.machine.inside("tombolo", &["node", "rotate-ca"])).await;
    assert!(taken.is_done, "{}\n{}", taken.said, worker.machine.log());
    println!("{}: {}", words[0], taken.said.replace('\n', "; "));

    // kubelet was restarted, and learns of its pods anew.
    until("kubelet knows its pods again", KUBECTL_MAX, async || {
        tenant.admin.run(&["logs", &worker.pod()]).await.ok()?.status.success().then_some(())
    })
    .await;
    worker.pod_is_reached(&tenant.admin, &[]).await;
    let report = callers.stop().await;
    println!("{}: {} requests, {} failed", words[0], report.answered, report.failed.len());
    assert!(report.failed.is_empty() && report.answered > 0, "{:?}\n{}", report.failed, worker.machine.log());
    assert_eq!(pod(tenant, worker).await, before, "the pod has started again");
    // Again, it has nothing to do.
    let again = Ended::of(&worker.machine.inside("tombolo", &["node", "rotate-ca"])).await;
    assert!(again.is_done && again.said.contains("the CAs are those"), "{}", again.said);
}

/// A step is refused as long as a pod is older than the step before.
async fn is_left_behind(host: &HostCluster, words: &[&str], reason: &str) {
    let ended = rotate(host, words).await;
    let pod = "the pod default/on-worker-0";
    assert!(!ended.is_done && ended.said.contains(reason) && ended.said.contains(pod), "{}", ended.said);
    assert!(!ended.said.contains("the worker"), "it has done its part: {}", ended.said);
}

async fn replace_pod(tenant: &Tenant, worker: &TenantWorker) {
    tenant.admin.stdout(&["delete", "pod", &worker.pod()]).await;
    worker.runs_a_pod(tenant).await;
}

/// The id of the worker's pod and the starts of its container.
async fn pod(tenant: &Tenant, worker: &TenantWorker) -> String {
    let path = "--output=jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}";
    tenant.admin.stdout(&["get", "pod", &worker.pod(), path]).await
}
