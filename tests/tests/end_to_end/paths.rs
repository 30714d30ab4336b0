//! The cluster that was authorized receives the request, and the path arrives byte for byte.

use std::sync::Mutex;

use tests::caller::{GATEWAY, Http1Caller, Http2Caller, SOON, head};
use tests::fake_api::{Answer, Behaviour, FakeApi, HttpVersion};
use tests::fake_edge::add_cluster;
use tests::rig::policy::allow_all;
use tests::rig::{Agent, GROUP, Reply, Rig, TOKEN, ask_raw};

/// Paths that two servers could read in two ways, or that are not for a cluster at all.
const AMBIGUOUS: [&str; 53] = [
    "/clusters/edge-a/clusters",
    "/clusters/edge-a/clusters/edge-b/api/v1/secrets",
    "/clusters/edge-a/%63lusters/edge-b/api/v1/secrets",
    "/clusters/edge-a/../edge-b/version",
    "/clusters/edge-a/..",
    "/clusters/edge-a/.",
    "/clusters/edge-a/./version",
    "/clusters/./edge-a/version",
    "/clusters/../clusters/edge-a/version",
    "/clusters/edge-a/%2e%2e/edge-b/version",
    "/clusters/edge-a/%2E./edge-b",
    "/clusters/edge-a/..%2fedge-b",
    "/clusters/edge-a/%252e%252e/edge-b",
    "/clusters/edge-a/..%5cedge-b",
    "/clusters/edge-a/..\\edge-b",
    "/clusters/edge-a/api%2fv1",
    "/clusters/edge-a/api%2Fv1",
    "/clusters/edge-a/%00",
    "/clusters/edge-a/a%0d%0ab",
    "/clusters/edge-a/%ff%fe",
    "/clusters/edge-a/%c0%ae%c0%ae/edge-b",
    "/clusters/edge-a/%",
    "/clusters/edge-a/%2",
    "/clusters/edge-a/%zz",
    "/clusters/edge-a//version",
    "/clusters/edge-a/api//v1",
    "/clusters//edge-a/version",
    "//clusters/edge-a/version",
    "/clusters/edge%2da/version",
    "/clusters/EDGE-A/version",
    "/clusters/edge-a./version",
    "/clusters/edge-a%00/version",
    "/clusters/edge-a;x/version",
    "/clusters/-edge/version",
    "/clusters/ed_ge/version",
    "/clusters//version",
    "/clusters/",
    "/%63lusters/edge-a/version",
    "/Clusters/edge-a/version",
    "/clusters%2fedge-a/version",
    "/clustersedge-a/version",
    "/version",
    "/",
    "*",
    "clusters/edge-a/version",
    "edge-a.clusters.test:443",
    "https://gateway.test/clusters/edge-a/version",
    "https://edge-b.clusters.test/version",
    // Above the application's own part of the path the rules hold, whatever that part contains.
    "/clusters/edge-a/api/v1/namespaces/n/services/../proxy/x",
    "/clusters/edge-a/api/v1/namespaces/n/services/s%2fx/proxy/y",
    "/clusters/edge-a/api/v1/namespaces/n/services/s/%70roxy/../../x",
    "/clusters/edge-a/api/v1//nodes/n/proxy/x",
    "/clusters/edge-a/api/v1/namespaces/n/pods/p/log/../proxy/x",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_path_or_the_host_name_selects_the_cluster() {
    let two = TwoClusters::start().await;
    for (host, target, cluster, arrives) in [
        (GATEWAY, "/clusters/edge-a/version", "edge-a", "/version"),
        (GATEWAY, "/clusters/edge-b/version", "edge-b", "/version"),
        ("127.0.0.1:6443", "/clusters/edge-b/version", "edge-b", "/version"),
        ("[::1]:6443", "/clusters/edge-b/version", "edge-b", "/version"),
        (GATEWAY, "/clusters/edge-a", "edge-a", "/"),
        (GATEWAY, "/clusters/edge-a/", "edge-a", "/"),
        (GATEWAY, "/clusters/edge-a?x=y", "edge-a", "/?x=y"),
        // A fragment has no place in a request; it is cut off before anything is decided.
        (GATEWAY, "/clusters/edge-a/version#/../../edge-b", "edge-a", "/version"),
        ("edge-a.clusters.test", "/version", "edge-a", "/version"),
        ("edge-b.clusters.test:443", "/version", "edge-b", "/version"),
        ("EDGE-B.Clusters.Test", "/version", "edge-b", "/version"),
        ("edge-b.clusters.test.", "/version", "edge-b", "/version"),
        ("edge-a.clusters.test", "/", "edge-a", "/"),
    ] {
        let reply = two.ask_as(host, target).await;

        assert_eq!(reply.status, 200, "{host} {target}: {reply:?}");
        assert_eq!(two.arrived(), [(cluster, arrives.to_owned())], "{host} {target}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contradicting_host_name_path_and_tls_name_are_refused() {
    let two = TwoClusters::start().await;
    for (host, target) in [
        ("edge-a.clusters.test", "/clusters/edge-b/version"),
        ("edge-a.clusters.test", "/clusters/edge-a/version"),
        ("edge-a.clusters.test", "/clusters"),
        ("edge-a.clusters.test", "/%63lusters/edge-b/version"),
        ("edge-a.clusters.test", "/clusters%2fedge-b/version"),
    ] {
        let reply = two.ask_as(host, target).await;
        assert!([400, 421].contains(&reply.status), "{host} {target}: {reply:?}");
        assert_eq!(reply.status == 421, !target.contains("%2f"), "{host} {target}: {reply:?}");
    }
    // The name that TLS was asked for, against Host and path.
    for (name, host, target, status) in [
        ("edge-a.clusters.test", "edge-a.clusters.test", "/version", 200),
        (GATEWAY, "edge-a.clusters.test", "/version", 200),
        ("edge-a.clusters.test", "edge-b.clusters.test", "/version", 421),
        ("edge-a.clusters.test", GATEWAY, "/clusters/edge-b/version", 421),
        ("edge-a.clusters.test", GATEWAY, "/clusters", 421),
    ] {
        let mut http1 = Http1Caller::dial_name(&two.rig, name, None).await;
        http1
            .write(head("GET", target, "").replace(&format!("Host: {GATEWAY}"), &format!("Host: {host}")))
            .await;
        let answered = http1.read_head().await;
        assert!(answered.starts_with(&format!("HTTP/1.1 {status} ")), "{name} {host} {target}: {answered}");
        if status == 200 {
            assert_eq!(two.arrived(), [("edge-a", "/version".to_owned())]);
        }
    }
    assert_eq!(two.arrived(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contradicting_authority_and_host_of_http2_are_refused() {
    let two = TwoClusters::start().await;
    let mut caller = Http2Caller::dial(&two.rig).await;
    for host in ["edge-a.clusters.test", "edge-b.clusters.test", "127.0.0.1"] {
        let status = caller.ask("GET", "/clusters/edge-a/version", &[("host", host)]).await.unwrap().status();
        assert_eq!(status, 400, "{host}");
    }
    assert_eq!(two.arrived(), []);
    let same = caller.ask("GET", "/clusters/edge-a/version", &[("host", GATEWAY)]).await.unwrap().status();
    assert_eq!(same, 200);
    assert_eq!(two.arrived(), [("edge-a", "/version".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_of_one_cluster_gets_no_path_into_another() {
    let two =
        TwoClusters::start_with(&[allow_all("only-a", ("client-certificate", "only-a"), &["edge-a"])]).await;
    let alice = two.rig.caller("alice", &["only-a"]).await;
    for (host, target, status) in [
        (GATEWAY, "/clusters/edge-a/version", 200),
        (GATEWAY, "/clusters/edge-b/version", 403),
        (GATEWAY, "/clusters/edge-a/../edge-b/version", 400),
        (GATEWAY, "/clusters/edge-a/%2e%2e/edge-b/version", 400),
        ("edge-b.clusters.test", "/version", 403),
        ("edge-a.clusters.test", "/../clusters/edge-b/version", 400),
    ] {
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let reply =
            ask_raw(two.rig.gateway(), &two.rig.server_ca(), Some(&alice), bytes.as_bytes()).await.unwrap();

        assert_eq!(reply.status, status, "{host} {target}: {reply:?}");
        let arrived: Vec<_> = two.arrived().into_iter().map(|(cluster, _)| cluster).collect();
        assert_eq!(arrived, vec!["edge-a"; usize::from(status == 200)], "{host} {target}");
    }
    assert!(two.b.requests().is_empty(), "nothing reaches the other cluster");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_paths_are_refused_and_reach_nobody() {
    let two = TwoClusters::start().await;
    for path in AMBIGUOUS {
        let asked = two.try_as(GATEWAY, path).await;
        // What is no request line at all gets no more than a bare 400.
        assert!(asked.is_ok_and(|reply| [400, 404, 405].contains(&reply.status)), "{path}");
        assert_eq!(two.arrived(), [], "{path}");
    }
    for length in [64, 120] {
        let long = format!("/clusters/edge-a/{}", "x".repeat(length * 1024));
        assert!([414, 431].contains(&two.ask_as(GATEWAY, &long).await.status), "{length}");
    }
    assert_eq!(two.arrived(), []);
    for host in [
        "",
        "edge-a.clusters.test:x",
        "edge_a.clusters.test",
        "a.edge-a.clusters.test",
        ".clusters.test",
        "x y",
    ] {
        let asked = two.try_as(host, "/version").await;
        assert!(asked.is_ok_and(|reply| [400, 404].contains(&reply.status)), "{host:?}");
        assert_eq!(two.arrived(), [], "{host:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_arrive_byte_for_byte() {
    let two = TwoClusters::start().await;
    let mut http2 = Http2Caller::dial(&two.rig).await;
    for target in [
        "/api/v1/namespaces/%41bc",
        "/api/v1/namespaces/n/configmaps/a%20b",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
        "/api/v1/pods/",
        "/%F0%9F%8F%9D",
        "/a;b=c,d@e!f$g'(h)*+i~j_k-l.m/..n/...",
        "/api/v1/pods?limit=500&continue=eyJ2%3D%3D&=&a=%2F..%2F%2F%2Fx%3Fy%2F..%2Fz",
        "/api/v1/namespaces/n/services/http:s:80/proxy/",
        "/api/v1/namespaces/n/services/s/proxy",
        "/api/v1/namespaces/n/services/s/proxy//a%2Fb//../.%2e/%252e%00;x?q=//%2f..",
        "/api/v1/namespaces/n/pods/p:8080/proxy/../../../secrets",
        "/api/v1/nodes/n/proxy//metrics%2f..//",
        // The query of a proxy belongs to the application.
        "/api/v1/namespaces/n/services/s/proxy/search?%00%ff+%zz=%&&=;a",
    ] {
        let by_path = format!("/clusters/edge-a{target}");
        assert_eq!(two.ask_as(GATEWAY, &by_path).await.status, 200, "{target}");
        assert_eq!(two.arrived(), [("edge-a", target.to_owned())], "by path");
        assert_eq!(two.ask_as("edge-b.clusters.test", target).await.status, 200, "{target}");
        assert_eq!(two.arrived(), [("edge-b", target.to_owned())], "by host name");
        assert_eq!(http2.ask("GET", &by_path, &[]).await.unwrap().status(), 200, "{target}");
        assert_eq!(two.arrived(), [("edge-a", target.to_owned())], "over HTTP/2");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_stay_in_the_cluster_or_are_refused() {
    let two = TwoClusters::start().await;
    for status in [301, 302, 303, 307, 308] {
        for (location, by_path) in [
            ("/x/proxy/", Some("/clusters/edge-a/x/proxy/")),
            ("/x?y=//z", Some("/clusters/edge-a/x?y=//z")),
            ("/", Some("/clusters/edge-a/")),
            ("/clusters/edge-b/version", Some("/clusters/edge-a/clusters/edge-b/version")),
            ("/x%2F..%2Fy/...?a=../..#/../..", Some("/clusters/edge-a/x%2F..%2Fy/...?a=../..#/../..")),
            // Relative references lead on from the request's own path, and never above the root.
            ("relative", Some("/clusters/edge-a/relative")),
            ("./a?next=x", Some("/clusters/edge-a/a?next=x")),
            ("/../edge-b/version", Some("/clusters/edge-a/edge-b/version")),
            ("/%2e%2e/edge-b/version", Some("/clusters/edge-a/edge-b/version")),
            ("../../../edge-b/version", Some("/clusters/edge-a/edge-b/version")),
            ("/x/..", Some("/clusters/edge-a/")),
            ("/x/.%2E/y", Some("/clusters/edge-a/y")),
            ("/x/../../edge-b?q#f", Some("/clusters/edge-a/edge-b?q#f")),
            ("?x", Some("?x")),
            ("#x", Some("#x")),
            ("", Some("")),
            ("/x/%3A%20é", None),
            ("https://169.254.169.254/latest", None),
            ("http://127.0.0.1:1/", None),
            ("//elsewhere.test/", None),
            ("/\\elsewhere.test/", None),
            ("\\\\elsewhere.test", None),
            ("file:///etc/passwd", None),
            ("javascript:alert(1)", None),
            ("///elsewhere.test", None),
            ("HTTPS://elsewhere.test", None),
            ("https:/elsewhere.test", None),
            ("https:elsewhere.test", None),
            // Browsers drop the tab, and then it is another host.
            ("/\t/elsewhere.test", None),
            ("/ /elsewhere.test", None),
            ("/x\\..\\y", None),
        ] {
            two.a.on("/redirect", Behaviour::redirect(status, location));

            let reply = two.ask_as(GATEWAY, "/clusters/edge-a/redirect").await;
            let by_name = two.ask_as("edge-a.clusters.test", "/redirect").await;

            let output = |reply: &Reply| {
                let line = reply.head.lines().find(|line| line.to_lowercase().starts_with("location:"));
                line.map(|line| line["location:".len()..].trim().to_owned())
            };
            assert_eq!(output(&reply).as_deref(), by_path, "{status} {location}: {reply:?}");
            let by_host =
                by_path.map(|location| location.strip_prefix("/clusters/edge-a").unwrap_or(location));
            assert_eq!(output(&by_name).as_deref(), by_host, "{status} {location}: {by_name:?}");
            for reply in [reply, by_name] {
                assert_eq!(reply.status, if by_path.is_some() { status } else { 502 }, "{location}");
            }
            assert_eq!(two.arrived().len(), 2, "nobody followed it");
        }
    }
    // Two of them are one too many, whichever a caller would follow.
    let twice =
        ["/x", "https://elsewhere.test/"].map(|location| ("Location".to_owned(), location.to_owned()));
    for headers in [twice.to_vec(), twice.into_iter().rev().collect()] {
        two.a.on("/redirect", Behaviour::Answer(Answer { status: 302, headers, body: "".into() }));
        let reply = two.ask_as(GATEWAY, "/clusters/edge-a/redirect").await;
        assert_eq!(reply.status, 502, "{reply:?}");
        assert!(!reply.head.contains("elsewhere"), "{reply:?}");
    }
}

/// A write that was done is answered as it was, wherever its `Location` is. A redirect to another host says that
/// the request was carried out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_location_of_an_answer_that_is_no_redirect_never_hides_it() {
    let two = TwoClusters::start().await;
    let itself = two.a.address();
    for status in [200, 201, 202, 409] {
        for (location, seen) in [
            (format!("https://{itself}/apis/x/y?z"), "/clusters/edge-a/apis/x/y?z"),
            ("/apis/x/y".to_owned(), "/clusters/edge-a/apis/x/y"),
            ("y".to_owned(), "/clusters/edge-a/apis/x/y"),
            ("https://elsewhere.test/x".to_owned(), "https://elsewhere.test/x"),
            (format!("https://{GATEWAY}/clusters/edge-a/x"), "/clusters/edge-a/x"),
        ] {
            two.a.on("/apis/x/create", Behaviour::redirect(status, &location));
            let reply = two.ask_as(GATEWAY, "/clusters/edge-a/apis/x/create").await;
            assert_eq!(reply.status, status, "{location}: {reply:?}");
            let line = format!("location: {seen}\r\n");
            assert!(reply.head.to_lowercase().contains(&line), "{location}: {reply:?}");
        }
    }
    for location in [format!("https://{itself}/x"), format!("https://{GATEWAY}/clusters/edge-a/x")] {
        two.a.on("/redirect", Behaviour::redirect(307, &location));
        let reply = two.ask_as(GATEWAY, "/clusters/edge-a/redirect").await;
        assert_eq!(reply.status, 307, "{location}: {reply:?}");
        assert!(reply.head.to_lowercase().contains("location: /clusters/edge-a/x\r\n"), "{reply:?}");
    }
    two.a.on("/redirect", Behaviour::redirect(307, "https://elsewhere.test/x"));
    let reply = two.ask_as(GATEWAY, "/clusters/edge-a/redirect").await;
    assert_eq!(reply.status, 502, "{reply:?}");
    for words in ["RedirectRefused", "has carried this request out", "another host, elsewhere.test"] {
        assert!(reply.body.contains(words), "{words}: {reply:?}");
    }
}

/// Two clusters behind one gateway.
struct TwoClusters {
    rig: Rig,
    a: FakeApi,
    b: FakeApi,
    _agents: [Agent; 2],
    seen: Mutex<[usize; 2]>,
}

impl TwoClusters {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With these rules beside the one for the token's group, if there are any.
    async fn start_with(rules: &[String]) -> Self {
        let rig = Rig::start().await;
        if !rules.is_empty() {
            let ours = allow_all("admins", ("token", &format!("token:{GROUP}")), &["*"]);
            rig.put_policy(&[&[ours], rules].concat()).await;
        }
        let (a, agent_a) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
        let (b, agent_b) = add_cluster(&rig, "edge-b", HttpVersion::Http2).await;
        a.otherwise(Behaviour::json("{}"));
        b.otherwise(Behaviour::json("{}"));
        Self { rig, a, b, _agents: [agent_a, agent_b], seen: Mutex::default() }
    }

    async fn ask_as(&self, host: &str, target: &str) -> Reply {
        self.try_as(host, target).await.unwrap_or_else(|error| panic!("{host} {target}: {error}"))
    }

    async fn try_as(&self, host: &str, target: &str) -> std::io::Result<Reply> {
        let bytes = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
        );
        let ca = self.rig.server_ca();
        let asked = ask_raw(self.rig.gateway(), &ca, None, bytes.as_bytes());
        tokio::time::timeout(SOON, asked).await.expect("an answer in time")
    }

    /// The requests that have arrived since the last call, with their clusters.
    fn arrived(&self) -> Vec<(&'static str, String)> {
        let mut seen = self.seen.lock().unwrap();
        let mut arrived = Vec::new();
        for (index, (name, fake)) in [("edge-a", &self.a), ("edge-b", &self.b)].into_iter().enumerate() {
            let requests = fake.requests();
            arrived.extend(requests[seen[index]..].iter().map(|request| (name, request.target.clone())));
            seen[index] = requests.len();
        }
        arrived
    }
}
