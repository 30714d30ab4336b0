//! A tenant is a cluster of a tunnel-server, by agents that are pods of the host cluster.

use serde_json::json;
use tests::binaries::binary;
use tests::enroll;
use tests::host_cluster::tenant::Tenant;
use tests::host_cluster::{HostCluster, KUBECTL_MAX, SiteNetwork};
use tests::kube::assets::Assets;
use tests::kube::kubectl::Kubectl;
use tests::lab::within;
use tests::node::{Image, libraries_of, with_libraries};
use tests::rig::{GROUP, Rig, ServerPlacement};
use tests::skip::skip;
use tokio::task::block_in_place;

/// The name of the tenant, and of its cluster.
const TENANT: &str = "tenant-a";

/// The image of the agents, as the chart names it.
const IMAGE: (&str, &str) = ("tombolo.test/tunnel-agent", "1");

/// The agents in the host cluster.
const AGENTS: &str = "deployment/tunnel-agent";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a tenant with agents, two minutes"]
async fn one_command_makes_a_tenant_a_cluster_that_the_cloud_reaches() {
    const NAME: &str = "one_command_makes_a_tenant_a_cluster_that_the_cloud_reaches";
    let host = match HostCluster::start().await {
        Ok(host) => host,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    host.label_nodes().await;
    load_agent(&host).await;
    let tenant = Tenant::create(&host, TENANT, &["--members", "1"]).await;
    // The server is beside the host cluster's API server, and its callers are there, too.
    block_in_place(|| within(host.network.core(), async || is_reached(&host, &tenant).await));
}

async fn is_reached(host: &HostCluster, tenant: &Tenant) {
    let core = host.network.core().path().to_owned();
    let placement = ServerPlacement {
        network_namespace: core.clone(),
        address: SiteNetwork::CORE.into(),
        is_dual: false,
        variables: Vec::new(),
    };
    let mut rig = Rig::start_at(placement, "info", "").await;
    enroll::open(&mut rig).await;
    register(host, &rig).await;
    rig.connected(TENANT).await;

    let alice = rig.kubeconfig("alice", &[GROUP], TENANT).await;
    let alice = Kubectl::new(Assets::find().expect("kubectl").kubectl, alice).limit(KUBECTL_MAX);
    let alice = alice.in_network_namespace(Some(core));
    alice.stdout(&["create", "namespace", "by-gateway"]).await;
    tenant.admin.stdout(&["get", "namespace", "by-gateway"]).await;
    let absent = host.admin.refusal(&["get", "namespace", "by-gateway"]).await;
    assert!(absent.contains("NotFound"), "{absent}");

    the_agents_have_no_rights_in_the_host_cluster(host).await;
    further_pods_need_no_token(host, &rig).await;
    alice.stdout(&["get", "namespace", "by-gateway"]).await;
    the_secret_in_the_tenant_is_their_access(tenant, &alice).await;
}

/// Runs the command as a person does it, twice.
async fn register(host: &HostCluster, rig: &Rig) {
    let (repository, tag) = IMAGE;
    let values = json!({ "image": { "repository": repository, "tag": tag, "pullPolicy": "Never" } });
    let values = rig.write("image.json", &values.to_string()).display().to_string();
    let (socket, server) = (rig.admin_socket().display().to_string(), rig.dialed().to_string());
    let words = ["register", TENANT, "--user", "alice", "--group", GROUP, "--cluster-role", "cluster-admin"];
    let more = ["--servers", &server, "--socket", &socket, "--values", &values];
    for _ in 0..2 {
        let ended = host.tombolo_tenant(&[words.as_slice(), &more].concat()).await;
        if !ended.is_done {
            let logs = ["logs", AGENTS, "--namespace", TENANT, "--tail=20"];
            let logs =
                host.admin.run(&logs).await.map(|logs| String::from_utf8_lossy(&logs.stdout).into_owned());
            panic!("{}\n{logs:?}\n{}", ended.said, rig.server_log());
        }
    }
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

/// Gives each node the image of the agents, of this program with its libraries.
async fn load_agent(host: &HostCluster) {
    let program = binary("tunnel-agent");
    let libraries = libraries_of(&program).await.expect("ldd");
    let files = with_libraries((&program, "tunnel-agent"), &libraries);
    let name = format!("{}:{}", IMAGE.0, IMAGE.1);
    let image = Image { name: &name, programs: &files, entrypoint: &["/tunnel-agent"], ..Image::default() };
    for node in &host.nodes {
        node.node.load(&image).await.expect("an image");
    }
}
