//! Tests of parsing requests, by tables and by arbitrary bytes.

use http::header::HeaderValue;

use super::*;

mod list_reads;
mod properties;
mod queries;
mod reduced;
mod request_info;
mod set_reads;
mod verbs;

const PATH_HOST: &str = "gateway.example:8443";
const CLUSTER_HOST: &str = "edge-a.clusters.example";

/// Faults as a table names them.
use ActionError::{
    DotSegment, EmptySegment, Encoding, ForeignHost, HiddenCharacter, Hosts, HostsDisagree, ListOnlyGet,
    NoHost, NotAClusterName, NotAClusterPath, NotAHost, NotAPath, RawByte, TooLong, UpgradeNotHere,
};

#[test]
fn the_path_after_the_clusters_name_is_kept_byte_for_byte() {
    for rest in [
        "/",
        "/api/v1/pods",
        "/api/v1/pods/",
        "/api/v1/namespaces/a/pods?limit=500&continue=x%2F..%2F%00",
        "/api/v1/namespaces/a/services/web/proxy/x?a=1;b&&c=%ff&+%zz",
        "/api/v1/namespaces/a%3Ab/pods/x%20y",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aadmin",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/%ef%bc%8e%ef%bc%8e",
        "/healthz;x=1",
        "/apis/a/v1/b/...",
        "/api/v1/namespaces/a/services/https:web:443/proxy/x%2Fy//z/../%2e%2e/%zz",
        "/api/v1/namespaces/a/pods/x/proxy//",
        "/api/v1/nodes/n/proxy/%00",
        "/version?a=%2F..%2F&b=%2F%2F",
    ] {
        let by_path = action(PATH_HOST, &format!("/clusters/edge-a{rest}"));
        assert_eq!(by_path.as_ref().map(|action| action.path().as_str()), Ok(rest));
        assert_eq!(by_path.as_ref().map(|action| action.cluster().as_str()), Ok("edge-a"));
        assert_eq!(action(CLUSTER_HOST, rest), by_path, "{rest}");
    }
}

/// If a cluster's API server is another gateway, such a path would go on to a cluster of that gateway.
#[test]
fn a_clusters_own_path_never_begins_with_clusters() {
    for own in [
        "/clusters",
        "/clusters/",
        "/clusters?x",
        "/clusters/b/api/v1/secrets",
        "/clustersets/global/api/v1/secrets",
        "/%63lustersets/global/api/v1/secrets",
        "/%63lusters/b",
        "/%63%6c%75%73%74%65%72%73/b/api/v1/secrets?watch=1",
    ] {
        let target = format!("/clusters/edge-a{own}");
        assert_eq!(action(PATH_HOST, &target).err(), Some(ActionError::NestedCluster), "{target}");
        assert_eq!(canonical_target(own), Err(ActionError::NestedCluster), "{own}");
    }
    for own in ["/clustersx", "/Clusters/b", "/x/clusters/b", "/api/v1/clusters", "/apis/x/v1/clusters/b"] {
        assert!(action(PATH_HOST, &format!("/clusters/edge-a{own}")).is_ok(), "{own}");
    }
}

#[test]
fn a_clusters_name_alone_is_its_root() {
    assert_eq!(action(PATH_HOST, "/clusters/edge-a").unwrap().path(), "/");
    assert_eq!(action(PATH_HOST, "/clusters/edge-a?a=b").unwrap().path(), "/?a=b");
    assert_eq!(action(PATH_HOST, "/clusters/edge-a?").unwrap().path(), "/");
}

