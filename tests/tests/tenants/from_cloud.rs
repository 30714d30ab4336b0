//! The cloud reaches into the pods of a registered tenant by one line, over which nothing else of the tenant goes.

use std::time::{Duration, Instant};

use serde_json::json;
use tests::binaries::binary;
use tests::client_network::ClientNetwork;
use tests::enroll;
use tests::host_cluster::cloud_line::CloudLine;
use tests::host_cluster::tenant::Tenant;
use tests::host_cluster::{HostCluster, KUBECTL_MAX};
use tests::kube::assets::Assets;
use tests::kube::kubectl::Kubectl;
use tests::lab::{Lab, trial};
use tests::lb_cluster::until;
use tests::process::{Invocation, Process};
use tests::rig::policy::{may_dial, user_may_dial, usual};
use tests::rig::{GROUP, Rig};
use tests::skip::skip;
use tokio::time::sleep;

/// The name of the tenant, and of its cluster.
const TENANT: &str = "tenant-a";

/// Lets an office of the cloud reach the tenant by the address of its first API server.
const ENTRY_POINT: &str = "vip: { entryPoints: [{ name: office, sources: [10.8.1.0/24], addresses: [{ listen: \"10.9.0.11:16440\", \
                   cluster: tenant-a }] }] }\n";

/// The time that is compared with as much of rest. A tunnel at rest says something now and then, so a shorter one would be a matter of luck.
const MEASURED: Duration = Duration::from_secs(60);

/// The pods that are made and removed at once.
const PODS: usize = 200;

/// The Deployment of these pods.
const MANY: &str = "deployment/many";

/// Most bytes on the line while they are, as a multiple of those at rest.
const BYTES_MAX: f64 = 1.2;

#[test]
#[ignore = "soak: a tenant with agents and a worker, two minutes"]
fn the_cloud_reaches_into_pods_by_gateway_and_by_control_plane_address() {
    const NAME: &str = "the_cloud_reaches_into_pods_by_gateway_and_by_control_plane_address";
    trial(NAME, async |lab| {
        let Some(mut site) = RegisteredSite::start(NAME, lab, ENTRY_POINT).await else { return };
        let mut worker = site.host.boot_worker("worker-0").await;
        worker.join(&site.host, &site.tenant).await;
        worker.runs_a_pod(&site.tenant).await;
        let may_dial = may_dial("admins-dial", ("client-certificate", GROUP), &[TENANT]);
        let office = user_may_dial("office", ("entry-point:office", "entry-point:office"), &[TENANT]);
        site.rig.put_policy(&usual().into_iter().chain([may_dial, office]).collect::<Vec<_>>()).await;

        let by_gateway = site.by_gateway(lab).await;
        let by_proxy = LocalProxy::start(lab, &site).await;
        let client_network = ClientNetwork::build(lab, 1).await;
        let by_address = site.tenant.admin.clone().with_home(site.rig.path().join("office-home"));
        let by_address = by_address.in_network_namespace(Some(client_network.network().path().to_owned()));

        for (kubectl, user) in [(&by_gateway, "alice"), (&by_proxy.kubectl, "admin"), (&by_address, "admin")]
        {
            let whoami = ["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"];
            assert_eq!(kubectl.stdout(&whoami).await, user);
            worker.pod_is_reached(kubectl, &[]).await;
        }
        // There is no other way: with the line cut nobody in the cloud reaches it. At the site all goes on, also without power for a while.
        site.line.cut().await.expect("a line");
        let refused = by_address.clone().limit(KUBECTL_MAX);
        refused.refusal(&["get", "nodes", "--request-timeout=5s"]).await;
        println!("dark, the worker is at work {:.1?} after its power", worker.reboot(&site.tenant).await);
        worker.pod_is_reached(&site.tenant.admin, &[]).await;
        site.line.mend().await.expect("a line");
        site.rig.connected(TENANT).await;
        until("the cloud reaches the pod again", KUBECTL_MAX, async || {
            let output = by_gateway.run(&["logs", &worker.pod()]).await.ok()?;
            output.status.success().then_some(())
        })
        .await;
    });
}

#[test]
#[ignore = "soak: a tenant makes and removes two hundred pods, three minutes"]
fn traffic_of_a_control_plane_stays_at_its_site() {
    const NAME: &str = "traffic_of_a_control_plane_stays_at_its_site";
    trial(NAME, async |lab| {
        let Some(site) = RegisteredSite::start(NAME, lab, "").await else { return };
        site.tenant.add_paper_node().await;
        site.tenant.apply("many", &many()).await;

        let (begun, before, mut pods) = (Instant::now(), site.line.bytes().await, 0);
        while begun.elapsed() < MEASURED {
            makes_and_removes_pods(&site.tenant).await;
            pods += PODS;
        }
        let (took, at_work) = (begun.elapsed(), site.line.bytes().await - before);
        let at_rest = site.bytes_within(took).await;

        println!(
            "{pods} pods in {took:.1?}: {at_work} bytes on the line, and {at_rest} in the same time at rest"
        );
        assert!(at_rest > 0, "the tunnels are on this line");
        let ratio = at_work as f64 / at_rest as f64;
        assert!(ratio <= BYTES_MAX, "{ratio:.2} times the bytes of rest");
    });
}

