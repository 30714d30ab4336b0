//! Discovery of the cluster's endpoints and Services.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use policy::{Target, TargetEntry};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tunnel_agent::apiserver::{DocumentError, Timeouts};
use tunnel_agent::config::{TenantKind, Tenants};
use tunnel_agent::discovery::{Discovery, DiscoveryError};
use tunnel_agent::guard::services::{BackendError, Services};

use crate::fake::{TIMEOUT, http2, pair, soon};

const SLICES: &str =
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?fieldSelector=metadata.name%3Dkubernetes";
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const KUBEADM_CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config";
const TENANTS: &str = "/api/v1/namespaces/tenant-a/services?labelSelector=";

const HOOK: &str = "/api/v1/namespaces/shop/services?fieldSelector=metadata.name%3Dhook";
const HOOK_SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices\
                           ?labelSelector=kubernetes.io%2Fservice-name%3Dhook";

type Answer = Response<UnsyncBoxBody<Bytes, std::convert::Infallible>>;

fn whole(text: impl Into<Bytes>) -> Answer {
    Response::new(Full::from(text.into()).boxed_unsync())
}

fn refused(status: StatusCode) -> Answer {
    let mut response = whole("{}");
    *response.status_mut() = status;
    response
}

fn slice(addresses: &[&str]) -> Answer {
    let endpoints: Vec<_> = addresses.iter().map(|address| json!({ "addresses": [address] })).collect();
    let ports = json!([{ "name": "https", "port": 6443 }]);
    let slice = json!({ "addressType": "IPv4", "endpoints": endpoints, "ports": ports });
    whole(json!({ "metadata": { "resourceVersion": "7" }, "items": [slice] }).to_string())
}

/// The answers of kube-apiserver, kubeadm and a tenant's Service. A watch of these has no events.
fn answer(path: &str) -> Answer {
    let named =
        "apiVersion: v1\nclusters: [{ cluster: { server: 'https://api.site.example:6443' }, name: '' }]\n";
    let configuration = "controlPlaneEndpoint: 'api.site.example'\n";
    match path {
        SLICES => slice(&["192.168.1.10", "127.0.0.1"]),
        CLUSTER_INFO => whole(json!({ "data": { "kubeconfig": named } }).to_string()),
        KUBEADM_CONFIG => whole(json!({ "data": { "ClusterConfiguration": configuration } }).to_string()),
        TENANTS => {
            let metadata = json!({ "name": "api", "namespace": "tenant-a" });
            let spec = json!({ "clusterIPs": ["10.96.0.7"], "ports": [{ "port": 6443 }] });
            whole(json!({ "items": [{ "metadata": metadata, "spec": spec }] }).to_string())
        }
        _ => refused(StatusCode::NOT_FOUND),
    }
}

/// Waits until exactly these endpoints are advertised.
async fn advertised(endpoints: &mut watch::Receiver<Vec<String>>, expected: &[&str]) {
    soon(endpoints.wait_for(|endpoints| endpoints == expected)).await.unwrap();
}

#[tokio::test]
async fn endpoints_of_the_cluster_and_its_tenants_are_published() {
    let (scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), |connection, _| {
        http2(connection, |request: http::Request<hyper::body::Incoming>| async move {
            answer(request.uri().path_and_query().unwrap().as_str())
        })
    })
    .await;
    let tenants = Tenants {
        kind: TenantKind::Service,
        namespace: Some("tenant-a".to_owned()),
        label_selector: None,
        port: 6443,
    };
    let discovery = Discovery::new(api_server, Vec::new(), &[], &[tenants], false);
    let (mut endpoints, services) = (discovery.subscribe(), discovery.services());

    scope.spawn(discovery.run(scope.clone()));

    let expected = ["192.168.1.10:6443", "api.site.example:6443", "10.96.0.7:6443", "api.tenant-a.svc:6443"];
    advertised(&mut endpoints, &expected).await;
    // By the Service's own address, and not by DNS.
    let api: Vec<SocketAddr> = vec!["10.96.0.7:6443".parse().unwrap()];
    assert_eq!(services.borrow().endpoints(&"api.tenant-a.svc:6443".parse().unwrap()), Ok(api.as_slice()));
    soon(scope.close(TIMEOUT)).await.unwrap();
}

