//! Services that are named as the site's own cluster knows them, `NAME.NAMESPACE.svc`: the agent finds them
//! in its objects.
//!
//! The API server in the cloud has them as ExternalName Services, and dials that name unchanged. The site has
//! no DNS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::json;
use tests::audit_log::{AuditLog, note};
use tests::caller::SOON;
use tests::kube::kubectl::Kubectl;
use tests::kube::{ClusterOptions, EdgeCluster};
use tests::lab::{Lab, Site, Uplink, trial};
use tests::pki::Authority;
use tests::rig::{Agent, ApiServer, Rig};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::CLUSTER;
use super::cloud_api_server::{self, EgressTransport, rule};
use super::services::{ServiceAnswer, THING, review, review_otherwise, serve, things};

/// The address of the site's own API server.
const CONTROL_PLANE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 10));

/// Pods of the site, on a port that no Service has.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 20);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 21);
const EXTENSION: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 30);
const PORT: u16 = 8443;

/// The Services that policy, the store, and the agent's file name.
const SERVICES: [&str; 2] = ["hook.default.svc", "extension.default.svc"];

/// The number of successive answers of a webhook that the test waits for.
const TURNS: usize = 5;

/// The names lead where the site's own objects say.
#[test]
fn webhooks_and_aggregated_apis_are_reached_by_service_name() {
    trial("an_api_server_reaches_services_by_name", async |lab| {
        let edge = ByNameEdge::start(lab, EgressTransport::Tls).await;
        edge.serves("the site says no").await;

        // Another pod takes the place of the first, which is gone with its connections.
        cloud_api_server::apply(
            lab,
            &edge.site_kubectl(),
            &[cloud_api_server::slice("hook", &[SECOND], PORT)],
        )
        .await;
        edge.first.abort();

        let kubectl = edge.cluster.admin().limit(SOON);
        let changed = async { while !refusal(&kubectl).await.contains("the other pod says no") {} };
        timeout(SOON, changed).await.expect("the other pod is used");
        for turn in 0..TURNS {
            let output = refusal(&kubectl).await;
            assert!(output.contains("the other pod says no"), "turn {turn}: {output}");
        }
    });
}

#[test]
fn an_api_server_at_a_unix_socket_reaches_services_by_name_too() {
    trial("an_api_server_at_a_socket_reaches_services_by_name", async |lab| {
        let edge = ByNameEdge::start(lab, EgressTransport::Socket).await;
        edge.serves("the site says no").await;
        let log = AuditLog::of(&edge.rig);
        let intents = log.intents().into_iter().filter(|intent| note(intent, "listener") == "egress");
        let sources: Vec<_> = intents.map(|intent| note(intent, "source").to_owned()).collect();
        assert!(!sources.is_empty() && sources.iter().all(|source| source == "unix"), "{sources:?}");
    });
}

/// An API server in the cloud, and a site with a cluster of its own.
struct ByNameEdge {
    rig: Rig,
    cluster: EdgeCluster,
    /// The first pod behind the webhook's Service.
    first: AbortHandle,
    site_cluster: EdgeCluster,
    _agent: Agent,
    _site: Site,
}

