//! Queries of which two parsers could disagree are refused, and the others arrive in one form.

use std::time::Duration;

use bytes::Bytes;
use tests::caller::{GATEWAY, Http1Caller, Http2Caller, head};
use tests::fake_api::{Behaviour, HttpVersion};
use tests::fake_edge::FakeEdge;
use tests::real_edge::RealEdge;
use tests::rig::policy::rule;
use tests::rig::{GROUP, TOKEN, ask_raw};
use tests::routes::TestRequest;

/// The holder of the rig's token.
const HOLDERS: (&str, &str) = ("token", "token:tombolo:admins");

const PODS: &str = "/clusters/edge-a/api/v1/namespaces/n/pods";

/// Callers of a real API server, who may everything there.
const ADMINS: (&str, &str) = ("client-certificate", GROUP);

/// The rule of callers who may only list, or only watch.
fn only(callers: (&str, &str), verb: &str) -> String {
    let actions =
        format!("{{ verbs: [{verb}], apiGroups: [\"*\"], resources: [\"*\"], namespaces: [\"*\"] }}");
    rule("only", "Allow", callers, &["*"], &actions)
}

/// To Go each of these is a watch or a list, and to another parser the other of both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_hides_a_watch_or_a_list_is_refused_and_reaches_nobody() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    let flood = format!("watch=1&allowWatchBookmarks=1{}", "&".repeat(10_000));
    for verb in ["list", "watch"] {
        edge.rig.put_policy(&[only(HOLDERS, verb)]).await;
        for (query, word) in [
            ("watch=%ff", "UTF-8"),
            ("watch=%80", "UTF-8"),
            ("watch=%c0%80", "UTF-8"),
            ("watch=%ff&fieldSelector=metadata.name%3D", "UTF-8"),
            ("watch=%80&timeoutSeconds=x", "UTF-8"),
            ("watch=%zz", "UTF-8"),
            ("watch=fal%C5%BFe", "in two ways"),
            ("watch=0&watch=1", "in two ways"),
            ("watch=1;x", "%3B"),
            (&flood, "parameters"),
        ] {
            let target = format!("{PODS}?{query}");
            let lines = format!("Host: {GATEWAY}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n");
            let ca = edge.rig.server_ca();
            let bytes = format!("GET {target} HTTP/1.1\r\n{lines}\r\n");
            let reply = ask_raw(edge.rig.gateway(), &ca, None, bytes.as_bytes()).await.unwrap();
            assert_eq!(reply.status, 400, "{verb} {query:.60}: {reply:?}");
            let is_status = reply.body.contains("\"kind\":\"Status\"") && reply.body.contains(word);
            assert!(is_status, "{verb} {query:.60}: {reply:?}");
            let mut http2 = Http2Caller::dial(&edge.rig).await;
            let reply = http2.ask("GET", &target, &[]).await.unwrap();
            assert_eq!(reply.status(), 400, "{verb} {query:.60} over HTTP/2");
        }
    }
    assert_eq!(edge.fake.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_arrives_in_its_canonical_form_by_every_verb() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let edge = FakeEdge::start(version).await;
        edge.fake.otherwise(Behaviour::json("{}"));
        let sent = format!("{PODS}/p?labelSelector=a%20in%20(b,c)&w%61tch=%30&dry+run&x=%c3%a4&x=");
        let canonical =
            "/api/v1/namespaces/n/pods/p?labelSelector=a+in+%28b%2Cc%29&watch=0&dry+run=&x=%C3%A4&x=";
        let mut http2 = Http2Caller::dial(&edge.rig).await;
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let reply = http2.ask(method, &sent, &[]).await.unwrap();
            assert_eq!(reply.status(), 200, "{method}");
            let arrived = edge.fake.requests().pop().unwrap();
            assert_eq!((arrived.method.as_str(), arrived.target.as_str()), (method, canonical));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_query_of_an_upgrade_arrives_in_its_canonical_form() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::Upgrade { pause: Duration::ZERO, first: Bytes::from_static(b"first") });
    for protocol in ["websocket", "SPDY/3.1"] {
        let mut caller = Http1Caller::dial(&edge.rig).await;
        let lines = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
        let target = format!("{PODS}/p/exec?command=a%2bb&command=c%20d&%73tdin");
        caller.write(head("POST", &target, &lines)).await;
        let answered = caller.read_head().await;
        assert!(answered.starts_with("HTTP/1.1 101 "), "{answered}");
        let arrived = edge.fake.requests().pop().unwrap();
        assert_eq!(arrived.target, "/api/v1/namespaces/n/pods/p/exec?command=a%2Bb&command=c+d&stdin=");
    }
}