#[tokio::test]
async fn a_change_is_published_as_soon_as_a_watch_reports_it() {
    let (tell, told) = mpsc::channel::<()>(1);
    let (lists, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Mutex::new(told)));
    let (scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
        let (lists, told) = (lists.clone(), told.clone());
        http2(connection, move |request: http::Request<hyper::body::Incoming>| {
            let (lists, told) = (lists.clone(), told.clone());
            async move {
                let path = request.uri().path_and_query().unwrap().to_string();
                if path == SLICES {
                    let is_first = lists.fetch_add(1, Ordering::SeqCst) == 0;
                    return slice(if is_first { &["10.0.0.1"] } else { &["10.0.0.1", "10.0.0.2"] });
                }
                if path != format!("{SLICES}&watch=true&resourceVersion=7&timeoutSeconds=60") {
                    return refused(StatusCode::NOT_FOUND);
                }
                let event = async move {
                    told.lock().await.recv().await;
                    Ok(Frame::data(Bytes::from_static(b"{\"type\":\"MODIFIED\"}\n")))
                };
                Response::new(StreamBody::new(futures::stream::once(event)).boxed_unsync())
            }
        })
    })
    .await;
    let discovery = Discovery::new(api_server, Vec::new(), &[], &[], false);
    let mut endpoints = discovery.subscribe();
    scope.spawn(discovery.run(scope.clone()));
    advertised(&mut endpoints, &["10.0.0.1:6443"]).await;

    tell.send(()).await.unwrap();

    advertised(&mut endpoints, &["10.0.0.1:6443", "10.0.0.2:6443"]).await;
    soon(scope.close(TIMEOUT)).await.unwrap();
}

/// An API server with a Service and its slices, each with a version of its own. A watch sends newer versions.
struct Cluster {
    service: watch::Sender<(u64, Value)>,
    slice: watch::Sender<(u64, Value)>,
}

impl Cluster {
    fn of(service: Value, slice: Value) -> Arc<Self> {
        let answered = |item| watch::Sender::new((1, item));
        Arc::new(Self { service: answered(service), slice: answered(slice) })
    }

    fn answer(&self, path: &str) -> Answer {
        let answered = if path.starts_with(HOOK) { &self.service } else { &self.slice };
        if let Some((_, watched)) = path.split_once("&watch=true&resourceVersion=") {
            let since: u64 = watched.split('&').next().unwrap().parse().unwrap();
            let mut answered = answered.subscribe();
            let event = async move {
                let _ = answered.wait_for(|(version, _)| *version > since).await;
                Ok(Frame::data(Bytes::from_static(b"{\"type\":\"MODIFIED\"}\n")))
            };
            return Response::new(StreamBody::new(futures::stream::once(event)).boxed_unsync());
        }
        if ![HOOK, HOOK_SLICES].contains(&path) {
            return refused(StatusCode::NOT_FOUND);
        }
        match &*answered.borrow() {
            (_, Value::Null) => refused(StatusCode::FORBIDDEN),
            (version, item) => {
                let metadata = json!({ "resourceVersion": version.to_string() });
                whole(json!({ "metadata": metadata, "items": [item] }).to_string())
            }
        }
    }
}

/// Changes the answer from now on.
fn say(answered: &watch::Sender<(u64, Value)>, item: Value) {
    answered.send_modify(|answered| *answered = (answered.0 + 1, item));
}

fn hook() -> Value {
    json!({ "spec": { "type": "ClusterIP", "ports": [{ "name": "https", "port": 443, "targetPort": "web" }] } })
}

