//! A tenant is a cluster of a tunnel-server, by agents that are pods of the host cluster.

use tests::enroll;
use tests::host_cluster::agents::AGENTS;
use tests::host_cluster::tenant::Tenant;
use tests::host_cluster::{HostCluster, KUBECTL_MAX};
use tests::kube::kubectl::Kubectl;
use tests::lab::within;
use tests::rig::Rig;
use tests::skip::skip;
use tokio::task::block_in_place;

/// The name of the tenant, and of its cluster.
const TENANT: &str = "tenant-a";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a tenant with agents, two minutes"]
async fn one_command_makes_a_tenant_a_cluster_that_the_cloud_reaches() {
    const NAME: &str = "one_command_makes_a_tenant_a_cluster_that_the_cloud_reaches";
    let host = match HostCluster::start().await {
        Ok(host) => host,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    host.label_nodes().await;
    host.load_agent().await;
    let tenant = Tenant::create(&host, TENANT, &["--members", "1"]).await;
    // The server is beside the host cluster's API server, and its callers are there, too.
    block_in_place(|| within(host.network.core(), async || is_reached(&host, &tenant).await));
}

async fn is_reached(host: &HostCluster, tenant: &Tenant) {
    let rig = host.start_server().await;
    // A second time changes nothing.
    for _ in 0..2 {
        host.register(TENANT, &rig).await;
    }
    rig.connected(TENANT).await;

    let alice = host.by_gateway(TENANT, &rig).await;
    alice.stdout(&["create", "namespace", "by-gateway"]).await;
    tenant.admin.stdout(&["get", "namespace", "by-gateway"]).await;
    let absent = host.admin.refusal(&["get", "namespace", "by-gateway"]).await;
    assert!(absent.contains("NotFound"), "{absent}");

    the_agents_have_no_rights_in_the_host_cluster(host).await;
    further_pods_need_no_token(host, &rig).await;
    alice.stdout(&["get", "namespace", "by-gateway"]).await;
    the_secret_in_the_tenant_is_their_access(tenant, &alice).await;
}

async fn the_agents_have_no_rights_in_the_host_cluster(host: &HostCluster) {
    let account = format!("--as=system:serviceaccount:{TENANT}:tunnel-agent");
    for (verb, resource) in [("list", "pods"), ("get", "secrets"), ("impersonate", "users")] {
        let answer =
            host.admin.run(&["auth", "can-i", verb, resource, "--namespace", TENANT, &account]).await;
        let answer = String::from_utf8_lossy(&answer.expect("kubectl").stdout).into_owned();
        assert_eq!(answer.trim(), "no", "{verb} {resource}");
    }
}

/// The enrollment token was used up by the first pod. The host cluster vouches for those that follow.
async fn further_pods_need_no_token(host: &HostCluster, rig: &Rig) {
    let before = enroll::at(rig, &["agent", "list"]).await;
    host.admin.stdout(&["delete", "secret", "tunnel-agent", "--namespace", TENANT]).await;
    host.admin.stdout(&["rollout", "restart", AGENTS, "--namespace", TENANT]).await;
    host.rolled_out(TENANT, AGENTS).await;
    let after = enroll::at(rig, &["agent", "list"]).await;
    let new =
        after.lines().filter(|line| !before.contains(line.split_whitespace().next().unwrap_or_default()));
    assert_eq!(new.count(), 2, "{before}\n{after}");
}

async fn the_secret_in_the_tenant_is_their_access(tenant: &Tenant, alice: &Kubectl) {
    tenant.admin.stdout(&["delete", "secret", "tunnel-agent-token", "--namespace", "tombolo"]).await;
    tests::lb_cluster::until("the agents are refused", KUBECTL_MAX, async || {
        let answer = alice.run(&["get", "namespaces"]).await.ok()?;
        (!answer.status.success()).then_some(())
    })
    .await;
}