#[test]
fn ambiguous_paths_are_refused_by_path_and_by_host() {
    let escapes: [(&str, ActionError); 24] = [
        (".", DotSegment),
        ("..", DotSegment),
        ("%2e", DotSegment),
        ("%2E.", DotSegment),
        (".%2e", DotSegment),
        ("%2e%2E", DotSegment),
        ("", EmptySegment),
        ("a%2fb", HiddenCharacter),
        ("a%2Fb", HiddenCharacter),
        ("..%2f", HiddenCharacter),
        ("%252e", HiddenCharacter),
        ("%25", HiddenCharacter),
        ("a%5cb", HiddenCharacter),
        ("a%00", HiddenCharacter),
        ("a%0d%0ab", HiddenCharacter),
        ("a%7f", HiddenCharacter),
        ("a%c2%85", HiddenCharacter),
        ("%c0%ae%c0%ae", Encoding),
        ("%ff", Encoding),
        ("%", Encoding),
        ("%2", Encoding),
        ("%zz", Encoding),
        ("a\\b", RawByte),
        ("a#b", RawByte),
    ];
    let places = [
        "/@/x",
        "/x/@/y",
        "/api/@/pods",
        "/api/v1/@/x",
        "/api/v1/namespaces/@/pods/x",
        "/apis/@/v1/b",
        "/api/v1/namespaces/@/pods/x/proxy/y",
        "/api/v1/namespaces/a/pods/@/proxy/y",
        "/api/v1/namespaces/a/services/@/proxy",
        "/api/v1/nodes/@/proxy/y",
        "/api/v1/namespaces/a/configmaps/x/@/y",
        // None of these is the proxy of a service, pod or node, so nothing in them is opaque.
        "/api/v1/namespaces/a/secrets/x/proxy/@/y",
        "/apis/v1/namespaces/a/pods/x/proxy/@/y",
        "/api/v2/nodes/n/proxy/@/y",
        "/api/v1/nodes/n/p%72oxy/@/y",
        "/api/v1/proxy/nodes/n/@/y",
        "/API/v1/nodes/n/proxy/@/y",
        "/api/v1/namespaces/a/pods/x/proxyx/@/y",
        "/%61pi/v1/nodes/n/proxy/@/y",
    ];
    let mut tried = 0;
    for place in places {
        for (escape, fault) in &escapes {
            for query in ["", "?watch=true", "?a=%2e%2e/"] {
                let path = format!("{}{query}", place.replace('@', escape));
                let expected = Err(fault.clone());
                assert_eq!(action(CLUSTER_HOST, &path), expected, "{path}");
                assert_eq!(action(PATH_HOST, &format!("/clusters/edge-a{path}")), expected, "{path}");
                tried += 2;
            }
        }
    }
    assert_eq!(tried, 24 * 19 * 3 * 2);
}

#[test]
fn bytes_that_have_no_place_in_a_request_line_are_refused_everywhere() {
    for byte in (0..=255_u8).filter(|byte| !byte.is_ascii_graphic() || [b'#', b'\\'].contains(byte)) {
        for place in [
            "/clusters/edge-a/api@",
            "/clusters/edge-a/api?@",
            "/clusters/e@",
            "/clusters/edge-a/api/v1/nodes/n/proxy/@",
        ] {
            let (before, after) = place.split_once('@').unwrap();
            let target = [before.as_bytes(), &[byte], after.as_bytes()].concat();
            assert_eq!(parse(None, Some(PATH_HOST), &Method::GET, &target, None), Err(RawByte), "{byte}");
        }
    }
}

#[test]
fn what_is_no_path_is_refused() {
    for target in
        ["", "*", "clusters/edge-a", "https://gateway.example/clusters/edge-a/", "gateway.example:443", "?a"]
    {
        assert_eq!(asked(PATH_HOST, target), Err(NotAPath), "{target}");
    }
    let longest = format!("/clusters/edge-a/{}", "x".repeat(TARGET_BYTES_MAX - "/clusters/edge-a/".len()));
    assert!(asked(PATH_HOST, &longest).is_ok());
    assert_eq!(asked(PATH_HOST, &format!("{longest}x")), Err(TooLong));
}

#[test]
fn only_a_label_names_a_cluster() {
    for name in [
        "",
        "Edge",
        "edge_a",
        "edge%2da",
        "-a",
        "a-",
        "a.b",
        "..",
        "%2e%2e",
        "a;b",
        "a:b",
        "a@b",
        &"x".repeat(64),
    ] {
        for rest in ["/", "/api", "?x", ""] {
            let path = format!("/clusters/{name}{rest}");
            assert_eq!(asked(PATH_HOST, &path), Err(NotAClusterName), "{path}");
        }
    }
    for label in ["a.b", "-a", "a_b", &"x".repeat(64)] {
        let host = format!("{label}.clusters.example");
        assert_eq!(asked(&host, "/api"), Err(NotAClusterName), "{host}");
    }
}

#[test]
fn other_paths_lead_nowhere() {
    for path in [
        "/",
        "/api",
        "/cluster/a/",
        "/clustersx",
        "/Clusters/a/",
        "/%63lusters/a/",
        "/x/clusters/a/",
        "//clusters/a/",
    ] {
        assert_eq!(asked(PATH_HOST, path), Err(NotAClusterPath), "{path}");
    }
}

#[test]
fn the_list_is_one_path_that_is_only_read() {
    assert_eq!(asked(PATH_HOST, "/clusters"), Ok(whole_list()));
    for method in [Method::POST, Method::DELETE, Method::HEAD, Method::OPTIONS] {
        assert_eq!(parse(None, Some(PATH_HOST), &method, b"/clusters", None), Err(ListOnlyGet));
    }
    let upgrade = Some(UpgradeProtocol::WebSocket);
    assert_eq!(parse(None, Some(PATH_HOST), &Method::GET, b"/clusters", upgrade), Err(UpgradeNotHere));
}

