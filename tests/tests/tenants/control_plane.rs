//! Two tenants on the same three nodes: each is a cluster of its own, and outlives the less important half of itself.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tests::host_cluster::tenant::{Tenant, status_for};
use tests::host_cluster::{HostCluster, HostNode, KUBECTL_MAX};
use tests::lb_cluster::until;
use tests::skip::skip;
use tokio::time::sleep;

/// The time for which the etcd of events is dead.
const DEAD: Duration = Duration::from_secs(300);

/// Longest time until another controller-manager leads.
const LEADS_MAX: Duration = Duration::from_secs(20);

/// Longest time from the command to a control plane that is ready.
const CREATED_MAX: Duration = Duration::from_secs(180);

/// Pause between two pods while the etcd of events is dead.
const PAUSE: Duration = Duration::from_secs(10);

/// The key that an API server writes to each of its etcds.
const OF_EVERY_ETCD: &str = "compact_rev_key";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tenants_share_nodes_and_nothing_else() {
    const NAME: &str = "two_tenants_share_nodes_and_nothing_else";
    let host = match HostCluster::start().await {
        Ok(host) => host,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    host.label_nodes().await;
    let a = Tenant::create(&host, "tenant-a", &[]).await;
    let b = Tenant::create(&host, "tenant-b", &[]).await;
    println!("created in {:?} and {:?}", a.created_in, b.created_in);

    nobody_is_known_elsewhere(&host, &a, &b).await;
    no_key_is_shared(&host, &a, &b).await;
    events_are_in_their_own_etcd(&host, &a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: the etcd of events is dead for five minutes"]
async fn a_tenant_outlives_its_events_and_its_leaders() {
    const NAME: &str = "a_tenant_outlives_its_events_and_its_leaders";
    let host = match HostCluster::start().await {
        Ok(host) => host,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    host.label_nodes().await;
    let tenant = Tenant::create(&host, "tenant-a", &[]).await;
    println!("created in {:?}", tenant.created_in);
    assert!(tenant.created_in <= CREATED_MAX, "{:?}", tenant.created_in);
    tenant.add_paper_node().await;
    tenant.schedules("before").await;

    all_but_events_is_served_without_their_etcd(&host, &tenant).await;
    another_controller_manager_leads(&host, &tenant).await;
}

/// Each administrator is known to its own tenant, and neither to the other one nor to the host cluster.
async fn nobody_is_known_elsewhere(host: &HostCluster, a: &Tenant, b: &Tenant) {
    let node = host.nodes[0].machine.address.into();
    let (a_port, b_port) = (a.port(host).await, b.port(host).await);
    assert_ne!(a_port, b_port);
    let ((a_ca, a_admin), (b_ca, b_admin)) = (a.administrator().await, b.administrator().await);
    let (host_ca, host_api) = (host.edge.ca_pem(), host.edge.address());
    let host_admin = host.edge.issue_user("kubernetes-admin", &["system:masters"]);
    for (what, to, ca, identity, status) in [
        ("a at a", (node, a_port), a_ca.as_str(), &a_admin, "200"),
        ("b at b", (node, b_port), b_ca.as_str(), &b_admin, "200"),
        ("a at b", (node, b_port), b_ca.as_str(), &a_admin, "401"),
        ("b at a", (node, a_port), a_ca.as_str(), &b_admin, "401"),
        ("a at the host", (host_api.ip(), host_api.port()), host_ca, &a_admin, "401"),
        ("b at the host", (host_api.ip(), host_api.port()), host_ca, &b_admin, "401"),
        ("the host at a", (node, a_port), a_ca.as_str(), &host_admin, "401"),
    ] {
        assert_eq!(status_for(host, to, ca, identity.clone()).await, status, "{what}");
    }
}

/// No key of the host cluster is in a Secret of a tenant, and no value of one tenant is in a Secret of the other.
async fn no_key_is_shared(host: &HostCluster, a: &Tenant, b: &Tenant) {
    let (of_a, of_b) = (host.secret_values(&a.name).await, host.secret_values(&b.name).await);
    assert!(!of_a.is_empty() && !of_b.is_empty());
    for file in ["ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy.key", "kubelet-client.key"] {
        let text = fs::read_to_string(host.edge.directory().join(file)).expect("a file of the host cluster");
        for (name, value) in of_a.iter().chain(&of_b) {
            assert!(!value.contains(text.trim()), "{name} has {file} of the host cluster");
        }
    }
    for (name, value) in &of_a {
        let holders = of_b.iter().filter(|(_, theirs)| *theirs == value);
        let holders: Vec<_> = holders.map(|(name, _)| name).collect();
        assert!(holders.is_empty(), "{name} of {} is {holders:?} of {}", a.name, b.name);
    }
}

/// A pod that is scheduled leaves events in the etcd of events alone, and nothing else is there.
async fn events_are_in_their_own_etcd(host: &HostCluster, tenant: &Tenant) {
    tenant.add_paper_node().await;
    tenant.schedules("eventful").await;
    until("the events are written", KUBECTL_MAX, async || {
        let events = tenant.admin.run(&["get", "events", "--output=name"]).await.ok()?;
        (!events.stdout.is_empty()).then_some(())
    })
    .await;

    let data = tenant.etcd_keys(host, "etcd-data").await;
    let event = tenant.etcd_keys(host, "etcd-event").await;

    let is_event = |key: &&String| key.starts_with("/registry/events/");
    assert!(data.iter().any(|key| key.starts_with("/registry/pods/")), "{data:?}");
    assert_eq!(data.iter().find(is_event), None, "an event in etcd-data");
    assert!(event.iter().any(|key| is_event(&key)), "{event:?}");
    let others = event.iter().find(|key| !is_event(key) && key.as_str() != OF_EVERY_ETCD);
    assert_eq!(others, None, "something else in etcd-event");
}

/// With the etcd of events dead, pods are scheduled and no API server starts again.
async fn all_but_events_is_served_without_their_etcd(host: &HostCluster, tenant: &Tenant) {
    let before = tenant.restarts(host, "apiserver").await;
    tenant.lose_events(host).await;
    let (begun, mut pods) = (Instant::now(), 0);
    while begun.elapsed() < DEAD {
        tenant.schedules(&format!("dark-{pods}")).await;
        pods += 1;
        sleep(PAUSE).await;
    }
    println!("{pods} pods were scheduled in {:?} without the etcd of events", begun.elapsed());
    assert_eq!(tenant.restarts(host, "apiserver").await, before);

    let scale = ["scale", "statefulset/etcd-event", "--namespace", &tenant.name, "--replicas=3"];
    host.admin.stdout(&scale).await;
    host.rolled_out(&tenant.name, "statefulset/etcd-event").await;
    until("events are served again", KUBECTL_MAX, async || {
        (tenant.readyz(host, &host.nodes[0]).await? == "200").then_some(())
    })
    .await;
    assert_eq!(tenant.restarts(host, "apiserver").await, before);
}

/// The process of the leader is killed, and the other one leads within [`LEADS_MAX`].
async fn another_controller_manager_leads(host: &HostCluster, tenant: &Tenant) {
    let holder = async || {
        let words = ["get", "lease", "kube-controller-manager", "--namespace", "kube-system"];
        let output = [words.as_slice(), &["--output=jsonpath={.spec.holderIdentity}"]].concat();
        let output = tenant.admin.run(&output).await.ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned()).filter(|holder| !holder.is_empty())
    };
    let before = holder().await.expect("one leads");
    let leads = |node: &&HostNode| before.starts_with(&format!("{}_", node.name));
    let node = host.nodes.iter().find(leads).unwrap_or_else(|| panic!("no node is {before}"));
    let ids = node.processes("kube-controller-manager");
    assert_eq!(ids.len(), 1, "{ids:?} on {}", node.name);

    let id = Pid::from_raw(ids[0].try_into().expect("a process id")).expect("a process");
    kill_process(id, Signal::KILL).expect("it runs");

    let begun = Instant::now();
    until("another controller-manager leads", KUBECTL_MAX, async || {
        (holder().await? != before).then_some(())
    })
    .await;
    println!("another controller-manager leads after {:?}", begun.elapsed());
    assert!(begun.elapsed() <= LEADS_MAX, "{:?}", begun.elapsed());
    tenant.schedules("led").await;
}