fn hook_slice(addresses: &[&str]) -> Value {
    let endpoints: Vec<_> = addresses.iter().map(|address| json!({ "addresses": [address] })).collect();
    json!({ "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "name": "https", "port": 8443 }] })
}

#[tokio::test]
async fn a_named_service_is_followed_as_its_objects_change() {
    let cluster = Cluster::of(hook(), hook_slice(&["10.42.0.2"]));
    let asked = Arc::clone(&cluster);
    let (scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
        let asked = Arc::clone(&asked);
        http2(connection, move |request: http::Request<hyper::body::Incoming>| {
            let answer = asked.answer(request.uri().path_and_query().unwrap().as_str());
            async move { answer }
        })
    })
    .await;
    let target: Target = "hook.shop.svc:443".parse().unwrap();
    let named = [TargetEntry::Exactly(target.clone())];
    let discovery = Discovery::new(api_server, vec!["10.0.0.1:6443".to_owned()], &named, &[], false);
    assert_eq!(*discovery.subscribe().borrow(), ["10.0.0.1:6443", "hook.shop.svc:443"]);
    let mut services = discovery.services();
    scope.spawn(discovery.run(scope.clone()));

    let mut leads = async |expected: Result<&[&str], BackendError>| {
        let expected: Result<Vec<SocketAddr>, _> =
            expected.map(|texts| texts.iter().map(|text| text.parse().unwrap()).collect());
        let is_it = |known: &Services| known.endpoints(&target).map(<[_]>::to_vec) == expected;
        soon(services.wait_for(is_it)).await.unwrap();
    };
    leads(Ok(&["10.42.0.2:8443"])).await;
    say(&cluster.slice, hook_slice(&["10.42.0.2", "10.42.0.3"]));
    leads(Ok(&["10.42.0.2:8443", "10.42.0.3:8443"])).await;
    say(&cluster.slice, hook_slice(&["10.42.0.3"]));
    leads(Ok(&["10.42.0.3:8443"])).await;
    say(&cluster.service, json!({ "spec": { "type": "ExternalName", "externalName": "a.example" } }));
    leads(Err(BackendError::ExternalName)).await;
    say(&cluster.service, hook());
    leads(Ok(&["10.42.0.3:8443"])).await;
    say(&cluster.slice, hook_slice(&[]));
    leads(Err(BackendError::NotReady)).await;
    say(&cluster.slice, hook_slice(&["10.42.0.3"]));
    leads(Ok(&["10.42.0.3:8443"])).await;
    // An agent that may no longer read the Service forgets it.
    say(&cluster.service, Value::Null);
    leads(Err(BackendError::Unread)).await;
    soon(scope.close(TIMEOUT)).await.unwrap();
}

#[tokio::test]
async fn configured_endpoints_win_and_only_the_version_is_asked_for() {
    let others = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&others);
    let (scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
        let counted = Arc::clone(&counted);
        http2(connection, move |request| {
            let is_version = request.uri().path() == "/version";
            counted.fetch_add(usize::from(!is_version), Ordering::Relaxed);
            async { whole(r#"{"gitVersion":"v1.36.3"}"#) }
        })
    })
    .await;
    let discovery = Discovery::new(api_server, vec!["10.0.0.1:6443".to_owned()], &[], &[], false);
    let (endpoints, mut version) = (discovery.subscribe(), discovery.version());

    scope.spawn_background(discovery.run(scope.clone()));

    soon(version.wait_for(|version| version == "v1.36.3")).await.unwrap();
    assert_eq!(*endpoints.borrow(), ["10.0.0.1:6443"]);
    assert_eq!(others.load(Ordering::Relaxed), 0);
    soon(scope.close(TIMEOUT)).await.unwrap();
}

#[tokio::test]
async fn a_refusal_has_advice() {
    let (_scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), |connection, _| {
        http2(connection, |_| async { refused(StatusCode::FORBIDDEN) })
    })
    .await;

    let refused = soon(Discovery::new(api_server, Vec::new(), &[], &[], false).ask_all()).await.unwrap_err();

    assert!(
        matches!(refused, DiscoveryError::Document(DocumentError::Status(StatusCode::FORBIDDEN), _)),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("set advertise"), "{refused}");
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let (_scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), |connection, _| {
        http2(connection, |_| async { whole(vec![b' '; 1024 * 1024 + 1]) })
    })
    .await;

    let refused = soon(Discovery::new(api_server, Vec::new(), &[], &[], false).ask_all()).await;

    assert!(matches!(refused, Err(DiscoveryError::Document(DocumentError::TooLarge(_), _))), "{refused:?}");
}
