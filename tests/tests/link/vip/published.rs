//! Clusters that get addresses of a range, and are Services of a host cluster with these: a real
//! kube-apiserver in the cloud.

use serde_json::{Value, json};
use tests::audit_log::{AuditLog, note};
use tests::binaries::binary;
use tests::caller::SOON;
use tests::client_network::ClientNetwork;
use tests::kube::kubectl::Kubectl;
use tests::lab::{Lab, trial};
use tests::process::{Invocation, run};
use tests::rig::Rig;
use tests::rig::policy::{user_may_dial, usual};

use super::super::by_address::{ByAddressEdge, read, uid};
use super::host_cluster::Host;

/// The name of its own API server in every cluster, which is also the default target of a range.
const TARGET: &str = "kubernetes.default.svc:443";

const FAILURES: &str = "tombolo_server_vip_publishing_failures_total";

/// The addresses are of a range. Nothing else of the host cluster is touched.
#[test]
fn clusters_keep_their_addresses_and_are_services_of_the_host_cluster() {
    trial("clusters_keep_their_addresses_and_are_services_of_the_host_cluster", async |lab| {
        let mut host = Host::start(lab).await;
        let mut rig = lab.rig(&host.vip(&["edge-a", "edge-b", "edge-c", "edge-d", "edge-e", "edge-x"])).await;
        let rule = user_may_dial("pods", ("entry-point:pods", "entry-point:pods"), &["edge-a"]);
        rig.put_policy(&usual().into_iter().chain([rule]).collect::<Vec<_>>()).await;
        let edge = ByAddressEdge::start_with(lab, &rig, "edge-a", &[], &[TARGET]).await;
        for name in ["edge-b", "edge-c", "edge-d", "edge-e"] {
            tests::enroll::at(&rig, &["cluster", "create", name]).await;
        }
        are_services(lab, &host, &rig).await;
        let client_network = ClientNetwork::build(lab, 1).await;
        let kubectl = is_reached(lab, &host, &rig, &edge, &client_network).await;

        tests::enroll::at(&rig, &["cluster", "delete", "edge-c", "--yes"]).await;
        host.has(&["edge-a", "edge-b", "edge-e"], &["edge-d"]).await;
        outlives_the_server(lab, &mut host, &mut rig, (&kubectl, &uid(edge.cluster.admin()).await)).await;

        // Nobody is given what a cluster has that is not listed, or a deleted one's; what nobody knew is free
        // again.
        tests::enroll::at(&rig, &["cluster", "create", "edge-0"]).await;
        host.has(&["edge-0", "edge-a", "edge-e"], &["edge-d"]).await;
        host.leads("edge-0", "100.100.0.6").await;
        host.foreign_is_untouched().await;
    });
}

/// There is one Service for each cluster of the server, unless another owner's has its name.
async fn are_services(lab: &Lab, host: &Host, rig: &Rig) {
    host.has(&["edge-a", "edge-b", "edge-c", "edge-e"], &["edge-d"]).await;
    for (name, address) in [
        ("edge-a", "100.100.0.1"),
        ("edge-b", "100.100.0.2"),
        ("edge-c", "100.100.0.3"),
        ("edge-e", "100.100.0.5"),
    ] {
        host.leads(name, address).await;
    }
    rig.measured("tombolo_server_vip_services", |count| (count - 4.0).abs() < 0.5).await;
    rig.measured("tombolo_server_vip_services_foreign", |count| (count - 1.0).abs() < 0.5).await;
    rig.logged("server.log", 0, "it is left alone").await;
    host.foreign_is_untouched().await;

    // What ships is enough.
    let doctor = ["doctor", "server", "--config", "server.yaml"];
    let (message, _) = beside(lab, rig, "tombolo", &doctor).await;
    let complete = "may get, list, create, patch, delete services and endpointslices";
    assert!(message.contains(complete), "{message}");
}

/// Connects like a pod whose node's kube-proxy translates the Service's address to the slice's, and keeps the
/// pod's own.
async fn is_reached(
    lab: &Lab,
    host: &Host,
    rig: &Rig,
    edge: &ByAddressEdge,
    client_network: &ClientNetwork,
) -> Kubectl {
    let service = host.service("edge-a").await["spec"]["clusterIP"].as_str().unwrap().to_owned();
    lead(lab, &service, "100.100.0.1").await;
    let kubectl = by_service(rig, edge, client_network, &service).await;
    let expected = uid(edge.cluster.admin()).await;
    assert_eq!(uid(kubectl.clone()).await, expected);
    let log = AuditLog::of(rig);
    let intents = log.intents();
    let came = intents.iter().find(|intent| intent["user"]["username"] == "entry-point:pods").unwrap();
    assert_eq!(["target", "credential-serial"].map(|key| note(came, key)), [TARGET, "source:10.8.1.0/24"]);
    assert_eq!(came["sourceIPs"], json!(["10.8.1.2"]));
    kubectl
}

