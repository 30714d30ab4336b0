//! A host cluster in the cloud: a real kube-apiserver with the shipped manifests of a server that manages
//! Services, and a Service of somebody else.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::caller::SOON;
use tests::kube::kubectl::Kubectl;
use tests::kube::{ClusterOptions, EdgeCluster};
use tests::lab::{Lab, SERVER};
use tokio::time::{Duration, sleep, timeout};

/// The namespace of the Services.
const NAMESPACE: &str = "tombolo";
/// The shipped manifests of a server in Kubernetes: its account, and its rights to manage Services.
const DEPLOYED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/server");

/// Between two looks at the host cluster.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A host cluster with a Service of another owner, and rights for a server.
pub(super) struct Host {
    pub(super) cluster: EdgeCluster,
    token_file: PathBuf,
    foreign: Value,
}

impl Host {
    pub(super) async fn start(lab: &Lab) -> Self {
        let cluster = EdgeCluster::start_at(ClusterOptions {
            network_namespace: Some(lab.cloud().path().to_owned()),
            address: SERVER.into(),
            port: Some(6443),
            advertise: SERVER.into(),
            ..ClusterOptions::default()
        })
        .await
        .unwrap();
        let admin = cluster.admin().limit(SOON);
        admin.stdout(&["create", "namespace", "tombolo-system"]).await;
        let account = format!("{DEPLOYED}/service-account.yaml");
        admin.stdout(&["apply", "--validate=strict", "-n", "tombolo-system", "-f", &account]).await;
        admin.stdout(&["apply", "--validate=strict", "--kustomize", &format!("{DEPLOYED}/vip")]).await;
        admin.stdout(&["create", "service", "clusterip", "edge-d", "-n", NAMESPACE, "--tcp=80:8080"]).await;
        let token = admin.stdout(&["create", "token", "tunnel-server", "-n", "tombolo-system"]).await;
        let token_file = lab.path().join("host.token");
        fs::write(&token_file, token).unwrap();
        let mut host = Self { cluster, token_file, foreign: Value::Null };
        host.foreign = host.service("edge-d").await;
        host
    }

    /// The server's configuration: `clusters` get addresses, and become Services here.
    pub(super) fn vip(&self, clusters: &[&str]) -> String {
        self.vip_at("tombolo0", "100.100.0.0/24", &self.token_file, clusters)
    }

    /// The same with another interface, another range, and the token of another account.
    pub(super) fn vip_at(
        &self,
        interface: &str,
        range: &str,
        token_file: &Path,
        clusters: &[&str],
    ) -> String {
        format!(
            "vip:\n  interface: {interface}\n  entryPoints:\n  - name: pods\n    sources: [10.8.1.0/24]\n    \
             range: {{ network: {range}, clusters: [{}] }}\n  publish: {{ server: \"{}\", caFile: {:?}, tokenFile: {token_file:?} }}\n",
            clusters.join(", "),
            self.cluster.url(),
            self.cluster.ca_path(),
        )
    }

    /// One more account with the rights of a server. Returns the file of its token.
    pub(super) async fn account(&self, lab: &Lab, name: &str) -> PathBuf {
        let admin = self.admin();
        admin.stdout(&["create", "serviceaccount", name, "-n", "tombolo-system"]).await;
        let subject = format!("--serviceaccount=tombolo-system:{name}");
        let role = "--role=tunnel-server-services";
        admin.stdout(&["create", "rolebinding", name, "-n", NAMESPACE, role, &subject]).await;
        let token = admin.stdout(&["create", "token", name, "-n", "tombolo-system"]).await;
        let file = lab.path().join(format!("{name}.token"));
        fs::write(&file, token).unwrap();
        file
    }

    fn admin(&self) -> Kubectl {
        self.cluster.admin().limit(SOON)
    }

    pub(super) async fn get(&self, words: &[&str]) -> Value {
        let words = [&["get", "-n", NAMESPACE, "-o", "json"], words].concat();
        serde_json::from_str(&self.admin().stdout(&words).await).unwrap()
    }

