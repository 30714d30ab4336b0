//! Reading: get, list and describe by kubectl and libraries give the same by every route.

use tests::real_edge::RealEdge;
use tests::routes::TestRequest;

use super::{as_it_is, config_map, create, outputs_agree, without_age};

const NAMESPACE: &str = "reading";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_shows_the_same_by_every_entry_point() {
    let edge = RealEdge::shared().await;
    edge.namespace(NAMESPACE).await;
    let maps = (0..7).map(|number| config_map(&format!("map-{number}"), "x"));
    create(&edge, &format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), maps).await;

    for words in [
        "get configmap map-1 -o json",
        "get configmap map-1 -o yaml --show-managed-fields",
        "get configmaps -o name",
        "get configmaps -o name --chunk-size=3",
        "get configmaps -l kept=no -o jsonpath={.items[*].metadata.name}",
        "get configmaps --field-selector metadata.name=map-2 -o go-template={{.kind}}",
        "get configmaps -o custom-columns=N:.metadata.name,D:.data.a --sort-by=.metadata.name",
        "get configmap map-1 map-2 -o name",
        "get configmaps -o name --ignore-not-found --show-kind",
        "get --raw /api/v1/namespaces/reading/configmaps/map-1",
        "get --raw /version",
        "get --raw /healthz?verbose",
        "describe configmap map-1",
        "describe namespace reading",
        "get clusterroles -o name",
        "get flowschemas -o json",
        "version -o json",
        "auth can-i create pods --subresource=exec",
        "auth can-i --list",
        // Only a part, because the API server itself adds a fingerprint of a certificate that it has seen.
        "auth whoami -o jsonpath={.status.userInfo.username}{.status.userInfo.groups}",
        "events",
    ] {
        outputs_agree(&edge.routes, &words_of(words), as_it_is, true).await;
    }
    for words in ["get configmaps", "get configmaps -o wide", "get namespace default", "get all,cm"] {
        outputs_agree(&edge.routes, &words_of(words), without_age, true).await;
    }
    for words in [
        "get configmap nobody",
        "get nothings",
        "get --raw /api/v1/namespaces/reading/configmaps/nobody",
        "describe pod nobody",
        "logs nobody",
        "get pods --server-print=false --field-selector=no.such=field",
    ] {
        outputs_agree(&edge.routes, &words_of(words), as_it_is, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_answers_are_the_same_byte_for_byte() {
    let edge = RealEdge::shared().await;
    edge.namespace("raw").await;
    let maps = (0..9).map(|number| config_map(&format!("map-{number}"), "ü/%2F\\u2028"));
    let version = create(&edge, "/api/v1/namespaces/raw/configmaps", maps).await;
    let lines = edge.lines().await;

    let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
    for (path, status) in [
        ("/api/v1/namespaces/raw/configmaps/map-1".to_owned(), 200),
        (format!("/api/v1/namespaces/raw/configmaps?{exact}"), 200),
        (format!("/api/v1/configmaps?{exact}&labelSelector=kept%3Dno%2Ckept+in+%28no%29"), 200),
        (format!("/api/v1/namespaces/raw/configmaps?{exact}&fieldSelector=metadata.name%3Dmap-2"), 200),
        ("/api/v1/namespaces/raw/configmaps/map-1?pretty=true".to_owned(), 200),
        ("/api/v1/namespaces/raw/configmaps/nobody".to_owned(), 404),
        ("/api/v1/namespaces/raw/nothings".to_owned(), 404),
        ("/apis/no.such.group/v1/things".to_owned(), 404),
        ("/api/v1/namespaces/raw/configmaps?limit=nonsense".to_owned(), 400),
        ("/api/v1/namespaces/raw/configmaps?fieldSelector=no.such%3Dfield".to_owned(), 400),
        ("/api/v1/namespaces/raw/pods/nobody/log".to_owned(), 404),
        ("/livez/ping".to_owned(), 200),
        ("/openid/v1/jwks".to_owned(), 200),
        ("/.well-known/openid-configuration".to_owned(), 200),
    ] {
        let answer = lines.agree(&TestRequest::get(&path)).await;
        assert_eq!(answer.status, status, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }
    for method in ["HEAD", "OPTIONS"] {
        let ask = TestRequest::of(method, "/api/v1/namespaces/raw/configmaps/map-1");
        lines.agree(&ask).await;
    }
    let future = "/api/v1/namespaces/raw/configmaps?resourceVersion=999999999&timeoutSeconds=1";
    let answers =
        lines.ask(&TestRequest::get(future)).await.map(|answer| (answer.status, timeless(&answer.body)));
    assert_eq!(answers[0].0, 504, "{}", answers[0].1);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

/// A refusal without the cluster's present version, which every write increases.
fn timeless(refusal: &[u8]) -> String {
    let text = String::from_utf8_lossy(refusal);
    let (before, version) = text.split_once("current: ").expect("it names the present version");
    format!("{before}{}", version.trim_start_matches(|digit: char| digit.is_ascii_digit()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_in_chunks_is_the_same_to_its_last_continue_token() {
    let edge = RealEdge::shared().await;
    edge.namespace("chunks").await;
    let maps = (0..10).map(|number| config_map(&format!("map-{number}"), "x"));
    let version = create(&edge, "/api/v1/namespaces/chunks/configmaps", maps).await;
    let lines = edge.lines().await;

    let path = "/api/v1/namespaces/chunks/configmaps?limit=3";
    let mut chunks = 0;
    let mut next = Some(format!("{path}&resourceVersion={version}&resourceVersionMatch=Exact"));
    while let Some(path_of_chunk) = next {
        let answer = lines.agree(&TestRequest::get(path_of_chunk)).await;
        chunks += 1;
        let list: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        next = list["metadata"]["continue"].as_str().map(|token| format!("{path}&continue={token}"));
    }
    assert_eq!(chunks, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_over_http1_are_the_same_byte_for_byte() {
    let edge = RealEdge::shared().await;
    edge.namespace("http1").await;
    let collection = "/api/v1/namespaces/http1/configmaps";
    let version = create(&edge, collection, (0..3).map(|number| large(&format!("map-{number}")))).await;
    let list = format!("{collection}?resourceVersion={version}&resourceVersionMatch=Exact");
    let watch = format!("{collection}?watch=1&resourceVersion={version}&timeoutSeconds=5");
    let body = config_map("map-0", "again").to_string();

    for (ask, status) in [
        (TestRequest::get(format!("{collection}/map-1")), 200),
        (TestRequest::get(&list), 200),
        (TestRequest::get(&list).header("accept-encoding", "gzip"), 200),
        (TestRequest::get(&list).accept("application/vnd.kubernetes.protobuf"), 200),
        (TestRequest::get(watch), 200),
        (TestRequest::get(format!("{collection}/nobody")), 404),
        (TestRequest::of("HEAD", format!("{collection}/map-1")), 405),
        (TestRequest::with("POST", collection, "application/json", body), 409),
        (TestRequest::with("POST", collection, "application/json", "{"), 400),
    ] {
        let answer = edge.agree_over_http1(&ask).await;
        assert_eq!(answer.status, status, "{ask:?}: {}", String::from_utf8_lossy(&answer.body));
    }
}

/// A ConfigMap that the API server sends in chunks, and compresses if it may.
fn large(name: &str) -> serde_json::Value {
    config_map(name, &name.repeat(50_000))
}

fn words_of(words: &str) -> Vec<&str> {
    words.split(' ').chain(["-n", NAMESPACE]).collect()
}