/// The HTTP library drops a fragment before the gateway sees the request. What is left is authorized, and the same is
/// forwarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_without_a_fragment_is_authorized_and_forwarded() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    for (verb, status) in [("list", 200), ("watch", 403)] {
        edge.rig.put_policy(&[only(HOLDERS, verb)]).await;
        for own in ["?limit=1#&watch=1", "?limit=1#?watch=1"] {
            let before = edge.fake.requests().len();
            let mut caller = Http1Caller::dial(&edge.rig).await;
            caller.write(head("GET", &format!("{PODS}{own}"), "")).await;
            let answered = caller.read_head().await;
            assert!(answered.starts_with(&format!("HTTP/1.1 {status} ")), "{verb} {own}: {answered}");
            let arrived: Vec<_> = edge.fake.requests().split_off(before);
            let arrived: Vec<&str> = arrived.iter().map(|request| request.target.as_str()).collect();
            let expected: &[&str] = if status == 200 { &["/api/v1/namespaces/n/pods?limit=1"] } else { &[] };
            assert_eq!(arrived, expected, "{verb} {own}");
        }
    }
}

/// Directly, the API server reads each of these otherwise than a parser that skips what it cannot decode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_api_server_gets_no_query_that_it_reads_otherwise() {
    let edge = RealEdge::start().await;
    let [direct, through, _] = &edge.routes;
    let flood = format!("watch=1&allowWatchBookmarks=1{}", "&".repeat(10_000));
    let mut current = "";
    for (may, query, is_watch) in [
        ("list", "watch=%ff&timeoutSeconds=1", true),
        ("list", "watch=%80&timeoutSeconds=1", true),
        ("list", "watch=%c0%80&timeoutSeconds=1", true),
        ("watch", "watch=fal%C5%BFe", false),
        ("watch", flood.as_str(), false),
    ] {
        if may != current {
            edge.rig.put_policy(&[only(ADMINS, may)]).await;
            current = may;
        }
        let asked = TestRequest::get(format!("/api/v1/namespaces/default/configmaps?{query}"));
        let reply = direct.ask_http1(&asked).await;
        let body = String::from_utf8_lossy(&reply.body);
        assert_eq!(reply.status, 200, "{query:.40}: {body}");
        assert_eq!(!body.contains("ConfigMapList"), is_watch, "{query:.40}: {body}");
        let reply = through.ask_http1(&asked).await;
        assert_eq!(reply.status, 400, "{may} {query:.40}: {reply:?}");
    }
    // What the caller may is served all the same.
    edge.rig.put_policy(&[only(ADMINS, "list")]).await;
    for (query, status) in [("w%61tch=%30", 200), ("w%61tch=%31", 403)] {
        let asked = TestRequest::get(format!("/api/v1/namespaces/default/configmaps?{query}"));
        assert_eq!(through.ask_http1(&asked).await.status, status, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_of_one_namespace_keeps_its_objects_out_of_every_list() {
    let edge = RealEdge::start().await;
    let [_, through, _] = &edge.routes;
    let of = |effect: &str, resources: &str, namespaces: &str| {
        let actions = format!(
            "{{ verbs: [\"*\"], apiGroups: [\"\"], resources: [{resources}], namespaces: [{namespaces}] }}"
        );
        rule(&effect.to_lowercase(), effect, ADMINS, &["*"], &actions)
    };
    edge.rig.put_policy(&[of("Allow", "\"*\"", "\"*\""), of("Deny", "secrets", "default")]).await;
    for (path, status) in [
        ("/api/v1/secrets", 403),
        ("/api/v1/secrets?watch=1&timeoutSeconds=1", 403),
        ("/api/v1/secrets?fieldSelector=metadata.namespace%3Ddefault", 403),
        ("/api/v1/watch/secrets?timeoutSeconds=1", 403),
        ("/api/v1/namespaces/default/secrets", 403),
        ("/api/v1/namespaces/kube-system/secrets", 200),
        ("/api/v1/configmaps", 200),
        ("/api/v1/nodes", 200),
    ] {
        let reply = through.ask_http1(&TestRequest::get(path)).await;
        assert_eq!(reply.status, status, "{path}: {reply:?}");
    }
}
