//! TLS servers at a site: a webhook, an aggregated API and a kubelet.

use std::convert::Infallible;
use std::net::SocketAddr;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tests::dial::acceptor;
use tests::pki::Issued;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// The aggregated API's answer about a thing, and the log of the node's container.
pub(super) const THING: &str =
    "{\"kind\":\"Thing\",\"apiVersion\":\"lab.tombolo.test/v1\",\"metadata\":{\"name\":\"bell\"}}";
pub(super) const WRITTEN: &str = "written at the site\n";

/// The answer of a server at a path, to a body.
pub(super) type ServiceAnswer = fn(&str, &Value) -> Option<String>;

pub(super) fn review(_: &str, asked: &Value) -> Option<String> {
    reviewed(asked, "the site says no")
}

/// The same with another answer, to distinguish two of them.
pub(super) fn review_otherwise(_: &str, asked: &Value) -> Option<String> {
    reviewed(asked, "the other pod says no")
}

fn reviewed(asked: &Value, no: &str) -> Option<String> {
    let request = &asked["request"];
    let allowed = request["name"] != "refused";
    let response = json!({ "uid": request["uid"], "allowed": allowed, "status": { "message": no } });
    Some(
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
            .to_string(),
    )
}

pub(super) fn things(path: &str, _: &Value) -> Option<String> {
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

pub(super) fn logs(path: &str, _: &Value) -> Option<String> {
    (path == "/containerLogs/default/talker/talker").then(|| WRITTEN.to_owned())
}

/// Serves at an address of the namespace in which this is called, as long as the namespace is there, or until
/// it is aborted with all its connections.
pub(super) async fn serve(address: SocketAddr, certificate: Issued, answer: ServiceAnswer) -> AbortHandle {
    let acceptor = acceptor(&certificate, &[]);
    let listener = TcpListener::bind(address).await.unwrap();
    let serving = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(move |request| answered(request, answer));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    serving.abort_handle()
}

async fn answered(
    request: Request<Incoming>,
    answer: ServiceAnswer,
) -> Result<Response<Full<Bytes>>, Infallible> {
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