#[test]
fn a_clusters_host_name_and_a_clusters_path_together_are_misdirected() {
    for path in [
        "/clusters",
        "/clusters/",
        "/clusters/edge-a/api",
        "/clusters/edge-b/api",
        "/%63lusters/edge-b",
        "//clusters/x",
        "/clusters?x",
    ] {
        let twice = ActionError::TwiceNamed("edge-a".parse().unwrap());
        assert_eq!(asked(CLUSTER_HOST, path), Err(twice), "{path}");
    }
    assert!(asked(CLUSTER_HOST, "/clustersx").is_ok());
}

#[test]
fn hosts_are_compared_as_dns_does() {
    for host in [
        "EDGE-A.Clusters.Example",
        "edge-a.clusters.example.",
        "edge-a.clusters.example:1",
        "edge-a.clusters.example.:65535",
    ] {
        assert_eq!(
            action(host, "/api").map(|action| action.cluster().to_string()),
            Ok("edge-a".to_owned()),
            "{host}"
        );
    }
    for host in ["gateway.example", "GATEWAY.example.", "127.0.0.1:80", "[::1]:80", "[::1]"] {
        assert_eq!(asked(host, "/clusters"), Ok(whole_list()), "{host}");
    }
    for host in
        ["other.example", "clusters.example", "evilclusters.example", "edge-a.clusters.example.evil", "[::2]"]
    {
        assert_eq!(asked(host, "/clusters"), Err(ForeignHost), "{host}");
    }
    for host in [
        "",
        ".",
        "..",
        ":80",
        "a@gateway.example",
        "gateway.example@b",
        "gateway.example:",
        "gateway.example:0",
        "gateway.example:65536",
        "gateway.example:+80",
        "gateway.example:80:80",
        "::1",
        "[::1",
        "::1]",
        "[::1]80",
        "[gateway.example]",
        "gateway..example",
        ".clusters.example",
        "gateway.example/x",
        "gateway.example?",
        "a b",
        "gateway.example..",
        "gat%65way.example",
        "[::1%25lo]",
    ] {
        assert_eq!(asked(host, "/clusters"), Err(NotAHost), "{host:?}");
    }
    assert_eq!(parse(None, None, &Method::GET, b"/clusters", None), Err(NoHost));
}

#[test]
fn without_hosts_every_name_that_is_not_below_the_suffix_serves_paths() {
    let names = GatewayNames::new(Some("clusters.example"), &[]);
    let head = |host| head(None, Some(host), &Method::GET, b"/clusters", None);
    for host in ["anything", "10.0.0.1", "clusters.example", "evilclusters.example"] {
        assert_eq!(Action::parse(&names, &head(host)), Ok(whole_list()), "{host}");
    }
    assert!(Action::parse(&names, &head("x.clusters.example")).is_err());
}

#[test]
fn two_hosts_must_be_one() {
    let asked = |authority, host| parse(Some(authority), Some(host), &Method::GET, b"/clusters", None);
    assert_eq!(asked("gateway.example", "GATEWAY.example"), Ok(whole_list()));
    assert_eq!(asked("gateway.example", "edge-a.clusters.example"), Err(HostsDisagree));
    assert_eq!(asked("gateway.example:1", "gateway.example:2"), Err(HostsDisagree));
    assert_eq!(parse(Some("gateway.example"), None, &Method::GET, b"/clusters", None), Ok(whole_list()));
}

#[test]
fn methods_that_no_api_server_knows_are_refused() {
    for method in ["CONNECT", "TRACE", "get", "PROPFIND"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let fault = ActionError::Method(method.clone());
        assert_eq!(parse(None, Some(PATH_HOST), &method, b"/clusters/edge-a/api", None), Err(fault));
    }
}

#[test]
fn a_received_head_has_one_host_and_http1_no_authority() {
    let mut headers = HeaderMap::new();
    let path: Uri = "/clusters".parse().unwrap();
    let whole: Uri = "https://gateway.example/clusters".parse().unwrap();
    headers.append(header::HOST, HeaderValue::from_static("gateway.example"));
    assert_eq!(received(Version::HTTP_11, &path, &headers), Ok((false, true)));
    assert_eq!(received(Version::HTTP_11, &whole, &headers), Err(NotAPath));
    assert_eq!(received(Version::HTTP_2, &whole, &headers), Ok((true, true)));
    let authority: Uri = "gateway.example:443".parse().unwrap();
    assert_eq!(received(Version::HTTP_11, &authority, &headers), Err(NotAPath));
    assert_eq!(received(Version::HTTP_2, &authority, &headers), Err(NotAPath));
    headers.append(header::HOST, HeaderValue::from_static("gateway.example"));
    assert_eq!(received(Version::HTTP_11, &path, &headers), Err(Hosts));
}

