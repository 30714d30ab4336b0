//! A real kube-apiserver whose egress goes through the tunnel to a site that it has no other way to.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tests::audit_log::{AuditLog, note};
use tests::caller::SOON;
use tests::fake_api::FakeApiOptions;
use tests::kube::{EdgeCluster, Place};
use tests::lab::{Lab, SERVER, Site, Uplink, trial};
use tests::pki::{Authority, Issued};
use tests::rig::{Agent, Rig};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// The cluster of the site.
const CLUSTER: &str = "edge-a";

/// The API server's name in its certificate for the way in, and where that is.
const NAME: &str = "kube-apiserver-egress";
const EGRESS_PORT: u16 = 8131;

/// Where Services and the node are at the site; the cloud has no route to them.
const HOOK: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 50);
const EXTENSION: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 51);
const NODE: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);

/// What the aggregated API says of a thing, and what the node's container has written.
const THING: &str =
    "{\"kind\":\"Thing\",\"apiVersion\":\"lab.tombolo.test/v1\",\"metadata\":{\"name\":\"bell\"}}";
const WRITTEN: &str = "written at the site\n";

#[test]
fn webhooks_aggregated_apis_and_kubelets_at_a_site_serve_an_api_server_in_the_cloud() {
    trial("an_api_server_reaches_a_site_by_its_egress", async |lab| {
        let edge = Edge::start(lab).await;
        let kubectl = edge.cluster.admin().limit(SOON);

        // A validating webhook: its Service's address is dialed from the site.
        let denied = kubectl.run(&["create", "configmap", "refused"]).await.unwrap();
        let said = String::from_utf8_lossy(&denied.stderr).into_owned();
        assert!(!denied.status.success() && said.contains("the site says no"), "{said}");
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
                (Some("way-in:host-a"), "egress", CLUSTER)
            );
        }
        // By no other way, and by this one as long as policy says so.
        edge.rig.put_policy(&[rule("host-z")]).await;
        let failed = kubectl.run(&["create", "configmap", "late"]).await.unwrap();
        let said = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && said.contains("failed calling webhook"), "{said}");
    });
}

/// An API server in the cloud, and a site with what it needs.
struct Edge {
    rig: Rig,
    cluster: EdgeCluster,
    _agent: Agent,
    _site: Site,
}

impl Edge {
    async fn start(lab: &Lab) -> Self {
        let (client_ca, site_ca) = (Authority::new("egress-ca"), Authority::new("site-ca"));
        let path = |name: &str| lab.path().join(name);
        let own = client_ca.issue_user(NAME, &[]);
        for (name, text) in [
            ("egress-ca.crt", client_ca.certificate_pem()),
            ("egress.crt", &own.certificate_pem),
            ("egress.key", &own.key_pem),
        ] {
            std::fs::write(path(name), text).unwrap();
        }
        // A webhook holds up who waits for it: here nobody waits for a cluster that is away.
        let more = format!(
            "parking: {{ limitSeconds: 0 }}\negress: [{{ name: host-a, cluster: {CLUSTER}, tcp: {{ listen: \"{SERVER}:{EGRESS_PORT}\", \
             clientCAFile: {:?}, clientName: {NAME} }} }}]\n",
            path("egress-ca.crt"),
        );
        let rig = lab.rig(&more).await;
        let site = site(lab, &site_ca).await;
        let fake = site.fake_api(FakeApiOptions::default()).await;
        let targets = "targets: [\"10.96.0.0/16:443\", \"10.42.0.0/24:10250\"]\n";
        let agent = site.agent(&rig, &fake, targets).await;
        tests::enroll::at(
            &rig,
            &["cluster", "update", CLUSTER, "--advertise", "10.96.0.0/16", "--advertise", "10.42.0.0/24"],
        )
        .await;
        rig.put_policy(&[rule("host-a")]).await;
        let cluster = EdgeCluster::start_at(Place {
            network_namespace: Some(lab.cloud().path().to_owned()),
            address: SERVER.into(),
            port: Some(6443),
            advertise: SERVER.into(),
            egress_selector: Some(selector(&rig, lab.path())),
            ..Place::default()
        })
        .await
        .unwrap();
        let objects = path("objects.json");
        std::fs::write(&objects, objects_of(&site_ca).to_string()).unwrap();
        let kubectl = cluster.admin().limit(SOON);
        kubectl.stdout(&["apply", "-f", objects.to_str().unwrap()]).await;
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
        // A webhook is in force some time after it was written.
        let words = ["create", "configmap", "refused", "--dry-run=server"];
        let in_force = async { while kubectl.run(&words).await.unwrap().status.success() {} };
        timeout(SOON, in_force).await.expect("the webhook is in force");
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
    let served: [(SocketAddr, Issued, Answer); 3] = [
        ((HOOK, 443).into(), authority.issue_server(&[&hook], &[]), review),
        ((EXTENSION, 443).into(), authority.issue_server(&[&extension], &[]), things),
        ((NODE, 10250).into(), authority.issue_server(&[], &[IpAddr::V4(NODE)]), logs),
    ];
    for (address, certificate, answer) in served {
        site.run(serve(address, certificate, answer)).await;
    }
    site
}

/// What somebody answers at a path, to a body.
type Answer = fn(&str, &Value) -> Option<String>;

fn review(_: &str, asked: &Value) -> Option<String> {
    let request = &asked["request"];
    let allowed = request["name"] != "refused";
    let response =
        json!({ "uid": request["uid"], "allowed": allowed, "status": { "message": "the site says no" } });
    Some(
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
            .to_string(),
    )
}

fn things(path: &str, _: &Value) -> Option<String> {
    let resources = json!([{
        "name": "things", "singularName": "thing", "namespaced": false, "kind": "Thing", "verbs": ["get"],
    }]);
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "lab.tombolo.test/v1", "resources": resources,
    });
    match path {
        "/apis/lab.tombolo.test/v1" => Some(list.to_string()),
        "/apis/lab.tombolo.test/v1/things/bell" => Some(THING.to_owned()),
        _ => None,
    }
}