/// A site whose tenant is a cluster of a server in the cloud.
struct RegisteredSite {
    tenant: Tenant,
    host: HostCluster,
    line: CloudLine,
    rig: Rig,
}

impl RegisteredSite {
    /// Starts it; the configuration of the server ends with `more`. `None` where that is not possible.
    async fn start(test: &str, lab: &Lab, more: &str) -> Option<Self> {
        let host = HostCluster::start().await.map_err(|error| skip(test, &error.to_string())).ok()?;
        let line = host.network.join_cloud(lab.cloud()).await.expect("a line to the cloud");
        host.label_nodes().await;
        host.load_agent().await;
        let tenant = Tenant::create(&host, TENANT, &["--members", "1"]).await;
        let mut rig = lab.rig_logging("info", more).await;
        enroll::open(&mut rig).await;
        host.register(TENANT, &rig).await;
        rig.connected(TENANT).await;
        Some(Self { tenant, host, line, rig })
    }

    /// kubectl of a caller in the cloud.
    async fn by_gateway(&self, lab: &Lab) -> Kubectl {
        let kubeconfig = self.rig.kubeconfig("alice", &[GROUP], TENANT).await;
        let kubectl = Kubectl::new(Assets::find().expect("kubectl").kubectl, kubeconfig).limit(KUBECTL_MAX);
        kubectl.in_network_namespace(Some(lab.cloud().path().to_owned()))
    }

    /// The bytes that pass on the line within this time.
    async fn bytes_within(&self, time: Duration) -> u64 {
        let before = self.line.bytes().await;
        sleep(time).await;
        self.line.bytes().await - before
    }
}

/// `tombolo proxy` in the cloud, with the kubeconfig that `tombolo tenant kubeconfig` has written.
struct LocalProxy {
    kubectl: Kubectl,
    _process: Process,
}

impl LocalProxy {
    async fn start(lab: &Lab, site: &RegisteredSite) -> Self {
        const LOG: &str = "alice-proxy.log";
        let (rig, output) = (&site.rig, site.rig.path().join("by-proxy.conf"));
        let gateway = format!("https://{}", rig.gateway());
        let [admin_conf, written] = [&site.tenant.kubeconfig, &output].map(|path| path.display().to_string());
        let words = ["proxy", "--gateway", &gateway, "--ca", "pki/server-ca.crt", "--cluster", TENANT];
        let caller = ["--cert", "pki/alice-caller.crt", "--key", "pki/alice-caller.key"];
        let files = ["--kubeconfig", &admin_conf, "--output", &written];
        let invocation = Invocation::of(binary("tombolo"))
            .arguments([words.as_slice(), &caller, &files].concat())
            .in_network_namespace(Some(lab.cloud().path().to_owned()))
            .in_directory(rig.path());
        let process = Process::start(&invocation, &rig.path().join(LOG)).await.expect("it starts");
        rig.logged(LOG, 0, "is reached through").await;
        let kubectl =
            site.tenant.admin.clone().with_kubeconfig(output).with_home(rig.path().join("proxy-home"));
        let kubectl = kubectl.in_network_namespace(Some(lab.cloud().path().to_owned()));
        Self { kubectl, _process: process }
    }
}

/// A Deployment without pods, whose pods only the Node of paper takes.
fn many() -> serde_json::Value {
    let labels = json!({ "app": "many" });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "many" },
        "spec": { "replicas": 0, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "tolerations": [{ "operator": "Exists" }], "containers": [{ "name": "none", "image": "none" }] },
        } },
    })
}

/// Makes [`PODS`] pods, waits until all of them are scheduled, and removes them.
async fn makes_and_removes_pods(tenant: &Tenant) {
    const SELECTED: &str = "--selector=app=many";
    let kubectl = &tenant.admin;
    kubectl.stdout(&["scale", MANY, &format!("--replicas={PODS}")]).await;
    let scheduled = ["get", "pods", SELECTED, "--output=jsonpath={.items[*].spec.nodeName}"];
    until("all pods are scheduled", KUBECTL_MAX, async || {
        let nodes = kubectl.stdout(&scheduled).await;
        (nodes.split_whitespace().count() == PODS).then_some(())
    })
    .await;
    kubectl.stdout(&["scale", MANY, "--replicas=0"]).await;
    // No kubelet says that they have ended.
    let removed = ["delete", "pods", SELECTED, "--grace-period=0", "--force", "--wait=false"];
    kubectl.stdout(&removed).await;
    until("all pods are gone", KUBECTL_MAX, async || {
        kubectl.stdout(&["get", "pods", SELECTED, "--output=name"]).await.is_empty().then_some(())
    })
    .await;
}
