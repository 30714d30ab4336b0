//! Discovery: the API server's resources are listed, cached and explained the same by every route.

use std::time::Instant;

use serde_json::Value;
use tests::caller::SOON;
use tests::kube::audit::AuditEvent;
use tests::real_edge::{CLUSTER, RealEdge};
use tests::routes::{RouteClient, TestRequest};
use tokio::time::{Duration, sleep};

use super::{as_it_is, outputs_agree};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const OPENAPI_V3: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// A group that only the documents of our own type contain.
const GROUP: &str = "tombolo.test";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_documents_are_the_same_and_are_not_sent_twice() {
    let edge = RealEdge::shared().await;
    let lines = edge.lines().await;
    knows_our_type(lines.direct()).await;

    for (path, accept) in [
        ("/api", AGGREGATED),
        ("/apis", AGGREGATED),
        ("/openapi/v2", OPENAPI_V2),
        ("/openapi/v2", "application/json"),
        ("/openapi/v3/api/v1", OPENAPI_V3),
    ] {
        let complete =
            lines.agree(&TestRequest::get(path).accept(accept).header("accept-encoding", "gzip")).await;
        assert_eq!(complete.status, 200, "{path}");
        let etag =
            complete.header("etag").unwrap_or_else(|| panic!("{path} has no ETag: {:?}", complete.headers));
        let again = lines.agree(&TestRequest::get(path).accept(accept).header("if-none-match", etag)).await;
        assert!(again.status == 304 && again.body.is_empty(), "{path}: {}", again.status);
    }
    for path in ["/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/tombolo.test/v1"] {
        let answer = lines.agree(&TestRequest::get(path)).await;
        assert_eq!(answer.status, 200, "{path}");
    }

    // Every group's OpenAPI has an URL with a hash, which may be kept for ever; the index itself has an ETag.
    let index = lines.agree(&TestRequest::get("/openapi/v3")).await;
    let index: Value = serde_json::from_slice(&index.body).unwrap();
    let groups = index["paths"].as_object().unwrap();
    assert!(groups.len() > 20, "{index}");
    for group in groups.values() {
        let url = group["serverRelativeURL"].as_str().unwrap();
        let document = lines.agree(&TestRequest::get(url)).await;
        assert_eq!(document.status, 200, "{url}");
        assert!(document.header("cache-control").unwrap().contains("immutable"), "{:?}", document.headers);
    }
    // An old hash is sent on to the new one; the answer's Location is the only thing that differs by path.
    let old = TestRequest::get("/openapi/v3/api/v1?hash=0123");
    let [direct, path, host] = lines.ask(&old).await;
    assert_eq!([direct.status, path.status, host.status], [301; 3]);
    let location = direct.header("location").unwrap().to_owned();
    assert_eq!(host.header("location"), Some(location.as_str()));
    assert_eq!(path.header("location"), Some(format!("/clusters/{CLUSTER}{location}").as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_explains_the_same_by_every_entry_point() {
    let edge = RealEdge::shared().await;
    knows_our_type(edge.lines().await.direct()).await;
    for words in [
        "explain pods.spec.containers.livenessProbe",
        "explain deployments.spec --recursive",
        "explain configmaps --output=plaintext-openapiv2",
        "explain islands.spec.tides",
        "explain islands --api-version=tombolo.test/v1",
        "api-versions",
        "api-resources --sort-by=name -o wide",
        "api-resources --api-group=tombolo.test --verbs=list -o name",
    ] {
        outputs_agree(&edge.routes, &words.split(' ').collect::<Vec<_>>(), as_it_is, true).await;
    }
    outputs_agree(&edge.routes, &["explain", "nothings"], as_it_is, false).await;
    for route in &edge.routes {
        let info = route.kubectl.stdout(&["cluster-info"]).await;
        let url = format!("https://{}:{}{}", route.host, route.address.port(), route.prefix);
        assert!(info.contains(&url), "{info}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_caches_discovery_and_later_only_revalidates_it() {
    let edge = RealEdge::shared().await;
    knows_our_type(edge.lines().await.direct()).await;
    let routes = edge.routes_of("carol").await;
    let direct = routes[0].connect().await;
    for route in &routes {
        let kubectl = route.kubectl.clone().with_home(edge.rig.path().join(format!("home {}", route.name)));
        let mut outputs = Vec::new();
        for command in ["get configmaps", "get configmaps", "api-resources"] {
            let before = complete_requests_of_carol(&edge).len();
            kubectl.stdout(&command.split(' ').collect::<Vec<_>>()).await;
            outputs.push(discoveries(&edge, &direct, before).await);
        }
        assert_eq!(outputs[0], [200, 200], "{}: /api and /apis are asked for once", route.name);
        assert_eq!(outputs[1], [0; 0], "{}: the second time nothing is asked", route.name);
        assert_eq!(outputs[2], [304, 304], "{}: only whether it has changed", route.name);
    }
}

/// The statuses of carol's discovery requests after the first `from` ones. None of hers is in flight.
async fn discoveries(edge: &RealEdge, direct: &RouteClient, from: usize) -> Vec<u16> {
    // The log is written when an answer ends, which may be after kubectl has ended.
    let marker = format!("/livez/ping?after={from}");
    direct.ask(&TestRequest::get(&marker)).await;
    let deadline = Instant::now() + SOON;
    loop {
        let events = complete_requests_of_carol(edge);
        if events.iter().any(|event| event.request_uri == marker) {
            let discoveries = events[from..]
                .iter()
                .filter(|event| ["/api", "/apis"].contains(&event.request_uri.split('?').next().unwrap()));
            return discoveries
                .map(|event| event.response_status.as_ref().and_then(|status| status.code).unwrap_or(0))
                .collect();
        }
        assert!(Instant::now() < deadline, "the audit log never had {marker}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The completed requests of carol, in the order of their ends.
fn complete_requests_of_carol(edge: &RealEdge) -> Vec<AuditEvent> {
    let mut events = edge.cluster.audit().expect("the audit log is readable");
    events.retain(|event| {
        let user = event.impersonated_user.as_ref().unwrap_or(&event.user);
        user.username == "carol" && event.stage == "ResponseComplete"
    });
    events
}

/// The API server's documents have our type a little later than it is served.
async fn knows_our_type(direct: &RouteClient) {
    let deadline = Instant::now() + SOON;
    for (path, accept) in
        [("/apis", AGGREGATED), ("/openapi/v3", "application/json"), ("/openapi/v2", "application/json")]
    {
        let ask = TestRequest::get(path).accept(accept);
        while !String::from_utf8_lossy(&direct.ask(&ask).await.body).contains(GROUP) {
            assert!(Instant::now() < deadline, "{path} never had {GROUP}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}
