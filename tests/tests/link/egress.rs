//! A real kube-apiserver whose egress goes through the tunnel to a site that it cannot reach otherwise.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use tests::audit_log::{AuditLog, note};
use tests::caller::SOON;
use tests::fake_api::FakeApiOptions;
use tests::kube::EdgeCluster;
use tests::lab::{Lab, Site, Uplink, trial};
use tests::pki::{Authority, Issued};
use tests::rig::{Agent, Rig};

mod by_name;
mod cloud_api_server;
mod services;

use cloud_api_server::{EgressTransport, rule};
use services::{ServiceAnswer, THING, WRITTEN, logs, review, serve, things};

/// The cluster of the site.
const CLUSTER: &str = "edge-a";

/// The addresses of Services and of the node at the site. The cloud has no route to them.
const HOOK: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 50);
const EXTENSION: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 51);
const NODE: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);

/// The targets that the entry point may reach.
const REACHED: [(&str, u16); 2] = [("10.96.0.0/16", 443), ("10.42.0.0/24", 10250)];

/// They are at a site, and the API server is in the cloud.
#[test]
fn webhooks_aggregated_apis_and_kubelets_serve_through_egress() {
    trial("an_api_server_reaches_a_site_by_its_egress", async |lab| {
        let edge = EgressEdge::start(lab).await;
        let kubectl = edge.cluster.admin().limit(SOON);

        // A validating webhook: its Service's address is dialed from the site.
        let output = kubectl.refusal(&["create", "configmap", "refused"]).await;
        assert!(output.contains("the site says no"), "{output}");
        kubectl.stdout(&["create", "configmap", "welcome"]).await;

        // An aggregated API.
        kubectl
            .stdout(&["wait", "--for=condition=Available", "apiservice/v1.lab.tombolo.test", "--timeout=60s"])
            .await;
        let path = "/apis/lab.tombolo.test/v1/things/bell";
        assert_eq!(kubectl.stdout(&["get", "--raw", path]).await.trim(), THING);

        // A kubelet, by its node's address.
        assert_eq!(kubectl.stdout(&["logs", "talker"]).await, WRITTEN);

        let log = AuditLog::of(&edge.rig);
        for target in [format!("{HOOK}:443"), format!("{EXTENSION}:443"), format!("{NODE}:10250")] {
            let is_it = |line: &&&Value| note(line, "target") == target;
            let intents = log.intents();
            let intent = intents.iter().find(is_it).unwrap_or_else(|| panic!("{target} was not dialed"));
            assert_eq!(
                (intent["user"]["username"].as_str(), note(intent, "listener"), note(intent, "cluster")),
                (Some("entry-point:host-a"), "egress", CLUSTER)
            );
        }
        // By no other way, and by this one as long as policy says so.
        edge.rig.put_policy(&[rule("host-z", &REACHED)]).await;
        let output = kubectl.refusal(&["create", "configmap", "late"]).await;
        assert!(output.contains("failed calling webhook"), "{output}");
    });
}

/// An API server in the cloud, and a site with what it needs.
struct EgressEdge {
    rig: Rig,
    cluster: EdgeCluster,
    _agent: Agent,
    _site: Site,
}

impl EgressEdge {
    async fn start(lab: &Lab) -> Self {
        let site_ca = Authority::new("site-ca");
        let rig = cloud_api_server::server(lab, EgressTransport::Tls).await;
        let site = site(lab, &site_ca).await;
        let fake = site.fake_api(FakeApiOptions::default()).await;
        let targets = "targets: [\"10.96.0.0/16:443\", \"10.42.0.0/24:10250\"]\n";
        let agent = site.agent(&rig, &fake, targets).await;
        tests::enroll::at(
            &rig,
            &["cluster", "update", CLUSTER, "--advertise", "10.96.0.0/16", "--advertise", "10.42.0.0/24"],
        )
        .await;
        rig.put_policy(&[rule("host-a", &REACHED)]).await;
        let cluster = cloud_api_server::api_server(lab, &rig, EgressTransport::Tls).await;
        let kubectl = cluster.admin().limit(SOON);
        cloud_api_server::apply(lab, &kubectl, &objects_of(&site_ca)).await;
        let status = json!({ "status": {
            "addresses": [{ "type": "InternalIP", "address": NODE }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
        } });
        kubectl
            .stdout(&[
                "patch",
                "node",
                "site",
                "--subresource=status",
                "--type=merge",
                "-p",
                &status.to_string(),
            ])
            .await;
        cloud_api_server::in_force(&kubectl).await;
        Self { rig, cluster, _agent: agent, _site: site }
    }
}

/// A site at which a webhook, an aggregated API and a kubelet answer.
async fn site(lab: &Lab, authority: &Authority) -> Site {
    let site = lab.site(CLUSTER, Uplink::Cable).await;
    for address in [HOOK, EXTENSION] {
        site.pod().ip(&format!("addr add {address}/32 dev lo")).await.unwrap();
    }
    let names = |service: &str| format!("{service}.default.svc");
    let (hook, extension) = (names("hook"), names("extension"));
    let served: [(SocketAddr, Issued, ServiceAnswer); 3] = [
        ((HOOK, 443).into(), authority.issue_server(&[&hook], &[]), review),
        ((EXTENSION, 443).into(), authority.issue_server(&[&extension], &[]), things),
        ((NODE, 10250).into(), authority.issue_server(&[], &[IpAddr::V4(NODE)]), logs),
    ];
    for (address, certificate, answer) in served {
        site.run(serve(address, certificate, answer)).await;
    }
    site
}

/// Services without pods, a webhook, an aggregated API, and a pod of a node.
fn objects_of(authority: &Authority) -> Vec<Value> {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "site" } });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "talker", "namespace": "default" },
        "spec": { "nodeName": "site", "containers": [{ "name": "talker", "image": "talker" }] },
    });
    let mut items = vec![
        cloud_api_server::service("hook", HOOK),
        cloud_api_server::service("extension", EXTENSION),
        cloud_api_server::slice("hook", &[NODE], 443),
        cloud_api_server::slice("extension", &[NODE], 443),
        node,
        pod,
    ];
    items.extend(cloud_api_server::called(authority));
    items
}