/// A restart makes no gap, and what was changed meanwhile is mended, however late the host cluster answers.
async fn outlives_the_server(
    lab: &Lab,
    host: &mut Host,
    rig: &mut Rig,
    (kubectl, expected): (&Kubectl, &str),
) {
    // A dry run names what a running server manages.
    let listed = tests::enroll::at(rig, &["clusters", "edge-a", "-o", "json"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["items"][0]["status"]["virtualAddress"], "100.100.0.1", "{listed}");
    let report = dry_run(lab, rig).await;
    assert!(
        report.contains("# edge-a has 100.100.0.1\n") && report.contains("# edge-x has 100.100.0.6\n"),
        "{report}"
    );

    let before = host.service("edge-a").await;
    rig.kill_server();
    host.has(&["edge-a", "edge-b", "edge-e"], &["edge-d"]).await;
    host.lead_elsewhere("edge-a").await;
    let widened = host.widen("edge-e").await;
    let listed = "clusters: [edge-a, edge-b, edge-c, edge-d, edge-e, edge-x]";
    rig.write_config(|config| {
        assert!(config.contains(listed));
        config.replace(listed, "clusters: [edge-0, edge-a, edge-e]")
    });
    assert!(dry_run(lab, rig).await.contains("# edge-0 would be given 100.100.0.6\n"));
    host.cluster.kill_apiserver();
    rig.start_server().await;
    rig.connected("edge-a").await;
    rig.measured(FAILURES, |failures| failures > 0.5).await;
    assert_eq!(uid(kubectl.clone()).await, expected);
    host.cluster.restart_apiserver().await.unwrap();
    host.has(&["edge-a", "edge-e"], &["edge-d"]).await;
    host.leads_soon("edge-a", "100.100.0.1").await;
    let after = host.service("edge-a").await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"]["clusterIP"], before["spec"]["clusterIP"]);
    assert_eq!(uid(kubectl.clone()).await, expected);
    host.is_made_again("edge-e", &widened).await;
    host.leads("edge-e", "100.100.0.5").await;
}

/// Translates a Service's address to another one on the server's host, by the rules that kube-proxy makes of
/// a slice.
async fn lead(lab: &Lab, service: &str, address: &str) {
    let rules = format!(
        "add table ip services; add chain ip services here {{ type nat hook prerouting priority dstnat; }}; \
         add rule ip services here ip daddr {service} tcp dport 443 dnat to {address}:443"
    );
    let nft =
        Invocation::of("nft").arguments([rules]).in_network_namespace(Some(lab.cloud().path().to_owned()));
    let output = run(&nft, SOON).await.unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// kubectl in an office, with what `tombolo vip` makes of the cluster's own kubeconfig, and names that lead
/// to the Service as DNS does.
async fn by_service(
    rig: &Rig,
    edge: &ByAddressEdge,
    client_network: &ClientNetwork,
    service: &str,
) -> Kubectl {
    let (admin_conf, output) = (edge.cluster.admin_kubeconfig(), rig.path().join("edge-a.conf"));
    let words =
        ["vip", "--server", "https://edge-a.tombolo.svc:443", "--kubeconfig", admin_conf.to_str().unwrap()];
    rig.tombolo(&[words.as_slice(), &["--output", output.to_str().unwrap()]].concat()).await;
    let mut expected = read(&edge.cluster, &admin_conf).await;
    expected["clusters"][0]["cluster"]["server"] = "https://edge-a.tombolo.svc".into();
    expected["clusters"][0]["cluster"]["tls-server-name"] = "192.168.1.10".into();
    assert_eq!(read(&edge.cluster, &output).await, expected);
    let hosts = format!("127.0.0.1 localhost\n{service} edge-a.tombolo.svc\n");
    let hosts = rig.write("service-hosts", &hosts);
    client_network.kubectl(&edge.cluster).with_kubeconfig(&output).with_hosts(Some(hosts))
}

/// The output of `tunnel-server --dry-run`.
async fn dry_run(lab: &Lab, rig: &Rig) -> String {
    let (says, is_well) = beside(lab, rig, "tunnel-server", &["--config", "server.yaml", "--dry-run"]).await;
    assert!(is_well, "{says}");
    says
}

/// Runs a program on the server's host, and returns its output and whether it succeeded.
async fn beside(lab: &Lab, rig: &Rig, program: &str, words: &[&str]) -> (String, bool) {
    let invocation = Invocation::of(binary(program))
        .arguments(words.iter().copied())
        .in_network_namespace(Some(lab.cloud().path().to_owned()))
        .in_directory(rig.path());
    let output = run(&invocation, SOON).await.unwrap();
    (String::from_utf8([output.stdout, output.stderr].concat()).unwrap(), output.status.success())
}