#[test]
fn a_connection_to_a_clusters_host_name_is_for_that_cluster_alone() {
    let asked = |server_name, host, target: &'static str| {
        let head = Head { server_name, ..head(None, Some(host), &Method::GET, target.as_bytes(), None) };
        Action::parse(&names(), &head).map(drop)
    };
    for name in ["edge-a.clusters.example", "EDGE-A.Clusters.Example."] {
        let edge_a = "edge-a".parse().unwrap();
        assert_eq!(names().cluster_of_connection(Some(name)), Ok(Some(edge_a)), "{name}");
        assert_eq!(asked(Some(name), CLUSTER_HOST, "/api"), Ok(()), "{name}");
        assert_eq!(asked(Some(name), PATH_HOST, "/clusters/edge-a/api"), Ok(()), "{name}");
        for (host, target) in [
            ("edge-b.clusters.example", "/api"),
            (PATH_HOST, "/clusters/edge-b/api"),
            (PATH_HOST, "/clusters"),
        ] {
            assert_eq!(
                asked(Some(name), host, target),
                Err(ActionError::OtherConnection),
                "{name} {host}{target}"
            );
        }
    }
    for name in [None, Some("gateway.example"), Some("127.0.0.1"), Some("clusters.example")] {
        assert_eq!(names().cluster_of_connection(name), Ok(None), "{name:?}");
        assert_eq!(asked(name, CLUSTER_HOST, "/api"), Ok(()), "{name:?}");
        assert_eq!(asked(name, PATH_HOST, "/clusters"), Ok(()), "{name:?}");
    }
    assert_eq!(GatewayNames::default().cluster_of_connection(Some("edge-a.clusters.example")), Ok(None));
}

#[test]
fn a_connection_to_an_invalid_name_below_the_suffix_serves_none() {
    for name in ["a.edge-a.clusters.example", "edge_a.clusters.example", ".clusters.example"] {
        let fault = names().cluster_of_connection(Some(name));
        assert_eq!(fault, Err(ActionError::OtherConnection), "{name}");
        let head =
            Head { server_name: Some(name), ..head(None, Some(CLUSTER_HOST), &Method::GET, b"/api", None) };
        assert_eq!(Action::parse(&names(), &head).map(drop), Err(ActionError::OtherConnection), "{name}");
    }
}

#[test]
fn an_action_is_displayed_as_kubernetes_names_it() {
    for (target, expected) in [
        ("/api/v1/pods", "pods"),
        ("/api/v1/namespaces/shop/pods/x/log", "pods/log in the namespace shop"),
        ("/apis/apps/v1/namespaces/shop/deployments", "deployments.apps in the namespace shop"),
        ("/apis/apps/v1/deployments/d/scale", "deployments.apps/scale"),
        ("/healthz/etcd", "/healthz/etcd"),
    ] {
        let displayed = action(CLUSTER_HOST, target).map(|action| action.object().to_string());
        assert_eq!(displayed.as_deref(), Ok(expected), "{target}");
    }
}

fn received(version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(bool, bool), ActionError> {
    let head = Head::from_request(None, version, &Method::GET, uri, headers, None)?;
    Ok((head.authority.is_some(), head.host.is_some()))
}

fn names() -> GatewayNames {
    let hosts = ["gateway.example", "127.0.0.1", "::1"].map(str::to_owned);
    GatewayNames::new(Some("Clusters.example"), &hosts)
}

fn head<'a>(
    authority: Option<&'a str>,
    host: Option<&'a str>,
    method: &'a Method,
    target: &'a [u8],
    upgrade: Option<UpgradeProtocol>,
) -> Head<'a> {
    Head { method, authority, host: host.map(str::as_bytes), server_name: None, target, upgrade }
}

fn parse(
    authority: Option<&str>,
    host: Option<&str>,
    method: &Method,
    target: &[u8],
    upgrade: Option<UpgradeProtocol>,
) -> Result<ParsedRequest, ActionError> {
    Action::parse(&names(), &head(authority, host, method, target, upgrade))
}

/// The list of clusters, without parameters.
fn whole_list() -> ParsedRequest {
    ParsedRequest::ClusterList(ListRead::default())
}

fn asked(host: &str, target: &str) -> Result<ParsedRequest, ActionError> {
    parse(None, Some(host), &Method::GET, target.as_bytes(), None)
}

fn action(host: &str, target: &str) -> Result<Action, ActionError> {
    asked(host, target).map(|asked| match asked {
        ParsedRequest::Cluster(action) => action,
        ParsedRequest::ClusterSet(_) | ParsedRequest::ClusterList(_) => panic!("{target} asks for the list"),
    })
}