    pub(super) async fn service(&self, name: &str) -> Value {
        self.get(&["service", name]).await
    }

    /// Waits until the namespace has Services and slices of ours of these names, beside Services of `others`.
    pub(super) async fn has(&self, ours: &[&str], others: &[&str]) {
        self.has_slices(&[ours, others].concat(), ours).await;
    }

    /// Waits until the namespace has these Services, and these slices.
    pub(super) async fn has_slices(&self, services: &[&str], slices: &[&str]) {
        let names = |list: &Value| -> Vec<String> {
            let items = list["items"].as_array().unwrap().iter();
            items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        let mut services = services.to_vec();
        services.sort_unstable();
        let mut found = (Vec::new(), Vec::new());
        let came = timeout(SOON, async {
            loop {
                found = (names(&self.get(&["services"]).await), names(&self.get(&["endpointslices"]).await));
                if found.0 == services && found.1 == slices {
                    return;
                }
                sleep(LOOK_EVERY).await;
            }
        });
        assert!(came.await.is_ok(), "{services:?} {slices:?} {found:?}");
    }

    /// A Service and its slice are as Kubernetes wants them, and the server's.
    pub(super) async fn leads(&self, name: &str, address: &str) {
        let (service, slice) = (self.service(name).await, self.get(&["endpointslice", name]).await);
        for labels in [&service["metadata"]["labels"], &slice["metadata"]["labels"]] {
            assert_eq!(labels["app.kubernetes.io/managed-by"], "tombolo");
            assert!(labels["tombolo.dev/server"].as_str().is_some_and(|server| !server.is_empty()));
        }
        let port = json!({ "name": "https", "port": 443, "protocol": "TCP", "targetPort": 443 });
        assert_eq!((&service["spec"]["ports"], &service["spec"]["selector"]), (&json!([port]), &Value::Null));
        let labels = &slice["metadata"]["labels"];
        assert_eq!(labels["kubernetes.io/service-name"], name);
        assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "tombolo.dev");
        assert_eq!(slice["endpoints"][0]["addresses"], json!([address]));
        assert_eq!(slice["ports"], json!([{ "name": "https", "port": 443, "protocol": "TCP" }]));
    }

    /// The same some time later.
    pub(super) async fn leads_soon(&self, name: &str, address: &str) {
        let leads = async {
            while self.get(&["endpointslice", name]).await["endpoints"][0]["addresses"] != json!([address]) {
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(SOON, leads).await.expect("the slice is mended");
        self.leads(name, address).await;
    }

    /// Changes the Service's endpoints, as a wrong administrator would.
    pub(super) async fn lead_elsewhere(&self, name: &str) {
        let patch = json!({ "endpoints": [{ "addresses": ["100.100.0.77"] }] }).to_string();
        self.admin()
            .stdout(&["patch", "endpointslice", name, "-n", NAMESPACE, "--type=merge", "-p", &patch])
            .await;
    }

    /// Adds a port to the Service, as another owner may, and returns the Service's UID.
    pub(super) async fn widen(&self, name: &str) -> Value {
        let patch = json!({ "spec": { "ports": [{ "name": "theirs", "port": 444 }] } }).to_string();
        self.admin().stdout(&["patch", "service", name, "-n", NAMESPACE, "-p", &patch]).await;
        let service = self.service(name).await;
        assert_eq!(service["spec"]["ports"].as_array().map(Vec::len), Some(2), "{service}");
        service["metadata"]["uid"].clone()
    }

    /// Waits until another Service has the place of the one with this UID.
    pub(super) async fn is_made_again(&self, name: &str, uid: &Value) {
        let of_name = format!("--field-selector=metadata.name={name}");
        let again = async {
            loop {
                let found = self.get(&["services", &of_name]).await;
                if found["items"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one["metadata"]["uid"] != *uid))
                {
                    return;
                }
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(SOON, again).await.expect("the Service is made anew");
    }

    pub(super) async fn foreign_is_untouched(&self) {
        assert_eq!(self.service("edge-d").await, self.foreign);
    }
}