fn logs(path: &str, _: &Value) -> Option<String> {
    (path == "/containerLogs/default/talker/talker").then(|| WRITTEN.to_owned())
}

/// Serves at an address of the namespace in which this is called, as long as the namespace is there.
async fn serve(address: SocketAddr, certificate: Issued, answer: Answer) {
    let chain = CertificateDer::pem_slice_iter(certificate.certificate_pem.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(move |request| answered(request, answer));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
}

async fn answered(request: Request<Incoming>, answer: Answer) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let asked = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let mut response = Response::new(Full::default());
    match answer(&path, &asked) {
        Some(text) => {
            let kind = if text.starts_with('{') { "application/json" } else { "text/plain" };
            response.headers_mut().insert("content-type", kind.parse().unwrap());
            *response.body_mut() = text.into();
        }
        None => *response.status_mut() = http::StatusCode::NOT_FOUND,
    }
    Ok(response)
}

/// The file that tells kube-apiserver where its egress goes.
fn selector(rig: &Rig, folder: &Path) -> std::path::PathBuf {
    let file = folder.join("egress.json");
    let name = |name: &str| folder.join(name).display().to_string();
    let tls = json!({
        "caBundle": rig.path().join("pki/server-ca.crt"), "clientKey": name("egress.key"), "clientCert": name("egress.crt"),
    });
    let transport = json!({ "tcp": { "url": format!("https://{SERVER}:{EGRESS_PORT}"), "tlsConfig": tls } });
    let selection = json!({
        "name": "cluster", "connection": { "proxyProtocol": "HTTPConnect", "transport": transport },
    });
    let document = json!({
        "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration", "egressSelections": [selection],
    });
    std::fs::write(&file, document.to_string()).unwrap();
    file
}

fn rule(name: &str) -> String {
    format!(
        "{{ name: egress, effect: Allow, subjects: [{{ method: \"way-in:{name}\", user: \"*\" }}], \
         clusters: {{ names: [{CLUSTER}] }}, mode: dial, \
         targets: [{{ hosts: [\"10.96.0.0/16\"], ports: [\"443\"] }}, {{ hosts: [\"10.42.0.0/24\"], ports: [\"10250\"] }}] }}"
    )
}

/// Services without pods, a webhook, an aggregated API, and a pod of a node.
fn objects_of(authority: &Authority) -> Value {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(authority.certificate_pem());
    let service = |name: &str, address: Ipv4Addr| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "default" },
            "spec": { "clusterIP": address, "ports": [{ "name": "https", "port": 443 }] },
        })
    };
    let slice = |name: &str| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": name, "namespace": "default", "labels": { "kubernetes.io/service-name": name } },
            "ports": [{ "name": "https", "port": 443 }],
            "endpoints": [{ "addresses": [NODE], "conditions": { "ready": true } }],
        })
    };
    let to = |name: &str| json!({ "name": name, "namespace": "default", "port": 443 });
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "site" },
        "webhooks": [{
            "name": "site.lab.tombolo.test", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 30,
            "clientConfig": { "service": to("hook"), "caBundle": ca },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "default" } },
        }],
    });
    let api = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1.lab.tombolo.test" },
        "spec": {
            "group": "lab.tombolo.test", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": to("extension"), "caBundle": ca,
        },
    });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "site" } });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "talker", "namespace": "default" },
        "spec": { "nodeName": "site", "containers": [{ "name": "talker", "image": "talker" }] },
    });
    let items = [
        service("hook", HOOK),
        service("extension", EXTENSION),
        slice("hook"),
        slice("extension"),
        api,
        node,
        pod,
        hook,
    ];
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}