impl ByNameEdge {
    async fn start(lab: &Lab, by: EgressTransport) -> Self {
        let authority = Authority::new("site-ca");
        let rig = cloud_api_server::server(lab, by).await;
        let (site, first) = site(lab, &authority).await;
        let site_cluster = EdgeCluster::start_at(ClusterOptions {
            network_namespace: Some(site.pod().path().to_owned()),
            address: CONTROL_PLANE,
            port: Some(6443),
            advertise: CONTROL_PLANE,
            ..ClusterOptions::default()
        })
        .await
        .unwrap();
        let site_kubectl = site_cluster.admin().limit(SOON);
        // The extension's Service has no address of its own, and pods of the other one call its port by
        // another number.
        let mut headless = cloud_api_server::service("extension", Ipv4Addr::UNSPECIFIED);
        headless["spec"]["clusterIP"] = json!("None");
        let hook = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "hook", "namespace": "default" },
            "spec": { "ports": [{ "name": "https", "port": 443, "targetPort": "web" }] },
        });
        let slices = [
            cloud_api_server::slice("hook", &[FIRST], PORT),
            cloud_api_server::slice("extension", &[EXTENSION], PORT),
        ];
        cloud_api_server::apply(lab, &site_kubectl, &[[hook, headless], slices].concat()).await;

        let targets = SERVICES.map(|name| format!("{name}:443"));
        let more = format!("targets: {targets:?}\nserviceNetworks: [\"10.42.0.0/24\"]\n");
        // What `tombolo rbac` makes of these targets is enough, and all that the agent has.
        let file = rig
            .write("services.yaml", &format!("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n{more}"));
        let manifest =
            rig.tombolo(&["rbac", "--agent-config", file.to_str().unwrap(), "--profile", "open"]).await;
        let account = site_cluster.create_agent_account_with(&manifest).await.unwrap();
        let agent = site.agent_of(&rig, CLUSTER, &ApiServer::of(&site_cluster, &account), &more).await;
        rig.connected(CLUSTER).await;
        let advertised: Vec<&str> = targets.iter().flat_map(|target| ["--advertise", target]).collect();
        tests::enroll::at(&rig, &[["cluster", "update", CLUSTER].as_slice(), &advertised].concat()).await;
        rig.put_policy(&[rule("host-a", &SERVICES.map(|name| (name, 443)))]).await;

        let cluster = cloud_api_server::api_server(lab, &rig, by).await;
        let kubectl = cluster.admin().limit(SOON);
        let [api, hook] = cloud_api_server::called(&authority);
        cloud_api_server::apply(
            lab,
            &kubectl,
            &[cloud_api_server::elsewhere("hook"), cloud_api_server::elsewhere("extension"), api, hook],
        )
        .await;
        cloud_api_server::in_force(&kubectl).await;
        Self { rig, cluster, first, site_cluster, _agent: agent, _site: site }
    }

    fn site_kubectl(&self) -> Kubectl {
        self.site_cluster.admin().limit(SOON)
    }

    /// The webhook and the aggregated API answer, and both were dialed by name.
    async fn serves(&self, no: &str) {
        let kubectl = self.cluster.admin().limit(SOON);
        let output = refusal(&kubectl).await;
        assert!(output.contains(no), "{output}");
        kubectl.stdout(&["create", "configmap", "welcome"]).await;
        kubectl
            .stdout(&["wait", "--for=condition=Available", "apiservice/v1.lab.tombolo.test", "--timeout=60s"])
            .await;
        let path = "/apis/lab.tombolo.test/v1/things/bell";
        assert_eq!(kubectl.stdout(&["get", "--raw", path]).await.trim(), THING);
        let log = AuditLog::of(&self.rig);
        for target in SERVICES.map(|name| format!("{name}:443")) {
            let intents = log.intents();
            let intent = intents.iter().find(|line| note(line, "target") == target);
            let intent = intent.unwrap_or_else(|| panic!("{target} was not dialed"));
            assert_eq!(
                (intent["user"]["username"].as_str(), note(intent, "listener"), note(intent, "cluster")),
                (Some("entry-point:host-a"), "egress", CLUSTER)
            );
        }
    }
}

/// The error of an API server that does not create a ConfigMap because its webhook refuses it.
async fn refusal(kubectl: &Kubectl) -> String {
    kubectl.refusal(&["create", "configmap", "refused"]).await
}

/// A site with pods that answer for the Services, and the task of the first one.
async fn site(lab: &Lab, authority: &Authority) -> (Site, AbortHandle) {
    let site = lab.site(CLUSTER, Uplink::Cable).await;
    site.pod().ip(&format!("addr add {CONTROL_PLANE}/32 dev lo")).await.unwrap();
    let [hook, extension] = SERVICES.map(|name| authority.issue_server(&[name], &[]));
    let served: [(Ipv4Addr, _, ServiceAnswer); 3] =
        [(FIRST, hook.clone(), review), (SECOND, hook, review_otherwise), (EXTENSION, extension, things)];
    let mut serving = Vec::new();
    for (address, certificate, answer) in served {
        site.pod().ip(&format!("addr add {address}/32 dev lo")).await.unwrap();
        serving.push(site.run(serve(SocketAddr::from((address, PORT)), certificate, answer)).await);
    }
    (site, serving.swap_remove(0))
}
